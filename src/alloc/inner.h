/* What the sources of an allocation share; private to this room. */
#ifndef DD_ALLOC_INNER_H
#define DD_ALLOC_INNER_H

#include "alloc/alloc.h"

extern const struct alloc_ops alloc_etcd;
extern const struct alloc_ops alloc_hosts;
extern const struct alloc_ops alloc_hostfile;
extern const struct alloc_ops alloc_explicit;
extern const struct alloc_ops alloc_slurm_step;
extern const struct alloc_ops alloc_slurm_batch;
extern const struct alloc_ops alloc_pbs;
extern const struct alloc_ops alloc_lsf;
extern const struct alloc_ops alloc_sge;
extern const struct alloc_ops alloc_oar;
extern const struct alloc_ops alloc_cobalt;
extern const struct alloc_ops alloc_cobalt_xc;
extern const struct alloc_ops alloc_flux;
extern const struct alloc_ops alloc_launched;
extern const struct alloc_ops alloc_endpoint;
extern const struct alloc_ops alloc_local;

/* ---- who am I (self.c) */

/* Whether `host` is this machine: a local address, loopback, "localhost", or its full or short
 * name. */
bool alloc_is_me(const struct alloc_input *in, const char *host);
/* My position in a list: by full name, else by local address, else by short name. -ENOENT;
 * -ENOTUNIQ when more than one name is this machine. */
int alloc_find_me(const struct alloc_input *in, const struct hostlist *nodes);

/* ---- what an MPI launcher tells of its processes (mpi.c) */

/* Whether this is a process of one. */
bool alloc_is_mpi(const struct alloc_input *in);
/* -EINVAL: it has started several ddrun on this node, or not one on each node of the list, where it
 * tells so much. */
int alloc_check_mpi(const struct alloc_input *in, const struct hostlist *nodes, struct dd_err *err);
/* Which of n nodes this is, where names say nothing and there is one process on each; -ENOENT: it
 * does not tell. */
int alloc_mpi_place(const struct alloc_input *in, int n);

/* ---- texts (text.c) */

struct alloc_shown {
    char text[128];
};

/* What would be right, for those who start workers and for those who only ask (ddctl). */
static inline const char *alloc_either(const struct alloc_input *in, const char *starting,
                                       const char *asking)
{
    return in->list_only ? asking : starting;
}

/* A host list as an expression, cut to fit a sentence. Lends s. */
const char *alloc_show(struct alloc_shown *s, const struct hostlist *nodes);
/* *to = formatted text; what was there is freed. */
int alloc_set(char **to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Fit to be part of a job id: letters, digits and ".-_[]:+", 1 to 200 of them. */
bool alloc_id_ok(const char *text);
uint64_t alloc_hash(const char *text);
int alloc_no_memory(struct dd_err *err);

/* The value of a variable that is a job's id, for alloc_ops.own. */
bool alloc_own_is(char *const *env, const char *name, char ret[ALLOC_ID_SIZE]);

/* A variable that must be a number when it is set. 1: set, 0: not set (*ret is left alone),
 * -EINVAL: a sentence. */
int alloc_env_int(const struct alloc_input *in, const char *name, int min, int max, int *ret,
                  struct dd_err *err);

struct alloc_hostport {
    char host[256];
    int port; /* -1: not said */
};

/* "HOST", "HOST:PORT", "[v6]", "[v6]:PORT", "v6". -EINVAL. */
int alloc_hostport_parse(struct alloc_hostport *ret, const char *text, struct dd_err *err);

/* Where the nodes meet, as far as --rdzv-endpoint (which goes before), --master-addr and
 * --master-port say it: host is empty, port -1 when not (explicit.c). */
int alloc_meet(struct alloc_hostport *ret, const struct alloc_input *in, struct dd_err *err);

bool alloc_is_etcd(const struct alloc_input *in); /* --rdzv-endpoint is one (etcd.c) */

/* ---- files (hostfile.c) */

/* Unique names of a node file, by first appearance; `path` is for sentences. Gives *ret. */
int alloc_hostfile_parse(struct hostlist **ret, const char *path, const char *text, size_t n,
                         struct dd_err *err);
int alloc_hostfile_read(struct hostlist **ret, const struct alloc_input *in, const char *path,
                        struct dd_err *err);

/* ---- the file of PBS_GPUFILE (pbs_gpus.c) */

/* A string for each node, as in alloc.gpus; none at all where the text names no GPU. `path` is for
 * sentences. -EINVAL. */
int alloc_gpufile_parse(struct dd_strv *ret, const struct hostlist *nodes, const char *path,
                        const char *text, size_t n, struct dd_err *err);
/* a->gpus, where the file is there. */
int alloc_pbs_gpus(struct alloc *a, const struct alloc_input *in, struct dd_err *err);

/* ---- variables of Slurm (slurm_text.c) */

struct alloc_tasks {
    int *per_node;
    size_t n;
    int total;
    int most; /* on one node */
};

/* "2,1" or "4(x2),1". -EINVAL; -ENOMEM. Free per_node. */
int alloc_tasks_parse(struct alloc_tasks *ret, const char *text, struct dd_err *err);
/* "21001-21002,21005": the first ALLOC_MAX_PORTS. Their number, or -EINVAL. */
int alloc_ports_parse(uint16_t ports[ALLOC_MAX_PORTS], const char *text, struct dd_err *err);

#endif
