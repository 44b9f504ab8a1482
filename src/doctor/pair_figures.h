/* Evaluates what the nodes have measured between each other (look.h, "net"): computes the medians,
 * and marks the pairs that differ from them. Pure. */
#ifndef DD_DOCTOR_PAIR_FIGURES_H
#define DD_DOCTOR_PAIR_FIGURES_H

#include "base/buf.h"
#include "hostlist/hostlist.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    PAIR_FEWEST = 3,    /* least number of pairs for which outliers are marked */
    PAIR_LATE_US = 50,  /* least difference from the median round trip of an outlier */
    PAIR_ROWS_MAX = 64, /* maximum number of pairs of which the table lists all; of more pairs, it
                           lists only outliers and failures */
    PAIR_RATE_TEXT = 32,
};

/* The measurement from one node to the next. Texts are borrowed from the nodes' results. */
struct pair_figure {
    const char *from, *to, *address, *error; /* error "": measured */
    uint64_t latency_ns;                     /* median of the round trips of this pair */
    uint64_t rate;                           /* bytes per second */
    bool slow;                               /* rate: less than half of the median of all pairs */
    bool late; /* latency_ns: more than twice the median of all pairs, and PAIR_LATE_US above it */
};

struct pair_figures {
    struct pair_figure *v; /* one for each measurement, in the order of the results */
    size_t n;
    uint64_t latency_ns, rate; /* medians; 0: nothing was measured */
};

/* Compute the figures from the results of the nodes, and keep references to their texts. -ENOMEM.
 */
int pair_figures_of(struct pair_figures *ret, const json_t *looks, const struct hostlist *nodes);
void pair_figures_done(struct pair_figures *f);

/* Format bytes per second, "9.41 Gbit/s". Return out. */
const char *pair_rate_text(uint64_t rate, char out[PAIR_RATE_TEXT]);
/* Format nanoseconds, "38 us". Return out. */
const char *pair_latency_text(uint64_t ns, char out[PAIR_RATE_TEXT]);

/* Append the table, outliers marked. -ENOMEM, -EMSGSIZE. */
int pair_figures_write(const struct pair_figures *f, struct dd_buf *out);
/* {"latency_ns", "bytes_per_second": medians, "pairs": [{"from", "to", "address", "error",
 * "latency_ns", "bytes_per_second", "slow", "late"}]}. NULL: out of memory. */
json_t *pair_figures_json(const struct pair_figures *f);

#endif
