#include "cmd/ddctl_web_state.h"

#include "base/io.h"
#include "base/strv.h"
#include "cmd/ddctl_events.h"
#include "cmd/ddctl_job.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ASK_AGAIN_MS = 900, /* shorter than the interval of the page, each request of which gets new
                           data */
    FOLLOW_AGAIN_MS = 1000,
    EVENTS_MAX = 1000, /* the daemon keeps as many events */
    METRICS_MAX = 1 << 20,
    LINE_MAX_BYTES = 1 << 20,
};

struct web_state {
    struct event_base *base;
    char *job;
    json_t *status, *profile, *events; /* profile: NULL until it is known */
    struct dd_buf metrics;
    char problem[256]; /* why the last request failed; "": it succeeded */
    bool ended;
    uint64_t asked_ns;
    /* The process that follows the events. */
    pid_t pid;                      /* 0: none */
    struct event *readable, *again; /* readable: NULL: no process */
    struct dd_buf rest;             /* incomplete line */
    bool replays;                   /* not the first such process: it repeats known events */
};

/* ---- state ---- */

static int web_state_on_metrics(void *arg, const char *piece)
{
    return dd_buf_puts(arg, piece);
}

static int web_state_ask_one(const struct web_state *s, const char *what, json_t **ret,
                             struct dd_err *err)
{
    json_t *o = NULL;
    int rc = job_ask(&o, &(struct job_question){.job = s->job, .what = what, .text = ""}, err);
    if (rc < 0)
        return rc;
    json_decref(*ret);
    *ret = o;
    return 0;
}

static int web_state_ask_metrics(struct web_state *s, struct dd_err *err)
{
    json_t *none = NULL;
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(METRICS_MAX);
    int rc = job_ask(&none,
                     &(struct job_question){.job = s->job,
                                            .what = "metrics",
                                            .text = "",
                                            .on_piece = web_state_on_metrics,
                                            .arg = &text},
                     err);
    if (rc < 0)
        return rc;
    dd_buf_clear(&s->metrics);
    return dd_buf_append(&s->metrics, text.data, text.len);
}

/* A failure keeps the previous answers: the job may have just ended. */
static int web_state_ask(struct web_state *s, struct dd_err *err)
{
    int rc = web_state_ask_one(s, "status", &s->status, err);
    if (rc == 0)
        rc = web_state_ask_one(s, "profile", &s->profile, err);
    if (rc == 0)
        rc = web_state_ask_metrics(s, err);
    s->asked_ns = dd_now_ns();
    (void)snprintf(s->problem, sizeof(s->problem), "%.*s",
                   rc < 0 ? (int)strcspn(err->text, "\n") : 0, err->text);
    return rc;
}

char *web_state_json(struct web_state *s, bool has_timeline)
{
    struct dd_err err = {0};
    if (!s->ended && dd_now_ns() - s->asked_ns >= ASK_AGAIN_MS * DD_NS_PER_MS)
        (void)web_state_ask(s, &err);
    const char *metrics = dd_buf_str(&s->metrics);
    json_t *o = json_pack("{s:i,s:s,s:b,s:s,s:b,s:O?,s:O?,s:s?,s:O}", "version", 1, "job", s->job,
                          "ended", s->ended, "problem", s->ended ? "" : s->problem, "timeline",
                          has_timeline, "status", s->status, "profile", s->profile, "metrics",
                          metrics, "events", s->events);
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

const char *web_state_job(const struct web_state *s)
{
    return s->job;
}

/* ---- events ---- */

static bool web_state_knows(const struct web_state *s, const json_t *event)
{
    for (size_t i = 0; s->replays && i < json_array_size(s->events); i++)
        if (json_equal(json_array_get(s->events, i), event))
            return true;
    return false;
}

static void web_state_take_line(struct web_state *s, const char *line, size_t n)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(LINE_MAX_BYTES);
    json_t *event = json_loadb(line, n, 0, NULL);
    if (event_text(&text, event) == 0)
        (void)json_object_set_new(event, "line", json_string(dd_buf_str(&text)));
    if (json_is_object(event) && !web_state_knows(s, event)) {
        s->ended = s->ended || strcmp(json_text(event, "event"), "finish") == 0;
        (void)json_array_append(s->events, event);
        if (json_array_size(s->events) > EVENTS_MAX)
            (void)json_array_remove(s->events, 0);
    }
    json_decref(event);
}

/* Execute 'ddctl events' from the file of this process, which has the same version. The child ends
 * with this process. */
static void web_state_exec(const char *job, int out)
{
    DD_AUTO(buf) struct dd_buf option = DD_BUF_INIT(1 << 16);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dd_buf_printf(&option, "--job=%s", job) == 0) {
        const char *const argv[] = {
            "ddctl", "events", "--follow", "--format=json", dd_buf_str(&option), NULL};
        const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        (void)dup2(null, STDERR_FILENO);
        execv("/proc/self/exe", (char *const *)(const void *)argv);
    }
    _exit(127);
}

static void web_state_on_readable(evutil_socket_t fd, short what, void *arg);

static int web_state_follow(struct web_state *s)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    s->pid = fork();
    const int failed = s->pid < 0 ? -errno : -ENOMEM;
    if (s->pid == 0)
        web_state_exec(s->job, ends[1]);
    close(ends[1]);
    s->readable = s->pid > 0 && dd_fd_nonblock(ends[0]) == 0
                      ? event_new(s->base, ends[0], EV_READ | EV_PERSIST, web_state_on_readable, s)
                      : NULL;
    if (s->readable != NULL && event_add(s->readable, NULL) == 0)
        return 0;
    if (s->readable == NULL)
        close(ends[0]);
    return failed;
}

static void web_state_unfollow(struct web_state *s)
{
    if (s->readable != NULL) {
        close(event_get_fd(s->readable));
        event_free(s->readable);
        s->readable = NULL;
    }
    if (s->pid > 0) {
        (void)kill(s->pid, SIGKILL);
        (void)waitpid(s->pid, NULL, 0);
    }
    s->pid = 0;
    dd_buf_clear(&s->rest);
}

/* True if no agent of this user reports the job. False also if an agent has not answered, or has no
 * daemon: the job continues, or ends soon. */
static bool web_state_job_is_gone(const struct web_state *s)
{
    DD_AUTO(strv) struct dd_strv jobs = {0};
    struct dd_err err = {0};
    size_t silent = 0;
    bool found = job_list(&jobs, &silent, &err) < 0 || silent > 0;
    for (size_t i = 0; i < jobs.n && !found; i++)
        found = strcmp(jobs.v[i], s->job) == 0;
    return !found;
}

/* The process that follows the events has ended: with the job, or because the daemon's node is lost
 * and another one takes over. */
static void web_state_on_end(struct web_state *s)
{
    const struct timeval pause = dd_timeval(FOLLOW_AGAIN_MS * DD_NS_PER_MS);
    web_state_unfollow(s);
    s->ended = s->ended || web_state_job_is_gone(s);
    s->replays = true;
    if (!s->ended)
        (void)evtimer_add(s->again, &pause);
}

static void web_state_on_again(evutil_socket_t fd, short what, void *arg)
{
    struct web_state *s = arg;
    (void)fd;
    (void)what;
    if (web_state_follow(s) < 0)
        web_state_on_end(s);
}

static void web_state_on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct web_state *s = arg;
    char bytes[1 << 16];
    const ssize_t n = read(fd, bytes, sizeof(bytes));
    (void)what;
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0 || dd_buf_append(&s->rest, bytes, (size_t)n) < 0) {
        web_state_on_end(s);
        return;
    }
    for (;;) {
        const unsigned char *nl = s->rest.len > 0 ? memchr(s->rest.data, '\n', s->rest.len) : NULL;
        if (nl == NULL)
            break;
        const size_t len = (size_t)(nl - s->rest.data);
        web_state_take_line(s, (const char *)s->rest.data, len);
        dd_buf_consume(&s->rest, len + 1);
    }
}

/* Wait for the past events: from then on the process receives the end of the job, too. */
static void web_state_await_events(struct web_state *s)
{
    while (s->readable != NULL && json_array_size(s->events) == 0)
        (void)event_base_loop(s->base, EVLOOP_ONCE);
}

/* ---- interface ---- */

int web_state_new(struct web_state **ret, struct event_base *base, const char *job,
                  struct dd_err *err)
{
    struct web_state *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *s = (struct web_state){.base = base,
                            .job = job != NULL ? strdup(job) : NULL,
                            .events = json_array(),
                            .again = evtimer_new(base, web_state_on_again, s),
                            .metrics = DD_BUF_INIT(METRICS_MAX),
                            .rest = DD_BUF_INIT(LINE_MAX_BYTES)};
    int rc = web_state_ask(s, err);
    if (rc == 0) {
        free(s->job);
        s->job = strdup(json_text(s->status, "job"));
        if (s->job == NULL || s->again == NULL || s->events == NULL)
            rc = dd_err_set(err, -ENOMEM, "out of memory");
    }
    if (rc == 0 && (rc = web_state_follow(s)) < 0)
        (void)dd_err_set(err, rc, "cannot start ddctl events: %s", strerror(-rc));
    if (rc < 0) {
        web_state_free(s);
        return rc;
    }
    web_state_await_events(s);
    *ret = s;
    return 0;
}

void web_state_free(struct web_state *s)
{
    if (s == NULL)
        return;
    web_state_unfollow(s);
    if (s->again != NULL)
        event_free(s->again);
    json_decref(s->status);
    json_decref(s->profile);
    json_decref(s->events);
    dd_buf_done(&s->metrics);
    dd_buf_done(&s->rest);
    free(s->job);
    free(s);
}
