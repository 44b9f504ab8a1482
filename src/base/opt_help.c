/* --help: the options in groups, wrapped to 80 columns. */
#include "base/opt_rows.h"

#include <string.h>

#define WIDTH 79
#define COLUMN 28 /* start of the descriptions */
#define TEXT_MAX 4096

/* Append text wrapped at WIDTH; its first line starts at column `at`. */
static int wrap(struct dd_buf *out, const char *text, size_t at, size_t indent)
{
    size_t column = at;
    int rc = 0;
    while (rc == 0 && *(text += strspn(text, " \n")) != '\0') {
        size_t n = strcspn(text, " \n");
        if (column > indent && column + 1 + n > WIDTH) {
            rc = dd_buf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        }
        if (rc == 0 && column > at && column > indent) {
            rc = dd_buf_puts(out, " ");
            column++;
        }
        if (rc == 0)
            rc = dd_buf_append(out, text, n);
        column += n;
        text += n;
    }
    return rc == 0 ? dd_buf_puts(out, "\n") : rc;
}

/* Append "  -r, --redirects=MAP". */
static int left(const struct opt_row *row, struct dd_buf *out)
{
    int rc = row->letter != 0 ? dd_buf_printf(out, "  -%c, --%s", row->letter, row->name)
                              : dd_buf_printf(out, "      --%s", row->name);
    if (rc < 0 || row->kind == OPT_FLAG)
        return rc;
    return row->implied != NULL ? dd_buf_printf(out, "[=%s]", row->metavar)
                                : dd_buf_printf(out, "=%s", row->metavar);
}

static bool is_search(const char *about)
{
    return *about != '\0' && strcmp(about, "all") != 0;
}

static int row_text(const struct opt_row *row, const char *about, struct dd_buf *text)
{
    DD_AUTO(buf) struct dd_buf notes = DD_BUF_INIT(TEXT_MAX);
    int rc = dd_buf_puts(text, row->help);
    if (rc == 0 && *about == '\0' && row->common)
        rc = row->def_doc != NULL ? dd_buf_printf(&notes, "default: %s", row->def_doc) : 0;
    else if (rc == 0)
        rc = opt_row_notes(row, &notes);
    if (rc == 0 && notes.len > 0)
        rc = dd_buf_printf(text, " (%s)", dd_buf_str(&notes));
    if (rc == 0 && is_search(about) && row->more != NULL)
        rc = dd_buf_printf(text, ". %s", row->more);
    return rc;
}

bool opt_has_common(const struct opt_table *t)
{
    for (size_t i = 0; i < t->n_rows; i++)
        if (t->rows[i].common)
            return true;
    return false;
}

/* Return the option that `about` names: "tee" shows this option, not all that mention --tee. A word
 * that is also the name of a group is a search unless it has dashes. */
static const struct opt_row *row_named(const struct opt_table *t, const char *about)
{
    const struct opt_row *row;
    const struct opt_row *named = NULL;
    const char *name = about + strspn(about, "-");
    for (size_t i = 0; (row = opt_row_at(t, i)) != NULL; i++) {
        if (name == about && strcasecmp(opt_row_group(row), name) == 0)
            return NULL;
        if (!row->hidden && strcmp(row->name, name) == 0)
            named = row;
    }
    return named;
}

bool opt_row_is_about(const struct opt_table *t, const struct opt_row *row, const char *about)
{
    const struct opt_row *named = row_named(t, about);
    about += strspn(about, "-");
    if (row->hidden || (t->n_rows == 0 && strcmp(row->name, "show-config") == 0))
        return false;
    if (*about == '\0')
        return row->common || !opt_has_common(t);
    if (named != NULL || !is_search(about))
        return named == row || named == NULL;
    return strcasestr(row->name, about) != NULL || strcasestr(opt_row_group(row), about) != NULL ||
           strcasestr(row->help, about) != NULL;
}

static int help_row(const struct opt_row *row, const char *about, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TEXT_MAX);
    const size_t start = out->len;
    int rc = left(row, out);
    size_t width = out->len - start;
    if (rc == 0)
        rc = width + 2 > COLUMN ? dd_buf_printf(out, "\n%*s", COLUMN, "")
                                : dd_buf_printf(out, "%*s", (int)(COLUMN - width), "");
    if (rc == 0)
        rc = row_text(row, about, &text);
    return rc == 0 ? wrap(out, dd_buf_str(&text), COLUMN, COLUMN) : rc;
}

static int help_group(const struct opt_table *t, const char *group, const char *about,
                      struct dd_buf *out)
{
    const struct opt_row *row;
    bool any = false;
    int rc = 0;
    for (size_t i = 0; rc == 0 && (row = opt_row_at(t, i)) != NULL; i++) {
        if (!opt_row_is_about(t, row, about) || strcmp(opt_row_group(row), group) != 0)
            continue;
        if (!any)
            rc = dd_buf_printf(out, "\n%s:\n", group);
        any = true;
        if (rc == 0)
            rc = help_row(row, about, out);
    }
    return rc;
}

static int help_commands(const struct opt_table *t, struct dd_buf *out)
{
    int rc = t->n_commands > 0 ? dd_buf_puts(out, "\nCommands:\n") : 0;
    for (size_t i = 0; rc == 0 && i < t->n_commands; i++) {
        rc = dd_buf_printf(out, "  %-*s", COLUMN - 2, t->commands[i].name);
        if (rc == 0)
            rc = wrap(out, t->commands[i].help, COLUMN, COLUMN);
    }
    return rc;
}

static int help_head(const struct opt_table *t, struct dd_buf *out)
{
    int rc = dd_buf_printf(out, "Usage: %s %s\n\n", t->program, t->usage);
    if (rc == 0)
        rc = wrap(out, t->about, 0, 0);
    return rc == 0 ? help_commands(t, out) : rc;
}

int opt_help(const struct opt_table *t, const char *about, struct dd_buf *out)
{
    const bool head = !is_search(about);
    int rc = head ? help_head(t, out) : 0;
    for (size_t i = 0; rc == 0 && opt_row_at(t, i) != NULL; i++)
        if (opt_row_opens_group(t, i))
            rc = help_group(t, opt_row_group(opt_row_at(t, i)), about, out);
    if (rc == 0 && head && t->epilog != NULL)
        rc = dd_buf_printf(out, "\n%s", t->epilog);
    if (rc == 0 && *about == '\0' && opt_has_common(t))
        rc = dd_buf_printf(
            out, "\nThese are the common options; see also '%s --help=all' and 'man %s'.\n",
            t->program, t->program);
    return rc;
}

static int answer_config(const struct opt_table *t, const struct opt_result *res,
                         struct dd_buf *out)
{
    const size_t n = res->config.n;
    int rc = 0;
    if (res->json)
        rc = dd_buf_printf(out, "{\"version\": 1, \"program\": \"%s\", \"options\": [\n",
                           t->program);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = dd_buf_printf(out, "%s%s\n", res->config.v[i], res->json && i + 1 < n ? "," : "");
    return rc == 0 && res->json ? dd_buf_puts(out, "]}\n") : rc;
}

int opt_answer(const struct opt_table *t, const struct opt_result *res, struct dd_buf *out)
{
    switch (res->ask) {
    case OPT_ASK_NOTHING:
        return 0;
    case OPT_ASK_HELP:
        return opt_help(t, res->about, out);
    case OPT_ASK_VERSION:
        return dd_buf_printf(out, "%s %s\n", t->program, t->version);
    case OPT_ASK_CONFIG:
        return answer_config(t, res, out);
    case OPT_ASK_DUMP:
        return opt_dump(t, res->format, out);
    }
    return 0;
}
