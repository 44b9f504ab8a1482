/* The client of the helper ddrun-web: requests are queued, sent one at a time, and answered from
 * the event loop. The helper is started with the first request, restarted when needed, and exits
 * with its parent. A request whose helper is killed is retried, at most twice, so a server may
 * receive it more than once. */
#ifndef DD_WEB_CLIENT_H
#define DD_WEB_CLIENT_H

#include "base/err.h"
#include "web/web_wire.h"

#include <sys/types.h>

struct event_base;
struct web;

struct web_cfg { /* borrowed until web_free() */
    struct event_base *base;
    const char *helper; /* path of ddrun-web */
    char *const *env;   /* environment of the helper */
    /* Called with the helper's pid, so that the agent does not kill it as an orphan; NULL: none. */
    void (*started)(void *arg, pid_t pid);
    void *arg;
};

/* The answer is valid during the call. status 0: no answer, for any reason. */
typedef void web_done_f(void *arg, const struct web_answer *a);

int web_new(struct web **ret, const struct web_cfg *cfg, struct dd_err *err);
/* Queue a copy of the request. done is called once, from the event loop or web_finish(), never from
 * within web_post(). -ENOMEM, -EMSGSIZE; -ENOBUFS: the queue is full. */
int web_post(struct web *w, const struct web_request *r, web_done_f *done, void *arg);
/* Block until all requests are answered, at most limit_ms. True: all are. */
bool web_finish(struct web *w, unsigned limit_ms);
pid_t web_pid(const struct web *w); /* 0: not running */
/* Free at once; no further callbacks. NULL does nothing. Not allowed inside done. */
void web_free(struct web *w);

#endif
