/* Validation of option tables, for the unit test of each program's table. */
#include "base/opt_rows.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LEN 40

static bool opt_check_is_name(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!islower((unsigned char)s[i]) && !isdigit((unsigned char)s[i]) &&
            !(s[i] == '-' && i > 0 && i + 1 < len))
            return false;
    return len >= 2 && len <= NAME_MAX_LEN;
}

static bool opt_check_is_text(const char *s)
{
    for (; *s != '\0'; s++)
        if (!isprint((unsigned char)*s))
            return false;
    return true;
}

static bool has_name(const struct opt_row *row, const char *name, size_t len)
{
    const char *piece;
    size_t piece_len;
    if (strlen(row->name) == len && memcmp(row->name, name, len) == 0)
        return true;
    for (const char *at = row->aliases; (piece = opt_next_piece(&at, &piece_len)) != NULL;)
        if (piece_len == len && memcmp(piece, name, len) == 0)
            return true;
    return false;
}

static int check_names(const struct opt_table *t, size_t i, struct dd_err *err)
{
    const struct opt_row *row = &t->rows[i];
    const struct opt_row *other;
    const char *piece;
    size_t len;
    if (!opt_check_is_name(row->name, strlen(row->name)))
        return dd_err_set(err, -EINVAL,
                          "invalid name: expected 2 to %d of a-z, 0-9 and, inside, '-'",
                          NAME_MAX_LEN);
    for (const char *at = row->aliases; (piece = opt_next_piece(&at, &len)) != NULL;)
        if (!opt_check_is_name(piece, len))
            return dd_err_set(err, -EINVAL, "invalid alias '%.*s'", (int)len, piece);
    for (size_t k = 0; (other = opt_row_at(t, k)) != NULL; k++) {
        if (k == i)
            continue;
        if (row->letter != 0 && other->letter == row->letter)
            return dd_err_set(err, -EINVAL, "same letter as --%s", other->name);
        if (has_name(other, row->name, strlen(row->name)))
            return dd_err_set(err, -EINVAL, "duplicate name");
        for (const char *at = row->aliases; (piece = opt_next_piece(&at, &len)) != NULL;)
            if (has_name(other, piece, len))
                return dd_err_set(err, -EINVAL, "alias '%.*s' is also a name of --%s", (int)len,
                                  piece, other->name);
    }
    return 0;
}

static int check_texts(const struct opt_row *row, struct dd_err *err)
{
    if (row->letter != 0 && !isalpha((unsigned char)row->letter))
        return dd_err_set(err, -EINVAL, "short form is not a letter");
    if (row->help == NULL || *row->help == '\0' || !opt_check_is_text(row->help))
        return dd_err_set(err, -EINVAL, "the help line is missing or not printable ASCII");
    if (row->help[strlen(row->help) - 1] == '.')
        return dd_err_set(err, -EINVAL, "help line ends with a full stop");
    if ((row->kind == OPT_FLAG) != (row->metavar == NULL))
        return dd_err_set(err, -EINVAL, "a flag must have no metavar, other options must have one");
    if (row->kind == OPT_CUSTOM && row->parse == NULL)
        return dd_err_set(err, -EINVAL, "missing parse function of a custom option");
    return 0;
}

/* Check that the values in the row itself can be parsed. */
static int check_values(const struct opt_row *row, struct dd_err *err)
{
    const char *const texts[] = {row->def, row->implied, row->example};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(texts) / sizeof(texts[0]); i++) {
        DD_AUTO(free) char *values = calloc(1, row->offset + 65536);
        if (values == NULL)
            return -ENOMEM;
        if (texts[i] == NULL)
            continue;
        rc = opt_set(row, values, row->name, texts[i], err);
        if (row->kind == OPT_REPEATED)
            dd_strv_done((void *)(values + row->offset));
    }
    return rc;
}

/* Check that the options in a list, such as a row's `needs`, exist. */
static int opt_check_list(const struct opt_table *t, const char *list, struct dd_err *err)
{
    const struct opt_row *row;
    const char *piece;
    size_t len;
    while ((piece = opt_next_piece(&list, &len)) != NULL) {
        size_t i = 0;
        while ((row = opt_row_at(t, i)) != NULL &&
               (strlen(row->name) != len || memcmp(row->name, piece, len) != 0))
            i++;
        if (row == NULL)
            return dd_err_set(err, -EINVAL, "the table has no option '%.*s'", (int)len, piece);
    }
    return 0;
}

static int check_foreign(const struct opt_table *t, const struct opt_foreign *f, struct dd_err *err)
{
    const struct opt_row *row;
    const char *name = f->word + strspn(f->word, "-");
    const size_t dashes = (size_t)(name - f->word);
    const size_t len = f->is != NULL ? strcspn(f->is, "=") : 0;
    bool found = len == 0;
    for (size_t i = 0; (row = opt_row_at(t, i)) != NULL; i++) {
        if ((dashes == 2 && has_name(row, name, strlen(name))) ||
            (dashes == 1 && name[1] == '\0' && name[0] == row->letter))
            return dd_err_set(err, -EINVAL, "%s: this is also a name of --%s", f->word, row->name);
        if (dashes == 2 && opt_list_has(t->first, row->name) &&
            opt_name_begins(row->name, name, strlen(name)))
            return dd_err_set(err, -EINVAL, "%s: abbreviates --%s", f->word, row->name);
        found |= has_name(row, f->is != NULL ? f->is : "", len);
    }
    if (dashes < 1 || dashes > 2 || !found || (f->is == NULL) != (f->say != NULL))
        return dd_err_set(
            err, -EINVAL,
            "%s: expected one or two dashes, an option of the table in 'is', or no 'is' but 'say'",
            f->word);
    return 0;
}

int opt_table_check(const struct opt_table *t, struct dd_err *err)
{
    for (const struct opt_foreign *f = t->foreign; f != NULL && f->word != NULL; f++)
        if (check_foreign(t, f, err) < 0)
            return -EINVAL;
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct opt_row *row = &t->rows[i];
        int rc = check_names(t, i, err);
        if (rc == 0)
            rc = check_texts(row, err);
        if (rc == 0)
            rc = check_values(row, err);
        if (rc == 0)
            rc = opt_check_list(t, row->needs, err);
        if (rc < 0)
            return dd_err_where(err, rc, "row %zu (--%s)", i, row->name);
    }
    return opt_check_list(t, t->first, err);
}
