#include "rdzv/exchange.h"

#include "base/cursor.h"
#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

struct open_name {
    LIST_ENTRY(open_name) entry;
    char name[EXCHANGE_NAME_MAX + 1];
    size_t bytes; /* total size of the announced parts */
    int missing;  /* number of nodes with an incomplete part */
    struct node_part {
        struct dd_buf data;
        size_t left;
        bool begun;
        bool absent; /* the name excludes this node */
    } *nodes;
    struct exchange_part *parts; /* [nnodes] set once the exchange is complete */
};

LIST_HEAD(open_names, open_name);

struct exchange {
    int nnodes, nopen;
    struct open_names names;
};

/* ---- pieces ---- */

static bool exchange_is_name(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] <= ' ' || p[i] > '~')
            return false;
    return n > 0 && n <= EXCHANGE_NAME_MAX;
}

int exchange_piece_decode(struct exchange_piece *ret, const void *p, size_t n)
{
    struct dd_rd r = dd_rd_of(p, n);
    *ret = (struct exchange_piece){.round = dd_rd_u32_be(&r)};
    ret->node_rank = dd_rd_u32_be(&r);
    ret->left = dd_rd_u32_be(&r);
    size_t len = dd_rd_u8(&r);
    const unsigned char *name = dd_rd_bytes(&r, len);
    if (r.failed || !exchange_is_name(name, len) || dd_rd_left(&r) > EXCHANGE_PIECE ||
        ret->left > EXCHANGE_MAX)
        return -EPROTO;
    memcpy(ret->name, name, len);
    ret->data = (struct exchange_part){r.p, dd_rd_left(&r)};
    return ret->data.len == 0 && ret->left > 0 ? -EPROTO : 0;
}

int exchange_piece_encode(struct dd_buf *out, uint32_t round, uint32_t node_rank, const char *name,
                          const struct exchange_part *part, size_t *at)
{
    size_t n = part->len - *at < EXCHANGE_PIECE ? part->len - *at : EXCHANGE_PIECE;
    size_t len = strlen(name);
    if (!exchange_is_name((const unsigned char *)name, len))
        return -EINVAL;
    int rc = dd_wr_be(out, round, 4);
    if (rc == 0)
        rc = dd_wr_be(out, node_rank, 4);
    if (rc == 0)
        rc = dd_wr_be(out, part->len - *at - n, 4);
    if (rc == 0)
        rc = dd_wr_u8(out, (uint8_t)len);
    if (rc == 0)
        rc = dd_buf_append(out, name, len);
    if (rc == 0 && n > 0)
        rc = dd_buf_append(out, part->data + *at, n);
    if (rc == 0)
        *at += n;
    return rc;
}

/* ---- assembly ---- */

int exchange_new(struct exchange **ret, int nnodes)
{
    struct exchange *x = calloc(1, sizeof(*x));
    if (x == NULL)
        return -ENOMEM;
    x->nnodes = nnodes;
    LIST_INIT(&x->names);
    *ret = x;
    return 0;
}

static void exchange_forget(struct exchange *x, struct open_name *o)
{
    for (int i = 0; i < x->nnodes; i++)
        dd_buf_done(&o->nodes[i].data);
    LIST_REMOVE(o, entry);
    x->nopen--;
    free(o->nodes);
    free(o->parts);
    free(o);
}

void exchange_free(struct exchange *x)
{
    while (x != NULL && !LIST_EMPTY(&x->names))
        exchange_forget(x, LIST_FIRST(&x->names));
    free(x);
}

static struct open_name *exchange_find(const struct exchange *x, const char *name)
{
    struct open_name *o;
    LIST_FOREACH (o, &x->names, entry)
        if (strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

/* Parse "3" or "3-5"; ranges must ascend. */
static int exchange_read_range(const char *text, int first_min, int nnodes, int *first, int *last)
{
    char part[EXCHANGE_NAME_MAX + 1];
    (void)snprintf(part, sizeof(part), "%.*s", (int)strcspn(text, ","), text);
    char *dash = strchr(part, '-');
    if (dash != NULL)
        *dash++ = '\0';
    int rc = dd_num_int(part, first_min, nnodes - 1, first);
    *last = *first;
    return rc == 0 && dash != NULL ? dd_num_int(dash, *first, nnodes - 1, last) : rc;
}

/* Mark the nodes that the name excludes. 0, or -EPROTO. */
static int read_members(struct open_name *o, int nnodes)
{
    const char *at = strchr(o->name, '@');
    o->missing = nnodes;
    if (at == NULL)
        return 0;
    int next = 0;
    o->missing = 0;
    do {
        int first;
        int last;
        at++;
        if (exchange_read_range(at, next, nnodes, &first, &last) < 0)
            return -EPROTO;
        for (; next < first; next++)
            o->nodes[next].absent = true;
        o->missing += last - first + 1;
        next = last + 1;
        at += strcspn(at, ",");
    } while (*at != '\0');
    for (; next < nnodes; next++)
        o->nodes[next].absent = true;
    return 0;
}

static int exchange_begin(struct open_name **ret, struct exchange *x, const char *name)
{
    struct open_name *o = calloc(1, sizeof(*o));
    struct node_part *nodes = calloc((size_t)x->nnodes, sizeof(*nodes));
    struct exchange_part *parts = calloc((size_t)x->nnodes, sizeof(*parts));
    if (o == NULL || nodes == NULL || parts == NULL) {
        free(o);
        free(nodes);
        free(parts);
        return -ENOMEM;
    }
    memcpy(o->name, name, strlen(name) + 1);
    o->nodes = nodes;
    o->parts = parts;
    LIST_INSERT_HEAD(&x->names, o, entry);
    x->nopen++;
    int rc = read_members(o, x->nnodes);
    if (rc < 0)
        exchange_forget(x, o);
    else
        *ret = o;
    return rc;
}

/* Handle the first piece of a node, which announces the size of its part. */
static int announce(struct open_name *o, struct node_part *n, const struct exchange_piece *p,
                    struct dd_err *err)
{
    size_t all = p->data.len + p->left;
    if (all > EXCHANGE_MAX - o->bytes)
        return dd_err_set(err, -EMSGSIZE, "exchange '%s' exceeds %d MiB", p->name,
                          EXCHANGE_MAX >> 20);
    o->bytes += all;
    *n = (struct node_part){.begun = true, .left = all, .data = DD_BUF_INIT(all)};
    return 0;
}

static int exchange_add(struct exchange *x, struct open_name *o, const struct exchange_piece *p,
                        struct dd_err *err)
{
    struct node_part *n = &o->nodes[p->node_rank];
    if (n->absent)
        return dd_err_set(err, -EPROTO, "node rank %u is not a member of exchange '%s'",
                          p->node_rank, p->name);
    if (!n->begun) {
        int rc = announce(o, n, p, err);
        if (rc < 0)
            return rc;
    } else if (n->left == 0 || n->left != p->data.len + p->left) {
        return dd_err_set(err, -EPROTO,
                          "node rank %u sent a piece out of sequence for exchange '%s'",
                          p->node_rank, p->name);
    }
    if (p->data.len > 0 && dd_buf_append(&n->data, p->data.data, p->data.len) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory for exchange '%s'", p->name);
    n->left = p->left;
    if (n->left > 0 || --o->missing > 0)
        return 0;
    for (int i = 0; i < x->nnodes; i++)
        o->parts[i] = (struct exchange_part){o->nodes[i].data.data, o->nodes[i].data.len};
    return 1;
}

int exchange_take(struct exchange *x, const struct exchange_piece *p, struct dd_err *err)
{
    struct open_name *o = exchange_find(x, p->name);
    if (p->node_rank >= (uint32_t)x->nnodes)
        return dd_err_set(err, -EPROTO, "invalid node rank %u in exchange '%s': expected 0 to %d",
                          p->node_rank, p->name, x->nnodes - 1);
    if (o == NULL && x->nopen == EXCHANGE_OPEN_MAX)
        return dd_err_set(
            err, -EMSGSIZE,
            "cannot begin exchange '%s': too many exchanges are incomplete (limit %d)", p->name,
            EXCHANGE_OPEN_MAX);
    int rc = o == NULL ? exchange_begin(&o, x, p->name) : 0;
    if (rc < 0)
        return dd_err_set(
            err, rc,
            rc == -ENOMEM
                ? "out of memory for exchange '%s'"
                : "invalid node ranks in the name of exchange '%s': expected an ascending list "
                  "of 0 to %d",
            p->name, x->nnodes - 1);
    return exchange_add(x, o, p, err);
}

bool exchange_is_open(const struct exchange *x, const char *name)
{
    return exchange_find(x, name) != NULL;
}

bool exchange_takes_part(const struct exchange *x, const char *name, int node_rank)
{
    const struct open_name *o = exchange_find(x, name);
    return o != NULL && !o->nodes[node_rank].absent;
}

const struct exchange_part *exchange_parts(const struct exchange *x, const char *name)
{
    const struct open_name *o = exchange_find(x, name);
    return o != NULL && o->missing == 0 ? o->parts : NULL;
}

void exchange_drop(struct exchange *x, const char *name)
{
    struct open_name *o = exchange_find(x, name);
    if (o != NULL)
        exchange_forget(x, o);
}
