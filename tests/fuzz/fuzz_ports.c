/* rdzv: any text as the ports of a round; an accepted one has an endpoint for each rank. */
#include "rdzv/ports.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int sizes[] = {2, 1};
    const struct plan p = {.nnodes = 2, .world_size = 3, .sizes = sizes};
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(free) char *coordinator = NULL;
    DD_AUTO(strv) struct dd_strv workers = {0};
    DD_AUTO(buf) struct dd_buf again = DD_BUF_INIT(1 << 20);
    if (text == NULL)
        return 0;
    if (ports_count(text) > 0 && (ports_append(&again, text, "10.0.0.1") < 0 ||
                                  ports_count(dd_buf_str(&again)) != ports_count(text)))
        abort();
    if (ports_workers(&workers, text, "10.0.0.1", &p, NULL) == 0 &&
        (workers.n != 3 || ports_coordinator(&coordinator, text, "10.0.0.1", NULL) < 0 ||
         coordinator == NULL))
        abort();
    return 0;
}
