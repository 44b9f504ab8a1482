#include "worker/warm_msg.h"

#include "base/cursor.h"
#include "worker/spawn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

int warm_msg_decode(struct warm_msg *ret, const void *data, size_t len)
{
    static const char types[] = {WARM_IMPORTING, WARM_FAILED, WARM_UNFIT, WARM_READY,
                                 WARM_WORKER,    WARM_BATCH,  WARM_PROBED};
    struct dd_rd r = dd_rd_of(data, len);
    const uint8_t type = dd_rd_u8(&r);
    ret->a = dd_rd_u32(&r);
    ret->b = dd_rd_u32(&r);
    const size_t n = dd_rd_left(&r);
    if (r.failed || n > WARM_TEXT_MAX || memchr(types, type, sizeof(types)) == NULL ||
        memchr(r.p, '\0', n) != NULL)
        return -EPROTO;
    ret->type = (enum warm_type)type;
    memcpy(ret->text, r.p, n);
    ret->text[n] = '\0';
    return 0;
}

static int put_bytes(struct dd_buf *out, const void *p, size_t n)
{
    int rc = n > UINT32_MAX ? -EMSGSIZE : dd_wr_le(out, n, 4);
    return rc < 0 || n == 0 ? rc : dd_buf_append(out, p, n);
}

static int put_text(struct dd_buf *out, const char *text)
{
    return put_bytes(out, text, strlen(text));
}

static int put_number(struct dd_buf *out, long n)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%ld", n);
    return put_text(out, text);
}

static int put_list(struct dd_buf *out, const struct dd_strv *list)
{
    int rc = put_number(out, list != NULL ? (long)list->n : 0);
    for (size_t i = 0; list != NULL && i < list->n && rc == 0; i++)
        rc = put_text(out, list->v[i]);
    return rc;
}

int warm_config_encode(struct dd_buf *out, const struct warm_config *c)
{
    int rc = put_text(out, c->mode == WARM_PROBE ? "probe" : "serve");
    if (rc == 0)
        rc = put_list(out, c->modules);
    if (rc == 0)
        rc = put_text(out, c->modules != NULL ? "1" : "0");
    if (rc == 0)
        rc = put_list(out, c->left_out);
    if (rc == 0)
        rc = put_text(out, c->kind);
    if (rc == 0)
        rc = put_text(out, c->target);
    return rc == 0 ? put_number(out, c->agent) : rc;
}

static int put_place(struct dd_buf *out, const struct worker_spec *spec)
{
    int rc = put_bytes(out, spec->cpus, spec->cpus != NULL ? spec->cpus_size : 0);
    if (rc == 0)
        rc = put_bytes(out, spec->memory, spec->memory != NULL ? spec->memory_bits / 8 : 0);
    if (rc == 0)
        rc = put_number(out, (long)spec->memory_bits);
    if (rc == 0)
        rc = put_number(out, SYS_set_mempolicy);
    return rc == 0 ? put_number(out, spec->tracer) : rc;
}

int warm_request_encode(struct dd_buf *out, const struct spawn_request *r, bool unbuffered,
                        bool records)
{
    const struct worker_spec *spec = r->spec;
    int rc = put_number(out, r->index);
    if (rc == 0)
        rc = put_place(out, spec);
    if (rc == 0)
        rc = put_text(out, spec->directory != NULL ? spec->directory : "");
    if (rc == 0)
        rc = put_text(out, spec->tty != NULL ? spec->tty : "");
    if (rc == 0)
        rc = put_list(out, &spec->env);
    if (rc == 0)
        rc = put_list(out, &spec->argv);
    if (rc == 0)
        rc = put_text(out, unbuffered ? "1" : "0");
    return rc == 0 ? put_text(out, records ? "1" : "0") : rc;
}
