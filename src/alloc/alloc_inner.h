/* Shared by the sources of an allocation; private to src/alloc. */
#ifndef DD_ALLOC_ALLOC_INNER_H
#define DD_ALLOC_ALLOC_INNER_H

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

/* ---- this machine (self.c) */

/* True if `host` is this machine: a local address, loopback, "localhost", or its full or short
 * name. */
bool alloc_is_me(const struct alloc_input *in, const char *host);
/* Return the position of this machine in a list: by full name, by local address, or by short name.
 * -ENOENT: no name is this machine; -ENOTUNIQ: several are. */
int alloc_find_me(const struct alloc_input *in, const struct hostlist *nodes);

/* ---- Slurm (slurm.c) */

/* Options have named the n nodes of the job. -EINVAL if srun has started one ddrun on each of them
 * and this is a further one: no place in the job would ever be left for it. */
int alloc_refuse_surplus(const struct alloc_input *in, int n, struct dd_err *err);

/* ---- variables of MPI launchers (mpi_launchers.c) */

/* True if an MPI launcher has started this process. */
bool alloc_is_mpi(const struct alloc_input *in);
/* -EINVAL or ALLOC_WRONG_FOR_ALL if an MPI launcher has started several ddruns on this node, or not
 * one on each node of the list, as far as the launcher's variables show. */
int alloc_check_mpi(const struct alloc_input *in, const struct hostlist *nodes, struct dd_err *err);
/* Return the index of this node among n nodes, from the MPI launcher's variables, for a list that
 * does not contain this machine's name; -ENOENT: unknown. */
int alloc_mpi_place(const struct alloc_input *in, int n);

/* ---- texts (text.c) */

struct alloc_shown {
    char text[128];
};

/* Choose the tip for users of ddrun, or for users of ddctl. */
static inline const char *alloc_either(const struct alloc_input *in, const char *starting,
                                       const char *asking)
{
    return in->list_only ? asking : starting;
}

/* Format a host list as an expression, shortened to fit a message. Lent by s. */
const char *alloc_show(struct alloc_shown *s, const struct hostlist *nodes);

enum { ALLOC_NNODES = 32 };
/* Format the value of --nnodes: "2", or "2:4" if the limits differ. Return text. */
const char *alloc_show_nnodes(char text[ALLOC_NNODES], const struct alloc_input *in);
/* True if --nnodes permits n nodes, or is not given. */
static inline bool alloc_permits(const struct alloc_input *in, int n)
{
    return in->max_nodes == 0 || (n >= in->min_nodes && (n <= in->max_nodes || in->spares));
}
/* -EINVAL with a message if --nnodes does not permit the n nodes of the job. */
int alloc_check_nnodes(const struct hostlist *nodes, int n, const char *source,
                       const struct alloc_input *in, struct dd_err *err);
/* Replace *to by formatted text, and free the old text. 0 or -ENOMEM. */
int alloc_set(char **to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* True for text that can be part of a job id: letters, digits and ".-_[]:+", 1 to 200 of them. */
bool alloc_id_ok(const char *text);
uint64_t alloc_hash(const char *text);
/* Append a hash of the command to requeue_id, which would otherwise be the same for all ddruns of
 * the scheduler's job. Only the words of the command are the same in all runs and on all nodes:
 * ddruns are not numbered, and a requeued job may get other nodes. --rdzv-id replaces the hash. 0
 * or -ENOMEM. */
int alloc_add_command(struct alloc *a, const struct alloc_input *in);
int alloc_no_memory(struct dd_err *err);

/* Copy the value of a variable that contains a job's id, for alloc_ops.own. */
bool alloc_own_is(char *const *env, const char *name, char ret[ALLOC_ID_SIZE]);

/* Read a variable that must be a number if it is set. 1: set, 0: not set (*ret unchanged), -EINVAL
 * with a message. */
int alloc_env_int(const struct alloc_input *in, const char *name, int min, int max, int *ret,
                  struct dd_err *err);

struct alloc_hostport {
    char host[256];
    int port; /* -1: not given */
};

/* Parse "HOST", "HOST:PORT", "[v6]", "[v6]:PORT" or "v6". 0 or -EINVAL. */
int alloc_hostport_parse(struct alloc_hostport *ret, const char *text, struct dd_err *err);

/* Determine the endpoint from --rdzv-endpoint, which takes precedence, --master-addr and
 * --master-port: host is empty, and port -1, if not given (explicit.c). */
int alloc_meet(struct alloc_hostport *ret, const struct alloc_input *in, struct dd_err *err);

bool alloc_is_etcd(const struct alloc_input *in); /* --rdzv-endpoint is an etcd URL */

/* ---- files (hostfile.c) */

/* Return the unique names of a node file, by first appearance; messages name `path`. The caller
 * owns *ret. */
int alloc_hostfile_parse(struct hostlist **ret, const char *path, const char *text, size_t n,
                         struct dd_err *err);
int alloc_hostfile_read(struct hostlist **ret, const struct alloc_input *in, const char *path,
                        struct dd_err *err);

/* ---- the file of PBS_GPUFILE (pbs_gpus.c) */

/* Append a string for each node, as in alloc.gpus, or nothing if the text names no GPU. Messages
 * name `path`. -EINVAL. */
int alloc_gpufile_parse(struct dd_strv *ret, const struct hostlist *nodes, const char *path,
                        const char *text, size_t n, struct dd_err *err);
/* Fill a->gpus if the file exists. */
int alloc_pbs_gpus(struct alloc *a, const struct alloc_input *in, struct dd_err *err);

/* ---- variables of Slurm (slurm_text.c) */

struct alloc_tasks {
    int *per_node;
    size_t n;
    int total;
    int most; /* maximum on one node */
};

/* Parse numbers of tasks, such as "2,1" or "4(x2),1". -EINVAL, -ENOMEM. Free per_node. */
int alloc_tasks_parse(struct alloc_tasks *ret, const char *text, struct dd_err *err);
/* Parse ports, such as "21001-21002,21005", up to ALLOC_MAX_PORTS of them. Return their number, or
 * -EINVAL. */
int alloc_ports_parse(uint16_t ports[ALLOC_MAX_PORTS], const char *text, struct dd_err *err);

#endif
