/* alloc: any text as the answer of squeue, qstat and scontrol. */
#include "alloc/endtime.h"
#include "base/auto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    int64_t seconds = 0;
    if (text == NULL)
        return 0;
    int rc = alloc_slurm_time_left(text, &seconds);
    if (rc == 0 ? seconds < 0 : rc != -ENOENT)
        abort();
    rc = alloc_pbs_end_time(text, &seconds);
    if (rc != 0 && rc != -ENOENT)
        abort();
    if (alloc_slurm_why(text) > ALLOC_END_TIMEOUT)
        abort();
    return 0;
}
