/* What the agent or the daemon and their helper ddrun-web say to each other: one JSON object per
 * packet. Pure. */
#ifndef DD_WEB_WIRE_H
#define DD_WEB_WIRE_H

#include "base/auto.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    WEB_FD = 3,             /* the helper's end of the socket pair */
    WEB_PACKET_MAX = 98304, /* below what a socket takes at once by default */
    WEB_BODY_MAX = 65536,   /* of an answer, as it comes from the server */
    WEB_LIST_MAX = 16,      /* URLs, and header lines */
};

/* One POST, to the first of the URLs that answers. Strings are borrowed. */
struct web_request {
    const char *urls[WEB_LIST_MAX + 1];    /* NULL-ended */
    const char *headers[WEB_LIST_MAX + 1]; /* "Name: value", NULL-ended */
    const char *body;
    const char *cacert, *cert, *key; /* files for TLS; NULL */
    unsigned limit_ms;               /* for each URL */
    bool direct;                     /* through no proxy, whatever the environment says */
};

struct web_answer {
    int status;        /* of HTTP; 0: there was no answer, error says why */
    int from;          /* which of the URLs */
    bool set_up;       /* no answer, and none will come: a file or a certificate is wrong */
    const char *body;  /* text; "" where there was none */
    const char *error; /* a sentence, or "" */
    char *storage;     /* of both in a decoded answer; NULL: borrowed */
};

/* Gives text (free()). -ENOMEM, -EMSGSIZE. */
int web_request_encode(char **ret, const struct web_request *r);
int web_answer_encode(char **ret, const struct web_answer *a);

/* A request as it was read: its strings lie in `o`. */
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
