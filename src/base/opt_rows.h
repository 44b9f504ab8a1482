/* Private to the files base/opt*.c: the rows that every table has, names, and texts. */
#ifndef DD_BASE_OPT_ROWS_H
#define DD_BASE_OPT_ROWS_H

#include "base/opt.h"

/* Return row i of the table, continued by the rows that every table has; NULL after the last. */
const struct opt_row *opt_row_at(const struct opt_table *t, size_t i);
bool opt_row_is_builtin(const struct opt_row *row);

/* True if the first len bytes of word are a prefix of name; '_' equals '-'. */
bool opt_name_begins(const char *name, const char *word, size_t len);

/* Iterate over a comma-separated list: return the next item and its length; NULL at the end. Start
 * with *at = list; NULL is an empty list. */
const char *opt_next_piece(const char **at, size_t *ret_len);
bool opt_list_has(const char *list, const char *word);

/* Write the name of the i-th variable that sets the row to out; false after the last. */
bool opt_env_name(const struct opt_table *t, const struct opt_row *row, size_t i, char out[64]);

/* Return a valid value of the row, for error messages and documents; NULL: none is known. */
const char *opt_row_example(const struct opt_row *row);

/* Return the row's heading; test whether row i is the first one shown under its heading. */
const char *opt_row_group(const struct opt_row *row);
bool opt_row_opens_group(const struct opt_table *t, size_t i);

/* True if --help=ABOUT shows the row. */
bool opt_row_is_about(const struct opt_table *t, const struct opt_row *row, const char *about);
bool opt_has_common(const struct opt_table *t);
/* Write the likely intended word for an ABOUT that matches no row; false: none is similar. */
bool opt_nearest_topic(const struct opt_table *t, const char *about, char out[64]);

/* Append "one of a, b; default: a; variable: DDRUN_X", or nothing. */
int opt_row_notes(const struct opt_row *row, struct dd_buf *out);

/* Append a JSON string, or null. Bytes that are not UTF-8 become '?'. */
int opt_json_text(struct dd_buf *out, const char *text);

int opt_dump_bash(const struct opt_table *t, struct dd_buf *out);
int opt_dump_zsh(const struct opt_table *t, struct dd_buf *out);
int opt_dump_fish(const struct opt_table *t, struct dd_buf *out);

/* How the value was given, for error messages. */
enum opt_style { OPT_STYLE_LONG, OPT_STYLE_LETTER, OPT_STYLE_ENV, OPT_STYLE_OTHER };

struct opt_place {
    enum opt_style style;
    const char *name; /* "--nnodes", "-r", "PET_NNODES", "nodes.conf:3" */
};

int opt_set_at(const struct opt_row *row, void *values, const struct opt_place *place,
               const char *text, struct dd_err *err);

#endif
