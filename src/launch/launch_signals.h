/* The signals that a process which starts nodes receives, by a signalfd on its loop. */
#ifndef DD_LAUNCH_LAUNCH_SIGNALS_H
#define DD_LAUNCH_LAUNCH_SIGNALS_H

#include <stdbool.h>

struct event_base;
struct launch_signals;

struct launch_signals_cb {
    void (*on_child)(void *arg); /* SIGCHLD: some process may have exited */
    /* terminal: by the kernel to all processes of the terminal, so the agent here has it too.
     * again: ends jobs, and comes later than a copy of the first such signal would. */
    void (*on_signal)(void *arg, int sig, bool terminal, bool again);
    void *arg;
};

/* From here on the signals are blocked in this process. */
int launch_signals_new(struct launch_signals **ret, struct event_base *base,
                       const struct launch_signals_cb *cb); /* -ENOMEM */
/* In a child: the mask as it was before. */
void launch_signals_restore_mask(const struct launch_signals *s);
void launch_signals_close(const struct launch_signals *s); /* in a child that runs no program */
void launch_signals_free(struct launch_signals *s);

#endif
