#include "report/flight_record.h"

#include "base/utf8.h"
#include "report/pickle.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_GROUP "default_pg" /* description of the group of all ranks */

/* A dump may refer to one list many times, so the size of the dump does not bound the work. */
enum { FLIGHT_TENSORS_MAX = 10000, FLIGHT_DIMENSIONS_MAX = 64 };

/* ---- the dump of one rank ---- */

static const struct {
    const char *name;
    uint64_t bytes;
} flight_types[] = {
    {"Float", 4},         {"Half", 2},         {"BFloat16", 2},       {"Double", 8},
    {"Long", 8},          {"Int", 4},          {"Short", 2},          {"Byte", 1},
    {"Char", 1},          {"Bool", 1},         {"UInt16", 2},         {"UInt32", 4},
    {"UInt64", 8},        {"ComplexFloat", 8}, {"ComplexDouble", 16}, {"Float8_e5m2", 1},
    {"Float8_e4m3fn", 1},
};

static uint64_t flight_type_size(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof(flight_types) / sizeof(flight_types[0]); i++)
        if (strcmp(flight_types[i].name, name) == 0)
            return flight_types[i].bytes;
    return 0;
}

void flight_record_copy(char out[FLIGHT_TEXT_MAX], const char *text)
{
    size_t n = 0;
    for (const char *p = text != NULL ? text : ""; *p != '\0' && n + 1 < FLIGHT_TEXT_MAX; p++)
        out[n++] = iscntrl((unsigned char)*p) ? '?' : *p;
    out[n] = '\0';
    (void)dd_utf8_clean(out);
}

static const char *flight_text(const json_t *entry, const char *key)
{
    return json_string_value(json_object_get(entry, key));
}

static uint64_t flight_product(const json_t *sizes)
{
    uint64_t product = 1;
    if (json_array_size(sizes) > FLIGHT_DIMENSIONS_MAX)
        return 0;
    size_t i;
    json_t *size;
    json_array_foreach (sizes, i, size) {
        json_int_t v = json_integer_value(size);
        if (v < 0 || __builtin_mul_overflow(product, (uint64_t)v, &product))
            return 0;
    }
    return product;
}

/* Return the bytes of all input tensors; 0: unknown, for example because of an unknown type. */
static uint64_t flight_bytes(const json_t *entry)
{
    const json_t *sizes = json_object_get(entry, "input_sizes");
    const json_t *types = json_object_get(entry, "input_dtypes");
    uint64_t sum = 0;
    if (json_array_size(sizes) > FLIGHT_TENSORS_MAX)
        return 0;
    for (size_t i = 0; i < json_array_size(sizes); i++) {
        uint64_t each = flight_type_size(json_string_value(json_array_get(types, i)));
        uint64_t bytes;
        if (each == 0 ||
            __builtin_mul_overflow(each, flight_product(json_array_get(sizes, i)), &bytes) ||
            __builtin_add_overflow(sum, bytes, &sum))
            return 0;
    }
    return sum;
}

/* Write the place of the innermost frame outside of PyTorch; "": unknown. */
static void flight_place(char out[FLIGHT_TEXT_MAX], const json_t *entry)
{
    size_t i;
    json_t *frame;
    out[0] = '\0';
    json_array_foreach (json_object_get(entry, "frames"), i, frame) {
        const char *file = flight_text(frame, "filename");
        json_int_t line = json_integer_value(json_object_get(frame, "line"));
        if (file == NULL || strstr(file, "/torch/") != NULL)
            continue;
        const char *base = strrchr(file, '/');
        char text[2 * FLIGHT_TEXT_MAX];
        (void)snprintf(text, sizeof(text), "%.40s:%" PRIdMAX, base != NULL ? base + 1 : file,
                       (intmax_t)line);
        flight_record_copy(out, text);
        return;
    }
}

static bool flight_is_over(const json_t *entry)
{
    const char *state = flight_text(entry, "state");
    return json_is_true(json_object_get(entry, "retired")) ||
           (state != NULL && strcmp(state, "completed") == 0);
}

/* Return the entry of the collective in which the rank waits, otherwise its last collective, or
 * NULL. Messages between two ranks have numbers of their own, and are left out. */
static const json_t *flight_choose(const json_t *entries)
{
    const json_t *last = NULL;
    size_t i;
    json_t *entry;
    json_array_foreach (entries, i, entry) {
        if (!json_is_object(entry) || json_is_true(json_object_get(entry, "is_p2p")))
            continue;
        if (!flight_is_over(entry))
            return entry;
        last = entry;
    }
    return last;
}

/* Write a text for the group. Only the name is unique: the groups of a dimension of a device mesh
 * have the same description, and so have all groups that were created without a description. Older
 * versions have names only. */
static void flight_group(char out[FLIGHT_TEXT_MAX], const json_t *group)
{
    const char *name = json_string_value(json_array_get(group, 0));
    const char *description = json_string_value(json_array_get(group, 1));
    const bool described = description != NULL && strcmp(description, "undefined") != 0;
    char text[2 * FLIGHT_TEXT_MAX];
    if (name == NULL || description == NULL || strcmp(description, DEFAULT_GROUP) == 0) {
        flight_record_copy(out, description != NULL ? description : name);
        return;
    }
    (void)snprintf(text, sizeof(text), described ? "group %s (%s)" : "group %s", name, description);
    flight_record_copy(out, text);
}

static void flight_fill(struct flight_record *r, const json_t *entry)
{
    const char *name = flight_text(entry, "profiling_name");
    const char *colon = name != NULL ? strchr(name, ':') : NULL; /* "nccl:all_reduce" */
    r->waiting = !flight_is_over(entry);
    const json_int_t number = json_integer_value(json_object_get(entry, "collective_seq_id"));
    const uint64_t bytes = flight_bytes(entry);
    r->number = number > 0 ? number : 0;
    r->bytes = bytes <= INT64_MAX ? bytes : 0; /* 0: unknown; integers in JSON are signed */
    flight_record_copy(r->name, colon != NULL ? colon + 1 : name);
    flight_group(r->group, json_object_get(entry, "process_group"));
    flight_place(r->place, entry);
}

int flight_record_read(struct flight_record *ret, const void *p, size_t n)
{
    json_t *dump = NULL;
    int rc = pickle_decode(&dump, p, n);
    if (rc < 0)
        return rc;
    const json_t *entries = json_object_get(dump, "entries");
    *ret = (struct flight_record){0};
    /* a rank without any collective has no entries, but always a version */
    if (flight_text(dump, "version") == NULL || (entries != NULL && !json_is_array(entries)))
        rc = -EPROTO;
    const json_t *entry = rc == 0 ? flight_choose(entries) : NULL;
    if (entry != NULL)
        flight_fill(ret, entry);
    json_decref(dump);
    return rc;
}

/* ---- text ---- */

static int flight_put_size(struct dd_buf *out, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;
    if (bytes == 0)
        return 0;
    for (; bytes >= 1024 && bytes % 1024 == 0 && i + 1 < sizeof(units) / sizeof(units[0]); i++)
        bytes /= 1024;
    for (; bytes >= UINT64_C(10240) && i + 1 < sizeof(units) / sizeof(units[0]); i++)
        bytes /= 1024;
    return dd_buf_printf(out, ", %" PRIu64 " %s", bytes, i == 0 && bytes == 1 ? "byte" : units[i]);
}

static int flight_put_collective(struct dd_buf *out, const struct flight_record *r)
{
    return dd_buf_printf(out, "%s, collective %" PRId64 " of %s", r->name, r->number, r->group);
}

int flight_record_describe(struct dd_buf *out, const struct flight_record *r)
{
    if (r->number <= 0)
        return dd_buf_puts(out, "in no collective yet");
    int rc = dd_buf_puts(out, r->waiting ? "in " : "after ");
    if (rc == 0)
        rc = flight_put_collective(out, r);
    if (rc == 0)
        rc = flight_put_size(out, r->bytes);
    if (rc == 0 && r->place[0] != '\0')
        rc = dd_buf_printf(out, ", called at %s", r->place);
    if (rc == 0 && !r->waiting)
        rc = dd_buf_puts(out, ", in no other");
    return rc;
}

/* ---- several ranks ---- */

static bool flight_same(const struct flight_record *a, const struct flight_record *b)
{
    return strcmp(a->group, b->group) == 0 && a->number == b->number &&
           strcmp(a->name, b->name) == 0;
}

enum flight_side {
    FLIGHT_ASIDE, /* the record does not show whether the rank holds up others */
    FLIGHT_IN,    /* waits in the collective */
    FLIGHT_OTHER, /* waits in another collective of the same group and number */
    FLIGHT_BEHIND /* has not entered the collective */
};

/* True for the group of all ranks, whose name is "0" if there is no description. */
static bool flight_is_of_all(const struct flight_record *r)
{
    return strcmp(r->group, DEFAULT_GROUP) == 0 || strcmp(r->group, "0") == 0;
}

static enum flight_side flight_side_of(const struct flight_record *r,
                                       const struct flight_record *at)
{
    if (r->waiting && flight_same(r, at))
        return FLIGHT_IN;
    if (r->number <= 0) /* no other group than that of all ranks certainly contains the rank */
        return flight_is_of_all(at) ? FLIGHT_BEHIND : FLIGHT_ASIDE;
    if (strcmp(r->group, at->group) != 0)
        return FLIGHT_ASIDE;
    if (r->number < at->number)
        return FLIGHT_BEHIND;
    return r->waiting && r->number == at->number ? FLIGHT_OTHER : FLIGHT_ASIDE;
}

static size_t flight_count(const struct flight_of_rank *ranks, size_t n,
                           const struct flight_record *at, enum flight_side side)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += flight_side_of(&ranks[i].record, at) == side;
    return count;
}

/* Return the collective in which the most ranks wait; if several are equal, that of the lowest
 * rank; NULL: none waits. Only a change of the collective from one rank to the next makes a new
 * candidate. */
static const struct flight_record *flight_most(const struct flight_of_rank *ranks, size_t n)
{
    const struct flight_record *most = NULL, *last = NULL;
    size_t count = 0, tries = 0;
    for (size_t i = 0; i < n && tries < 64; i++) {
        const struct flight_record *r = &ranks[i].record;
        if (!r->waiting || (last != NULL && flight_same(r, last)))
            continue;
        last = r;
        tries++;
        size_t now = flight_count(ranks, n, r, FLIGHT_IN);
        if (now > count) {
            count = now;
            most = r;
        }
    }
    return most;
}

/* Append "rank 2", or "ranks 0-1,3", for the ranks on this side. */
static int flight_put_ranks(struct dd_buf *out, const struct flight_of_rank *ranks, size_t n,
                            const struct flight_record *at, enum flight_side side)
{
    int rc = dd_buf_puts(out, flight_count(ranks, n, at, side) == 1 ? "rank " : "ranks ");
    bool first = true;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (flight_side_of(&ranks[i].record, at) != side)
            continue;
        size_t end = i;
        while (end + 1 < n && ranks[end + 1].rank == ranks[end].rank + 1 &&
               flight_side_of(&ranks[end + 1].record, at) == side)
            end++;
        rc = dd_buf_printf(out, "%s%d", first ? "" : ",", ranks[i].rank);
        if (rc == 0 && end > i)
            rc = dd_buf_printf(out, "-%d", ranks[end].rank);
        first = false;
        i = end;
    }
    return rc;
}

static int flight_put_verdict(struct dd_buf *out, const struct flight_of_rank *ranks, size_t n,
                              const struct flight_record *at, enum flight_side side)
{
    bool one = flight_count(ranks, n, at, side) == 1;
    int rc = flight_put_ranks(out, ranks, n, at, side);
    if (rc == 0)
        rc = dd_buf_puts(out, side == FLIGHT_OTHER ? one ? " waits in another collective than "
                                                         : " wait in other collectives than "
                              : one                ? " has not entered "
                                                   : " have not entered ");
    if (rc == 0)
        rc = flight_put_collective(out, at);
    if (rc == 0)
        rc = flight_put_size(out, at->bytes);
    if (rc == 0)
        rc = dd_buf_puts(out, ", in which ");
    if (rc == 0)
        rc = flight_put_ranks(out, ranks, n, at, FLIGHT_IN);
    if (rc == 0)
        rc = dd_buf_puts(out, flight_count(ranks, n, at, FLIGHT_IN) == 1 ? " waits" : " wait");
    return rc;
}

/* Return the side of the ranks that hold up those in the collective `at`; FLIGHT_ASIDE: none do. */
static enum flight_side flight_guilty_side(const struct flight_of_rank *ranks, size_t n,
                                           const struct flight_record *at)
{
    return at == NULL                                      ? FLIGHT_ASIDE
           : flight_count(ranks, n, at, FLIGHT_OTHER) > 0  ? FLIGHT_OTHER
           : flight_count(ranks, n, at, FLIGHT_BEHIND) > 0 ? FLIGHT_BEHIND
                                                           : FLIGHT_ASIDE;
}

int flight_record_missing(struct rank_set *ret, const struct flight_of_rank *ranks, size_t n)
{
    const struct flight_record *at = flight_most(ranks, n);
    const enum flight_side side = flight_guilty_side(ranks, n, at);
    int rc = 0;
    for (size_t i = 0; i < n && side != FLIGHT_ASIDE && rc == 0; i++)
        if (flight_side_of(&ranks[i].record, at) == side)
            rc = rank_set_add(ret, ranks[i].rank, ranks[i].rank);
    return rc;
}

int flight_record_compare(struct dd_buf *out, const struct flight_of_rank *ranks, size_t n)
{
    const struct flight_record *at = flight_most(ranks, n);
    const enum flight_side side = flight_guilty_side(ranks, n, at);
    if (side == FLIGHT_ASIDE)
        return 0;
    size_t before = out->len;
    int rc = flight_put_verdict(out, ranks, n, at, side);
    if (rc < 0)
        out->len = before;
    return rc < 0 ? rc : 1;
}
