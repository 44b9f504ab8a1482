/* Shared by the files of this room only. */
#ifndef DD_REPORT_REPORT_INNER_H
#define DD_REPORT_REPORT_INNER_H

#include "report/report.h"

enum { REPORT_TIME = 80 };

struct report_round {
    int round;
    uint64_t start_ns, end_ns; /* end 0: not yet */
    char *cause;               /* why it ended; NULL: not known */
};

struct report {
    struct report_cfg cfg;
    int round, world_size;
    uint64_t round_ns, end_ns;
    struct report_exit exits[REPORT_EXITS]; /* by time; texts are own copies */
    int nkept, nfailed;
    bool by_itself; /* the round ended because of a worker */
    struct report_ends ends;
    struct report_round rounds[REPORT_ROUNDS];
    int nrounds;
    char *cause;
    int code;
};

/* The message of the exception: from the error file, else the last line that looks like one; NULL:
 * none. */
const char *report_exception(const struct report_exit *e, size_t *ret_len);
/* "2026-11-21T12:40:03Z" of a time on the job's clock. */
void report_time(const struct report *r, uint64_t ns, char out[REPORT_TIME]);
double report_seconds(uint64_t from_ns, uint64_t to_ns); /* 0 when it went backwards */

#endif
