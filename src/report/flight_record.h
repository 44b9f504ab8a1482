/* Reads a dump of PyTorch's flight recorder: the collective in which a rank waits, or the last one
 * that it has finished; and compares the records of several ranks. Pure.
 *
 * Src: dumps of torch 2.11 with NCCL 2.28 (tests/data/flight). */
#ifndef DD_REPORT_FLIGHT_RECORD_H
#define DD_REPORT_FLIGHT_RECORD_H

#include "base/buf.h"
#include "report/rank_set.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FLIGHT_TEXT_MAX = 64 }; /* bytes of a text, including the terminator */

struct flight_record {
    bool waiting;   /* the rank is in the collective; false: has finished it and entered no other */
    int64_t number; /* number of the collective in its group, from 1; 0: none so far */
    char group[FLIGHT_TEXT_MAX]; /* process group: "default_pg", "group 3 (mesh_tp)" or "group 4" */
    char name[FLIGHT_TEXT_MAX];  /* "all_reduce" */
    uint64_t bytes;              /* size of the input of this rank; 0: unknown */
    char place[FLIGHT_TEXT_MAX]; /* "train.py:26", the caller outside of PyTorch; "": unknown */
};

struct flight_of_rank {
    int rank;
    struct flight_record record;
};

/* Copy a text without control characters, cut to what fits; NULL is "". */
void flight_record_copy(char out[FLIGHT_TEXT_MAX], const char *text);
/* Read the dump of one rank. Texts are cut and have no control characters. 0; -EPROTO: not a dump;
 * -EMSGSIZE: beyond a limit of pickle_decode(); -ENOMEM. */
int flight_record_read(struct flight_record *ret, const void *p, size_t n);

/* Append "in all_reduce, collective 2 of default_pg, 256 KiB, called at train.py:26", or "after …,
 * in no other". */
int flight_record_describe(struct dd_buf *out, const struct flight_record *r);

/* Append a sentence about the ranks that hold up the collective in which the most ranks wait: "rank
 * 2 has not entered all_reduce, collective 2 of default_pg, in which ranks 0-1 wait", or "rank 2
 * waits in another collective than …". The records are sorted by rank. Return 1, or 0 and append
 * nothing if the records show no such ranks; -ENOMEM, -EMSGSIZE. */
int flight_record_compare(struct dd_buf *out, const struct flight_of_rank *ranks, size_t n);
/* Add the ranks that hold up others according to flight_record_compare(). 0 or -ENOMEM. */
int flight_record_missing(struct rank_set *ret, const struct flight_of_rank *ranks, size_t n);

#endif
