/* Reports of a ddrun-stage of --collect to the agent, and the exit of the process. */
#include "base/auto.h"
#include "base/utf8.h"
#include "stage/collect_inner.h"
#include "stage/stage_codec.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void collect_tell(const struct collect *c, enum stage_msg_type type, const char *text)
{
    char copy[STAGE_PATH_MAX + COLLECT_REASON_MAX + 100];
    char *texts[] = {copy, NULL};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(STAGE_MSG_MAX);
    if (text != NULL) {
        (void)snprintf(copy, sizeof(copy), "%s", text);
        stage_printable(copy); /* file names may contain control characters */
        (void)dd_utf8_clean(copy);
    }
    if (stage_msg_encode(&out, type, text != NULL ? texts : NULL) == 0)
        (void)send(c->control, out.data, out.len, MSG_NOSIGNAL);
}

_Noreturn void collect_exit(const struct collect *c, int code)
{
    if (c->drop != NULL)
        c->drop(c->drop_arg);
    _exit(code);
}

_Noreturn void collect_fail(const struct collect *c, const char *why)
{
    collect_tell(c, STAGE_MSG_FAILED, why);
    collect_exit(c, 1);
}

bool collect_send_frame(struct link *l, const struct collect_frame *f)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(LINK_FRAME_MAX);
    return collect_frame_encode(&out, f) == 0 && link_send(l, FRAME_STAGE, out.data, out.len) == 0;
}
