/* alloc: any text as the output of squeue, scontrol, qstat and the commands of other schedulers. */
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
    static const char *const sources[] = {"slurm-step", "pbs", "lsf", "sge", "oar", ""};
    static const char *const ids[] = {"SLURM_JOB_ID=1", "PBS_JOBID=1",  "LSB_JOBID=1",
                                      "JOB_ID=1",       "OAR_JOB_ID=1", "FLUX_JOB_ID=1"};
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        const char *env[] = {ids[i], "SGE_ROOT=/", "FLUX_URI=x", NULL};
        const struct alloc_end_row *row = alloc_end_find(sources[i], (char *const *)(uintptr_t)env);
        uint64_t end = 0;
        rc = alloc_end_answer(row, text, 1000, 900, &end);
        if (rc == 0 ? end > UINT64_C(1) << 50 : rc != -ENOENT || end != 0)
            abort();
    }
    return 0;
}
