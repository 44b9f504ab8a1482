#include "launch/launch_msg.h"

#include "base/cursor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 65536 };

static int put_text(struct dd_buf *out, const char *s)
{
    size_t n = s != NULL ? strlen(s) : 0;
    int rc = n > TEXT_MAX ? -EMSGSIZE : dd_wr_be(out, n, 4);
    return rc < 0 || n == 0 ? rc : dd_buf_append(out, s, n);
}

static int put_task(struct dd_buf *out, const struct launch_task *t)
{
    const char *const texts[] = {t->starter, t->program, t->words};
    int rc = dd_wr_u8(out, t->output);
    if (rc == 0)
        rc = dd_wr_u8(out, t->by_relay);
    if (rc == 0)
        rc = dd_wr_be(out, (uint64_t)t->fanout, 4);
    if (rc == 0)
        rc = dd_wr_be(out, t->grace_ms, 4);
    for (size_t i = 0; i < 3 && rc == 0; i++)
        rc = put_text(out, texts[i]);
    if (rc == 0)
        rc = dd_wr_be(out, (uint64_t)t->n, 4);
    for (int i = 0; i < t->n && rc == 0; i++)
        rc = dd_wr_be(out, (uint64_t)t->nodes[i], 4);
    return rc;
}

int launch_msg_encode(struct dd_buf *out, const struct launch_msg *m)
{
    int rc = dd_wr_u8(out, (uint8_t)m->type);
    if (rc == 0)
        rc = dd_wr_be(out, (uint64_t)m->node, 4);
    if (rc == 0)
        rc = dd_wr_be(out, m->value, 4);
    return rc < 0 || m->type != LAUNCH_TASK ? rc : put_task(out, &m->task);
}

/* Return a text, lent until *storage is freed. NULL: it is empty, or the reader has failed. */
static const char *get_text(struct dd_rd *r, void **storage)
{
    uint32_t n = dd_rd_u32_be(r);
    r->failed |= n > TEXT_MAX;
    const unsigned char *p = r->failed ? NULL : dd_rd_bytes(r, n);
    if (p == NULL || n == 0)
        return NULL;
    r->failed |= memchr(p, '\0', n) != NULL;
    *storage = strndup((const char *)p, n);
    r->failed |= *storage == NULL;
    return *storage;
}

static int get_node(struct dd_rd *r, int nnodes)
{
    uint32_t node = dd_rd_u32_be(r);
    r->failed |= node >= (uint32_t)nnodes;
    return r->failed ? 0 : (int)node;
}

static void get_task(struct launch_task *t, struct dd_rd *r, int nnodes)
{
    t->output = dd_rd_u8(r) != 0;
    t->by_relay = dd_rd_u8(r) != 0;
    uint32_t fanout = dd_rd_u32_be(r);
    r->failed |= fanout > LAUNCH_FANOUT_MAX;
    t->fanout = r->failed ? 0 : (int)fanout;
    t->grace_ms = dd_rd_u32_be(r);
    t->starter = get_text(r, &t->storage[0]);
    t->program = get_text(r, &t->storage[1]);
    t->words = get_text(r, &t->storage[2]);
    uint32_t n = dd_rd_u32_be(r);
    r->failed |= n >= (uint32_t)nnodes || dd_rd_left(r) != 4 * (size_t)n ||
                 (n > 0 && t->starter == NULL);
    if (r->failed || n == 0)
        return;
    int *nodes = calloc(n, sizeof(*nodes));
    r->failed |= nodes == NULL;
    while (!r->failed && t->n < (int)n)
        nodes[t->n++] = get_node(r, nnodes);
    t->nodes = t->storage[3] = nodes;
}

int launch_msg_decode(struct launch_msg *ret, const void *data, size_t n, int nnodes)
{
    struct dd_rd r = dd_rd_of(data, n);
    DD_AUTO(launch_msg) struct launch_msg m = {0};
    const unsigned type = dd_rd_u8(&r);
    r.failed |= type < LAUNCH_TASK || type > LAUNCH_CANCEL;
    m.type = (enum launch_msg_type)type;
    m.node = get_node(&r, m.type == LAUNCH_CREDIT ? LAUNCH_STREAMS : nnodes);
    m.value = dd_rd_u32_be(&r);
    if (!r.failed && m.type == LAUNCH_TASK)
        get_task(&m.task, &r, nnodes);
    if (r.failed || dd_rd_left(&r) > 0)
        return -EPROTO;
    *ret = m;
    m = (struct launch_msg){0};
    return 0;
}

void launch_msg_done(struct launch_msg *m)
{
    for (size_t i = 0; i < sizeof(m->task.storage) / sizeof(m->task.storage[0]); i++)
        free(m->task.storage[i]);
    *m = (struct launch_msg){0};
}

int launch_subtree(int n, int fanout, int k, int *ret_at)
{
    const long shares = fanout == 0 || n < fanout ? n : fanout;
    if (k >= shares)
        return 0;
    *ret_at = (int)((long)n * k / shares);
    return (int)((long)n * (k + 1) / shares) - *ret_at;
}
