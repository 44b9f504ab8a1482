#include "rdzv/ports.h"

#include "base/auto.h"
#include "base/num.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { ADDR_MAX = 63 };

int ports_format(struct dd_buf *out, const char *addr, const uint16_t *ports, int n)
{
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = i == 0 ? dd_buf_printf(out, "%s/%u", addr != NULL ? addr : "", ports[i])
                    : dd_buf_printf(out, ",%u", ports[i]);
    return rc;
}

/* Return the length of a numeric address with an optional zone. Strict, because the address is
 * copied to the environment of workers. */
static size_t addr_len(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || (s[n] != '\0' && strchr(".:%_-", s[n]) != NULL))
        n++;
    return n;
}

/* Parse the port at *s and advance *s; 0: none. */
static int take_port(const char **s)
{
    char digits[8] = "";
    uint64_t port;
    size_t n = strspn(*s, "0123456789");
    if (n == 0 || n >= sizeof(digits))
        return 0;
    memcpy(digits, *s, n);
    if (dd_num_u64(digits, 1, UINT16_MAX, &port) < 0)
        return 0;
    *s += n;
    return (int)port;
}

/* Parse the text of the first node, up to ';' or the end, into `ports`. Returns the number of
 * ports, or -EINVAL. */
static int take_node(const char **s, size_t *ret_addr, int *ports)
{
    int n = 0;
    *ret_addr = addr_len(*s);
    *s += *ret_addr;
    if (*ret_addr == 0 && (**s == '\0' || **s == ';'))
        return 0;
    if (*ret_addr > ADDR_MAX || **s != '/')
        return -EINVAL;
    do {
        (*s)++;
        int port = take_port(s);
        if (port == 0 || n == PORTS_MAX)
            return -EINVAL;
        ports[n++] = port;
    } while (**s == ',');
    return **s == '\0' || **s == ';' ? n : -EINVAL;
}

int ports_count(const char *node)
{
    int ports[PORTS_MAX];
    size_t addr;
    int n = take_node(&node, &addr, ports);
    return *node != '\0' ? -EINVAL : n;
}

int ports_append(struct dd_buf *out, const char *node, const char *addr)
{
    return dd_buf_printf(out, "%s%s", node[0] == '/' ? addr : "", node);
}

/* Return "ADDRESS:PORT" as in URLs, which the caller frees; NULL: out of memory. */
static char *endpoint(const char *addr, size_t len, int port)
{
    char *text = NULL;
    bool v6 = memchr(addr, ':', len) != NULL;
    return asprintf(&text, v6 ? "[%.*s]:%d" : "%.*s:%d", (int)len, addr, port) < 0 ? NULL : text;
}

static int ports_not_understood(int node, struct dd_err *err)
{
    return dd_err_set(err, -EPROTO, "malformed port list of node rank %d", node);
}

int ports_coordinator(char **ret, const char *text, const char *here, struct dd_err *err)
{
    int ports[PORTS_MAX];
    const char *s = text;
    size_t len;
    int n = take_node(&s, &len, ports);
    *ret = NULL;
    if (n <= 0)
        return n < 0 ? ports_not_understood(0, err) : 0;
    *ret = endpoint(len > 0 ? text : here, len > 0 ? len : strlen(here), ports[0]);
    return *ret == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

static int ports_add_workers(struct dd_strv *out, const char *addr, size_t len, const int *ports,
                             int n)
{
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        DD_AUTO(free) char *text = endpoint(addr, len, ports[i]);
        rc = text == NULL ? -ENOMEM : dd_strv_push(out, text);
    }
    return rc;
}

int ports_workers(struct dd_strv *out, const char *text, const char *here, const struct plan *p,
                  struct dd_err *err)
{
    if (*text == '\0' && p->nnodes > 1) /* a complete list of several nodes contains semicolons */
        return dd_err_set(err, -ENOTSUP,
                          "the list of reserved ports for %d workers is too long to be sent"
                          "\n  tip: start fewer workers, for example one per node",
                          p->world_size);
    for (int node = 0; node < p->nnodes; node++) {
        int ports[PORTS_MAX];
        const char *addr = text;
        size_t len;
        int n = take_node(&text, &len, ports);
        if (n < 0 || (*text == ';' && node + 1 == p->nnodes))
            return ports_not_understood(node, err);
        if (n < 1 + p->sizes[node])
            return dd_err_set(
                err, -EPROTO,
                "node rank %d reserved too few ports for its workers: %d, expected %d", node, n,
                1 + p->sizes[node]);
        if (ports_add_workers(out, len > 0 ? addr : here, len > 0 ? len : strlen(here), ports + 1,
                              p->sizes[node]) < 0)
            return dd_err_set(err, -ENOMEM, "out of memory");
        text += *text == ';';
    }
    return 0;
}
