/* report: any bytes as a node's answer about its workers. Accepted ones belong to the node. */
#include "report/usage.h"
#include "tests/fuzz/input_text.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FIRST = 4, WORKERS = 8 };

static int has_valid_gpus(const json_t *worker)
{
    const json_t *gpus = json_object_get(worker, "gpus");
    if (json_array_size(gpus) > USAGE_GPUS)
        return 0;
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const json_t *gpu = json_array_get(gpus, i);
        if (json_object_size(gpu) != 6 || !json_is_integer(json_object_get(gpu, "index")) ||
            json_integer_value(json_object_get(gpu, "percent")) > 100)
            return 0;
    }
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *list = json_array();
    char *text = input_text(data, size);
    if (text == NULL)
        return 0;
    if (usage_take(list, text, FIRST, WORKERS) < 0 && json_array_size(list) > 0)
        abort();
    if (json_array_size(list) > WORKERS)
        abort();
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *w = json_array_get(list, i);
        const json_int_t rank = json_integer_value(json_object_get(w, "rank"));
        if (rank < FIRST || rank >= FIRST + WORKERS ||
            json_string_value(json_object_get(w, "text")) == NULL)
            abort();
        if (!has_valid_gpus(w))
            abort();
    }
    json_decref(list);
    free(text);
    return 0;
}
