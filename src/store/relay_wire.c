#include "store/relay_wire.h"

#include "base/cursor.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Fields in their order: c: conn, n: n, k: key after its length, d: data up to the end. */
static const char *const relay_wire_fields[RELAY_TYPES] = {
    [RELAY_BEGIN] = "",   [RELAY_OPEN] = "cn",  [RELAY_DATA] = "cnd", [RELAY_CLOSE] = "c",
    [RELAY_ASK] = "k",    [RELAY_VALUE] = "kd", [RELAY_EACH] = "k",   [RELAY_RECALL] = "k",
    [RELAY_DROPPED] = "", [RELAY_CREDIT] = "n", [RELAY_END] = "",
};

static int relay_wire_put(struct dd_buf *out, const struct relay_msg *m, char field)
{
    switch (field) {
    case 'c':
        return dd_wr_le(out, m->conn, 4);
    case 'n':
        return dd_wr_le(out, m->n, 4);
    case 'k': {
        int rc = dd_wr_le(out, m->key.n, 4);
        return rc < 0 ? rc : dd_buf_append(out, m->key.p, m->key.n);
    }
    default:
        return dd_buf_append(out, m->data.p, m->data.n);
    }
}

int relay_wire_encode(struct dd_buf *out, const struct relay_msg *m)
{
    int rc = dd_wr_le(out, m->round, 4);
    if (rc == 0)
        rc = dd_wr_u8(out, (uint8_t)m->type);
    for (const char *f = relay_wire_fields[m->type]; rc == 0 && *f != '\0'; f++)
        rc = relay_wire_put(out, m, *f);
    return rc;
}

static void relay_wire_get(struct relay_msg *m, struct dd_rd *r, char field)
{
    switch (field) {
    case 'c':
        m->conn = dd_rd_u32(r);
        break;
    case 'n':
        m->n = dd_rd_u32(r);
        break;
    case 'k':
        m->key.n = dd_rd_u32(r);
        m->key.p = dd_rd_bytes(r, m->key.n);
        break;
    default:
        m->data.n = dd_rd_left(r);
        m->data.p = dd_rd_bytes(r, m->data.n);
    }
}

size_t relay_wire_cost(const struct relay_msg *m)
{
    const bool counts = strpbrk(relay_wire_fields[m->type], "kd") != NULL;
    return counts ? m->key.n + m->data.n + RELAY_HEAD_MAX : 0;
}

int relay_wire_decode(struct relay_msg *ret, const void *p, size_t n)
{
    struct dd_rd r = dd_rd_of(p, n);
    *ret = (struct relay_msg){.round = dd_rd_u32(&r)};
    const uint8_t type = dd_rd_u8(&r);
    if (r.failed || type < RELAY_BEGIN || type >= RELAY_TYPES)
        return -EPROTO;
    ret->type = type;
    for (const char *f = relay_wire_fields[type]; *f != '\0'; f++)
        relay_wire_get(ret, &r, *f);
    return r.failed || dd_rd_left(&r) > 0 ? -EPROTO : 0;
}
