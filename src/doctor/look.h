/* Examines a node of a job and its connections to two other nodes; the result is JSON for judge.h.
 */
#ifndef DD_DOCTOR_LOOK_H
#define DD_DOCTOR_LOOK_H

#include "alloc/alloc.h"
#include "net/key.h"

#include <jansson.h>

/* The pointers are borrowed during doctor_look(). */
struct doctor_cfg {
    const struct alloc *alloc;
    const char *id;       /* id of this examination, the same on all nodes */
    const char *hostname; /* from gethostname() */
    char *const *env;
    struct net_key_input key_in; /* doctor_look() sets job_id */
    const char *iface;           /* --iface; NULL: any */
    const char *version;
    unsigned limit_ms; /* time limit for other nodes */
    bool net;          /* also measure the connection to the next node (pair.h) */
};

enum { DOCTOR_START_MS = 30000 }; /* time within which all nodes have started */

/* With `net`, all nodes begin to measure at the same time: the first node releases the others when
 * all have reached it, or each begins when its time limit is over. In the latter case the previous
 * node may begin up to doctor_late_ms() later than this node; this node waits for it. */

/* Return the maximum time, in ms, by which another node may have started later than this one if it
 * has reached this one within limit_ms. Pure. */
unsigned doctor_late_ms(unsigned limit_ms);

/* Connect to the next node and to the first one as an agent would, with the job's key and ports,
 * and accept such connections, until all are done or the time limit. In a probe, "iface" and the
 * members after it exist with --iface only. Return an object:
 *
 *   {"ddrun-doctor": 1, "node": NAME, "index": 0, "version": "0.1.0", "hostname": NAME,
 *    "addresses": [ADDRESS of an interface, ...],
 *    "nofile": N, "memlock": BYTES, "nproc": N,                      soft limits, -1: none
 *    "shm_free": BYTES, "tmp": "" or an error, "cpus": N, "cpus_online": N, "gpus": N,
 *    "infiniband": false, "fabric": "" or the name of its profile (fabric.h),
 *    "ptrace_scope": 0, "key": SOURCE or "", "key_error": "", "iface_error": "", "net_error": "",
 *    "variables": [{"name", "value", "why"}, ...], "listen_error": "",
 *    "names": [{"to": INDEX, "addresses": [to which the name resolves], "error": ""}, ...],
 *    "probes": [{"to": INDEX, "address": A, "error": "", "offset_ns": N, "took_ns": N,
 *                "iface": NAME, "iface_address": A, "iface_error": ""}, ...],
 *    "came": [INDEX of a node that has connected to this one, ...],
 *    "net": {"to": INDEX, "address": A, "error": "", "round_trips": N, "latency_ns": N,
 *            "bytes": N, "took_ns": N}}                              with `net` only
 */
json_t *doctor_look(const struct doctor_cfg *cfg); /* NULL: out of memory */

#endif
