#include "base/opt_rows.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const struct opt_row builtin[] = {
    {.name = "help", .common = true, .letter = 'h', .kind = OPT_STRING, .metavar = "all|WORD", .implied = "", .no_env = true, .group = "Help",
     .help = "show the common options, all, or those that match WORD"},
    {.name = "version", .common = true, .kind = OPT_FLAG, .no_env = true, .group = "Help",
     .help = "print the version"},
    {.name = "show-config", .kind = OPT_STRING, .metavar = "FORM", .implied = "text", .choices = "text,json", .no_env = true, .group = "Help",
     .help = "print all option values with their sources and exit",
     .more = "Prints one line per option: name, value and source (default, FILE:LINE, environment " "and the variable, or command line), separated by tabs; with --show-config=json one JSON object (docs/json.md)."},
    {.name = "dump-options", .kind = OPT_STRING, .metavar = "FORMAT", .no_env = true,
     .choices = "man,bash,zsh,fish,json", .group = "Help", .hidden = true,
     .help = "print the option table for a manual, shell or program"},
};
/* clang-format on */

#define N_BUILTIN (sizeof(builtin) / sizeof(builtin[0]))

const struct opt_row *opt_row_at(const struct opt_table *t, size_t i)
{
    if (i < t->n_rows)
        return &t->rows[i];
    return i - t->n_rows < N_BUILTIN ? &builtin[i - t->n_rows] : NULL;
}

bool opt_row_is_builtin(const struct opt_row *row)
{
    for (size_t i = 0; i < N_BUILTIN; i++)
        if (row == &builtin[i])
            return true;
    return false;
}

bool opt_name_begins(const char *name, const char *word, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (name[i] == '\0' || name[i] != (word[i] == '_' ? '-' : word[i]))
            return false;
    return true;
}

const char *opt_next_piece(const char **at, size_t *ret_len)
{
    if (*at == NULL)
        return NULL;
    const char *piece = *at;
    const char *end = strchrnul(piece, ',');
    *ret_len = (size_t)(end - piece);
    *at = *end == ',' ? end + 1 : NULL;
    return piece;
}

bool opt_list_has(const char *list, const char *word)
{
    const char *piece;
    size_t len;
    while ((piece = opt_next_piece(&list, &len)) != NULL)
        if (strlen(word) == len && memcmp(piece, word, len) == 0)
            return true;
    return false;
}

/* Copy the bytes without snprintf(), for speed: each start of ddrun makes the names of all options.
 */
static bool put_env_name(char out[64], const char *prefix, size_t len, const char *name)
{
    const size_t n = strlen(name);
    if (len + n >= 64)
        return false;
    memcpy(out, prefix, len);
    for (size_t i = 0; i < n; i++)
        out[len + i] = (char)(name[i] == '-' ? '_' : toupper((unsigned char)name[i]));
    out[len + n] = '\0';
    return true;
}

bool opt_env_name(const struct opt_table *t, const struct opt_row *row, size_t i, char out[64])
{
    const char *piece;
    size_t len;
    for (const char *at = row->env; (piece = opt_next_piece(&at, &len)) != NULL; i--)
        if (i == 0)
            return snprintf(out, 64, "%.*s", (int)len, piece) < 64;
    const char *at = row->no_env ? NULL : t->env_prefixes;
    for (; (piece = opt_next_piece(&at, &len)) != NULL; i--) {
        if (i > 0)
            continue;
        return put_env_name(out, piece, len, row->name);
    }
    return false;
}

const char *opt_row_example(const struct opt_row *row)
{
    static const char *const of_kind[] = {
        [OPT_FLAG] = "yes",  [OPT_STRING] = "text",   [OPT_INT] = "3",     [OPT_DURATION] = "30s",
        [OPT_BYTES] = "64M", [OPT_REPEATED] = "text", [OPT_CUSTOM] = NULL,
    };
    if (row->example != NULL)
        return row->example;
    return row->def != NULL && *row->def != '\0' && row->kind != OPT_FLAG ? row->def
                                                                          : of_kind[row->kind];
}

const char *opt_row_group(const struct opt_row *row)
{
    return row->group != NULL ? row->group : "Options";
}

bool opt_row_opens_group(const struct opt_table *t, size_t i)
{
    const struct opt_row *row = opt_row_at(t, i);
    const struct opt_row *before;
    if (row == NULL || row->hidden)
        return false;
    for (size_t k = 0; k < i && (before = opt_row_at(t, k)) != NULL; k++)
        if (!before->hidden && strcmp(opt_row_group(before), opt_row_group(row)) == 0)
            return false;
    return true;
}

static int add_list(struct dd_buf *out, const char *before, const char *list)
{
    const char *piece;
    size_t len;
    int rc = 0;
    for (const char *at = list; rc == 0 && (piece = opt_next_piece(&at, &len)) != NULL;)
        rc = dd_buf_printf(out, "%s%.*s", piece == list ? before : ", ", (int)len, piece);
    return rc;
}

int opt_row_notes(const struct opt_row *row, struct dd_buf *out)
{
    const size_t start = out->len;
    const char *def = row->def_doc;
    if (def == NULL && row->kind != OPT_FLAG && row->def != NULL && *row->def != '\0')
        def = row->def;
    int rc = add_list(out, "one of ", row->choices);
    if (rc == 0 && def != NULL)
        rc = dd_buf_printf(out, "%sdefault: %s", out->len > start ? "; " : "", def);
    if (rc == 0 && row->env != NULL)
        rc = add_list(out, out->len > start ? "; variable: " : "variable: ", row->env);
    return rc;
}
