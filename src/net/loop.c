#include "net/loop.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static void log_error(int severity, const char *text)
{
    if (severity == EVENT_LOG_ERR)
        (void)fprintf(stderr, "%s: error: the event loop failed: %s\n",
                      program_invocation_short_name, text);
}

static void loop_leave(int code)
{
    (void)code;
    _exit(2); /* skip atexit handlers, which belong to other parts of the program */
}

static struct event_base *loop_new(int flags)
{
    event_set_log_callback(log_error);
    event_set_fatal_callback(loop_leave);
    struct event_config *cfg = event_config_new();
    struct event_base *base = NULL;
    if (cfg != NULL && event_config_set_flag(cfg, flags) == 0)
        base = event_base_new_with_config(cfg);
    if (cfg != NULL)
        event_config_free(cfg);
    return base;
}

struct event_base *net_loop_new(void)
{
    return loop_new(0);
}

struct event_base *net_loop_new_of_many(void)
{
    return loop_new(EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST);
}
