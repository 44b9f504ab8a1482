/* The functions of libpmix that the helper calls, directly or through macros of its headers. */
#ifndef DD_PMI_LIBPMIX_H
#define DD_PMI_LIBPMIX_H

#include "base/library.h"

#include <pmix_server.h>
#include <pmix.h> /* last: the headers need each other */

#define LIBPMIX_ALWAYS(X)                                                                          \
    X(PMIx_Data_array_destruct)                                                                    \
    X(PMIx_Error_string)                                                                           \
    X(PMIx_Get_version)                                                                            \
    X(PMIx_Info_load)                                                                              \
    X(PMIx_Value_destruct)                                                                         \
    X(PMIx_generate_ppn)                                                                           \
    X(PMIx_generate_regex)                                                                         \
    X(PMIx_server_dmodex_request)                                                                  \
    X(PMIx_server_init)                                                                            \
    X(PMIx_server_register_client)                                                                 \
    X(PMIx_server_register_nspace)                                                                 \
    X(PMIx_server_setup_fork)

/* Functions that are macros of the headers in version 4. */
#if PMIX_VERSION_MAJOR >= 5
#define LIBPMIX_SINCE_5(X)                                                                         \
    X(PMIx_Check_key)                                                                              \
    X(PMIx_Data_array_create)                                                                      \
    X(PMIx_Data_array_free)                                                                        \
    X(PMIx_Info_create)                                                                            \
    X(PMIx_Info_destruct)                                                                          \
    X(PMIx_Info_free)                                                                              \
    X(PMIx_Load_nspace)                                                                            \
    X(PMIx_Load_procid)
#else
#define LIBPMIX_SINCE_5(X)
#endif

struct libpmix {
    LIBPMIX_ALWAYS(DD_LIBRARY_FIELD)
    LIBPMIX_SINCE_5(DD_LIBRARY_FIELD)
};

extern struct libpmix libpmix; /* global, like the functions of a linked library */

int libpmix_load(struct dd_err *err);

#endif
