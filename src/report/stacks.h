/* Stacks of workers: what each rank was executing at one moment. Equal stacks are folded into
 * groups. Pure: the agent adds the stacks that it reads, and the daemon merges those of all nodes.
 *
 * A stack is text: one line "function\tfile\tline" per frame, the innermost frame first. */
#ifndef DD_REPORT_STACKS_H
#define DD_REPORT_STACKS_H

#include "base/buf.h"
#include "base/err.h"
#include "report/flight_groups.h"
#include "report/nccl_ras.h"
#include "report/rank_set.h"
#include "report/stack.h"
#include "report/stack_children.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t;

enum {
    STACKS_FRAMES = 100,          /* frames of a stack; further outer frames are omitted */
    STACKS_TEXT = 16 << 10,       /* bytes of a stack */
    STACKS_NAME = 160,            /* bytes of a function, a file, a state or a note */
    STACKS_GROUPS = 1024,         /* groups; ranks with further stacks are one more group */
    STACKS_RANKS_TEXT = 32 << 10, /* bytes of a list of ranks */
    STACKS_MESSAGE = 256 << 10,   /* bytes of the JSON of one node */
    STACKS_TERMINAL_LINES = 20,
};

struct stack_group {
    struct stack stack; /* its texts are in storage */
    char *storage;
    struct rank_set ranks;
};

struct stacks_node {
    char name[256];
    int first_rank, workers;
};

struct stacks {
    struct stack_group *v;
    size_t n, cap;
    struct stacks_node *nodes; /* ordered by rank; empty in the message of one node */
    size_t nnodes;
    struct stack_children children;   /* processes for which ranks wait */
    struct flight_groups collectives; /* from PyTorch's flight recorder */
    struct nccl_ras ras;              /* NCCL's communicators */
    double seconds;                   /* time that reading the stacks took */
};

/* Append a frame to the text of a stack, without control characters. line 0: unknown. */
int stack_put_frame(struct dd_buf *out, const char *function, const char *file, int line);

int stacks_add(struct stacks *s, const struct stack *what, int first, int last);
int stacks_add_node(struct stacks *s, const char *name, int first_rank, int workers);
int stacks_merge(struct stacks *to, const struct stacks *from);
/* Find the ranks that NCCL has named, once all nodes have been merged. 0 or -ENOMEM. */
int stacks_resolve(struct stacks *s);
/* Sort the groups: the rarest stack first, workers that had ended or could not be read last. */
void stacks_sort(struct stacks *s);
void stacks_done(struct stacks *s);
/* Return the node of a rank; NULL: no node has the rank. */
const struct stacks_node *stacks_node_of(const struct stacks *s, int rank);
bool stacks_has(const struct stacks *s, enum stack_kind kind);
bool stacks_has_note(const struct stacks *s, const char *note);

/* Append "read, data.py:40": the function that the innermost line of the user's code calls, and
 * that line. */
int stack_headline(const struct stack *s, struct dd_buf *out);
/* Append a line for each group, with this indent: "ranks 0-1,3-7: all_reduce, train.py:81". If
 * there are more than `lines` groups, the last of these lines counts the rest. Then append a line
 * for some children: "rank 5, DataLoader process 1234: read, data.py:40". The groups must be
 * sorted. */
int stacks_text(const struct stacks *s, const char *indent, int lines, struct dd_buf *out);
/* Return the tip for stacks or native frames that could not be read; NULL: none. */
const char *stacks_tip(const struct stacks *s);
/* Append the lines of the flight records and of NCCL, and then the lines of all groups and
 * children, each followed by the frames of the stack. */
int stacks_text_long(const struct stacks *s, struct dd_buf *out);

/* ---- stacks_json.c ---- */

/* Return an object. depth: number of frames of each stack. NULL: out of memory. The caller owns the
 * reference. */
struct json_t *stacks_json(const struct stacks *s, int depth);
/* Append the JSON with as many frames as fit into `most` bytes. -EMSGSIZE: the JSON is too long
 * even without frames and children. */
int stacks_write(const struct stacks *s, size_t most, struct dd_buf *out);
/* Parse the JSON of a peer, in which each rank may occur only once. With `workers` >= 0, only ranks
 * first_rank to first_rank + workers - 1 are permitted. The caller frees *ret, also on failure. */
int stacks_parse(struct stacks *ret, const char *text, int first_rank, int workers,
                 struct dd_err *err);

/* Return the time limit for the stacks of a hung job, in ns. It may exceed that of a failed job,
 * limit_ns (--stacks-timeout): PyTorch needs 5 s for its first flight record. */
static inline uint64_t stacks_hang_ns(uint64_t limit_ns)
{
    const uint64_t least = UINT64_C(10) * 1000 * 1000 * 1000;
    return limit_ns > least ? limit_ns : least;
}

static inline void dd_auto_stacks(struct stacks *s)
{
    stacks_done(s);
}

#endif
