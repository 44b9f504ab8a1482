/* Private to the helper ddrun-pmix, the only program that uses libpmix. */
#ifndef DD_PMI_HELPER_INNER_H
#define DD_PMI_HELPER_INNER_H

#include "base/buf.h"
#include "base/err.h"
#include "base/strv.h"
#include "pmi/libpmix.h"

#include <stdbool.h>
#include <stdint.h>

/* libpmix is loaded at run time; the macros of its headers also call these functions. */
#define PMIx_Data_array_destruct (*libpmix.PMIx_Data_array_destruct)
#define PMIx_Error_string (*libpmix.PMIx_Error_string)
#define PMIx_Get_version (*libpmix.PMIx_Get_version)
#define PMIx_Info_load (*libpmix.PMIx_Info_load)
#define PMIx_Value_destruct (*libpmix.PMIx_Value_destruct)
#define PMIx_generate_ppn (*libpmix.PMIx_generate_ppn)
#define PMIx_generate_regex (*libpmix.PMIx_generate_regex)
#define PMIx_server_dmodex_request (*libpmix.PMIx_server_dmodex_request)
#define PMIx_server_init (*libpmix.PMIx_server_init)
#define PMIx_server_register_client (*libpmix.PMIx_server_register_client)
#define PMIx_server_register_nspace (*libpmix.PMIx_server_register_nspace)
#define PMIx_server_setup_fork (*libpmix.PMIx_server_setup_fork)
#if PMIX_VERSION_MAJOR >= 5
#define PMIx_Check_key (*libpmix.PMIx_Check_key)
#define PMIx_Data_array_create (*libpmix.PMIx_Data_array_create)
#define PMIx_Data_array_free (*libpmix.PMIx_Data_array_free)
#define PMIx_Info_create (*libpmix.PMIx_Info_create)
#define PMIx_Info_destruct (*libpmix.PMIx_Info_destruct)
#define PMIx_Info_free (*libpmix.PMIx_Info_free)
#define PMIx_Load_nspace (*libpmix.PMIx_Load_nspace)
#define PMIx_Load_procid (*libpmix.PMIx_Load_procid)
#endif

/* The configuration of the round, sent by the agent. */
struct space {
    pmix_nspace_t name;
    const char *directory, *shm; /* borrowed from the agent's message; shm "": none */
    int node_rank, attempt;
    int nnodes, world_size, first_rank, local_size;
    int *sizes;
    struct dd_strv nodes; /* distinct names without domains */
};

/* Register the namespace and its processes, with all keys that a rank may request. */
int space_register(const struct space *s, struct dd_err *err);
/* Return the node of a rank; -1: no such rank. */
int space_node_of(const struct space *s, uint32_t rank);
/* Return the number of nodes of these processes. Append "@0-2,5", their node ranks, unless these
 * are all nodes. -ENOTSUP: a process of another namespace; -ENOMEM, -EMSGSIZE. */
int space_nodes_of(const struct space *s, const pmix_proc_t procs[], size_t n, struct dd_buf *ret);
void space_done(struct space *s);

/* helper_modex.c */
enum { MODEX_MAX = 16 << 20 };
struct modex;
/* on_complete: called when all ranks of this node have published; part is valid until modex_free().
 */
int modex_new(struct modex **ret, const struct space *s,
              void (*on_complete)(const void *part, size_t len));
void modex_begin(struct modex *m);
void modex_complete(struct modex *m, const void *parts,
                    size_t len); /* parts: of all nodes, concatenated */
pmix_status_t modex_ask(struct modex *m, uint32_t rank, pmix_modex_cbfunc_t done, void *arg);
void modex_free(struct modex *m); /* only for tests: libpmix must not use m any more */

/* helper_group.c: the identifier of a group and the data that its members' nodes exchange. */
int group_part(struct dd_buf *out, const struct space *s, unsigned count, const pmix_info_t info[],
               size_t n);
pmix_data_array_t *group_members(const pmix_proc_t procs[], size_t n); /* NULL: out of memory */
/* Call done with the content of all parts. */
void group_formed(const void *parts, size_t len, const pmix_data_array_t *members,
                  pmix_info_cbfunc_t done, void *arg);

/* A call of libpmix that may complete later, on libpmix's thread. */
struct later;
int later_wait(pmix_status_t rc, struct later *l);
struct later *later_new(void); /* NULL: out of memory */
void later_done(pmix_status_t status, void *arg);

#endif
