/* Suggestions for misspelt names. */
#include "base/opt_rows.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

static char letter(char c)
{
    return c == '_' ? '-' : c;
}

/* Return the number of edits from a to b: insert, delete or replace a letter, or swap two adjacent
 * ones. Names are short. */
size_t opt_distance(const char *a, size_t len, const char *b)
{
    size_t rows[3][64]; /* rows i, i - 1 and i - 2 of the matrix */
    size_t n = strlen(b);
    if (n >= sizeof(rows[0]) / sizeof(rows[0][0]))
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= len; i++) {
        size_t *row = rows[i % 3];
        const size_t *up = rows[(i - 1) % 3];
        char c = letter(a[i - 1]);
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            row[j] = least_of(up[j - 1] + (c != b[j - 1]), least_of(up[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && c == b[j - 2] && letter(a[i - 2]) == b[j - 1])
                row[j] = least_of(row[j], rows[(i - 2) % 3][j - 2] + 1);
        }
    }
    return rows[len % 3][n];
}

/* If the distance of `name` from `word` is below *least, update *least and write `shown` to out. */
static void consider(const char *word, const char *name, const char *shown, size_t *least,
                     char out[64])
{
    size_t d = opt_distance(word, strlen(word), name);
    if (d < *least) {
        *least = d;
        (void)snprintf(out, 64, "%s", shown);
    }
}

/* Convert "DDRUN_LOG_DIR=x" to "log-dir"; false if the prefix differs or the name is too long. */
static bool option_name(const char *entry, const char *prefix, size_t len, char out[64])
{
    size_t n = strcspn(entry, "=");
    if (n <= len || n - len >= 64 || strncmp(entry, prefix, len) != 0)
        return false;
    for (size_t i = len; i < n; i++)
        out[i - len] = (char)(entry[i] == '_' ? '-' : tolower((unsigned char)entry[i]));
    out[n - len] = '\0';
    return true;
}

bool opt_env_misspelt(const struct opt_table *t, const char *entry, char out[64])
{
    char word[64];
    char name[64];
    char shown[64];
    size_t len;
    size_t piece_len;
    const char *at = t->env_prefixes;
    const char *prefix = opt_next_piece(&at, &len);
    if (prefix == NULL || !option_name(entry, prefix, len, word))
        return false;
    size_t least = strlen(word) / 3 + 1;
    for (size_t i = 0; i < t->n_rows; i++)
        if (!t->rows[i].no_env &&
            opt_env_name(t, &t->rows[i], t->rows[i].env == NULL ? 0 : 1, shown))
            consider(word, t->rows[i].name, shown, &least, out);
    const char *piece;
    for (at = t->env_more; (piece = opt_next_piece(&at, &piece_len)) != NULL;) {
        (void)snprintf(shown, sizeof(shown), "%.*s", (int)piece_len, piece);
        if (option_name(shown, prefix, len, name))
            consider(word, name, shown, &least, out);
    }
    return least > 0 && least < strlen(word) / 3 + 1;
}

const struct opt_command *opt_nearest_command(const struct opt_table *t, const char *word)
{
    const struct opt_command *nearest = NULL;
    const size_t len = strlen(word);
    size_t least = len / 3 + 1;
    if (len == 0 || len >= 64)
        return NULL;
    for (size_t i = 0; i < t->n_commands; i++) {
        const struct opt_command *c = &t->commands[i];
        const size_t d = opt_name_begins(c->name, word, len) ? 0 : opt_distance(word, len, c->name);
        if (d < least) {
            least = d;
            nearest = c;
        }
    }
    return nearest;
}

/* Consider the words of a text that have 3 letters or more: shorter ones resemble most words. */
static void consider_words(const char *word, const char *text, size_t *least, char out[64])
{
    char lower[64];
    for (size_t n; *text != '\0'; text += n + (text[n] != '\0')) {
        n = strcspn(text, " -,()");
        if (n < 3 || n >= sizeof(lower))
            continue;
        for (size_t i = 0; i <= n; i++)
            lower[i] = (char)(i < n ? tolower((unsigned char)text[i]) : '\0');
        consider(word, lower, lower, least, out);
    }
}

/* Find the equivalent of another launcher's option, such as "verbose". */
static bool topic_of_foreign(const struct opt_table *t, const char *word, char out[64])
{
    for (const struct opt_foreign *f = t->foreign; f != NULL && f->word != NULL; f++)
        if (f->is != NULL && f->is[0] != '\0' &&
            strcmp(f->word + strspn(f->word, "-"), word) == 0) {
            (void)snprintf(out, 64, "%.*s", (int)strcspn(f->is, "="), f->is);
            return true;
        }
    return false;
}

bool opt_nearest_topic(const struct opt_table *t, const char *about, char out[64])
{
    const struct opt_row *row;
    const char *word = about + strspn(about, "-");
    const size_t len = strlen(word);
    const size_t most = len / 3 + 1;
    size_t least = most;
    if (topic_of_foreign(t, word, out))
        return true;
    if (len < 3 || len >= 64)
        return false;
    for (size_t i = 0; (row = opt_row_at(t, i)) != NULL; i++) {
        if (row->hidden)
            continue;
        consider(word, row->name, row->name, &least, out);
        consider_words(word, row->name, &least, out);
        consider_words(word, opt_row_group(row), &least, out);
    }
    return least < most;
}
