/* Recognizes well-known causes of a worker's failure by the worker's last lines, error file and
 * signal, and by the kernel's count of OOM kills. Pure. */
#ifndef DD_REPORT_CAUSES_H
#define DD_REPORT_CAUSES_H

#include <stdbool.h>

struct report_exit;

enum {
    /* The failure follows from that of another process: a peer closed its connection, or did not
     * join a collective operation. Such a worker is not the culprit. */
    CAUSE_CASCADE = 1,
    /* Another process sent the signal. Neither the worker nor its node is to blame. */
    CAUSE_SENDER = 2,
    /* The text is specific enough to explain an exception that follows it. Other rows must match
     * the exception itself, if there is one: earlier lines may be harmless warnings. */
    CAUSE_ANYWHERE = 4,
    /* The worker showed no activity. It may have waited for another rank. */
    CAUSE_HANG = 8,
    /* The OOM killer may have ended a process that the worker needed. */
    CAUSE_MAY_BE_OOM = 16,
};

struct failure_cause {
    const char *id;       /* stable, for programs: "cuda-out-of-memory" */
    const char *texts[4]; /* one of them must occur in the message; empty: the signal decides */
    const char *also[2];  /* one of them must also occur in the output or error file; empty: any */
    int signal, code;  /* signal: if texts is empty; code 0: any. Code 128 + N counts as signal N */
    int flags;         /* CAUSE_* */
    const char *cause; /* one sentence */
    const char *tip;   /* NULL: no tip */
    const char *tip_for_culprit; /* tip if the others waited for a known rank; NULL: `tip` */
};

/* Return the cause of the worker's exit; NULL: it is not known. */
const struct failure_cause *failure_cause_find(const struct report_exit *e);
bool failure_is_cascade(const struct report_exit *e);
bool failure_is_hang(const struct report_exit *e);

/* Start of the message of each worker that ddrun ends because no worker of the job was active. */
#define FAILURE_JOB_HUNG "the job hung: no "
/* True for the message of a hang of the whole job, which blames no rank. message may be NULL. */
bool failure_is_job_hung(const char *message);

/* Return the cause of a hang or timeout that stacks show: a rank waits for its DataLoader. */
const struct failure_cause *failure_cause_stuck_loader(void);
const struct failure_cause *failure_cause_early_exit(void);

/* Part of the message about a hung rank of an MPI program, which may use a processor while waiting.
 */
#define FAILURE_CAUSE_IN_MPI "processor time does not count under MPI"
/* Return the cause of a hang in MPI in which no rank can be blamed without native frames. */
const struct failure_cause *failure_cause_hung_in_mpi(void);

/* Return row i of the table, for tests; NULL: the table has at most i rows. */
const struct failure_cause *failure_cause_row(unsigned i);

#endif
