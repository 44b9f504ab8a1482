/* The head of an HTTP request, as far as Horovod's rendezvous needs it. Pure.
 *
 *   request = METHOD " " "/" scope "/" key " HTTP/1." digit CRLF { header CRLF } CRLF
 *
 * Content-Length is the only header that is used; other encodings of the body are refused. */
#ifndef DD_HTTP_REQUEST_H
#define DD_HTTP_REQUEST_H

#include "http/kv.h"

#include <stddef.h>

enum { HTTP_HEAD_MAX = 8192 };

enum http_method { HTTP_GET, HTTP_PUT, HTTP_DELETE };

struct http_request {
    enum http_method method;
    struct kv_name name; /* borrowed from the parsed bytes */
    size_t body;         /* size of the body */
};

/* Parse the head at the start of the n bytes. Return the length of the head; 0: incomplete;
 * -EINVAL: not a request head; -EMSGSIZE: longer than HTTP_HEAD_MAX. */
int http_request_parse(struct http_request *ret, const char *p, size_t n);

#endif
