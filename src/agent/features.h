/* Features of a round: MPI, Horovod, the hang watch, error files and others, each with a
 * private state. agent/round_features.c has the table.
 *
 * The order of hooks in a round, each called for the features in the order of the table:
 *
 *   create          once, before this node joins
 *   prepare         the plan is known, no worker runs
 *   spec_input      for each worker, before its environment is made
 *   worker_env      for each worker, after the user's rules for the environment
 *   started         all workers run, and STARTED has been sent
 *   message         a message of the daemon for this round, or the loss of the link
 *   stopping        the round is being stopped, perhaps not for the first time; workers still run,
 *                   or a feature delays the end of the round
 *   worker_exit     a worker has exited: features may change the exit
 *   (the signals that have arrived are drained: the scheduler may be ending the job)
 *   verdict         the same exit, after all changes
 *   leave           no worker is left; true: the round waits until the feature calls
 *                   round_leave(). At most one feature of a table has it
 *   end             no worker is left: once for each prepare, also for one that failed, in the
 *                   reverse order
 *   destroy         once, when the agent ends
 *
 * A hook may be NULL. Where prepare or create leave *state NULL, the feature takes no part: none
 * of its further hooks is called. The state of a feature without destroy ends with the round. */
#ifndef DD_AGENT_FEATURES_H
#define DD_AGENT_FEATURES_H

#include "agent/round.h"

struct exchange_piece; /* rdzv/exchange.h */
struct features;
struct msg_stacks_request; /* rdzv/msg.h */
struct msg_usage_request;  /* rdzv/msg.h */
struct spec_input;         /* agent/spec.h */

struct round_message {
    enum {
        ROUND_PIECE,
        ROUND_PRESIGNAL,
        ROUND_STACKS,
        ROUND_STACKS_TAKEN,
        ROUND_USAGE,
        ROUND_HUNG,
        ROUND_STORE,
        ROUND_LINK_LOST,
        ROUND_FIRST_LOST /* the first node of the round is lost */
    } type;
    const struct exchange_piece *piece;      /* ROUND_PIECE: of this round, lent for the call */
    const struct msg_stacks_request *stacks; /* ROUND_STACKS: lent for the call */
    const struct msg_usage_request *usage;   /* ROUND_USAGE: lent for the call */
    const void *data;                        /* ROUND_STORE: data of a frame, lent for the call */
    size_t len;
    int sig; /* ROUND_PRESIGNAL: the signal before the end */
};

struct round_feature {
    const char *name;
    int (*create)(void **state, const struct round *r, struct dd_err *err);
    int (*prepare)(void **state, const struct round *r, struct dd_err *err);
    void (*spec_input)(void *state, const struct round *r, struct spec_input *in);
    /* returns 0 or -ENOMEM */
    int (*worker_env)(void *state, const struct round *r, int local_rank, struct worker_spec *spec);
    int (*started)(void *state, const struct round *r, struct dd_err *err);
    void (*message)(void *state, const struct round *r, const struct round_message *m);
    void (*stopping)(void *state, const struct round *r);
    void (*worker_exit)(void *state, const struct round *r, struct worker_end *end);
    void (*verdict)(void *state, const struct round *r, const struct worker_end *end);
    bool (*leave)(void *state, const struct round *r);
    void (*end)(void *state, const struct round *r);
    void (*destroy)(void *state);
};

/* The features of a job; ends with NULL. */
extern const struct round_feature *const round_features[];

/* table is borrowed until features_free(). The caller frees *ret also on failure. */
int features_new(struct features **ret, const struct round_feature *const *table,
                 const struct round *r, struct dd_err *err);
int features_prepare(struct features *fs, const struct round *r, struct dd_err *err);
void features_spec_input(const struct features *fs, const struct round *r, struct spec_input *in);
int features_worker_env(const struct features *fs, const struct round *r, int local_rank,
                        struct worker_spec *spec);
int features_started(const struct features *fs, const struct round *r, struct dd_err *err);
void features_message(const struct features *fs, const struct round *r,
                      const struct round_message *m);
void features_stopping(const struct features *fs, const struct round *r);
void features_worker_exit(const struct features *fs, const struct round *r, struct worker_end *end);
void features_verdict(const struct features *fs, const struct round *r,
                      const struct worker_end *end);
bool features_leave(const struct features *fs, const struct round *r);
void features_end(struct features *fs, const struct round *r); /* no-op if nothing is prepared */
void features_free(struct features *fs); /* after features_end(); NULL is fine */

/* For the feature's own file only. NULL: the feature takes no part in the round. */
void *features_state(const struct round *r, const struct round_feature *f);

#endif
