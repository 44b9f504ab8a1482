/* Raising events of the agent's machine. At the bottom of this directory, so that every file may
 * use it. */
#include "agent/inner.h"

#include <stdarg.h>
#include <stdio.h>

void agent_step(struct agent *a, struct am_event e)
{
    a->step(a, e);
}

void agent_fail(struct agent *a, const char *why)
{
    dd_log(a->cfg->log, DD_LOG_ERR, "%s", why);
    agent_step(a, (struct am_event){.kind = AM_FAILED, .code = 2});
}

void agent_because(struct agent *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(a->why, sizeof(a->why), fmt, ap);
    va_end(ap);
}
