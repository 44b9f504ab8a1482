#include "report/pickle.h"

#include "base/cursor.h"

#include <errno.h>
#include <stdlib.h>

struct pickle_value {
    json_t *v;
    int depth;     /* containers within this one, itself included; 0: no container */
    bool recalled; /* another container may contain it, too, so it must not change */
    size_t memo;   /* 1 + index of the value in the memo; 0: not in the memo */
};

struct pickle_memo {
    json_t *v;
    int depth;
    bool sealed; /* the value was recalled: a container must not grow any more */
};

/* The stack machine of a pickle: instructions push values, and move those above the last mark into
 * a container. A container that was recalled must not grow, so that none can contain itself. */
struct pickle {
    struct dd_rd in;
    struct pickle_value *stack;
    size_t n, cap;
    size_t marks[PICKLE_MAX_DEPTH];
    size_t n_marks;
    struct pickle_memo *memo;
    size_t n_memo;
    size_t n_containers;
    bool stopped;
};

static int pickle_grow(struct pickle *p)
{
    size_t cap = p->cap == 0 ? 64 : 2 * p->cap;
    if (cap > PICKLE_MAX_STACK)
        return -EMSGSIZE;
    struct pickle_value *stack = realloc(p->stack, cap * sizeof(*stack));
    if (stack == NULL)
        return -ENOMEM;
    p->stack = stack;
    p->cap = cap;
    return 0;
}

/* Push v. Takes ownership of v, also on failure. */
static int pickle_push(struct pickle *p, json_t *v, int depth)
{
    int rc = v == NULL ? -ENOMEM : p->n == p->cap ? pickle_grow(p) : 0;
    if (rc < 0) {
        json_decref(v);
        return rc;
    }
    p->stack[p->n++] = (struct pickle_value){.v = v, .depth = depth};
    return 0;
}

static int pickle_push_container(struct pickle *p, json_t *v, int depth)
{
    if (++p->n_containers <= PICKLE_MAX_CONTAINERS)
        return pickle_push(p, v, depth);
    json_decref(v);
    return -EMSGSIZE;
}

static int pickle_push_string(struct pickle *p)
{
    uint32_t len = dd_rd_u32(&p->in);
    const unsigned char *text = dd_rd_bytes(&p->in, len);
    if (text == NULL)
        return -EPROTO;
    json_t *v = json_stringn((const char *)text, len);
    return v == NULL ? -EPROTO : pickle_push(p, v, 0); /* NULL also for invalid UTF-8 */
}

/* Push an integer of at most 8 bytes, little-endian, in two's complement. */
static int pickle_push_long(struct pickle *p)
{
    size_t len = dd_rd_u8(&p->in);
    const unsigned char *b = len <= 8 ? dd_rd_bytes(&p->in, len) : NULL;
    uint64_t v = len > 0 && b != NULL && (b[len - 1] & 0x80) != 0 ? UINT64_MAX : 0;
    if (b == NULL)
        return -EPROTO;
    for (size_t i = len; i > 0; i--)
        v = v << 8 | b[i - 1];
    return pickle_push(p, json_integer((json_int_t)v), 0);
}

static int pickle_push_double(struct pickle *p)
{
    uint64_t bits = (uint64_t)dd_rd_u32_be(&p->in) << 32;
    double v;
    bits |= dd_rd_u32_be(&p->in);
    memcpy(&v, &bits, sizeof(v));
    json_t *number = json_real(v);
    return number == NULL ? -EPROTO : pickle_push(p, number, 0); /* NULL for a NaN, too */
}

static int pickle_remember(struct pickle *p, size_t at)
{
    if (p->n == 0 || at != p->n_memo || at >= PICKLE_MAX_STACK)
        return -EPROTO;
    struct pickle_value *top = &p->stack[p->n - 1];
    if (top->memo > 0) /* each place is written once, and each value has one place */
        return -EPROTO;
    struct pickle_memo *memo = realloc(p->memo, (at + 1) * sizeof(*memo));
    if (memo == NULL)
        return -ENOMEM;
    p->memo = memo;
    p->memo[p->n_memo++] = (struct pickle_memo){.v = json_incref(top->v), .depth = top->depth};
    top->memo = p->n_memo;
    return 0;
}

static int pickle_recall(struct pickle *p, size_t at)
{
    if (at >= p->n_memo)
        return -EPROTO;
    p->memo[at].sealed = true;
    int rc = pickle_push(p, json_incref(p->memo[at].v), p->memo[at].depth);
    if (rc == 0)
        p->stack[p->n - 1].recalled = true;
    return rc;
}

static int pickle_mark(struct pickle *p)
{
    if (p->n_marks == PICKLE_MAX_DEPTH)
        return -EMSGSIZE;
    p->marks[p->n_marks++] = p->n;
    return 0;
}

/* Return the first value above the last mark, and remove the mark. */
static int pickle_unmark(struct pickle *p, size_t *ret)
{
    if (p->n_marks == 0 || p->marks[p->n_marks - 1] > p->n)
        return -EPROTO;
    *ret = p->marks[--p->n_marks];
    return 0;
}

static void pickle_drop(struct pickle *p, size_t down_to)
{
    while (p->n > down_to) {
        p->n--;
        json_decref(p->stack[p->n].v);
    }
}

static int pickle_put(struct pickle_value *container, const struct pickle_value *key,
                      const struct pickle_value *v)
{
    if (v->depth >= container->depth)
        container->depth = v->depth + 1;
    if (container->depth > PICKLE_MAX_DEPTH)
        return -EMSGSIZE;
    int rc = key == NULL ? json_array_append(container->v, v->v)
                         : json_object_set(container->v, json_string_value(key->v), v->v);
    return rc < 0 ? -EPROTO : 0;
}

/* True if v can be a key. Each dictionary copies its keys, so one long string must not become the
 * key of many dictionaries. */
static bool pickle_is_key(const json_t *v)
{
    return json_is_string(v) && json_string_length(v) <= PICKLE_MAX_KEY;
}

/* Move the values from `first` on into the list or dictionary below them. */
static int pickle_fill(struct pickle *p, size_t first, bool dictionary)
{
    size_t step = dictionary ? 2 : 1;
    if (first == 0 || first > p->n || (p->n - first) % step != 0)
        return -EPROTO;
    struct pickle_value *container = &p->stack[first - 1];
    struct pickle_memo *memo = container->memo > 0 ? &p->memo[container->memo - 1] : NULL;
    int rc = dictionary ? json_is_object(container->v) : json_is_array(container->v);
    rc = rc && !container->recalled && (memo == NULL || !memo->sealed) ? 0 : -EPROTO;
    for (size_t i = first; rc == 0 && i < p->n; i += step) {
        if (dictionary && !pickle_is_key(p->stack[i].v))
            rc = -EPROTO;
        else
            rc = pickle_put(container, dictionary ? &p->stack[i] : NULL, &p->stack[i + step - 1]);
    }
    if (memo != NULL)
        memo->depth = container->depth;
    pickle_drop(p, first);
    return rc;
}

static int pickle_fill_marked(struct pickle *p, bool dictionary)
{
    size_t first;
    int rc = pickle_unmark(p, &first);
    return rc < 0 ? rc : pickle_fill(p, first, dictionary);
}

/* Replace the last n values by a tuple of them. */
static int pickle_tuple(struct pickle *p, size_t n)
{
    struct pickle_value tuple = {.v = json_array(), .depth = 1};
    int rc = tuple.v == NULL ? -ENOMEM : n > p->n ? -EPROTO : 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = pickle_put(&tuple, NULL, &p->stack[p->n - n + i]);
    if (rc == 0)
        pickle_drop(p, p->n - n);
    if (rc == 0)
        return pickle_push_container(p, tuple.v, tuple.depth);
    json_decref(tuple.v);
    return rc;
}

static int pickle_marked_tuple(struct pickle *p)
{
    size_t first;
    int rc = pickle_unmark(p, &first);
    return rc < 0 ? rc : pickle_tuple(p, p->n - first);
}

static int pickle_scalar(struct pickle *p, unsigned char code)
{
    switch (code) {
    case 'N':
        return pickle_push(p, json_null(), 0);
    case 0x88:
        return pickle_push(p, json_true(), 0);
    case 0x89:
        return pickle_push(p, json_false(), 0);
    case 'K':
        return pickle_push(p, json_integer(dd_rd_u8(&p->in)), 0);
    case 'M': {
        unsigned low = dd_rd_u8(&p->in);
        return pickle_push(p, json_integer((json_int_t)(low | (unsigned)dd_rd_u8(&p->in) << 8)), 0);
    }
    case 'J':
        return pickle_push(p, json_integer((int32_t)dd_rd_u32(&p->in)), 0);
    case 'G':
        return pickle_push_double(p);
    case 0x8a:
        return pickle_push_long(p);
    case 'X':
        return pickle_push_string(p);
    default:
        return -EPROTO;
    }
}

static int pickle_step(struct pickle *p, unsigned char code)
{
    switch (code) {
    case 0x80: /* protocol */
        return dd_rd_u8(&p->in) <= 2 ? 0 : -EPROTO;
    case '(':
        return pickle_mark(p);
    case '}':
        return pickle_push_container(p, json_object(), 1);
    case ']':
        return pickle_push_container(p, json_array(), 1);
    case ')':
        return pickle_tuple(p, 0);
    case 0x85:
    case 0x86:
    case 0x87:
        return pickle_tuple(p, code - 0x84U);
    case 't':
        return pickle_marked_tuple(p);
    case 'u':
        return pickle_fill_marked(p, true);
    case 'e':
        return pickle_fill_marked(p, false);
    case 's':
        return p->n < 3 ? -EPROTO : pickle_fill(p, p->n - 2, true);
    case 'a':
        return p->n < 2 ? -EPROTO : pickle_fill(p, p->n - 1, false);
    case 'q':
        return pickle_remember(p, dd_rd_u8(&p->in));
    case 'r':
        return pickle_remember(p, dd_rd_u32(&p->in));
    case 'h':
        return pickle_recall(p, dd_rd_u8(&p->in));
    case 'j':
        return pickle_recall(p, dd_rd_u32(&p->in));
    case '.':
        p->stopped = true;
        return p->n == 1 && p->n_marks == 0 ? 0 : -EPROTO;
    default:
        return pickle_scalar(p, code);
    }
}

int pickle_decode(json_t **ret, const void *data, size_t n)
{
    struct pickle p = {.in = dd_rd_of(data, n)};
    int rc = n > PICKLE_MAX ? -EMSGSIZE : 0;
    while (rc == 0 && !p.stopped) {
        unsigned char code = dd_rd_u8(&p.in);
        rc = p.in.failed ? -EPROTO : pickle_step(&p, code);
        if (rc == 0 && p.in.failed)
            rc = -EPROTO;
    }
    if (rc == 0)
        *ret = json_incref(p.stack[0].v);
    pickle_drop(&p, 0);
    for (size_t i = 0; i < p.n_memo; i++)
        json_decref(p.memo[i].v);
    free(p.memo);
    free(p.stack);
    return rc;
}
