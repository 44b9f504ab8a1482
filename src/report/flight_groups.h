/* Groups the ranks of a job by the collective that they execute, as recorded by PyTorch's flight
 * recorder. Pure. */
#ifndef DD_REPORT_FLIGHT_GROUPS_H
#define DD_REPORT_FLIGHT_GROUPS_H

#include "report/flight_record.h"
#include "report/rank_set.h"

struct json_t;

enum {
    FLIGHT_GROUPS_MAX = 256, /* the ranks of further groups are omitted */
    FLIGHT_RANKS_MAX = 1 << 20
};

struct flight_group {
    struct flight_record record;
    struct rank_set ranks;
};

struct flight_groups {
    struct flight_group *v;
    size_t n;
};

/* Add ranks first to last, whose record is r. 0, also if there are too many groups, or -ENOMEM. */
int flight_groups_add(struct flight_groups *g, const struct flight_record *r, int first, int last);
/* Add all groups of `from`. 0 or -ENOMEM. */
int flight_groups_merge(struct flight_groups *to, const struct flight_groups *from);
void flight_groups_done(struct flight_groups *g);

/* Return an array with an object for each group. NULL: out of memory. */
struct json_t *flight_groups_json(const struct flight_groups *g);
/* Add the groups of a peer's array; NULL: none. With workers >= 0, the array may contain only the
 * ranks first to first + workers - 1. 0, -EPROTO, -EPERM: other ranks, or -ENOMEM. */
int flight_groups_parse(struct flight_groups *ret, const struct json_t *list, int first,
                        int workers);

/* Append the sentence of flight_record_compare(), and add to ret the ranks that hold up others.
 * Return 1, or 0 and append nothing if there are none; -ENOMEM, -EMSGSIZE. */
int flight_groups_missing(const struct flight_groups *g, struct rank_set *ret, struct dd_buf *out);
/* Append the sentence of flight_record_compare() and a line for each of the `lines` first groups,
 * each line with this indent; nothing if no rank waits. */
int flight_groups_text(const struct flight_groups *g, const char *indent, size_t lines,
                       struct dd_buf *out);

#endif
