/* Our side of the helper ddrun-web: requests are queued, sent one at a time, and answered from the
 * loop. The helper is started with the first request, and again after its end; it dies with us. A
 * request whose helper is killed is sent to the next one, two times at most: servers may see it
 * twice. */
#ifndef DD_WEB_CLIENT_H
#define DD_WEB_CLIENT_H

#include "base/err.h"
#include "web/wire.h"

#include <sys/types.h>

struct event_base;
struct web;

struct web_cfg { /* borrowed until web_free() */
    struct event_base *base;
    const char *helper; /* path of ddrun-web */
    char *const *env;   /* for it */
    void (*started)(
        void *arg,
        pid_t pid); /* a child of ours: it is not to be ended as somebody's orphan; NULL */
    void *arg;
};

/* The answer is lent for the call. status 0 where there is none, whatever the reason. */
typedef void web_done_f(void *arg, const struct web_answer *a);

int web_new(struct web **ret, const struct web_cfg *cfg, struct dd_err *err);
/* The request is copied. done is called once, from the loop or web_finish(), never from inside.
 * -ENOMEM, -EMSGSIZE, -ENOBUFS: too many wait already. */
int web_post(struct web *w, const struct web_request *r, web_done_f *done, void *arg);
/* Waits, without the loop, until all requests have been answered, at most limit_ms. True: all have.
 */
bool web_finish(struct web *w, unsigned limit_ms);
pid_t web_pid(const struct web *w); /* 0: it does not run */
/* At once; nobody is called any more. NULL is fine. Not from inside done. */
void web_free(struct web *w);

#endif
