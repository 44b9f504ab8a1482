/* The state of NCCL's communicators, as one of NCCL's RAS threads reports it: in which of them
 * ranks have launched different numbers of operations, or do not answer. Pure.
 *
 * NCCL names a rank by its number in the communicator and by the PID of its process. Ranks of the
 * job follow from the PIDs that the nodes report, in nccl_ras_resolve(). */
#ifndef DD_REPORT_NCCL_RAS_H
#define DD_REPORT_NCCL_RAS_H

#include "base/buf.h"
#include "report/rank_set.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t;

enum {
    NCCL_RAS_ANSWER = 1 << 20, /* bytes of an answer; a longer one is not used */
    NCCL_RAS_FINDINGS = 32,    /* findings; further ones are omitted */
    NCCL_RAS_SETS = 8,         /* sets of a finding; further ones are omitted */
    NCCL_RAS_NAMED = 1024,     /* ranks that the findings name, in all; further ones are omitted */
    NCCL_RAS_NAME = 40,        /* bytes of a name */
    NCCL_RAS_PROCESSES = 2,    /* of a worker: the started process, and the one that runs Python */
};

enum nccl_ras_kind {
    NCCL_RAS_COUNTS, /* ranks have launched different numbers of operations */
    NCCL_RAS_STATUS, /* ranks have a different status */
    NCCL_RAS_ERROR,  /* ranks have reported errors */
    NCCL_RAS_SILENT, /* ranks have not answered NCCL */
    NCCL_RAS_DEAD,   /* NCCL considers processes dead */
    NCCL_RAS_KIND_MAX,
};

struct nccl_ras_named {
    int number; /* rank in the communicator; -1: NCCL has named only the process */
    int pid;    /* of the rank's process; 0: unknown */
};

/* Ranks of a communicator for which NCCL reports the same. */
struct nccl_ras_set {
    uint64_t operation;       /* COUNTS: number of the last operation launched; 0: none */
    char what[NCCL_RAS_NAME]; /* STATUS: the status; ERROR: the error */
    int count;                /* number of ranks, of NCCL_RAS_DEAD of processes, named or not */
    struct nccl_ras_named *v; /* ranks that NCCL has named and that are not in `ranks` */
    size_t n;
    struct rank_set ranks; /* ranks of the job */
};

struct nccl_ras_finding {
    enum nccl_ras_kind kind;
    char communicator[NCCL_RAS_NAME]; /* hash of the communicator; "": none */
    int size;                         /* number of ranks of the communicator; 0: unknown */
    char operation[NCCL_RAS_NAME];    /* COUNTS: "AllReduce", "": any; ERROR: the kind of error */
    struct nccl_ras_set sets[NCCL_RAS_SETS];
    int nsets;
};

struct nccl_ras_process {
    int rank, pid;
};

struct nccl_ras {
    bool answered;
    int communicators;
    struct nccl_ras_finding *v;
    size_t n, named;
    struct nccl_ras_process *processes; /* reported by the nodes; NULL after nccl_ras_resolve() */
    size_t nprocesses;
};

/* Read the answer to VERBOSE STATUS. 0, -EPROTO: not an answer of NCCL's RAS; -ENOMEM. The caller
 * frees *ret, also on failure. */
int nccl_ras_read(struct nccl_ras *ret, const char *text, size_t len);

/* Add a process of a rank, which may have several. 0 or -ENOMEM. */
int nccl_ras_add_process(struct nccl_ras *s, int rank, int pid);
/* Add the processes of `from`. Replace the findings of `to` by those of `from` if only the latter
 * has an answer of NCCL, or has one with more communicators. 0 or -ENOMEM. */
int nccl_ras_merge(struct nccl_ras *to, const struct nccl_ras *from);
/* Map the ranks that NCCL has named to ranks of the job, which has world_size ranks, and free the
 * list of processes. 0 or -ENOMEM. */
int nccl_ras_resolve(struct nccl_ras *s, int world_size);
void nccl_ras_done(struct nccl_ras *s);

/* Find the ranks for which the others wait: those whose processes do not answer, otherwise those
 * that have launched fewer operations than the others of a communicator. Ranks in `ended` do not
 * count as silent: they had exited, or failed because of a peer. Append "has launched …" to out.
 * Return 1, or 0 if nothing follows; -ENOMEM, -EMSGSIZE. */
int nccl_ras_missing(const struct nccl_ras *s, int world_size, const struct rank_set *ended,
                     struct rank_set *ret, struct dd_buf *out);

/* Append at most `lines` lines, each with this indent; nothing if NCCL has not answered. */
int nccl_ras_text(const struct nccl_ras *s, const char *indent, size_t lines, struct dd_buf *out);

/* Return an object; JSON null: NCCL has not answered, and there is no process. NULL: out of
 * memory. */
struct json_t *nccl_ras_json(const struct nccl_ras *s);
/* Parse the object of a peer; NULL and JSON null: nothing. With workers >= 0, the object may
 * contain only processes of the ranks first to first + workers - 1, and no ranks of the job. 0,
 * -EPROTO, -EPERM: other ranks, or -ENOMEM. The caller frees *ret, also on failure. */
int nccl_ras_parse(struct nccl_ras *ret, const struct json_t *o, int first, int workers);

/* Append a finding. NULL: out of memory, or there are NCCL_RAS_FINDINGS already. */
struct nccl_ras_finding *nccl_ras_add(struct nccl_ras *s, enum nccl_ras_kind kind);
int nccl_ras_add_named(struct nccl_ras *s, struct nccl_ras_set *set, int number, int pid);
/* Copy text without control characters, cut. */
void nccl_ras_copy_name(char out[NCCL_RAS_NAME], const char *text, size_t len);

static inline void dd_auto_nccl_ras(struct nccl_ras *s)
{
    nccl_ras_done(s);
}

#endif
