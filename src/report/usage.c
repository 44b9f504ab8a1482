#include "report/usage.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

static bool is_count(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) >= 0;
}

/* Return [index, percent, memory, total memory, clock, highest clock] as an object; NULL:
 * malformed, or out of memory. All but the index may be null. */
static json_t *gpu_object(const json_t *a)
{
    static const char *const names[] = {
        "index", "percent", "memory_bytes", "memory_total_bytes", "clock_mhz", "clock_max_mhz"};
    const size_t n = sizeof(names) / sizeof(names[0]);
    if (!is_count(json_array_get(a, 0)) || json_array_size(a) != n ||
        json_integer_value(json_array_get(a, 1)) > 100)
        return NULL;
    json_t *o = json_object();
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_array_get(a, i);
        if ((!is_count(v) && !json_is_null(v)) || json_object_set(o, names[i], v) < 0) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

static int take_gpus(json_t *worker, const json_t *from)
{
    json_t *list = json_array();
    if (json_object_set_new(worker, "gpus", list) < 0)
        return -ENOMEM;
    if (!json_is_array(from) || json_array_size(from) > USAGE_GPUS)
        return -EPROTO;
    for (size_t i = 0; i < json_array_size(from); i++)
        if (json_array_append_new(list, gpu_object(json_array_get(from, i))) < 0)
            return -EPROTO;
    return 0;
}

/* Add [rank, pid, state, cpu_ms, memory_bytes, text], and optionally GPUs, as an object. *least:
 * the lowest rank that may follow. */
static int take_worker(json_t *list, const json_t *a, json_int_t at_ms, int *least, int end)
{
    const json_t *v[6];
    for (size_t i = 0; i < 6; i++)
        v[i] = json_array_get(a, i);
    for (size_t i = 0; i < 5; i++)
        if (i != 2 && !is_count(v[i]))
            return -EPROTO;
    const json_int_t rank = json_integer_value(v[0]);
    if (rank < *least || rank >= end || json_integer_value(v[1]) > INT32_MAX ||
        json_string_length(v[2]) != 1 || !json_is_string(v[5]))
        return -EPROTO;
    *least = (int)rank + 1;
    json_t *o = json_pack("{s:I,s:O,s:O,s:O,s:O,s:I,s:O}", "rank", rank, "pid", v[1], "state", v[2],
                          "cpu_ms", v[3], "memory_bytes", v[4], "at_ms", at_ms, "text", v[5]);
    const json_t *gpus = json_array_get(a, 6);
    const int rc = o != NULL && gpus != NULL ? take_gpus(o, gpus) : 0;
    if (json_array_append_new(list, o) < 0)
        return -ENOMEM;
    return rc; /* an error: the caller drops the list, and the worker with it */
}

int usage_take(json_t *list, const char *text, int first, int workers)
{
    int least = first;
    int rc = 0;
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *at = json_object_get(o, "at_ms");
    const json_t *from = json_object_get(o, "workers");
    json_t *taken = json_array();
    if (!is_count(at) || !json_is_array(from))
        rc = -EPROTO;
    for (size_t i = 0; rc == 0 && i < json_array_size(from); i++)
        rc = take_worker(taken, json_array_get(from, i), json_integer_value(at), &least,
                         first + workers);
    if (rc == 0)
        rc = json_array_extend(list, taken) < 0 ? -ENOMEM : 0;
    json_decref(taken);
    json_decref(o);
    return rc;
}
