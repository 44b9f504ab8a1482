/* What the files of opt share: the rows that every table has, names, and text for people. */
#ifndef DD_BASE_OPT_ROWS_H
#define DD_BASE_OPT_ROWS_H

#include "base/opt.h"

/* The rows of the table followed by those that every table has; NULL beyond the last. */
const struct opt_row *opt_row_at(const struct opt_table *t, size_t i);
bool opt_row_is_builtin(const struct opt_row *row);

/* Whether the first len bytes of word are name, or its beginning; '_' counts as '-'. */
bool opt_name_begins(const char *name, const char *word, size_t len);

/* Walks a comma separated list: the next piece and its length, or NULL at the end. Start with
 * *at = list; NULL lists are empty. */
const char *opt_next_piece(const char **at, size_t *ret_len);
bool opt_list_has(const char *list, const char *word);

/* The i-th variable that sets the row, into out; false beyond the last. */
bool opt_env_name(const struct opt_table *t, const struct opt_row *row, size_t i, char out[64]);

/* How many single-letter changes lead from word to name, in which '-' is also '_'. */
size_t opt_distance(const char *word, size_t len, const char *name);

/* A right value of the row, for error sentences and documents. */
const char *opt_row_example(const struct opt_row *row);

/* The heading a row stands under, and whether row i is the first shown one under its heading. */
const char *opt_row_group(const struct opt_row *row);
bool opt_row_opens_group(const struct opt_table *t, size_t i);

/* Whether --help=ABOUT shows the row. */
bool opt_row_is_about(const struct opt_table *t, const struct opt_row *row, const char *about);
bool opt_has_common(const struct opt_table *t);

/* "one of a, b; default: a; variable: DDRUN_X", or "" */
int opt_row_notes(const struct opt_row *row, struct dd_buf *out);

int opt_dump_bash(const struct opt_table *t, struct dd_buf *out);
int opt_dump_zsh(const struct opt_table *t, struct dd_buf *out);
int opt_dump_fish(const struct opt_table *t, struct dd_buf *out);

/* How a value came to be written, for the sentence about a wrong one. */
enum opt_style { OPT_STYLE_LONG, OPT_STYLE_LETTER, OPT_STYLE_ENV, OPT_STYLE_OTHER };

struct opt_place {
    enum opt_style style;
    const char *name; /* "--nnodes", "-r", "PET_NNODES", "nodes.conf:3" */
};

int opt_set_at(const struct opt_row *row, void *values, const struct opt_place *place,
               const char *text, struct dd_err *err);

#endif
