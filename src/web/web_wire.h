/* Messages between the agent or daemon and its helper ddrun-web: one JSON object per packet. Pure.
 */
#ifndef DD_WEB_WEB_WIRE_H
#define DD_WEB_WEB_WIRE_H

#include "base/auto.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    WEB_FD = 3,             /* the helper's end of the socket pair */
    WEB_PACKET_MAX = 98304, /* fits into the default send buffer of a socket */
    WEB_BODY_MAX = 65536,   /* limit of the body of an answer */
    WEB_LIST_MAX = 16,      /* maximum number of URLs, and of headers */
};

/* One POST, sent to the first URL that answers. Strings are borrowed. */
struct web_request {
    const char *urls[WEB_LIST_MAX + 1];    /* NULL-terminated */
    const char *headers[WEB_LIST_MAX + 1]; /* "Name: value", NULL-terminated */
    const char *body;
    const char *cacert, *cert, *key; /* files for TLS; NULL: not set */
    unsigned limit_ms;               /* for each URL */
    bool direct;                     /* ignore the proxy settings of the environment */
};

struct web_answer {
    int status;        /* HTTP status; 0: no answer, see error */
    int from;          /* index of the URL */
    bool set_up;       /* no answer, and a retry is useless: a file, certificate or URL is wrong */
    const char *body;  /* text; "": none */
    const char *error; /* a message; "": none */
    char *storage;     /* owner of both texts in a decoded answer; NULL: they are borrowed */
};

/* The caller frees *ret. -ENOMEM, -EMSGSIZE. */
int web_request_encode(char **ret, const struct web_request *r);
int web_answer_encode(char **ret, const struct web_answer *a);

/* A decoded request; `o` owns its strings. */
struct web_asked {
    struct web_request request;
    void *o;
};
int web_request_decode(struct web_asked *ret, const void *data, size_t n); /* -EPROTO */
void web_asked_done(struct web_asked *a);

int web_answer_decode(struct web_answer *ret, const void *data, size_t n); /* -EPROTO, -ENOMEM */
void web_answer_done(struct web_answer *a);

static inline void dd_auto_web_answer(struct web_answer *a)
{
    web_answer_done(a);
}

#endif
