/* Computes how long each worker has shown no activity, from the caller's observations; no I/O, no
 * clock. */
#ifndef DD_WORKER_HANG_H
#define DD_WORKER_HANG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Signs of activity: the program gives the first two; the others are resources that it uses. */
enum {
    HANG_SIGN_OUTPUT = 1,
    HANG_SIGN_FILE = 2,
    HANG_SIGN_CPU = 4,
    HANG_SIGN_IO = 8,
    HANG_SIGN_NETWORK = 16,
    HANG_SIGNS_USED = HANG_SIGN_CPU | HANG_SIGN_IO | HANG_SIGN_NETWORK,
    HANG_SIGNS_ALL = HANG_SIGN_OUTPUT | HANG_SIGN_FILE | HANG_SIGNS_USED,
    HANG_SIGNS_ACTIVITY = 1 << 8, /* the signs that suit the workers; see hang_signs() */
};

/* What the processes of a worker have used so far. A sum may shrink when one of them ends. */
struct hang_counters {
    uint64_t cpu_ns;    /* processor time used, and waited for */
    uint64_t io_bytes;  /* read and written */
    uint64_t net_bytes; /* sent and received */
};

struct hang;

/* All times are monotonic, in ns. The caller owns *ret. Return 0 or -ENOMEM. */
int hang_new(struct hang **ret, int n, uint64_t timeout_ns, uint64_t now);
void hang_free(struct hang *h);

/* Return the time between two checks. */
uint64_t hang_interval(const struct hang *h);
/* To be called before each round of checks. If it is called much later than planned, this process
 * was stopped, probably together with the workers: that time does not count as silence. own_ns:
 * how long this process has run or waited for a processor since its start (activity_own_ns());
 * this time does count. Return true if the call is late: there may be signs of activity that the
 * caller has not passed to hang_look() yet. */
bool hang_tick(struct hang *h, uint64_t now, uint64_t own_ns);
/* sign: any number that changes whenever worker i is active. Return true if the worker has been
 * silent for the timeout. */
bool hang_look(struct hang *h, int i, uint64_t sign, uint64_t now);
void hang_alive(struct hang *h, int i, uint64_t now); /* treat worker i as active now */
uint64_t hang_silent(const struct hang *h, int i,
                     uint64_t now); /* returns how long worker i has been silent */

/* True if the counters of worker i are to be read: the worker has given no sign since the last
 * check, and the last reading is a tenth of the timeout old (after the timeout: one interval). A
 * worker that gives signs is never read. */
bool hang_wants_counters(const struct hang *h, int i, uint64_t now);
/* Take the counters of worker i. The worker is active if it has used more than a waiting program
 * does, in one of `signs`, since the last reading; the time before the first reading counts as
 * activity. */
void hang_count(struct hang *h, int i, int signs, const struct hang_counters *c, uint64_t now);
/* Return what worker i has used since it was active last. */
struct hang_counters hang_used(const struct hang *h, int i);

/* Return the signs that count. busy_waits: the workers may use a processor while they wait, as
 * programs do that wait for a GPU or in MPI. */
int hang_signs(int signs, bool busy_waits);
/* Write the missing signs to out, such as "no output or heartbeat"; return out. */
const char *hang_missing(int signs, char *out, size_t size);

#endif
