/* Reports of ddrun-stage to its agent, and to the node above it in the tree. */
#include "base/io.h"
#include "stage/stage_inner.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void serve_send(const struct serve *s, enum stage_msg_type type, const char *text)
{
    char copy[600];
    char *texts[] = {copy, NULL};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(STAGE_MSG_MAX);
    (void)snprintf(copy, sizeof(copy), "%s", text);
    for (char *line = copy; line != NULL;) { /* an error may have a second line, the tip */
        char *end = type == STAGE_MSG_FAILED ? strchr(line, '\n') : NULL;
        if (end != NULL)
            *end = '\0';
        stage_printable(line);
        if (end != NULL)
            *end++ = '\n';
        line = end;
    }
    if (stage_msg_encode(&out, type, texts) == 0)
        (void)send(s->control, out.data, out.len, MSG_NOSIGNAL);
}

void serve_send_up(const struct serve *s, const struct stage_frame *f)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64);
    if (s->parent != NULL && stage_frame_encode(&out, f) == 0)
        (void)link_send(s->parent, FRAME_STAGE, out.data, out.len);
}

_Noreturn void serve_fail(const struct serve *s, const char *why)
{
    serve_send(s, STAGE_MSG_FAILED, why);
    _exit(1); /* threads may hang in a file system */
}
