/* Parses what workers use and print, from the answer of a node to USAGE_REQUEST. Pure. */
#ifndef DD_REPORT_USAGE_H
#define DD_REPORT_USAGE_H

#include <jansson.h>

enum {
    USAGE_LINES = 150,         /* last lines of a worker */
    USAGE_GPUS = 64,           /* GPUs of a worker */
    USAGE_MESSAGE = 256 << 10, /* bytes of the JSON of one node */
};

/* An answer without workers. */
#define USAGE_NONE "{\"at_ms\":0,\"workers\":[]}"

/* Append one object for each worker in a peer's text to list: "rank", "pid", "state", "cpu_ms",
 * "memory_bytes", "at_ms", "text", and if they are known "gpus": objects with "index", "percent",
 * "memory_bytes", "memory_total_bytes", "clock_mhz", "clock_max_mhz", null if unknown. Only ranks
 * first to first + workers - 1 are accepted, in order. Return 0, -EPROTO or -ENOMEM; list is
 * unchanged on failure. */
int usage_take(json_t *list, const char *text, int first, int workers);

#endif
