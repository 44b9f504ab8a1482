/* The times of a worker's steps in memory that the worker writes and the agent of its node reads:
 * one page for each worker of a node. A step costs the worker a few stores and two reads of clocks.
 * No I/O, no clock.
 *
 * The reader trusts nothing: any bytes give times within STEP_US_MAX. */
#ifndef DD_BASE_STEP_PAGE_H
#define DD_BASE_STEP_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STEP_PAGE_BYTES = 65536, /* the largest page of any kernel: mmap() takes multiples of a page */
    STEP_WINDOW = 16,        /* steps that are kept: the times of a worker are medians of these */
};
#define STEP_US_MAX UINT64_C(86400000000) /* limit for the time of one step: a day */

struct step_entry {
    uint64_t wall_ns; /* time from this step to the next one */
    uint64_t work_ns; /* wall_ns without the waits that the program has marked; 0: none marked */
    uint64_t cpu_ns;  /* processor time of all threads of the process */
};

/* At the start of the page. */
struct step_page {
    uint64_t magic;
    uint64_t count; /* complete steps */
    int64_t step;   /* number of the current step */
    struct step_entry v[STEP_WINDOW];
};

/* The current step of a worker, in its own memory. */
struct step_clock {
    bool running;                /* a step has begun */
    bool waited;                 /* the program has marked a wait in this step */
    bool waits;                  /* the program is in a marked wait */
    uint64_t begin_ns, cpu_ns;   /* clock and processor time at the beginning of the step */
    uint64_t wait_ns, waited_ns; /* beginning of the current wait; total of the step's waits */
};

/* Begin a step, and complete the previous one. step: number of the new step, 0 or more. */
void step_page_begin(struct step_page *p, struct step_clock *c, int64_t step, uint64_t now_ns,
                     uint64_t cpu_ns);
void step_clock_wait(struct step_clock *c, uint64_t now_ns);   /* begins a wait for other workers */
void step_clock_resume(struct step_clock *c, uint64_t now_ns); /* ends the wait */

/* The content of a worker's page. Times are medians of the last steps. */
struct step_times {
    int64_t step;   /* number of the current step; -1: unknown */
    uint64_t count; /* complete steps, at most INT64_MAX */
    int n;          /* number of steps in the medians */
    uint64_t wall_us, cpu_us;
    uint64_t work_us; /* without waits; 0: the program marks none */
};

/* Read the n bytes of a page. False: no step is complete, or the page is invalid. */
bool step_page_read(const void *page, size_t n, struct step_times *ret);

#endif
