/* PMIx groups. The members' nodes exchange proposed identifiers, the first of which is used, and
 * the data that libpmix has collected from the members:
 *
 *   part = u32_le bytes that follow | u64_le proposed identifier | data */
#include "pmi/helper_inner.h"

#include "base/auto.h"
#include "base/cursor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ID_SIZE = 8 };

/* Propose a unique identifier. Identifiers count down from 2^32 - 1, as in PRRTE, because Open MPI
 * itself uses the low numbers. */
static uint64_t propose(const struct space *s, unsigned count)
{
    return UINT32_MAX - ((uint64_t)count * (uint64_t)s->nnodes + (uint64_t)s->node_rank);
}

int group_part(struct dd_buf *out, const struct space *s, unsigned count, const pmix_info_t info[],
               size_t n)
{
    const pmix_byte_object_t *data = NULL;
    for (size_t i = 0; i < n; i++)
        if (PMIX_CHECK_KEY(&info[i], PMIX_GROUP_ENDPT_DATA) &&
            info[i].value.type == PMIX_BYTE_OBJECT)
            data = &info[i].value.data.bo;
    int rc = dd_wr_le(out, ID_SIZE + (data != NULL ? data->size : 0), 4);
    if (rc == 0)
        rc = dd_wr_le(out, propose(s, count), ID_SIZE);
    return rc == 0 && data != NULL && data->size > 0 ? dd_buf_append(out, data->bytes, data->size)
                                                     : rc;
}

/* Parse the parts; false: malformed, or out of memory. */
static bool read_parts(const void *parts, size_t len, uint64_t *ret_id, struct dd_buf *ret_data)
{
    struct dd_rd r = dd_rd_of(parts, len);
    bool first = true;
    while (dd_rd_left(&r) > 0 && !r.failed) {
        size_t n = dd_rd_u32(&r);
        uint64_t id = dd_rd_u64(&r);
        const unsigned char *data = n >= ID_SIZE ? dd_rd_bytes(&r, n - ID_SIZE) : NULL;
        if (data == NULL || r.failed ||
            (n > ID_SIZE && dd_buf_append(ret_data, data, n - ID_SIZE) < 0))
            return false;
        if (first)
            *ret_id = id;
        first = false;
    }
    return !first && !r.failed;
}

pmix_data_array_t *group_members(const pmix_proc_t procs[], size_t n)
{
    pmix_data_array_t *all = NULL;
    PMIX_DATA_ARRAY_CREATE(all, n, PMIX_PROC);
    if (all != NULL && all->array != NULL)
        memcpy(all->array, procs, n * sizeof(*procs));
    return all;
}

enum { GROUP_INFOS = 3 };

static void free_info(void *arg)
{
    pmix_info_t *info = arg;
    PMIX_INFO_FREE(info, GROUP_INFOS);
}

/* Reply with context id, membership and endpoint data. libpmix 4.2 passes only the id on to
 * clients, 5 also the membership. */
void group_formed(const void *parts, size_t len, const pmix_data_array_t *members,
                  pmix_info_cbfunc_t done, void *arg)
{
    DD_AUTO(buf) struct dd_buf data = DD_BUF_INIT(MODEX_MAX);
    uint64_t id = 0;
    pmix_info_t *info = NULL;
    if (read_parts(parts, len, &id, &data))
        PMIX_INFO_CREATE(info, GROUP_INFOS);
    if (info == NULL) {
        done(PMIX_ERROR, NULL, 0, arg, NULL, NULL);
        return;
    }
    size_t context = id;
    pmix_byte_object_t all = {.bytes = (char *)data.data, .size = data.len};
    (void)PMIx_Info_load(&info[0], PMIX_GROUP_CONTEXT_ID, &context, PMIX_SIZE);
    (void)PMIx_Info_load(&info[1], PMIX_GROUP_MEMBERSHIP, members, PMIX_DATA_ARRAY);
    if (data.len > 0)
        (void)PMIx_Info_load(&info[2], PMIX_GROUP_ENDPT_DATA, &all, PMIX_BYTE_OBJECT);
    done(PMIX_SUCCESS, info, data.len > 0 ? 3 : 2, arg, free_info, info);
}
