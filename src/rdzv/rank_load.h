/* Loads that keep a rank from computing, for programs that do not mark steps. Pure.
 *
 * - The main thread of a worker is ready to run, but has no processor: another process uses the
 * processor, or a quota of the cgroup is used up. A thread that waits for other ranks sleeps or
 * runs, so its wait is not counted. Processor time is no indication: ranks that wait may use much
 * or little.
 * - A GPU of the worker has work, and runs at a low clock.
 *
 * A rank is compared with the median of all ranks, so a load that all ranks have in common names no
 * rank. */
#ifndef DD_RDZV_RANK_LOAD_H
#define DD_RDZV_RANK_LOAD_H

#include "base/buf.h"

#include <stdbool.h>

/* Why the driver lowers a clock. */
enum load_reason { LOAD_NO_REASON, LOAD_HOT, LOAD_POWER_BRAKE, LOAD_HARDWARE, LOAD_REASONS };

/* A reading, or the median of several. */
struct rank_load {
    int wait;         /* percent of the time in which the worker waits for a processor */
    int mhz, max_mhz; /* clock and maximum clock of its slowest GPU with work; 0: unknown */
    int gpu;          /* number of the GPU with this clock */
    enum load_reason reason;
};

enum {
    LOAD_WINDOW = 15, /* readings */
    LOAD_REPEATS = 4, /* messages that repeat a change: the daemon names a rank only if the loads
                         of the other ranks have not changed meanwhile */
    LOAD_MHZ_MAX = 99999,
    LOAD_GPU_MAX = 1023
};

/* The last readings of a rank; all zero at first. */
struct load_window {
    int wait[LOAD_WINDOW];
    struct rank_load clock[LOAD_WINDOW]; /* the member `wait` is unused */
    unsigned nwait, nclock;              /* readings so far */
};

void load_window_add_wait(struct load_window *w, int percent);
/* Add a reading of the GPUs; without a clock: no GPU of the worker has work. */
void load_window_add_clock(struct load_window *w, const struct rank_load *reading);
/* Find the medians of the window. max_mhz is 0 if fewer than 8 readings have a clock. False: there
 * are fewer than 8 readings of the wait. */
bool load_window_median(const struct load_window *w, struct rank_load *ret);

/* The load of a rank that was last sent to the daemon; all zero at first. */
struct load_sent {
    struct rank_load load;
    bool any;  /* a load has been sent */
    int again; /* number of messages that will repeat the load */
};

/* True if the medians `now` are to be sent to the daemon; *sent is then updated. */
bool load_is_due(struct load_sent *sent, const struct rank_load *now);

/* Return the clock in percent of the highest one; 0: unknown. */
int load_clock(const struct rank_load *l);

/* Medians of all ranks, in percent. */
struct load_medians {
    int wait;
    int clock; /* over the ranks whose clock is known; 0: fewer than two are known */
};

enum load_sign { LOAD_WAITS = 1, LOAD_SLOW_CLOCK = 2 };

void load_medians_find(struct load_medians *ret, int n,
                       const struct rank_load *(*each)(const void *arg, int i), const void *arg);
/* Return the signs (bits) that hold for a rank. signs: result of the last call; 0 at first. */
unsigned load_judge(const struct rank_load *l, const struct load_medians *m, unsigned signs);
/* Append what the sign means: "waits for a processor 62 % of the time (median of all ranks 7 %)".
 */
int load_text(const struct rank_load *l, const struct load_medians *m, enum load_sign sign,
              struct dd_buf *out);

/* A load as text of the message LOAD: "LOCAL-RANK WAIT MHZ MAX-MHZ GPU REASON;". */
int load_put(struct dd_buf *out, int local_rank, const struct rank_load *l);
/* Parse the load at *at, of a local rank below `workers`, and advance *at. Returns 1; 0: no load is
 * left; -EPROTO. */
int load_take(const char **at, int workers, int *ret_local_rank, struct rank_load *ret);

#endif
