/* Dumps of the option table: the body of the manual page's OPTIONS section (man(7)), and JSON. */
#include "base/auto.h"
#include "base/opt_rows.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LINE 76 /* maximum length of the roff source lines */

/* Append a word of running text: options bold, the row's metavar italic. */
static int man_word(struct dd_buf *out, const struct opt_row *row, const char *word, size_t len)
{
    size_t name = strspn(word, "-");
    bool is_option = name > 0 && name <= 2 && name < len && isalpha((unsigned char)word[name]);
    size_t core = len - (len > 1 && strchr(".,;:)", word[len - 1]) != NULL);
    bool is_metavar = row->metavar != NULL && strlen(row->metavar) == core &&
                      memcmp(word, row->metavar, core) == 0;
    int rc = 0;
    if (is_option)
        rc = dd_buf_puts(out, "\\fB");
    else if (is_metavar)
        rc = dd_buf_puts(out, "\\fI");
    else if (*word == '.' || *word == '\'')
        rc = dd_buf_puts(out, "\\&");
    for (size_t i = 0; rc == 0 && i < len; i++) {
        if (i == core && (is_option || is_metavar))
            rc = dd_buf_puts(out, "\\fP");
        if (rc == 0)
            rc = word[i] == '\\'               ? dd_buf_puts(out, "\\e")
                 : word[i] == '-' && is_option ? dd_buf_puts(out, "\\-")
                                               : dd_buf_append(out, &word[i], 1);
    }
    if (rc == 0 && core == len && (is_option || is_metavar))
        rc = dd_buf_puts(out, "\\fP");
    return rc;
}

/* Append running text; an empty line starts a paragraph, a full stop ends the source line. */
static int man_text(struct dd_buf *out, const struct opt_row *row, const char *text)
{
    DD_AUTO(buf) struct dd_buf word = DD_BUF_INIT(
        4096); /* including its markup, which counts for the length */
    size_t column = 0;
    char last = '\0';
    int rc = 0;
    while (rc == 0 && *text != '\0') {
        size_t gap = strspn(text, " \n");
        bool paragraph = gap >= 2 && memcmp(text, "\n\n", 2) == 0;
        text += gap;
        size_t n = strcspn(text, " \n");
        if (n == 0)
            break;
        dd_buf_clear(&word);
        rc = man_word(&word, row, text, n);
        if (rc == 0 && paragraph)
            rc = dd_buf_puts(out, column > 0 ? "\n.IP\n" : ".IP\n");
        else if (rc == 0 && column > 0)
            rc = dd_buf_puts(out, column + 1 + word.len > LINE || last == '.' ? "\n" : " ");
        if (rc < 0)
            return rc;
        column = out->data[out->len - 1] == '\n' ? 0 : column + 1;
        rc = dd_buf_append(out, word.data, word.len);
        column += word.len;
        last = text[n - 1];
        text += n;
    }
    return rc == 0 && column > 0 ? dd_buf_puts(out, "\n") : rc;
}

static int man_name(struct dd_buf *out, const char *dashes, const char *name)
{
    int rc = dd_buf_printf(out, "\\fB%s", dashes);
    for (; rc == 0 && *name != '\0'; name++)
        rc = *name == '-' ? dd_buf_puts(out, "\\-") : dd_buf_append(out, name, 1);
    return rc == 0 ? dd_buf_puts(out, "\\fP") : rc;
}

static int man_tag(struct dd_buf *out, const struct opt_row *row)
{
    const char letter[2] = {row->letter, '\0'};
    int rc = dd_buf_puts(out, ".TP\n");
    if (rc == 0 && row->letter != 0)
        rc = man_name(out, "\\-", letter);
    if (rc == 0 && row->letter != 0 && row->metavar != NULL && row->implied == NULL)
        rc = dd_buf_printf(out, " \\fI%s\\fP", row->metavar);
    if (rc == 0 && row->letter != 0)
        rc = dd_buf_puts(out, ", ");
    if (rc == 0)
        rc = man_name(out, "\\-\\-", row->name);
    if (rc == 0 && row->metavar != NULL)
        rc = dd_buf_printf(out, row->implied != NULL ? "[=\\fI%s\\fP]" : "=\\fI%s\\fP",
                           row->metavar);
    return rc == 0 ? dd_buf_puts(out, "\n") : rc;
}

static int man_row(struct dd_buf *out, const struct opt_row *row)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(65536);
    int rc = dd_buf_printf(&text, "%c%s.", toupper((unsigned char)row->help[0]), row->help + 1);
    const size_t before = text.len + 1;
    if (rc == 0)
        rc = dd_buf_puts(&text, " ");
    if (rc == 0)
        rc = opt_row_notes(row, &text);
    if (rc == 0 && text.len > before) {
        text.data[before] = (unsigned char)toupper(text.data[before]);
        rc = dd_buf_puts(&text, ".");
    }
    if (rc == 0 && row->since != NULL)
        rc = dd_buf_printf(&text, " Since version %s.", row->since);
    if (rc == 0 && row->more != NULL)
        rc = dd_buf_printf(&text, "\n\n%s", row->more);
    if (rc == 0)
        rc = man_tag(out, row);
    return rc == 0 ? man_text(out, row, dd_buf_str(&text)) : rc;
}

/* Append a command's options, without those that every table has. */
static int man_command(const struct opt_command *c, struct dd_buf *out)
{
    int rc = dd_buf_printf(out, ".SS %s\n", c->table->program);
    for (size_t i = 0; rc == 0 && i < c->table->n_rows; i++)
        if (!c->table->rows[i].hidden)
            rc = man_row(out, &c->table->rows[i]);
    return rc;
}

static int dump_man(const struct opt_table *t, struct dd_buf *out)
{
    const struct opt_row *row;
    const struct opt_row *head;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < t->n_commands; i++)
        rc = man_command(&t->commands[i], out);
    for (size_t g = 0; rc == 0 && (head = opt_row_at(t, g)) != NULL; g++) {
        if (!opt_row_opens_group(t, g))
            continue;
        rc = dd_buf_printf(out, ".SS %s\n", opt_row_group(head));
        for (size_t i = g; rc == 0 && (row = opt_row_at(t, i)) != NULL; i++)
            if (!row->hidden && strcmp(opt_row_group(row), opt_row_group(head)) == 0)
                rc = man_row(out, row);
    }
    return rc;
}

static int json_string(struct dd_buf *out, const char *s, size_t len)
{
    int rc = dd_buf_puts(out, "\"");
    for (size_t i = 0; rc == 0 && i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\')
            rc = dd_buf_printf(out, "\\%c", c);
        else if (c < 0x20)
            rc = dd_buf_printf(out, "\\u%04x", c);
        else
            rc = dd_buf_append(out, &c, 1);
    }
    return rc == 0 ? dd_buf_puts(out, "\"") : rc;
}

int opt_json_text(struct dd_buf *out, const char *text)
{
    DD_AUTO(free) char *clean = text != NULL ? strdup(text) : NULL;
    if (text == NULL)
        return dd_buf_puts(out, "null");
    return clean == NULL ? -ENOMEM : json_string(out, dd_utf8_clean(clean), strlen(clean));
}

static int json_member(struct dd_buf *out, const char *name, const char *value)
{
    int rc = dd_buf_printf(out, ", \"%s\": ", name);
    if (rc < 0)
        return rc;
    return value == NULL ? dd_buf_puts(out, "null") : json_string(out, value, strlen(value));
}

static int json_list(struct dd_buf *out, const char *name, const char *list)
{
    const char *piece;
    size_t len;
    int rc = dd_buf_printf(out, ", \"%s\": [", name);
    for (const char *at = list; rc == 0 && (piece = opt_next_piece(&at, &len)) != NULL;) {
        if (piece != list)
            rc = dd_buf_puts(out, ", ");
        if (rc == 0)
            rc = json_string(out, piece, len);
    }
    return rc == 0 ? dd_buf_puts(out, "]") : rc;
}

static int json_variables(struct dd_buf *out, const struct opt_table *t, const struct opt_row *row)
{
    char name[64];
    int rc = dd_buf_puts(out, ", \"variables\": [");
    for (size_t i = 0; rc == 0 && opt_env_name(t, row, i, name); i++)
        rc = dd_buf_printf(out, "%s\"%s\"", i > 0 ? ", " : "", name);
    return rc == 0 ? dd_buf_puts(out, "]") : rc;
}

static int json_row(struct dd_buf *out, const struct opt_table *t, const struct opt_row *row)
{
    static const char *const kinds[] = {
        [OPT_FLAG] = "flag",         [OPT_STRING] = "string", [OPT_INT] = "int",
        [OPT_DURATION] = "duration", [OPT_BYTES] = "bytes",   [OPT_REPEATED] = "repeated",
        [OPT_CUSTOM] = "custom",
    };
    const char letter[2] = {row->letter, '\0'};
    const struct {
        const char *name;
        const char *value;
    } members[] = {
        {"kind", kinds[row->kind]}, {"letter", row->letter != 0 ? letter : NULL},
        {"metavar", row->metavar},  {"default", row->def},
        {"implied", row->implied},  {"group", opt_row_group(row)},
        {"since", row->since},      {"help", row->help},
    };
    int rc = dd_buf_printf(out, "{\"name\": \"%s\"", row->name);
    for (size_t i = 0; rc == 0 && i < sizeof(members) / sizeof(members[0]); i++)
        rc = json_member(out, members[i].name, members[i].value);
    if (rc == 0)
        rc = json_list(out, "aliases", row->aliases);
    if (rc == 0)
        rc = json_list(out, "choices", row->choices);
    if (rc == 0)
        rc = json_variables(out, t, row);
    return rc == 0 ? dd_buf_printf(out, ", \"hidden\": %s}", row->hidden ? "true" : "false") : rc;
}

static int json_table(const struct opt_table *t, struct dd_buf *out)
{
    const struct opt_row *row;
    int rc = dd_buf_printf(out, "{\"program\": \"%s\", \"version\": \"%s\", \"options\": [",
                           t->program, t->version);
    for (size_t i = 0; rc == 0 && (row = opt_row_at(t, i)) != NULL; i++) {
        rc = dd_buf_puts(out, i > 0 ? ",\n " : "\n ");
        if (rc == 0)
            rc = json_row(out, t, row);
    }
    return rc == 0 ? dd_buf_puts(out, "\n]") : rc;
}

static int dump_json(const struct opt_table *t, struct dd_buf *out)
{
    int rc = json_table(t, out);
    for (size_t i = 0; rc == 0 && i < t->n_commands; i++) {
        rc = dd_buf_puts(out, i == 0 ? ", \"commands\": [\n" : "},\n");
        if (rc == 0)
            rc = json_table(t->commands[i].table, out);
    }
    return rc == 0 ? dd_buf_puts(out, t->n_commands > 0 ? "}]}\n" : "}\n") : rc;
}

int opt_dump(const struct opt_table *t, enum opt_format format, struct dd_buf *out)
{
    static int (*const writers[])(const struct opt_table *, struct dd_buf *) = {
        [OPT_FORMAT_MAN] = dump_man,       [OPT_FORMAT_JSON] = dump_json,
        [OPT_FORMAT_BASH] = opt_dump_bash, [OPT_FORMAT_ZSH] = opt_dump_zsh,
        [OPT_FORMAT_FISH] = opt_dump_fish,
    };
    return (size_t)format < sizeof(writers) / sizeof(writers[0]) ? writers[format](t, out)
                                                                 : -EINVAL;
}
