/* Shared by the files of the helper ddrun-pmix, the only ones that know libpmix. */
#ifndef DD_PMI_HELPER_INNER_H
#define DD_PMI_HELPER_INNER_H

#include "base/buf.h"
#include "base/err.h"
#include "base/strv.h"
#include "pmi/libpmix.h"

#include <stdbool.h>
#include <stdint.h>

/* libpmix is loaded at run time: its headers' macros call these, too. */
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

/* The round, as the agent has told it. */
struct space {
    pmix_nspace_t name;
    const char *folder, *shm; /* lent from the agent's message; shm "": none */
    int node_rank, attempt;
    int nnodes, world_size, first_rank, local_size;
    int *sizes;
    struct dd_strv nodes; /* names that differ, without a domain */
};

/* The namespace and its processes, with all that a rank may ask for. */
int space_register(const struct space *s, struct dd_err *err);
/* Which node a rank is on; -1: there is no such rank. */
int space_node_of(const struct space *s, uint32_t rank);
/* How many nodes these processes are on. Appends "@0-2,5", their node ranks, where it is not all
 * nodes. -ENOTSUP: a process of another namespace; -ENOMEM, -EMSGSIZE. */
int space_nodes_of(const struct space *s, const pmix_proc_t procs[], size_t n, struct dd_buf *ret);
void space_done(struct space *s);

/* helper_modex.c */
enum { MODEX_MAX = 16 << 20 };
struct modex;
/* on_complete: all ranks of this node have published; lent for ever. */
int modex_new(struct modex **ret, const struct space *s,
              void (*on_complete)(const void *part, size_t len));
void modex_begin(struct modex *m);
void modex_complete(struct modex *m, const void *parts,
                    size_t len); /* of all nodes, one behind the other */
pmix_status_t modex_ask(struct modex *m, uint32_t rank, pmix_modex_cbfunc_t done, void *arg);
void modex_free(struct modex *m); /* once libpmix makes no more calls for it, so for tests only */

/* helper_group.c: a group's identifier, and what its members' nodes give each other when it is
 * formed. */
int group_part(struct dd_buf *out, const struct space *s, unsigned count, const pmix_info_t info[],
               size_t n);
pmix_data_array_t *group_members(const pmix_proc_t procs[], size_t n); /* NULL: no memory */
/* Calls done with what all these parts say. */
void group_formed(const void *parts, size_t len, const pmix_data_array_t *members,
                  pmix_info_cbfunc_t done, void *arg);

/* A call of libpmix that may finish later, on its own thread. */
struct later;
int later_wait(pmix_status_t rc, struct later *l);
struct later *later_new(void); /* NULL: no memory */
void later_done(pmix_status_t status, void *arg);

#endif
