/* --warm: the Python interpreter of this node that imports modules while the nodes join, and forks
 * the workers of each round. Without an interpreter, workers are executed. */
#ifndef DD_AGENT_WARM_INTERPRETER_H
#define DD_AGENT_WARM_INTERPRETER_H

#include "base/err.h"
#include "base/strv.h"
#include "worker/warm_command.h"
#include "worker/warm_fork.h"

struct agent_loop;
struct round;
struct warm_interpreter;

struct warm_interpreter_cfg {
    bool on;
    struct warm_command command;   /* borrows from the program */
    const struct dd_strv *modules; /* modules to import; NULL: those of the last run, else torch */
    const char *plan;              /* for --dry-run: what would be imported */
};

/* loop is borrowed until warm_interpreter_free(). *ret stays NULL without --warm. */
int warm_interpreter_new(struct warm_interpreter **ret, struct agent_loop *loop,
                         struct dd_err *err);
/* Start to import, unless the interpreter runs. A failure is logged. round: NULL before it exists.
 * With --stage, nothing happens until staging_is_settled(): the interpreter uses the copies. */
void warm_interpreter_start(struct warm_interpreter *w, const struct round *round);
/* Call then() when the modules are imported, or when no interpreter will run. Returns false,
 * without a call of then(), if either is so already. */
bool warm_interpreter_wait(struct warm_interpreter *w, void (*then)(void *arg), void *arg);
/* True unless workers will be executed. */
bool warm_interpreter_is_used(const struct warm_interpreter *w);
void warm_interpreter_wait_no_more(struct warm_interpreter *w);
/* Return the interpreter for worker_group_start(), lent; NULL: workers are executed. */
const struct warm_fork *warm_interpreter_fork(const struct warm_interpreter *w);
/* End the interpreter, which has failed to fork the workers of a round. warm_interpreter_start()
 * starts another one. w is not NULL. */
void warm_interpreter_failed(struct warm_interpreter *w, const char *why);
/* NULL is allowed for all but warm_interpreter_failed(). */
void warm_interpreter_free(struct warm_interpreter *w);

#endif
