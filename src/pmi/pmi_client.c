#include "pmi/pmi_client.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/log.h"
#include "base/num.h"
#include "pmi/pmi1_wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum { PROCESSES_MAX = 65536 };

struct pmi_client {
    int fd;
    uint64_t end_ns;
    size_t len; /* bytes in `in` */
    char in[PMI_READ_MAX + 1];
    struct dd_err *err;
};

int pmi_client_size(char *const *env, int *ret_rank)
{
    const char *fd = dd_env_get(env, "PMI_FD");
    const char *rank = dd_env_get(env, "PMI_RANK");
    const char *size = dd_env_get(env, "PMI_SIZE");
    int n;
    int number;
    if (fd == NULL || rank == NULL || size == NULL || dd_num_int(fd, 0, INT32_MAX, &number) < 0 ||
        dd_num_int(size, 1, PROCESSES_MAX, &n) < 0 || dd_num_int(rank, 0, n - 1, ret_rank) < 0)
        return 0;
    return n;
}

static int lost(struct pmi_client *c, const char *why)
{
    return dd_err_set(c->err, -EPROTO,
                      "the PMI-1 exchange with the outer launcher failed (PMI_FD=%d): %s", c->fd,
                      why);
}

/* Read the next line into c->in, without its newline; *ret_next is the position after it. */
static int pmi_client_read_line(struct pmi_client *c, size_t *ret_next)
{
    for (;;) {
        char *end = memchr(c->in, '\n', c->len);
        if (end != NULL) {
            *end = '\0';
            *ret_next = (size_t)(end - c->in) + 1;
            return 0;
        }
        uint64_t now = dd_now_ns();
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        if (now >= c->end_ns)
            return lost(c, "timed out\n  tip: start ddrun on all nodes in the same way");
        if (c->len == PMI_READ_MAX)
            return lost(c, "the reply is longer than a PMI-1 line");
        if (poll(&p, 1, (int)((c->end_ns - now) / DD_NS_PER_MS) + 1) <= 0)
            continue;
        ssize_t n = read(c->fd, c->in + c->len, PMI_READ_MAX - c->len);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
            return lost(c, n == 0 ? "the launcher closed the connection" : strerror(errno));
        c->len += n > 0 ? (size_t)n : 0;
    }
}

/* Send a request and, if word is set, get the value of that word from the reply. */
__attribute__((format(printf, 4, 5))) static int pmi_client_ask(struct pmi_client *c,
                                                                const char *word,
                                                                char value[PMI_VALUE_MAX],
                                                                const char *fmt, ...)
{
    char line[PMI_LINE_MAX + 1];
    char shown[128];
    size_t next = 0;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= PMI_LINE_MAX)
        return lost(c, "the request is longer than a PMI-1 line");
    line[n++] = '\n';
    int rc = dd_write_full(c->fd, line, (size_t)n);
    if (rc < 0)
        return lost(c, strerror(-rc));
    if ((rc = pmi_client_read_line(c, &next)) < 0)
        return rc;
    const char *found = word != NULL ? strstr(c->in, word) : "";
    const bool refused = strstr(c->in, " rc=-") != NULL;
    if (refused || found == NULL)
        return dd_err_set(c->err, -EPROTO,
                          "the outer launcher %s a PMI-1 request (PMI_FD=%d): '%s'",
                          refused ? "refused" : "sent an unexpected reply to", c->fd,
                          dd_log_escape(shown, sizeof(shown), c->in, strlen(c->in)));
    if (word != NULL) {
        found += strlen(word);
        (void)snprintf(value, PMI_VALUE_MAX, "%.*s", (int)strcspn(found, " "), found);
    }
    c->len -= next;
    memmove(c->in, c->in + next, c->len);
    return 0;
}

static int pmi_client_exchange(struct pmi_client *c, struct dd_strv *ret, int rank, int size,
                               const char *text)
{
    char kvs[PMI_VALUE_MAX];
    char value[PMI_VALUE_MAX];
    int rc = pmi_client_ask(c, NULL, NULL, "cmd=init pmi_version=1 pmi_subversion=1");
    if (rc == 0)
        rc = pmi_client_ask(c, " kvsname=", kvs, "cmd=get_my_kvsname");
    if (rc == 0)
        rc = pmi_client_ask(c, NULL, NULL, "cmd=put kvsname=%s key=ddrun-%d value=%s", kvs, rank,
                            text);
    if (rc == 0)
        rc = pmi_client_ask(c, NULL, NULL, "cmd=barrier_in");
    for (int i = 0; i < size && rc == 0; i++) {
        rc = pmi_client_ask(c, " value=", value, "cmd=get kvsname=%s key=ddrun-%d", kvs, i);
        if (rc == 0 && dd_strv_push(ret, value) < 0)
            rc = dd_err_set(c->err, -ENOMEM, "out of memory");
    }
    return rc < 0 ? rc : pmi_client_ask(c, NULL, NULL, "cmd=finalize");
}

int pmi_client_gather(struct dd_strv *ret, char *const *env, const char *text, unsigned limit_ms,
                      struct dd_err *err)
{
    struct pmi_client c = {.end_ns = dd_now_ns() + limit_ms * DD_NS_PER_MS, .err = err};
    int rank;
    const int size = pmi_client_size(env, &rank);
    if (size == 0 || !pmi_name_ok(text) ||
        dd_num_int(dd_env_get(env, "PMI_FD"), 0, INT32_MAX, &c.fd) < 0)
        return dd_err_set(err, -EINVAL, "%s",
                          size == 0 ? "no outer launcher with PMI-1"
                                    : "the text for the PMI-1 exchange is empty, too long or has a "
                                      "blank"); /* without the text, which may be a secret */
    int rc = pmi_client_exchange(&c, ret, rank, size, text);
    close(c.fd);
    return rc;
}
