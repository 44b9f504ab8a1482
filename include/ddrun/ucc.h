/* UCC's out-of-band allgather for the workers of a ddrun job: ucc_context_create() and
 * ucc_team_create_post() use it to exchange addresses.
 *
 * Header only, on top of libddrun. Include <ucc/api/ucc.h> first:
 *
 *     ucc_context_params_t p = {.mask = UCC_CONTEXT_PARAM_FIELD_OOB};
 *     struct ddrun_ucc oob;
 *     ddrun_ucc_oob(&oob, d, NULL, &p.oob);
 *
 * oob must live as long as the context or the team. A group has one allgather at a time: use
 * two groups for a context and a team that are created at the same time.
 */
#ifndef DDRUN_UCC_H
#define DDRUN_UCC_H

#include <ddrun/ddrun.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ddrun_ucc {
    struct ddrun *d;
    struct ddrun_group *g;
};

struct ddrun_ucc_request_ {
    struct ddrun_request *r;
    char *out;
    size_t len;
    int n;
};

static inline ucc_status_t ddrun_ucc_status_(int rc)
{
    return rc == -ENOMEM      ? UCC_ERR_NO_MEMORY
           : rc == -ETIMEDOUT ? UCC_ERR_TIMED_OUT
           : rc == -EINVAL    ? UCC_ERR_INVALID_PARAM
                              : UCC_ERR_NO_MESSAGE;
}

/* Start to gather len bytes from each member into `out`; `in` has the bytes of this member. */
static inline ucc_status_t ddrun_ucc_allgather_(void *in, void *out, size_t len, void *info,
                                                void **request)
{
    struct ddrun_ucc *u = (struct ddrun_ucc *)info;
    struct ddrun_ucc_request_ *q = (struct ddrun_ucc_request_ *)calloc(1, sizeof(*q));
    int rc;
    if (q == NULL)
        return UCC_ERR_NO_MEMORY;
    q->out = (char *)out;
    q->len = len;
    q->n = ddrun_group_size(u->d, u->g);
    rc = ddrun_allgatherv_begin(u->d, u->g, in, len, &q->r);
    if (rc < 0) {
        free(q);
        return ddrun_ucc_status_(rc);
    }
    *request = q;
    return UCC_OK;
}

static inline ucc_status_t ddrun_ucc_test_(void *request)
{
    struct ddrun_ucc_request_ *q = (struct ddrun_ucc_request_ *)request;
    struct ddrun_piece *v = NULL;
    ucc_status_t status = UCC_OK;
    int i, rc = ddrun_test(q->r, &v);
    if (rc <= 0)
        return rc == 0 ? UCC_INPROGRESS : ddrun_ucc_status_(rc);
    for (i = 0; v != NULL && i < q->n; i++) {
        if (v[i].len == q->len)
            memcpy(q->out + (size_t)i * q->len, v[i].data, q->len);
        else
            status = UCC_ERR_INVALID_PARAM;
    }
    free(v);
    return status;
}

static inline ucc_status_t ddrun_ucc_free_(void *request)
{
    struct ddrun_ucc_request_ *q = (struct ddrun_ucc_request_ *)request;
    ddrun_request_free(q->r);
    free(q);
    return UCC_OK;
}

/* Fill in *oob for the members of the group g; NULL: all workers. */
static inline void ddrun_ucc_oob(struct ddrun_ucc *u, struct ddrun *d, struct ddrun_group *g,
                                 ucc_oob_coll_t *oob)
{
    u->d = d;
    u->g = g;
    oob->allgather = ddrun_ucc_allgather_;
    oob->req_test = ddrun_ucc_test_;
    oob->req_free = ddrun_ucc_free_;
    oob->coll_info = u;
    oob->n_oob_eps = (uint32_t)ddrun_group_size(d, g);
    oob->oob_ep = (uint32_t)ddrun_group_rank(d, g);
}

#ifdef __cplusplus
}
#endif

#endif
