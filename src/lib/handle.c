/* The handle: identity of this worker and its connections to the store, one per call in progress.
 */
#include "lib/lib_inner.h"

#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- messages ---- */

static _Thread_local struct dd_err last_error; /* per thread, like dlerror() */

static const struct {
    int code;
    const char *text;
} sentences[] = {
    {0, "no error"},
    {EINVAL, "invalid argument or environment variable"},
    {ETIMEDOUT, "timed out"},
    {ECANCELED, "this round is over, or the connection to its store was lost"},
    {ECONNREFUSED, "no server at the address of this round's store"},
    {EACCES, "no access to the store, which accepts only workers of its own job"},
    {EPROTO, "protocol error: unexpected reply from the store"},
    {EMSGSIZE, "the data exceeds a limit of libddrun"},
    {EBUSY, "another collective of this group is in progress in this process"},
    {EPERM, "the handle belongs to the process that created it, not to a child"},
    {ENOMEM, "out of memory"},
};

const char *ddrun_strerror(int code)
{
    for (size_t i = 0; i < sizeof(sentences) / sizeof(sentences[0]); i++)
        if (sentences[i].code == -code)
            return sentences[i].text;
    return code < 0 && code > -4096 ? strerror(-code) : "not an error code of libddrun";
}

const char *ddrun_error(void)
{
    return last_error.text;
}

int lib_fail_as(int rc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(last_error.text, sizeof(last_error.text), fmt, ap);
    va_end(ap);
    return rc;
}

int lib_fail(int rc, const char *fmt, ...)
{
    char place[300];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(place, sizeof(place), fmt, ap);
    va_end(ap);
    return lib_fail_as(rc, "%s: %s", place, ddrun_strerror(rc));
}

/* ---- connections ---- */

uint64_t lib_answer_in(int timeout_ms)
{
    return deadline_in(timeout_ms == 0 ? ANSWER_MS : timeout_ms);
}

int lib_check(const struct ddrun *d)
{
    if (d->pid != getpid())
        return -EPERM;
    return __atomic_load_n(&d->over, __ATOMIC_RELAXED) ? -ECANCELED : 0;
}

static void drop_idle(struct ddrun *d)
{
    for (struct conn *c = d->idle, *next; c != NULL; c = next) {
        next = c->next;
        conn_free(c);
    }
    d->idle = NULL;
}

int lib_take(struct ddrun *d, struct conn **ret, uint64_t deadline)
{
    (void)pthread_mutex_lock(&d->lock);
    struct conn *c = d->idle;
    if (c != NULL)
        d->idle = c->next;
    (void)pthread_mutex_unlock(&d->lock);
    if (c != NULL) {
        *ret = c;
        return 0;
    }
    int rc = conn_open(ret, &d->addr, deadline, &last_error);
    if (rc == 0)
        __atomic_store_n(&d->reached, true, __ATOMIC_RELAXED);
    if (rc != -ECONNREFUSED || !__atomic_load_n(&d->reached, __ATOMIC_RELAXED))
        return rc;
    __atomic_store_n(&d->over, true, __ATOMIC_RELAXED); /* all later calls fail at once */
    return -ECANCELED;
}

int lib_give(struct ddrun *d, struct conn *c, int rc)
{
    if (rc < 0) {
        conn_free(c);
        c = NULL;
    }
    (void)pthread_mutex_lock(&d->lock);
    if (rc == -ECANCELED) {
        __atomic_store_n(&d->over, true, __ATOMIC_RELAXED);
        drop_idle(d);
    }
    if (c != NULL && d->over) {
        conn_free(c);
    } else if (c != NULL) {
        c->next = d->idle;
        d->idle = c;
    }
    (void)pthread_mutex_unlock(&d->lock);
    return rc;
}

/* Cancel the wait. The connection is reusable if the store confirms that. */
static int take_back_wait(struct conn *c)
{
    struct wire w;
    wire_init(&w, 0);
    wire_cancel_wait(&w);
    int rc = conn_call(c, &w, deadline_in(ANSWER_MS));
    wire_done_with(&w);
    return rc;
}

static bool is_wait(const struct wire *w)
{
    return w->nsteps == 1 && w->steps[0].kind == WIRE_ZERO;
}

int lib_call(struct ddrun *d, struct wire *w, uint64_t deadline)
{
    struct conn *c = NULL;
    if (w->rc < 0)
        return w->rc;
    int rc = lib_take(d, &c, deadline);
    if (rc < 0)
        return rc;
    rc = conn_call(c, w, deadline);
    if (rc != -ETIMEDOUT || !is_wait(w))
        return lib_give(d, c, rc);
    int after = take_back_wait(c);
    (void)lib_give(d, c, after);
    return after == -ECANCELED ? after : rc;
}

/* ---- identity ---- */

/* Read a variable that ddrun sets for every worker; if it is missing, something between ddrun and
 * this program has removed it. */
static int handle_number(const char *name, int min, int max, int *ret)
{
    const char *text = getenv(name);
    if (text == NULL)
        return lib_fail_as(
            -EINVAL,
            "%s is not set, but DDRUN_ROUND is: the environment set by ddrun is incomplete", name);
    if (dd_num_int(text, min, max, ret) < 0)
        return lib_fail_as(-EINVAL, "%s='%.100s' is not a number from %d to %d", name, text, min,
                           max);
    return 0;
}

static int handle_read_environment(struct ddrun *d)
{
    const struct {
        const char *name;
        int min;
        int *ret;
    } rows[] = {
        {"DDRUN_ROUND", 0, &d->round},
        {"RANK", 0, &d->rank},
        {"WORLD_SIZE", 1, &d->size},
        {"LOCAL_RANK", 0, &d->local_rank},
        {"LOCAL_WORLD_SIZE", 1, &d->local_size},
        {"GROUP_RANK", 0, &d->node_rank},
        {"GROUP_WORLD_SIZE", 1, &d->nodes},
        {"TORCHELASTIC_RESTART_COUNT", 0, &d->restarts},
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && rc == 0; i++)
        rc = handle_number(rows[i].name, rows[i].min, INT_MAX, rows[i].ret);
    if (rc == 0 && d->rank >= d->size)
        rc = lib_fail_as(-EINVAL, "RANK=%d is not below WORLD_SIZE=%d", d->rank, d->size);
    return rc;
}

static int find_store(struct ddrun *d, uint64_t deadline)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    struct conn *c = NULL;
    if (host == NULL || port == NULL)
        return lib_fail_as(
            -EINVAL,
            "%s is not set, but DDRUN_ROUND is: the environment set by ddrun is incomplete",
            host == NULL ? "MASTER_ADDR" : "MASTER_PORT");
    int rc = conn_addr(&d->addr, host, port, &last_error);
    if (rc == 0)
        rc = lib_take(d, &c, deadline);
    return rc < 0 ? rc : lib_give(d, c, 0);
}

/* Use the descriptor only if it still refers to the heartbeat file. */
static void find_heartbeat_fd(struct ddrun *d)
{
    const char *text = getenv("DDRUN_HEARTBEAT_FD");
    char path[40], target[64];
    int fd;
    d->heartbeat_fd = -1;
    if (text == NULL || dd_num_int(text, 3, INT_MAX, &fd) < 0)
        return;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    if (strstr(target, "ddrun-heartbeat") != NULL)
        d->heartbeat_fd = fd;
}

static int handle_fill(struct ddrun *d, int timeout_ms)
{
    const char *beat = getenv("DDRUN_HEARTBEAT_FILE");
    if (beat != NULL && (d->heartbeat = strdup(beat)) == NULL)
        return lib_fail(-ENOMEM, "ddrun_init");
    find_heartbeat_fd(d);
    d->steps = step_file_open();
    int rc = 0;
    bool under_ddrun = getenv("DDRUN_ROUND") != NULL;
    if (under_ddrun)
        rc = handle_read_environment(d);
    else if (local_store_new(&d->local) < 0)
        rc = lib_fail(-ENOMEM, "ddrun_init");
    (void)snprintf(d->prefix, sizeof(d->prefix), "ddrun/%d/", d->round);
    if (rc == 0 && group_world(d) < 0)
        rc = lib_fail(-ENOMEM, "ddrun_init");
    return rc == 0 && under_ddrun ? find_store(d, lib_answer_in(timeout_ms)) : rc;
}

int ddrun_init(struct ddrun **ret, int timeout_ms)
{
    struct ddrun *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return lib_fail(-ENOMEM, "ddrun_init");
    *d = (struct ddrun){.pid = getpid(), .size = 1, .local_size = 1, .nodes = 1};
    (void)pthread_mutex_init(&d->lock, NULL);
    int rc = handle_fill(d, timeout_ms);
    if (rc < 0) {
        ddrun_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

void ddrun_free(struct ddrun *d)
{
    if (d == NULL)
        return;
    drop_idle(d);
    groups_free(d);
    step_file_close(d->steps);
    free(d->heartbeat);
    if (d->pid ==
        getpid()) { /* in a forked child, threads that no longer exist may hold the locks */
        local_store_free(d->local);
        (void)pthread_mutex_destroy(&d->lock);
    }
    free(d);
}

int ddrun_rank(const struct ddrun *d)
{
    return d->rank;
}

int ddrun_size(const struct ddrun *d)
{
    return d->size;
}

int ddrun_local_rank(const struct ddrun *d)
{
    return d->local_rank;
}

int ddrun_local_size(const struct ddrun *d)
{
    return d->local_size;
}

int ddrun_node_rank(const struct ddrun *d)
{
    return d->node_rank;
}

int ddrun_nodes(const struct ddrun *d)
{
    return d->nodes;
}

int ddrun_round(const struct ddrun *d)
{
    return d->round;
}

int ddrun_restarts(const struct ddrun *d)
{
    return d->restarts;
}
