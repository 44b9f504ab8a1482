/* A starting process that was itself started: what comes from the one that has done so, and what
 * goes there. */
#include "launch/launcher_inner.h"

#include "base/io.h"
#include "base/sig.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void on_word(void *arg, const struct launch_word *w)
{
    struct root *r = arg;
    const int sig = (int)(w->value & 255);
    const struct child *c = &r->children[w->node];
    const int to = launch_door_is_open(r->door, c->index) ? c->index : c->lead;
    if (w->type == WORD_DROP)
        root_drop(r, &r->children[w->node]);
    else if (w->type == WORD_SIGNAL && c->index != r->here) {
        if (to >= 0)
            launch_door_say(r->door, to, WORD_SIGNAL, c->index, w->value);
    } else if (w->type == WORD_SIGNAL && dd_signal_ends_jobs(sig)) {
        r->asked = true;
        root_stop(r, sig, (w->value & DD_SIGNAL_AT_ONCE) != 0);
        root_end_in_grace(r);
    } else if (w->type == WORD_SIGNAL && dd_signal_announces(sig)) {
        root_tell_here(r, sig, false);
    }
}

/* Nobody is there who would miss this node. */
static void on_lost(void *arg, const char *why)
{
    struct root *r = arg;
    (void)why;
    r->asked = true;
    if (!r->stopped)
        root_stop(r, SIGTERM, false);
    root_end_in_grace(r);
    root_look(r);
}

static void on_input(evutil_socket_t fd, short what, void *arg)
{
    struct root *r = arg;
    char bytes[256];
    (void)what;
    ssize_t n = read(fd, bytes, sizeof(bytes));
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    (void)event_del(r->input);
    on_lost(r, "");
}

/* Ours go up over the link; or there is more than our own agent that writes there, and lines are to
 * stay whole: then all of it passes through here. */
static int take_output(struct root *r, struct dd_err *err)
{
    const struct root_cfg *cfg = r->cfg;
    int rc = 0;
    for (int k = 0; k < LAUNCH_STREAMS && rc == 0; k++) {
        int fds[2];
        r->out_fds[k] = fcntl(k + 1, F_DUPFD_CLOEXEC, 3);
        if (cfg->task->output)
            r->out[k] = (struct outlet){.up = cfg->up, .which = k};
        else
            rc = outlet_console(&r->out[k], r->base, r->out_fds[k], root_on_room, r, cfg->log, err);
        if (rc == 0 && (pipe2(fds, O_CLOEXEC) < 0 || dup2(fds[1], k + 1) < 0))
            rc = dd_err_set(err, -errno, "cannot make a pipe: %m");
        if (rc < 0)
            return rc;
        close(fds[1]);
        if (stream_read(&r->children[r->here].streams[k], r->base, &r->out[k], fds[0]) < 0)
            rc = dd_err_set(err, -ENOMEM, "out of memory");
    }
    return rc;
}

int root_begin_started(struct root *r, struct dd_err *err)
{
    const struct root_cfg *cfg = r->cfg;
    const struct launch_up_cb cb = {
        .on_word = on_word, .on_room = root_on_room, .on_lost = on_lost, .arg = r};
    int rc = cfg->task->output || cfg->task->n > 0 ? take_output(r, err) : 0;
    if (rc == 0 && cfg->stdin_fd >= 0) {
        (void)dd_fd_nonblock(cfg->stdin_fd);
        r->input = event_new(r->base, cfg->stdin_fd, EV_READ | EV_PERSIST, on_input, r);
        if (r->input == NULL || event_add(r->input, NULL) < 0)
            rc = dd_err_set(err, -ENOMEM, "out of memory");
    }
    launch_up_begin(cfg->up, &cb);
    return rc;
}
