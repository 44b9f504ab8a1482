/* The content of the report, private to the files of this directory. */
#ifndef DD_REPORT_REPORT_INNER_H
#define DD_REPORT_REPORT_INNER_H

#include "report/report.h"
#include "report/stacks.h"

enum { REPORT_TIME = 80 };

struct report_round {
    int round;
    uint64_t start_ns, end_ns; /* end_ns 0: the round is still running */
    char *cause;               /* reason for the end of the round; NULL: unknown */
};

struct report_warning {
    char *node, *text;
};

struct report_straggler {
    char *node, *text;
    int rank, round;
    uint64_t from_ns, to_ns; /* to_ns 0: until the end of the round */
};

/* First failures of rounds that were charged to a node. */
struct report_charge {
    char *node, *why;
    int n;
};

/* The node whose health check has ended the job. */
struct report_unfit {
    char *node, *check, *why; /* node NULL: no health check has ended the job */
};

struct report {
    struct report_cfg cfg;
    int round, world_size;
    uint64_t round_ns, end_ns;
    struct report_exit exits[REPORT_EXITS]; /* ordered by time; texts are copies */
    int nkept, nfailed;
    bool by_itself; /* a worker's failure ended the round */
    struct report_ends ends;
    char *first_node; /* owner of ends.first_node */
    struct stacks stacks;
    struct report_round rounds[REPORT_ROUNDS];
    int nrounds;
    struct report_warning warnings[REPORT_WARNINGS];
    int nwarnings;
    struct report_straggler stragglers[REPORT_STRAGGLERS];
    int nstragglers;
    struct report_charge charges[REPORT_CHARGES];
    int ncharges;
    struct report_unfit unfit;
    char *cause;
    char *verdict; /* why the job ends although restarts are left; NULL: none */
    int code;
};

/* True if the whole job hung, so that no rank is named for this failure. */
bool report_is_of_job(const struct report_exit *e);
/* True if a signal of the processor ended the worker: SIGSEGV, SIGBUS, SIGILL or SIGFPE. */
bool report_has_crashed(const struct report_exit *e);
/* Return why the worker failed: the message of its error file, else ddrun's own reason (a hang, a
 * failed start), else the last line of output that looks like an exception; NULL: none. */
const char *report_exception(const struct report_exit *e, size_t *ret_len);
/* Format a time of the job's clock as "2026-11-21T12:40:03Z". */
void report_time(const struct report *r, uint64_t ns, char out[REPORT_TIME]);
double report_seconds(uint64_t from_ns, uint64_t to_ns); /* 0 if to_ns is before from_ns */

#endif
