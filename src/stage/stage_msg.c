#include "stage/stage_msg.h"

#include <errno.h>
#include <string.h>

int stage_msg_encode(struct dd_buf *out, enum stage_msg_type type, char *const *texts)
{
    const unsigned char first = (unsigned char)type;
    int rc = dd_buf_append(out, &first, 1);
    for (; texts != NULL && *texts != NULL && rc == 0; texts++)
        rc = dd_buf_append(out, *texts, strlen(*texts) + 1);
    return rc;
}

static int check_count(const struct stage_msg *m)
{
    const size_t n = m->texts.n;
    switch (m->type) {
    case STAGE_MSG_SETUP:
        return n > STAGE_SETUP_SOURCES ? 0 : -EPROTO;
    case STAGE_MSG_ROUND:
        return n >= STAGE_ROUND_PARENTS && (n - STAGE_ROUND_PARENTS) % STAGE_PARENT_TEXTS == 0
                   ? 0
                   : -EPROTO;
    case STAGE_MSG_READY:
        return n > STAGE_READY_PAIRS && (n - STAGE_READY_PAIRS) % 2 == 0 ? 0 : -EPROTO;
    case STAGE_MSG_COLLECT:
        return n > STAGE_COLLECT_RULES ||
                       (n == STAGE_COLLECT_RULES && m->texts.v[STAGE_COLLECT_CACHE][0] != '\0')
                   ? 0
                   : -EPROTO;
    case STAGE_MSG_STOP:
    case STAGE_MSG_ALIVE:
        return n == 0 ? 0 : -EPROTO;
    case STAGE_MSG_PORT:
    case STAGE_MSG_ALSO:
        return n >= 1 ? 0 : -EPROTO;
    case STAGE_MSG_WITHOUT:
    case STAGE_MSG_FAILED:
    case STAGE_MSG_WARNING:
    case STAGE_MSG_MISSING:
    case STAGE_MSG_COLLECTED:
    case STAGE_MSG_CAME:
    case STAGE_MSG_PROGRESS:
        return n == 1 ? 0 : -EPROTO;
    default:
        return -EPROTO;
    }
}

int stage_msg_decode(struct stage_msg *ret, const void *p, size_t n)
{
    const char *s = p;
    *ret = (struct stage_msg){0};
    if (n == 0 || (n > 1 && s[n - 1] != '\0'))
        return -EPROTO;
    ret->type = (enum stage_msg_type)(unsigned char)s[0];
    for (size_t at = 1; at < n; at += strlen(s + at) + 1)
        if (dd_strv_push(&ret->texts, s + at) < 0)
            return -ENOMEM;
    return check_count(ret);
}
