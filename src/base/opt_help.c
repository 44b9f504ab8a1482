/* --help: the options in groups, wrapped to 80 columns. */
#include "base/opt_rows.h"

#include <string.h>

#define WIDTH 79
#define COLUMN 28 /* where the descriptions begin */
#define TEXT_MAX 4096

/* Appends text, whose first line starts at column `at`, so that no line passes WIDTH. */
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

/* "  -r, --redirects=MAP" */
static int left(const struct opt_row *row, struct dd_buf *out)
{
    int rc = row->letter != 0 ? dd_buf_printf(out, "  -%c, --%s", row->letter, row->name)
                              : dd_buf_printf(out, "      --%s", row->name);
    if (rc < 0 || row->kind == OPT_FLAG)
        return rc;
    return row->implied != NULL ? dd_buf_printf(out, "[=%s]", row->metavar)
                                : dd_buf_printf(out, "=%s", row->metavar);
}

static int row_text(const struct opt_row *row, struct dd_buf *text)
{
    DD_AUTO(buf) struct dd_buf notes = DD_BUF_INIT(TEXT_MAX);
    int rc = dd_buf_puts(text, row->help);
    if (rc == 0)
        rc = opt_row_notes(row, &notes);
    if (rc == 0 && notes.len > 0)
        rc = dd_buf_printf(text, " (%s)", dd_buf_str(&notes));
    return rc;
}

static int help_row(const struct opt_row *row, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TEXT_MAX);
    const size_t start = out->len;
    int rc = left(row, out);
    size_t width = out->len - start;
    if (rc == 0)
        rc = width + 2 > COLUMN ? dd_buf_printf(out, "\n%*s", COLUMN, "")
                                : dd_buf_printf(out, "%*s", (int)(COLUMN - width), "");
    if (rc == 0)
        rc = row_text(row, &text);
    return rc == 0 ? wrap(out, dd_buf_str(&text), COLUMN, COLUMN) : rc;
}

static int help_group(const struct opt_table *t, const char *group, struct dd_buf *out)
{
    const struct opt_row *row;
    int rc = dd_buf_printf(out, "\n%s:\n", group);
    for (size_t i = 0; rc == 0 && (row = opt_row_at(t, i)) != NULL; i++)
        if (!row->hidden && strcmp(opt_row_group(row), group) == 0)
            rc = help_row(row, out);
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

int opt_help(const struct opt_table *t, struct dd_buf *out)
{
    int rc = dd_buf_printf(out, "Usage: %s %s\n\n", t->program, t->usage);
    if (rc == 0)
        rc = wrap(out, t->about, 0, 0);
    if (rc == 0)
        rc = help_commands(t, out);
    for (size_t i = 0; rc == 0 && opt_row_at(t, i) != NULL; i++)
        if (opt_row_opens_group(t, i))
            rc = help_group(t, opt_row_group(opt_row_at(t, i)), out);
    if (rc == 0 && t->epilog != NULL)
        rc = dd_buf_printf(out, "\n%s", t->epilog);
    return rc;
}

int opt_answer(const struct opt_table *t, const struct opt_result *res, struct dd_buf *out)
{
    int rc = 0;
    switch (res->ask) {
    case OPT_ASK_NOTHING:
        return 0;
    case OPT_ASK_HELP:
        return opt_help(t, out);
    case OPT_ASK_VERSION:
        return dd_buf_printf(out, "%s %s\n", t->program, t->version);
    case OPT_ASK_CONFIG:
        for (size_t i = 0; rc == 0 && i < res->config.n; i++)
            rc = dd_buf_printf(out, "%s\n", res->config.v[i]);
        return rc;
    case OPT_ASK_DUMP:
        return opt_dump(t, res->format, out);
    }
    return 0;
}
