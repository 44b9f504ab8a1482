#include "net/loop.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static void log_error(int severity, const char *text)
{
    if (severity == EVENT_LOG_ERR)
        (void)fprintf(stderr, "%s: error: cannot create the event loop: %s\n",
                      program_invocation_short_name, text);
}

static void loop_leave(int code)
{
    (void)code;
    _exit(2); /* skip atexit handlers, which belong to other parts of the program */
}

struct event_base *net_loop_new(void)
{
    event_set_log_callback(log_error);
    event_set_fatal_callback(loop_leave);
    return event_base_new();
}
