/* The recorded environments of tests/data/env, and the expected results (its file `expected`). */
#ifndef TESTS_UNIT_RECORDED_WORLD_H
#define TESTS_UNIT_RECORDED_WORLD_H

#include "alloc/alloc.h"

enum { RECORDED = 101 }; /* processes */

struct recorded {
    char name[80], host[32], source[16], job[32], nodes[200], index[8], gpus[8], key[48], start[16];
};

/* Read the lines of `expected` in order; the test fails if their number differs. */
void recorded_expected(struct recorded rows[RECORDED]);

/* Read the environment of the recorded process. */
void recorded_load(struct dd_strv *env, const char *name);
/* Select the node file that recorded_read() returns: that of the process or, if it has none, that
 * of the script of its job. */
void recorded_set_nodefile(const char *name);
/* Select this text as the node file; NULL: there is none. */
void recorded_set_nodefile_text(const char *text);
int recorded_read(const char *path, struct dd_buf *out, struct dd_err *err);
/* Return the input of an agent on `hostname` that was started without options. Borrows env and
 * hostname. */
struct alloc_input recorded_input(const struct dd_strv *env, const char *hostname);

/* Change the input to that of a user who runs several agents on a node: the number of nodes is the
 * number of srun's tasks. */
void recorded_with_agents(struct alloc_input *in);
/* True if text is a sentence, followed by nothing but lines of tips. */
bool recorded_is_message(const char *text);

#endif
