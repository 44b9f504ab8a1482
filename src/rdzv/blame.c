#include "rdzv/blame.h"

#include "report/causes.h"
#include "report/report.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

bool blame_is_remote(const struct report_exit *e, const char *why)
{
    /* if all ranks are idle, the first rank that ddrun stops is not the cause */
    return failure_is_job_hung(why) || e->signal == SIGPIPE || failure_is_cascade(e);
}
