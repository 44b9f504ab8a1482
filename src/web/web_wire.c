#include "web/web_wire.h"

#include "base/log.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_MAX_MS = 60000 };

static int to_text(char **ret, json_t *o)
{
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (text == NULL)
        return -ENOMEM;
    if (strlen(text) > WEB_PACKET_MAX) {
        free(text);
        return -EMSGSIZE;
    }
    *ret = text;
    return 0;
}

static json_t *web_wire_list_of(const char *const *texts)
{
    json_t *a = json_array();
    for (size_t i = 0; texts[i] != NULL; i++)
        (void)json_array_append_new(a, json_string(texts[i]));
    return a;
}

int web_request_encode(char **ret, const struct web_request *r)
{
    return to_text(ret,
                   json_pack("{s:o s:o s:s s:s* s:s* s:s* s:i s:b}", "urls",
                             web_wire_list_of(r->urls), "headers", web_wire_list_of(r->headers),
                             "body", r->body, "cacert", r->cacert, "cert", r->cert, "key", r->key,
                             "limit_ms", (int)r->limit_ms, "direct", r->direct));
}

int web_answer_encode(char **ret, const struct web_answer *a)
{
    return to_text(ret, json_pack("{s:i s:i s:b s:s s:s}", "status", a->status, "from", a->from,
                                  "set_up", a->set_up, "body", a->body != NULL ? a->body : "",
                                  "error", a->error != NULL ? a->error : ""));
}

/* ---- reading ---- */

static int web_wire_read_list(const char *ret[WEB_LIST_MAX + 1], const json_t *a)
{
    if (!json_is_array(a) || json_array_size(a) > WEB_LIST_MAX)
        return -EPROTO;
    for (size_t i = 0; i < json_array_size(a); i++) {
        ret[i] = json_string_value(json_array_get(a, i));
        if (ret[i] == NULL)
            return -EPROTO;
    }
    return 0;
}

int web_request_decode(struct web_asked *ret, const void *data, size_t n)
{
    json_t *o = n <= WEB_PACKET_MAX ? json_loadb(data, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    struct web_request r = {0};
    json_t *urls = NULL;
    json_t *headers = NULL;
    int limit = 0;
    int direct = 0;
    int rc = o == NULL
                 ? -1
                 : json_unpack(o, "{s:o s:o s:s s?s s?s s?s s:i s:b !}", "urls", &urls, "headers",
                               &headers, "body", &r.body, "cacert", &r.cacert, "cert", &r.cert,
                               "key", &r.key, "limit_ms", &limit, "direct", &direct);
    if (rc == 0)
        rc = web_wire_read_list(r.urls, urls);
    if (rc == 0)
        rc = web_wire_read_list(r.headers, headers);
    if (rc < 0 || limit < 1 || limit > LIMIT_MAX_MS || r.urls[0] == NULL) {
        json_decref(o);
        return -EPROTO;
    }
    r.limit_ms = (unsigned)limit;
    r.direct = direct != 0;
    *ret = (struct web_asked){.request = r, .o = o};
    return 0;
}

void web_asked_done(struct web_asked *a)
{
    json_decref(a->o);
    a->o = NULL;
}

/* Copy both texts into one allocation. The error is shown to the user and may contain text from the
 * server, such as its certificate, so make it printable. */
static int keep_texts(struct web_answer *a, const char *body, const char *error)
{
    const size_t n = strlen(body) + 1;
    const size_t size = 4 * strlen(error) + 6;
    a->storage = malloc(n + size);
    if (a->storage == NULL)
        return -ENOMEM;
    a->body = memcpy(a->storage, body, n);
    a->error = dd_log_escape(a->storage + n, size, error, strlen(error));
    return 0;
}

int web_answer_decode(struct web_answer *ret, const void *data, size_t n)
{
    json_t *o = n <= WEB_PACKET_MAX ? json_loadb(data, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *body = NULL;
    const char *error = NULL;
    struct web_answer a = {0};
    int set_up = 0;
    int rc = o == NULL ? -1
                       : json_unpack(o, "{s:i s:i s:b s:s s:s !}", "status", &a.status, "from",
                                     &a.from, "set_up", &set_up, "body", &body, "error", &error);
    if (rc < 0 || a.status < 0 || a.status > 999 || a.from < 0 || a.from >= WEB_LIST_MAX) {
        json_decref(o);
        return -EPROTO;
    }
    a.set_up = set_up != 0;
    rc = keep_texts(&a, body, error);
    json_decref(o);
    if (rc == 0)
        *ret = a;
    return rc;
}

void web_answer_done(struct web_answer *a)
{
    free(a->storage);
    *a = (struct web_answer){0};
}
