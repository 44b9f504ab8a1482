#include "cmd/ddctl_top_loop.h"

#include "base/colour.h"
#include "base/columns.h"
#include "base/io.h"
#include "net/loop.h"
#include "worker/command.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SAMPLE_MAX = 64 << 20,
    SAMPLE_LIMIT_MS = 60000, /* 60 s in problem_of() */
    TEXT_LIMIT_MS = 60000,
    ESCAPE_MS = 100, /* time after ESC in which the rest of a key sequence arrives */
    SIGNALS = 7,
};

static const int signals[SIGNALS] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};

struct top_loop {
    const struct top_loop_cfg *cfg;
    struct event_base *base;
    struct dd_full_screen *screen;
    struct event *input, *output, *tick, *escape, *signals[SIGNALS];
    struct command *sampler, *stacks, *log; /* NULL: none runs */
    struct event *log_tick;
    int log_rank; /* rank whose lines the page shows; -1: another page */
    char log_title[300];
    struct top_job job;
    struct top_view view;
    struct top_keys keys;
    bool dirty; /* the terminal does not show the present state */
    int end_signal;
    struct dd_err *err;
    int rc;
};

static void loop_end(struct top_loop *t, int rc)
{
    t->rc = rc;
    (void)event_base_loopbreak(t->base);
}

/* ---- drawing ---- */

static void free_lines(struct dd_line *lines, int n)
{
    for (int i = 0; i < n; i++)
        free(lines[i].text);
    free(lines);
}

static void loop_draw(struct top_loop *t)
{
    dd_full_screen_size(t->screen, &t->view.lines, &t->view.columns);
    const int n = t->view.lines;
    struct dd_line *lines = calloc((size_t)n + 1, sizeof(*lines));
    int rc = lines != NULL ? top_view_draw(&t->view, &t->job, lines) : -ENOMEM;
    if (rc == 0)
        rc = dd_full_screen_draw(t->screen, lines, n);
    if (lines != NULL)
        free_lines(lines, n);
    t->dirty = rc == -EAGAIN;
    if (rc < 0 && rc != -EAGAIN)
        loop_end(t, dd_err_set(t->err, rc, "out of memory"));
    else if (!dd_full_screen_flush(t->screen))
        (void)event_add(t->output, NULL);
}

static void on_output(evutil_socket_t fd, short what, void *arg)
{
    struct top_loop *t = arg;
    (void)fd;
    (void)what;
    if (!dd_full_screen_flush(t->screen))
        (void)event_add(t->output, NULL);
    else if (t->dirty)
        loop_draw(t);
}

/* ---- questions to the job ---- */

/* Return the output of a request, which is a message if the request failed. Without an output,
 * return why there is none: only a command that was killed prints nothing. */
static const char *problem_of(int code, const char *out)
{
    return code == COMMAND_TOO_LATE ? "no answer within 60 s"
           : out[0] == '\0'         ? "the request was killed before its answer arrived"
                                    : out;
}

static void set_notice(struct top_loop *t, const char *text)
{
    (void)snprintf(t->view.notice, sizeof(t->view.notice), "%.*s", (int)strcspn(text, "\n"), text);
}

static void on_sample(void *arg, int code, const char *out)
{
    struct top_loop *t = arg;
    struct top_job job = {0};
    struct dd_err err = {0};
    const struct timeval pause = dd_timeval(t->cfg->interval_ns);
    if (code == 0 && top_job_read(&job, out, strlen(out), &err) == 0) {
        top_job_compare(&job, &t->job);
        top_job_done(&t->job);
        t->job = job;
        t->view.notice[0] = '\0';
    } else {
        top_job_done(&job);
        set_notice(t, problem_of(code, code != 0 ? out : err.text));
    }
    command_free(DD_TAKE(t->sampler));
    (void)evtimer_add(t->tick, &pause);
    loop_draw(t);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct top_loop *t = arg;
    struct dd_err err = {0};
    const struct timeval pause = dd_timeval(t->cfg->interval_ns);
    const struct command_spec spec = {.run = t->cfg->sample,
                                      .run_arg = t->cfg->arg,
                                      .most_out = SAMPLE_MAX,
                                      .limit_ms = SAMPLE_LIMIT_MS};
    (void)fd;
    (void)what;
    if (command_start(&t->sampler, t->base, &spec, on_sample, t, &err) == 0)
        return;
    set_notice(t, err.text);
    (void)evtimer_add(t->tick, &pause);
    loop_draw(t);
}

static const char stacks_title[] = "stacks of all workers";

static void on_stacks(void *arg, int code, const char *out)
{
    struct top_loop *t = arg;
    /* the user may have left the page meanwhile */
    if (t->view.page == TOP_PAGE_TEXT && t->view.title == stacks_title)
        top_view_text(&t->view, stacks_title, problem_of(code, out));
    command_free(DD_TAKE(t->stacks));
    loop_draw(t);
}

static void show_stacks(struct top_loop *t)
{
    DD_AUTO(free) char *job = NULL;
    struct dd_err err = {0};
    t->log_rank = -1;
    top_view_text(&t->view, stacks_title, "Reading the stacks ...\n");
    if (t->stacks != NULL)
        return;
    if (asprintf(&job, "--job=%s", t->cfg->job) < 0) {
        job = NULL;
        return;
    }
    const char *const argv[] = {"/proc/self/exe", "stacks", job, NULL};
    const struct command_spec spec = {
        .argv = argv, .env = environ, .most_out = TOP_TEXT_MAX, .limit_ms = TEXT_LIMIT_MS};
    if (command_start(&t->stacks, t->base, &spec, on_stacks, t, &err) < 0)
        top_view_text(&t->view, stacks_title, err.text);
}

/* ---- last lines of a rank ---- */

static bool shows_log(const struct top_loop *t)
{
    return t->view.page == TOP_PAGE_TEXT && t->log_rank >= 0;
}

static void on_log(void *arg, int code, const char *out)
{
    struct top_loop *t = arg;
    const struct timeval pause = dd_timeval(t->cfg->interval_ns);
    if (shows_log(t) && code == 0)
        top_view_more(&t->view, out[0] != '\0'
                                    ? out
                                    : "No output of this rank has passed through its agent.\n");
    else if (shows_log(t) && t->view.text.len == 0)
        top_view_more(&t->view, problem_of(code, out));
    command_free(DD_TAKE(t->log));
    (void)evtimer_add(t->log_tick, &pause);
    loop_draw(t);
}

static int log_in_child(void *arg)
{
    const struct top_loop *t = arg;
    return t->cfg->log(t->cfg->arg, t->log_rank);
}

static void on_log_tick(evutil_socket_t fd, short what, void *arg)
{
    struct top_loop *t = arg;
    struct dd_err err = {0};
    const struct command_spec spec = {
        .run = log_in_child, .run_arg = t, .most_out = TOP_TEXT_MAX, .limit_ms = TEXT_LIMIT_MS};
    (void)fd;
    (void)what;
    if (shows_log(t) && t->log == NULL &&
        command_start(&t->log, t->base, &spec, on_log, t, &err) < 0)
        top_view_more(&t->view, err.text);
}

static void show_log(struct top_loop *t)
{
    static const struct timeval now = {0};
    const struct top_row *row = &t->job.rows[t->view.selected];
    if (t->view.selected >= t->job.n || row->rank < 0)
        return;
    command_free(DD_TAKE(t->log)); /* the command may read another rank */
    t->log_rank = row->rank;
    (void)snprintf(t->log_title, sizeof(t->log_title), "last lines of rank %d on %s", row->rank,
                   row->node);
    top_view_text(&t->view, t->log_title, "");
    t->view.at_end = true;
    (void)evtimer_add(t->log_tick, &now);
}

static void show_failure(struct top_loop *t)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TOP_TEXT_MAX);
    t->log_rank = -1;
    if (top_job_first_failure(&t->job, &text) == 0)
        top_view_text(&t->view, "first failure", dd_buf_str(&text));
}

/* ---- keys and signals ---- */

static void take_key(struct top_loop *t, enum top_key key)
{
    if (!top_view_key(&t->view, &t->job, key))
        return;
    if (key == TOP_KEY_QUIT)
        loop_end(t, 0);
    else if (key == TOP_KEY_STACKS)
        show_stacks(t);
    else if (key == TOP_KEY_FAILURE)
        show_failure(t);
    else if (key == TOP_KEY_LOG)
        show_log(t);
    else if (key == TOP_KEY_REDRAW)
        (void)dd_full_screen_enter(t->screen);
}

static void on_escape(evutil_socket_t fd, short what, void *arg)
{
    struct top_loop *t = arg;
    enum top_key key;
    (void)fd;
    (void)what;
    if (top_keys_flush(&t->keys, &key))
        take_key(t, key);
    loop_draw(t);
}

static void on_input(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval rest = {.tv_usec = ESCAPE_MS * 1000L};
    struct top_loop *t = arg;
    unsigned char bytes[256];
    enum top_key key;
    (void)what;
    const ssize_t n = read(fd, bytes, sizeof(bytes));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* the terminal is gone */
        t->end_signal = SIGHUP;
        loop_end(t, 0);
        return;
    }
    for (ssize_t i = 0; i < n; i++)
        if (top_keys_take(&t->keys, bytes[i], &key))
            take_key(t, key);
    if (t->keys.n > 0)
        (void)evtimer_add(t->escape, &rest);
    loop_draw(t);
}

/* Stop as if there were no handler: in an orphaned process group, which no shell could continue,
 * the kernel ignores the signal. */
static void stop_here(struct top_loop *t)
{
    const struct sigaction normal = {.sa_handler = SIG_DFL};
    struct sigaction ours;
    dd_full_screen_leave(t->screen);
    (void)sigaction(SIGTSTP, &normal, &ours);
    (void)raise(SIGTSTP);
    (void)sigaction(SIGTSTP, &ours, NULL);
    (void)dd_full_screen_enter(t->screen);
}

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
    struct top_loop *t = arg;
    (void)what;
    if (sig == SIGTSTP)
        stop_here(t);
    else if (sig == SIGCONT || sig == SIGWINCH) /* a shell may have changed the terminal */
        (void)dd_full_screen_enter(t->screen);
    else {
        t->end_signal = (int)sig;
        loop_end(t, 0);
        return;
    }
    loop_draw(t);
}

/* ---- life ---- */

static int loop_events(struct top_loop *t)
{
    const int fd = dd_full_screen_fd(t->screen);
    const struct timeval pause = dd_timeval(t->cfg->interval_ns);
    t->input = event_new(t->base, fd, EV_READ | EV_PERSIST, on_input, t);
    t->output = event_new(t->base, fd, EV_WRITE, on_output, t);
    t->tick = evtimer_new(t->base, on_tick, t);
    t->escape = evtimer_new(t->base, on_escape, t);
    t->log_tick = evtimer_new(t->base, on_log_tick, t);
    if (t->input == NULL || t->output == NULL || t->tick == NULL || t->escape == NULL ||
        t->log_tick == NULL || event_add(t->input, NULL) < 0 || evtimer_add(t->tick, &pause) < 0)
        return -ENOMEM;
    for (int i = 0; i < SIGNALS; i++) {
        t->signals[i] = evsignal_new(t->base, signals[i], on_signal, t);
        if (t->signals[i] == NULL || event_add(t->signals[i], NULL) < 0)
            return -ENOMEM;
    }
    return 0;
}

static void loop_done(struct top_loop *t)
{
    struct event *events[] = {t->input, t->output, t->tick, t->escape, t->log_tick};
    dd_full_screen_leave(t->screen);
    command_free(t->sampler);
    command_free(t->stacks);
    command_free(t->log);
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    for (int i = 0; i < SIGNALS; i++)
        if (t->signals[i] != NULL)
            event_free(t->signals[i]);
    dd_full_screen_free(t->screen);
    if (t->base != NULL)
        event_base_free(t->base);
    top_job_done(&t->job);
    top_view_done(&t->view);
}

static bool has_colours(void)
{
    return dd_colour_is_wanted(&(struct colour_env){.no_color = getenv("NO_COLOR"),
                                                    .clicolor_force = getenv("CLICOLOR_FORCE"),
                                                    .clicolor = getenv("CLICOLOR"),
                                                    .term = getenv("TERM"),
                                                    .terminal = true});
}

int top_loop_run(const struct top_loop_cfg *cfg, struct top_job *first, struct dd_err *err)
{
    struct top_loop t = {
        .cfg = cfg, .job = *first, .view = TOP_VIEW_INIT, .log_rank = -1, .err = err};
    *first = (struct top_job){0};
    t.view.utf8 = dd_columns_are_utf8(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG"));
    int rc = dd_full_screen_new(&t.screen, STDOUT_FILENO, has_colours(), err);
    if (rc == 0) {
        t.base = net_loop_new();
        rc = t.base == NULL || loop_events(&t) < 0 ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
    }
    if (rc == 0 && (rc = dd_full_screen_enter(t.screen)) < 0)
        (void)dd_err_set(err, rc, "cannot change the modes of the terminal: %s", strerror(-rc));
    if (rc == 0) {
        loop_draw(&t);
        (void)event_base_dispatch(t.base);
        rc = t.rc;
    }
    loop_done(&t);
    return rc < 0 ? rc : t.end_signal;
}
