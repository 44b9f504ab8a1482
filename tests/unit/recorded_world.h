/* The recorded environments of tests/data/env, and what is expected of them (its file `expected`).
 */
#ifndef TESTS_UNIT_RECORDED_WORLD_H
#define TESTS_UNIT_RECORDED_WORLD_H

#include "alloc/alloc.h"

enum { RECORDED = 101 }; /* processes */

struct recorded {
    char name[80], host[32], source[16], job[32], nodes[200], index[8], gpus[8], key[48], start[16];
};

/* The lines of `expected`, in their order; the test fails when there are not as many. */
void recorded_expected(struct recorded rows[RECORDED]);

/* Reads the process's environment. */
void recorded_load(struct dd_strv *env, const char *name);
/* Which node file recorded_read() has: the process's, or for tasks of the first node, who had none,
 * the one that was there all the same. */
void recorded_set_nodefile(const char *name);
/* In its place: this text, or with NULL none at all. */
void recorded_set_nodefile_text(const char *text);
int recorded_read(const char *path, struct dd_buf *out, struct dd_err *err);
/* Of an agent on a host, without options. Borrows both. */
struct alloc_input recorded_input(const struct dd_strv *env, const char *hostname);

/* The input of a user who has several agents on a node on purpose: srun's number of tasks is given
 * as the number of nodes. */
void recorded_with_agents(struct alloc_input *in);
/* A sentence, and below it nothing but tips. */
bool recorded_is_message(const char *text);

#endif
