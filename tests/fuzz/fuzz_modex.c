/* modex: values that ranks publish and request, in any order, with any bytes from the other nodes.
 * This target replaces libpmix.
 *
 * The first byte: ranks of this node (1 to 4), and 0x08 = libpmix rejects some requests. Then steps
 * of (kind, rank, length, bytes). */
#include "base/cursor.h"
#include "pmi/helper_inner.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
#undef PMIx_server_dmodex_request
struct libpmix libpmix;

enum { RANKS = 4, ASKS = 64, REFUSES = 8 };
enum step { PUBLISH, PUBLISH_FAILED, ASK, COMPLETE };

static struct {
    pmix_dmodex_response_fn_t done[RANKS]; /* NULL: not requested, or answered */
    void *arg[RANKS];
    unsigned refuses;
    int completed, asked, answered;
} world;

static void must(bool ok)
{
    if (!ok)
        abort();
}

static pmix_status_t on_request(const pmix_proc_t *proc, pmix_dmodex_response_fn_t done, void *arg)
{
    must(proc->rank < RANKS && world.done[proc->rank] == NULL);
    if ((world.refuses >> proc->rank & 1) != 0)
        return PMIX_ERR_NOT_FOUND;
    world.done[proc->rank] = done;
    world.arg[proc->rank] = arg;
    return PMIX_SUCCESS;
}

static void on_complete(const void *part, size_t len)
{
    must(++world.completed == 1 && (len == 0 || part != NULL));
}

static void on_answer(pmix_status_t status, const char *data, size_t n, void *arg,
                      pmix_release_cbfunc_t release, void *release_arg)
{
    size_t sum = 0;
    (void)arg;
    must((status == PMIX_SUCCESS) == (data != NULL));
    for (size_t i = 0; data != NULL && i < n; i++)
        sum += (unsigned char)data[i]; /* read every byte of it */
    must(sum <= 255 * n);
    release(release_arg);
    world.answered++;
}

static void publish(uint32_t rank, pmix_status_t status, const unsigned char *p, size_t n)
{
    pmix_dmodex_response_fn_t done = world.done[rank % RANKS];
    world.done[rank % RANKS] = NULL;
    if (done != NULL)
        done(status, (char *)(uintptr_t)p, n, world.arg[rank % RANKS]);
}

static void do_step(struct modex *m, struct dd_rd *r, bool *completed)
{
    const unsigned what = dd_rd_u8(r);
    const uint32_t rank = dd_rd_u8(r);
    size_t n = dd_rd_u8(r);
    n = n < dd_rd_left(r) ? n : dd_rd_left(r);
    const unsigned char *p = dd_rd_bytes(r, n);
    switch ((enum step)(what & 3)) {
    case PUBLISH:
        publish(rank, PMIX_SUCCESS, p, n);
        break;
    case PUBLISH_FAILED:
        publish(rank, PMIX_ERR_NOT_FOUND, NULL, 0);
        break;
    case ASK:
        if (world.asked < ASKS)
            world.asked += modex_ask(m, rank, on_answer, NULL) == PMIX_SUCCESS;
        break;
    case COMPLETE:
    default:
        if (!*completed) { /* the agent sends the parts once */
            modex_complete(m, p, n);
            *completed = true;
            must(world.answered == world.asked);
        }
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dd_rd r = dd_rd_of(data, size);
    libpmix.PMIx_server_dmodex_request = on_request;
    const unsigned how = dd_rd_u8(&r);
    const struct space space = {
        .name = "ddrun", .nnodes = 2, .world_size = 2 * RANKS, .local_size = 1 + (int)(how & 3)};
    struct modex *m = NULL;
    bool completed = false;
    memset(&world, 0, sizeof(world));
    world.refuses = how & REFUSES ? how >> 4 : 0;
    must(modex_new(&m, &space, on_complete) == 0);
    modex_begin(m);
    while (dd_rd_left(&r) > 2)
        do_step(m, &r, &completed);
    for (uint32_t i = 0; i < RANKS; i++)
        publish(i, PMIX_ERR_NOT_FOUND, NULL, 0);
    if (!completed)
        modex_complete(m, NULL, 0);
    must(world.answered == world.asked);
    modex_free(m);
    return 0;
}
