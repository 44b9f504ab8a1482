#include "base/opt.h"

#include "base/log.h"
#include "base/opt_rows.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    const struct opt_table *t;
    void *values;
    int argc;
    char *const *argv;
    int at; /* index of the next word */
    struct opt_result *res;
    struct dd_err *err;
};

/* A word of the command line, sanitized for a message. */
struct shown {
    char text[100];
};

static struct shown opt_show(const char *word, size_t len)
{
    struct shown s;
    (void)dd_log_escape(s.text, sizeof(s.text), word, len);
    return s;
}

static bool name_is(const char *name, const char *word, size_t len)
{
    return strlen(name) == len && opt_name_begins(name, word, len);
}

/* Return 2 if the word is a name of the row, 1 if it is a prefix of one, 0 otherwise. */
static int row_fits(const struct opt_row *row, const char *word, size_t len)
{
    const char *piece;
    size_t piece_len;
    int best = 0;
    if (opt_name_begins(row->name, word, len))
        best = 1 + name_is(row->name, word, len);
    for (const char *at = row->aliases; (piece = opt_next_piece(&at, &piece_len)) != NULL;)
        if (len <= piece_len && opt_name_begins(piece, word, len)) {
            int fits = 1 + (piece_len == len);
            best = fits > best ? fits : best;
        }
    return row->hidden && best == 1 ? 0 : best;
}

static int refuse_ambiguous(const struct parser *p, const char *word, size_t len)
{
    char list[300] = "";
    size_t n = 0;
    const struct opt_row *row;
    for (size_t i = 0; (row = opt_row_at(p->t, i)) != NULL && n < sizeof(list); i++)
        if (row_fits(row, word, len) > 0)
            n += (size_t)snprintf(list + n, sizeof(list) - n, "%s--%s", n == 0 ? "" : ", ",
                                  row->name);
    return dd_err_set(p->err, -EINVAL, "--%s is ambiguous: could be %s", opt_show(word, len).text,
                      list);
}

const struct opt_row *opt_nearest_row(const struct opt_table *t, const char *word, size_t len)
{
    const struct opt_row *row;
    const struct opt_row *nearest = NULL;
    size_t least = len / 3 + 1;
    for (size_t i = 0; len < 64 && (row = opt_row_at(t, i)) != NULL; i++) {
        if (row->hidden || len < 2)
            continue;
        size_t d = row_fits(row, word, len) > 0 ? 0 : opt_distance(word, len, row->name);
        if (d < least) {
            least = d;
            nearest = row;
        }
    }
    return nearest;
}

static int refuse_unknown(const struct parser *p, const char *dashes, const char *word, size_t len)
{
    const struct opt_row *nearest = opt_nearest_row(p->t, word, len);
    const struct shown s = opt_show(word, len);
    if (nearest != NULL)
        return dd_err_tip(p->err,
                          dd_err_set(p->err, -EINVAL, "unknown option '%s%s'", dashes, s.text),
                          "did you mean '--%s'?", nearest->name);
    return dd_err_tip(p->err, dd_err_set(p->err, -EINVAL, "unknown option '%s%s'", dashes, s.text),
                      "'%s --help%s' lists all options", p->t->program,
                      opt_has_common(p->t) ? "=all" : "");
}

static int find_long(const struct parser *p, const char *word, size_t len,
                     const struct opt_row **ret)
{
    const struct opt_row *row;
    const struct opt_row *first = NULL;
    size_t n = 0;
    size_t nfirst = 0;
    for (size_t i = 0; (row = opt_row_at(p->t, i)) != NULL; i++) {
        int fits = len > 0 ? row_fits(row, word, len) : 0;
        if (fits == 0)
            continue;
        *ret = row;
        if (fits == 2)
            return 0;
        n++;
        if (opt_list_has(p->t->first, row->name)) {
            first = row;
            nfirst++;
        }
    }
    if (n > 1 && nfirst == 1) {
        *ret = first;
        return 0;
    }
    if (n > 1)
        return refuse_ambiguous(p, word, len);
    return n == 1 ? 0 : refuse_unknown(p, "--", word, len);
}

/* Match "np" and "np=4" with rows that allow a single dash. */
static bool is_one_dash(const struct opt_table *t, const char *word)
{
    const size_t len = strcspn(word, "=");
    const struct opt_row *row;
    for (size_t i = 0; (row = opt_row_at(t, i)) != NULL; i++)
        if (row->one_dash && row_fits(row, word, len) == 2)
            return true;
    return false;
}

static const struct opt_row *find_letter(const struct opt_table *t, char letter)
{
    const struct opt_row *row;
    for (size_t i = 0; (row = opt_row_at(t, i)) != NULL; i++)
        if (row->letter == letter)
            return row;
    return NULL;
}

static bool is_number(const char *word)
{
    size_t digits = strspn(word + 1, "0123456789");
    size_t more = word[1 + digits] == '.' ? strspn(word + 2 + digits, "0123456789") : 0;
    return digits + more > 0 && word[1 + digits + (more > 0 ? more + 1 : 0)] == '\0';
}

/* True if the word can be the value of the preceding option (argparse's rule). */
static bool is_value(const char *word)
{
    return word != NULL && (word[0] != '-' || word[1] == '\0' || is_number(word) ||
                            (strchr(word, ' ') != NULL && strcmp(word, "--") != 0));
}

static int no_value(const struct parser *p, const struct opt_row *row,
                    const struct opt_place *place)
{
    const char *glue = place->style == OPT_STYLE_LETTER ? " " : "=";
    const char *next = p->at < p->argc ? p->argv[p->at] : NULL;
    const char *right = opt_row_example(row);
    if (next != NULL && next[0] == '-' && strcmp(next, "--") != 0)
        return dd_err_set(p->err, -EINVAL,
                          "missing value for %s (found '%s')"
                          "\n  tip: if the value starts with '-', use --%s=%s",
                          place->name, opt_show(next, strlen(next)).text, row->name,
                          opt_show(next, strlen(next)).text);
    if (right == NULL)
        return dd_err_set(p->err, -EINVAL, "missing value for %s", place->name);
    return dd_err_set(p->err, -EINVAL,
                      "missing value for %s"
                      "\n  tip: for example %s%s%s",
                      place->name, place->name, glue, right);
}

static int ask_help(struct parser *p, const char *about)
{
    const struct opt_row *row;
    char near[64];
    p->res->ask = OPT_ASK_HELP;
    p->res->about = about != NULL ? about : "";
    for (size_t i = 0; (row = opt_row_at(p->t, i)) != NULL; i++)
        if (opt_row_is_about(p->t, row, p->res->about))
            return 0;
    const int rc = dd_err_set(p->err, -EINVAL, "no option or topic '%s'",
                              opt_show(about, strlen(about)).text);
    for (size_t i = 0; i < p->t->n_commands; i++)
        if (strcmp(p->t->commands[i].name, about) == 0)
            return dd_err_tip(p->err, rc, "'%s %s --help' shows the options of this command",
                              p->t->program, about);
    if (opt_nearest_topic(p->t, about, near))
        return dd_err_tip(p->err, rc, "did you mean '%s --help=%s'?", p->t->program, near);
    return dd_err_tip(p->err, rc, "'%s --help=all' lists all options", p->t->program);
}

static int refuse_config(struct parser *p)
{
    const int rc = dd_err_set(p->err, -EINVAL, "%s has no options whose values could be shown",
                              p->t->program);
    return p->t->n_commands == 0
               ? rc
               : dd_err_tip(p->err, rc,
                            "'%s COMMAND --show-config' shows the values of a command's options",
                            p->t->program);
}

static int opt_apply_ask(struct parser *p, const struct opt_row *row, const char *value)
{
    static const char *const formats[] = {
        [OPT_FORMAT_MAN] = "man",   [OPT_FORMAT_BASH] = "bash", [OPT_FORMAT_ZSH] = "zsh",
        [OPT_FORMAT_FISH] = "fish", [OPT_FORMAT_JSON] = "json",
    };
    if (strcmp(row->name, "help") == 0)
        return ask_help(p, value);
    if (strcmp(row->name, "version") == 0)
        p->res->ask = OPT_ASK_VERSION;
    if (strcmp(row->name, "show-config") == 0 && p->t->n_rows == 0)
        return refuse_config(p);
    if (strcmp(row->name, "show-config") == 0) {
        p->res->ask = OPT_ASK_CONFIG;
        p->res->json = value != NULL && strcmp(value, "json") == 0;
        return 0;
    }
    for (size_t i = 0; row->kind != OPT_FLAG && i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(value, formats[i]) == 0) {
            p->res->ask = OPT_ASK_DUMP;
            p->res->format = (enum opt_format)i;
        }
    return 0;
}

/* Apply a builtin row, which has no field in the values: check its value and record it in res. */
static int apply_builtin(struct parser *p, const struct opt_row *row, const struct opt_place *place,
                         const char *value)
{
    const char *text = NULL;
    bool flag = true;
    void *field = row->kind == OPT_FLAG ? (void *)&flag : (void *)&text;
    int rc = value == NULL ? 0 : opt_set_at(row, field, place, value, p->err);
    return rc == 0 && flag ? opt_apply_ask(p, row, value) : rc;
}

/* Set the row's field and source. value: NULL for a flag without a value. */
static int opt_apply(struct parser *p, const struct opt_row *row, const struct opt_place *place,
                     const char *value)
{
    if (opt_row_is_builtin(row))
        return apply_builtin(p, row, place, value);
    struct opt_source *src = &p->res->sources[row - p->t->rows];
    const char *text = value != NULL ? value : row->kind == OPT_FLAG ? "yes" : row->implied;
    int rc = opt_set_at(row, p->values, place, text, p->err);
    if (rc < 0)
        return rc;
    src->from = place->style == OPT_STYLE_ENV ? OPT_FROM_ENV : OPT_FROM_COMMAND_LINE;
    src->times += src->from == OPT_FROM_COMMAND_LINE;
    src->value = text;
    (void)snprintf(src->name, sizeof(src->name), "%s", place->name);
    return 0;
}

static int take_value_and_apply(struct parser *p, const struct opt_row *row,
                                const struct opt_place *place, const char *value)
{
    if (value == NULL && row->kind != OPT_FLAG && row->implied == NULL) {
        if (p->at >= p->argc || !is_value(p->argv[p->at]))
            return no_value(p, row, place);
        value = p->argv[p->at++];
    }
    return opt_apply(p, row, place, value);
}

/* Find a foreign option as written, "-ppn=4" or "--map_by". */
static const struct opt_foreign *find_foreign(const struct opt_table *t, const char *word)
{
    const size_t dashes = strspn(word, "-");
    const size_t len = strcspn(word, "=");
    for (const struct opt_foreign *f = t->foreign; f != NULL && f->word != NULL; f++)
        if (strspn(f->word, "-") == dashes &&
            name_is(f->word + dashes, word + dashes, len - dashes))
            return f;
    return NULL;
}

static const struct opt_row *row_of(const struct opt_table *t, const char *name, size_t len)
{
    const struct opt_row *row;
    for (size_t i = 0; (row = opt_row_at(t, i)) != NULL; i++)
        if (row_fits(row, name, len) == 2)
            return row;
    return NULL;
}

/* Refuse an option of another launcher; the word as typed replaces OPTION in f->say. */
static int refuse_foreign(const struct parser *p, const struct opt_foreign *f)
{
    static const char option[] = "OPTION";
    const char *typed = p->argv[p->at - 1];
    const char *at = strstr(f->say, option);
    if (at == NULL)
        return dd_err_set(p->err, -EINVAL, "%s is %s", f->word, f->say);
    const bool value_may_follow = strchr(typed, '=') == NULL && strlen(typed) == strlen(f->word);
    return dd_err_set(p->err, -EINVAL, "%s is %.*s%s%s%s", f->word, (int)(at - f->say), f->say,
                      opt_show(typed, strlen(typed)).text, value_may_follow ? " ..." : "",
                      at + sizeof(option) - 1);
}

/* Apply an option of another launcher. value: the text after '=' in the same word; NULL: none. */
static int read_foreign(struct parser *p, const struct opt_foreign *f, const char *value)
{
    if (f->is == NULL)
        return refuse_foreign(p, f);
    const size_t len = strcspn(f->is, "=");
    const struct opt_row *row = row_of(p->t, f->is, len);
    const struct opt_place place = {.style = OPT_STYLE_OTHER, .name = f->word};
    if (row == NULL) /* ignored */
        return 0;
    return take_value_and_apply(p, row, &place, f->is[len] == '=' ? f->is + len + 1 : value);
}

/* Read a long option. word: with its dashes, a single one only for one_dash ("-np"). */
static int read_long(struct parser *p, const char *word)
{
    const bool single = word[1] != '-';
    word += single ? 1 : 2;
    const char *eq = strchrnul(word, '=');
    const struct opt_row *row = NULL;
    char name[64];
    int rc = find_long(p, word, (size_t)(eq - word), &row);
    if (rc < 0)
        return rc;
    if (single)
        (void)snprintf(name, sizeof(name), "-%.*s", (int)(eq - word), word);
    else
        (void)snprintf(name, sizeof(name), "--%s", row->name);
    const struct opt_place place = {.style = single ? OPT_STYLE_LETTER : OPT_STYLE_LONG,
                                    .name = name};
    return take_value_and_apply(p, row, &place, *eq == '=' ? eq + 1 : NULL);
}

/* Read "-r3", "-r=3", "-r 3" and "-mr3". */
static int read_letters(struct parser *p, const char *word)
{
    for (int rc = 0; *word != '\0'; word++) {
        const struct opt_row *row = find_letter(p->t, *word);
        const char dashed[3] = {'-', *word, '\0'};
        const struct opt_foreign *f = row == NULL ? find_foreign(p->t, dashed) : NULL;
        if (f != NULL && f->is != NULL && (*f->is == '\0' || strchr(f->is, '=') != NULL) &&
            word[1] != '=') { /* "-uv" */
            if ((rc = read_foreign(p, f, NULL)) < 0)
                return rc;
            continue;
        }
        if (f != NULL) /* "-N4" */
            return read_foreign(p, f, word[1] != '\0' ? word + 1 + (word[1] == '=') : NULL);
        if (row == NULL)
            return refuse_unknown(p, "-", word, strcspn(word, "="));
        const char name[3] = {'-', *word, '\0'};
        const struct opt_place place = {.style = OPT_STYLE_LETTER, .name = name};
        bool takes = row->kind != OPT_FLAG && word[1] != '\0';
        if (takes || word[1] == '=')
            return opt_apply(p, row, &place, word + 1 + (word[1] == '='));
        rc = take_value_and_apply(p, row, &place, NULL);
        if (rc < 0 || p->res->ask == OPT_ASK_HELP)
            return rc;
    }
    return 0;
}

static int read_command_line(struct parser *p)
{
    bool dashes = false;
    int rc = 0;
    while (rc == 0 && p->at < p->argc && p->res->ask != OPT_ASK_HELP &&
           p->res->ask != OPT_ASK_VERSION) {
        const char *word = p->argv[p->at];
        if (word[0] != '-' || word[1] == '\0')
            break;
        p->at++;
        dashes = strcmp(word, "--") == 0;
        if (dashes)
            break;
        const struct opt_foreign *f = find_foreign(p->t, word);
        const char *eq = strchr(word, '=');
        if (f != NULL)
            rc = read_foreign(p, f, eq != NULL ? eq + 1 : NULL);
        else if (word[1] == '-')
            rc = read_long(p, word);
        else
            rc = is_one_dash(p->t, word + 1) ? read_long(p, word) : read_letters(p, word + 1);
    }
    p->res->script = p->at;
    p->res->args = p->at < p->argc ? p->at + 1 : p->at;
    if (!dashes && p->res->args < p->argc && strcmp(p->argv[p->res->args], "--") == 0)
        p->res->args++;
    return rc;
}

/* True if the word is an option whose value is the next word. */
static bool value_is_next(const struct opt_table *t, const char *word, const char *next)
{
    const struct parser quiet = {.t = t};
    const struct opt_row *row = NULL;
    if (word[1] != '-')
        row = word[2] == '\0' ? find_letter(t, word[1]) : NULL;
    else if (strchr(word, '=') == NULL && find_foreign(t, word) == NULL)
        (void)find_long(&quiet, word + 2, strlen(word + 2), &row);
    return row != NULL && row->kind != OPT_FLAG && row->implied == NULL && is_value(next);
}

/* Move the n words at `from` to `to`, which precedes them. */
static void move_words(char **argv, int to, int from, int n)
{
    for (int i = 0; i < n; i++) {
        char *word = argv[from + i];
        memmove(&argv[to + i + 1], &argv[to + i], (size_t)(from - to) * sizeof(*argv));
        argv[to + i] = word;
    }
}

void opt_options_first(const struct opt_table *t, int argc, char **argv)
{
    int first = 1; /* index of the first operand */
    int n = 0;
    bool dashes = false;
    for (int i = 1; t->mixed && i < argc && !dashes; i += n) {
        const char *word = argv[i];
        dashes = strcmp(word, "--") == 0;
        n = 1;
        if (word[0] != '-' || word[1] == '\0')
            continue;
        if (!dashes && i + 1 < argc && value_is_next(t, word, argv[i + 1]))
            n = 2;
        move_words(argv, first, i, n);
        first += n;
    }
}

static int opt_read_environment(struct parser *p, char *const *env)
{
    char name[64];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->t->n_rows; i++) {
        const struct opt_row *row = &p->t->rows[i];
        const char *text = NULL;
        const struct opt_place place = {.style = OPT_STYLE_ENV, .name = name};
        if (p->res->sources[i].from != OPT_FROM_DEFAULT)
            continue;
        for (size_t k = 0; text == NULL && opt_env_name(p->t, row, k, name); k++)
            text = dd_env_get_nonempty(env, name);
        if (text != NULL)
            rc = opt_apply(p, row, &place, text);
    }
    return rc;
}

const struct opt_row *opt_row_named(const struct opt_table *t, const char *name)
{
    const struct opt_row *row = row_of(t, name, strlen(name));
    return row != NULL && !opt_row_is_builtin(row) && !row->hidden ? row : NULL;
}

/* Put the entries of files with `ahead` before those of all other sources. */
static int opt_read_ahead(struct parser *p, const struct opt_input *in)
{
    int rc = 0;
    for (size_t i = in->n_settings; rc == 0 && i-- > 0;) {
        const struct opt_setting *s = &in->settings[i];
        DD_AUTO(strv) struct dd_strv after = {0};
        struct dd_strv *field = (void *)((char *)p->values + s->row->offset);
        if (!s->ahead)
            continue;
        after = *field;
        *field = (struct dd_strv){0};
        if (dd_strv_push(field, s->value) < 0 || (after.n > 0 && dd_strv_copy(field, after.v) < 0))
            rc = -ENOMEM;
    }
    return rc < 0 ? dd_err_set(p->err, rc, "out of memory") : 0;
}

/* Apply the settings of files, after the command line and the environment: rows that these two have
 * set keep their values. */
static int opt_read_settings(struct parser *p, const struct opt_input *in)
{
    char name[600];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < in->n_settings; i++) {
        const struct opt_setting *s = &in->settings[i];
        struct opt_source *src = &p->res->sources[s->row - p->t->rows];
        const struct opt_place place = {.style = OPT_STYLE_OTHER, .name = name};
        if (s->ahead || src->from > OPT_FROM_FILE)
            continue;
        (void)snprintf(name, sizeof(name), "%s: %s", s->place, s->row->name);
        rc = opt_set_at(s->row, p->values, &place, s->value, p->err);
        src->from = OPT_FROM_FILE;
        src->place = s->place;
        src->value = s->value;
    }
    return rc;
}

static int set_defaults(struct parser *p)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->t->n_rows; i++) {
        const struct opt_row *row = &p->t->rows[i];
        struct opt_source *src = &p->res->sources[i];
        const struct opt_place place = {.style = OPT_STYLE_OTHER, .name = row->name};
        if (src->from != OPT_FROM_DEFAULT || row->def == NULL)
            continue;
        src->value = row->def;
        rc = opt_set_at(row, p->values, &place, row->def, p->err);
    }
    return rc;
}

static int note_json(struct opt_result *res, const struct opt_row *row,
                     const struct opt_source *src, const char *value)
{
    static const char *const from[] = {
        [OPT_FROM_DEFAULT] = "default",
        [OPT_FROM_FILE] = "file",
        [OPT_FROM_ENV] = "environment",
        [OPT_FROM_COMMAND_LINE] = "command line",
    };
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(4 << 20);
    int rc = dd_buf_printf(&b, "{\"name\": \"%s\", \"value\": ", row->name);
    if (rc == 0)
        rc = opt_json_text(&b, value);
    if (rc == 0)
        rc = dd_buf_printf(&b, ", \"source\": \"%s\", \"place\": ", from[src->from]);
    if (rc == 0)
        rc = opt_json_text(&b, src->from == OPT_FROM_ENV    ? src->name
                               : src->from == OPT_FROM_FILE ? src->place
                                                            : NULL);
    if (rc == 0)
        rc = dd_buf_puts(&b, "}");
    const char *text = rc == 0 ? dd_buf_str(&b) : NULL;
    return text == NULL ? -ENOMEM : dd_strv_push(&res->config, text);
}

static int note_text(struct opt_result *res, const struct opt_row *row,
                     const struct opt_source *src, const char *value)
{
    /* a default with def_doc is computed later, and has no value yet */
    const char *doc = src->from == OPT_FROM_DEFAULT ? row->def_doc : NULL;
    if (res->json)
        return note_json(res, row, src, doc != NULL ? NULL : value);
    static const char *const from[] = {
        [OPT_FROM_DEFAULT] = "default",
        [OPT_FROM_FILE] = "",
        [OPT_FROM_ENV] = "environment ",
        [OPT_FROM_COMMAND_LINE] = "command line",
    };
    char shown[1024] = "";
    if (doc != NULL)
        (void)snprintf(shown, sizeof(shown), "(%s)", doc);
    else if (value != NULL)
        (void)dd_log_escape(shown, sizeof(shown), value, strlen(value));
    return dd_strv_pushf(&res->config, "%s\t%s\t%s%s", row->name, shown, from[src->from],
                         src->from == OPT_FROM_ENV    ? src->name
                         : src->from == OPT_FROM_FILE ? src->place
                                                      : "");
}

/* Users paste what --show-config prints into tickets. */
static int note_row(struct opt_result *res, const struct opt_row *row, const struct opt_source *src,
                    const char *value)
{
    const char *at = row->hide == OPT_HIDE_USER && value != NULL ? strrchr(value, '@') : NULL;
    if (row->hide == OPT_HIDE_VALUE && value != NULL)
        return note_text(res, row, src, "***");
    if (at == NULL)
        return note_text(res, row, src, value);
    const char *scheme = strstr(value, "://");
    const int kept = scheme != NULL && scheme < at ? (int)(scheme + 3 - value) : 0;
    DD_AUTO(free) char *shown = NULL;
    return asprintf(&shown, "%.*s***%s", kept, value, at) < 0 ? -ENOMEM
                                                              : note_text(res, row, src, shown);
}

/* Record the entries of files with `ahead`. Return the number of entries. */
static int note_ahead(struct parser *p, const struct opt_input *in, const struct opt_row *row)
{
    int n = 0;
    for (size_t i = 0; i < in->n_settings; i++) {
        const struct opt_setting *s = &in->settings[i];
        const struct opt_source src = {.from = OPT_FROM_FILE, .place = s->place};
        if (!s->ahead || s->row != row)
            continue;
        if (note_row(p->res, row, &src, s->value) < 0)
            return -ENOMEM;
        n++;
    }
    return n;
}

static int note_config(struct parser *p, const struct opt_input *in)
{
    struct opt_result *out = p->res;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->t->n_rows; i++) {
        const struct opt_row *row = &p->t->rows[i];
        const struct opt_source *src = &p->res->sources[i];
        const char *field = (const char *)p->values + row->offset;
        const struct dd_strv *many = (const void *)field;
        if (row->hidden && src->from == OPT_FROM_DEFAULT)
            continue;
        if (row->kind == OPT_FLAG)
            rc = note_row(out, row, src, *(const bool *)field ? "yes" : "no");
        else if (row->kind != OPT_REPEATED || many->n == 0)
            rc = note_row(out, row, src, src->value);
        else {
            const int ahead = note_ahead(p, in, row);
            rc = ahead < 0 ? ahead : 0;
            for (size_t k = (size_t)ahead; rc == 0 && k < many->n; k++)
                rc = note_row(out, row, src, many->v[k]);
        }
    }
    return rc;
}

int opt_parse(const struct opt_table *t, void *values, const struct opt_input *in,
              struct opt_result *ret, struct dd_err *err)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    struct parser p = {
        .t = t, .values = values, .argc = in->argc, .argv = in->argv, .res = &res, .err = err};
    p.at = in->argc < 1 ? in->argc : 1;
    res.sources = calloc(t->n_rows + 1, sizeof(*res.sources));
    if (res.sources == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = read_command_line(&p);
    if (rc == 0 && (res.ask == OPT_ASK_NOTHING || res.ask == OPT_ASK_CONFIG)) {
        rc = opt_read_environment(&p, in->env);
        if (rc == 0)
            rc = opt_read_settings(&p, in);
        if (rc == 0)
            rc = set_defaults(&p);
        if (rc == 0)
            rc = opt_read_ahead(&p, in);
        if (rc == 0 && res.ask == OPT_ASK_CONFIG && note_config(&p, in) < 0)
            rc = dd_err_set(err, -ENOMEM, "out of memory");
    }
    if (rc < 0)
        return rc;
    *ret = res;
    res = (struct opt_result){0};
    return 0;
}

const struct opt_source *opt_result_source(const struct opt_result *res, const struct opt_table *t,
                                           const char *name)
{
    for (size_t i = 0; i < t->n_rows; i++)
        if (strcmp(t->rows[i].name, name) == 0)
            return &res->sources[i];
    return NULL;
}

bool opt_is_given(const struct opt_result *res, const struct opt_table *t, const char *name)
{
    const struct opt_source *src = opt_result_source(res, t, name);
    return src != NULL && src->from != OPT_FROM_DEFAULT;
}

bool opt_is_idle(const struct opt_result *res, const struct opt_table *t, const struct opt_row *row)
{
    const struct opt_source *src = &res->sources[row - t->rows];
    if (row->needs == NULL || src->from != OPT_FROM_COMMAND_LINE)
        return false;
    for (size_t i = 0; i < t->n_rows; i++)
        if (opt_list_has(row->needs, t->rows[i].name) && opt_is_given(res, t, t->rows[i].name))
            return false;
    return true;
}

void opt_result_done(struct opt_result *res)
{
    free(res->sources);
    dd_strv_done(&res->config);
    *res = (struct opt_result){0};
}

void opt_values_done(const struct opt_table *t, void *values)
{
    for (size_t i = 0; i < t->n_rows; i++)
        if (t->rows[i].kind == OPT_REPEATED)
            dd_strv_done((void *)((char *)values + t->rows[i].offset));
}
