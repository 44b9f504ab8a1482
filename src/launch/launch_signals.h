/* Signals to a process that starts nodes, received by a signalfd on its event loop. */
#ifndef DD_LAUNCH_LAUNCH_SIGNALS_H
#define DD_LAUNCH_LAUNCH_SIGNALS_H

#include <stdbool.h>

struct event_base;
struct launch_signals;

struct launch_signals_cb {
    void (*on_child)(void *arg); /* SIGCHLD: a process may have exited */
    /* terminal: the kernel sent the signal to all processes of the terminal, including the agent on
     * this node. again: a second request to end the job, too late to be a copy of the first. */
    void (*on_signal)(void *arg, int sig, bool terminal, bool again);
    void *arg;
};

/* Blocks the signals in this process. */
int launch_signals_new(struct launch_signals **ret, struct event_base *base,
                       const struct launch_signals_cb *cb); /* -ENOMEM */
/* To be called in a child: restore the previous signal mask. */
void launch_signals_restore_mask(const struct launch_signals *s);
void launch_signals_close(
    const struct launch_signals *s); /* to be called in a child that executes no program */
void launch_signals_free(struct launch_signals *s);

#endif
