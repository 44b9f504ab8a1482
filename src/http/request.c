#include "http/request.h"

#include "base/num.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* A part of the head. */
struct span {
    const char *p;
    size_t n;
};

static struct span until(struct span *rest, const char *mark)
{
    const size_t len = strlen(mark);
    const char *at = memmem(rest->p, rest->n, mark, len);
    struct span s = *rest;
    if (at == NULL) {
        *rest = (struct span){rest->p + rest->n, 0};
        return s;
    }
    s.n = (size_t)(at - s.p);
    rest->n -= s.n + len;
    rest->p = at + len;
    return s;
}

static bool is(struct span s, const char *text)
{
    return s.n == strlen(text) && strncasecmp(s.p, text, s.n) == 0;
}

static int request_read_line(struct http_request *r, struct span line)
{
    static const char *const methods[] = {
        [HTTP_GET] = "GET", [HTTP_PUT] = "PUT", [HTTP_DELETE] = "DELETE"};
    struct span method = until(&line, " ");
    struct span target = until(&line, " ");
    bool known = false;
    for (int m = HTTP_GET; m <= HTTP_DELETE && !known; m++)
        if (method.n == strlen(methods[m]) && memcmp(method.p, methods[m], method.n) == 0) {
            r->method = (enum http_method)m;
            known = true;
        }
    if (!known || line.n != strlen("HTTP/1.x") || memcmp(line.p, "HTTP/1.", 7) != 0 ||
        (line.p[7] != '0' && line.p[7] != '1') || target.n == 0 || target.p[0] != '/')
        return -EINVAL;
    return kv_name_parse(&r->name, target.p + 1, target.n - 1) ? 0 : -EINVAL;
}

static int read_length(struct span value, size_t *ret)
{
    char digits[24];
    uint64_t n;
    while (value.n > 0 && (*value.p == ' ' || *value.p == '\t')) {
        value.p++;
        value.n--;
    }
    while (value.n > 0 && (value.p[value.n - 1] == ' ' || value.p[value.n - 1] == '\t'))
        value.n--;
    if (value.n == 0 || value.n >= sizeof(digits) || memchr(value.p, '\0', value.n) != NULL)
        return -EINVAL;
    memcpy(digits, value.p, value.n);
    digits[value.n] = '\0';
    if (dd_num_u64(digits, 0, SIZE_MAX / 2, &n) < 0)
        return -EINVAL;
    *ret = (size_t)n;
    return 0;
}

static int read_headers(struct http_request *r, struct span rest)
{
    bool have = false;
    while (rest.n > 0) {
        struct span value = until(&rest, "\r\n");
        if (memchr(value.p, ':', value.n) == NULL)
            return -EINVAL;
        struct span name = until(&value, ":");
        if (is(name, "Transfer-Encoding"))
            return -EINVAL;
        if (!is(name, "Content-Length"))
            continue;
        size_t n;
        if (read_length(value, &n) < 0 || (have && n != r->body))
            return -EINVAL;
        r->body = n;
        have = true;
    }
    return r->method == HTTP_PUT ? (have ? 0 : -EINVAL) : r->body == 0 ? 0 : -EINVAL;
}

int http_request_parse(struct http_request *ret, const char *p, size_t n)
{
    const char *end = memmem(p, n, "\r\n\r\n", 4);
    if (end == NULL)
        return n >= HTTP_HEAD_MAX ? -EMSGSIZE : 0;
    struct span head = {p, (size_t)(end - p)};
    if (head.n + 4 > HTTP_HEAD_MAX)
        return -EMSGSIZE;
    struct http_request r = {.body = 0};
    struct span line = until(&head, "\r\n");
    int rc = request_read_line(&r, line);
    if (rc == 0)
        rc = read_headers(&r, head);
    if (rc < 0)
        return rc;
    *ret = r;
    return (int)(end - p) + 4;
}
