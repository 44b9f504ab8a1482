/* What ddrun-stage reports to its agent. */
#include "base/io.h"
#include "stage/stage_inner.h"

#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LATE_S = 5 };

void serve_send(const struct serve *s, enum stage_msg_type type, const char *text)
{
    char copy[600];
    char *texts[] = {copy, NULL};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(STAGE_MSG_MAX);
    (void)snprintf(copy, sizeof(copy), "%s", text);
    /* names of files may contain anything; an error may have a line with a tip */
    for (char *c = copy; *c != '\0'; c++)
        if (((unsigned char)*c < ' ' && !(*c == '\n' && type == STAGE_MSG_FAILED)) || *c == 127)
            *c = '?';
    if (stage_msg_encode(&out, type, texts) == 0)
        (void)send(s->control, out.data, out.len, MSG_NOSIGNAL);
}

_Noreturn void serve_fail(const struct serve *s, const char *why)
{
    serve_send(s, STAGE_MSG_FAILED, why);
    _exit(1); /* threads may hang in a file system */
}

static void on_late(evutil_socket_t fd, short what, void *arg)
{
    const struct serve *s = arg;
    (void)fd;
    (void)what;
    serve_fail(s, s->late_why);
}

void serve_lost(struct serve *s, const char *why)
{
    const struct timeval late = {.tv_sec = LATE_S};
    if (s->late_event != NULL)
        return;
    (void)snprintf(s->late_why, sizeof(s->late_why), "--stage: %.250s", why);
    s->late_event = evtimer_new(s->base, on_late, s);
    if (s->late_event == NULL || evtimer_add(s->late_event, &late) < 0)
        serve_fail(s, s->late_why);
}
