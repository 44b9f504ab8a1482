/* The head of an HTTP request, as far as Horovod's rendezvous needs it. Pure.
 *
 *   request = METHOD " " "/" scope "/" key " HTTP/1." digit CRLF { header CRLF } CRLF
 *
 * Of the headers only Content-Length counts; a body that is sent in another way is refused.
 */
#ifndef DD_HTTP_REQUEST_H
#define DD_HTTP_REQUEST_H

#include "http/kv.h"

#include <stddef.h>

enum { HTTP_HEAD_MAX = 8192 };

enum http_method { HTTP_GET, HTTP_PUT, HTTP_DELETE };

struct http_request {
    enum http_method method;
    struct kv_name name; /* lent from the bytes that were parsed */
    size_t body;         /* bytes that follow the head */
};

/* Reads the head at the beginning of the n bytes. Its length; 0: it is not whole; -EINVAL: it is
 * none; -EMSGSIZE: it would be longer than HTTP_HEAD_MAX. */
int http_request_parse(struct http_request *ret, const char *p, size_t n);

#endif
