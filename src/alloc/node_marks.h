/* Finds the nodes that the scheduler takes out of service while the job runs, from the output of
 * its command. Pure. */
#ifndef DD_ALLOC_NODE_MARKS_H
#define DD_ALLOC_NODE_MARKS_H

#include "base/buf.h"
#include "base/strv.h"
#include "hostlist/hostlist.h"

struct alloc_marks_row;

/* Return the row of the scheduler's command for an allocation from this source; NULL: none. */
const struct alloc_marks_row *alloc_marks_find(const char *source, char *const *env);
const char *alloc_marks_scheduler(const struct alloc_marks_row *row); /* "Slurm" */
/* Return the variable with the nodes of the job, for a job whose host list does not name them;
 * NULL: none. */
const char *alloc_marks_variable(const struct alloc_marks_row *row);
/* True if the scheduler may list these nodes only by their names without domains. */
bool alloc_marks_other_names(const struct alloc_marks_row *row, const struct hostlist *nodes);
/* A command that prints the states of all nodes of the job. */
struct alloc_marks_words {
    struct dd_strv words;
    const char *directory; /* of the program if PATH may not contain it; NULL: unknown */
};
/* Make the words; hosts: names without domains. 0, -ENOMEM, or -E2BIG: too many nodes for a command
 * line. The caller owns ret->words. */
int alloc_marks_command(const struct alloc_marks_row *row, const struct hostlist *nodes, bool hosts,
                        struct alloc_marks_words *ret);
/* Read the command's output. Append a line "NAME<tab>WHY" for each node out of service, as in
 * "node3<tab>being drained by Slurm (reason: bad DIMM)". Return the number of nodes that the text
 * describes; -ENOMEM, or -EMSGSIZE: no room in out. */
int alloc_marks_read(const struct alloc_marks_row *row, const char *text, struct dd_buf *out);

#endif
