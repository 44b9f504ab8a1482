/* A starting process that was itself started: what comes from the one that has done so, and what
 * goes there. */
#include "launch/launcher_inner.h"

#include "base/io.h"
#include "base/sig.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void on_message(void *arg, const struct launch_msg *m)
{
    struct launcher *l = arg;
    const int sig = (int)(m->value & 255);
    const struct child *c = &l->children[m->node];
    const int to = bootstrap_server_is_connected(l->server, c->index) ? c->index : c->parent;
    if (m->type == LAUNCH_CANCEL)
        launcher_drop(l, &l->children[m->node]);
    else if (m->type == LAUNCH_SIGNAL && c->index != l->here) {
        if (to >= 0)
            bootstrap_server_send(l->server, to, LAUNCH_SIGNAL, c->index, m->value);
    } else if (m->type == LAUNCH_SIGNAL && dd_signal_ends_jobs(sig)) {
        l->asked = true;
        launcher_stop(l, sig, (m->value & DD_SIGNAL_AT_ONCE) != 0);
        launcher_end_in_grace(l);
    } else if (m->type == LAUNCH_SIGNAL && dd_signal_announces(sig)) {
        launcher_tell_here(l, sig, false);
    }
}

/* Nobody is there who would miss this node. */
static void on_lost(void *arg, const char *why)
{
    struct launcher *l = arg;
    (void)why;
    l->asked = true;
    if (!l->stopped)
        launcher_stop(l, SIGTERM, false);
    launcher_end_in_grace(l);
    launcher_look(l);
}

static void on_input(evutil_socket_t fd, short what, void *arg)
{
    struct launcher *l = arg;
    char bytes[256];
    (void)what;
    ssize_t n = read(fd, bytes, sizeof(bytes));
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    (void)event_del(l->input);
    on_lost(l, "");
}

/* Ours go up over the link; or there is more than our own agent that writes there, and lines are to
 * stay whole: then all of it passes through here. */
static int take_output(struct launcher *l, struct dd_err *err)
{
    const struct launcher_cfg *cfg = l->cfg;
    int rc = 0;
    for (int k = 0; k < LAUNCH_STREAMS && rc == 0; k++) {
        int fds[2];
        l->out_fds[k] = fcntl(k + 1, F_DUPFD_CLOEXEC, 3);
        if (cfg->task->output)
            l->out[k] = (struct output_sink){.parent = cfg->parent, .which = k};
        else
            rc = output_sink_console(&l->out[k], l->base, l->out_fds[k], launcher_on_room, l,
                                     cfg->log, err);
        if (rc == 0 && (pipe2(fds, O_CLOEXEC) < 0 || dup2(fds[1], k + 1) < 0))
            rc = dd_err_set(err, -errno, "cannot make a pipe: %m");
        if (rc < 0)
            return rc;
        close(fds[1]);
        if (output_source_read(&l->children[l->here].streams[k], l->base, &l->out[k], fds[0]) < 0)
            rc = dd_err_set(err, -ENOMEM, "out of memory");
    }
    return rc;
}

int launcher_begin_started(struct launcher *l, struct dd_err *err)
{
    const struct launcher_cfg *cfg = l->cfg;
    const struct parent_link_cb cb = {
        .on_message = on_message, .on_room = launcher_on_room, .on_lost = on_lost, .arg = l};
    int rc = cfg->task->output || cfg->task->n > 0 ? take_output(l, err) : 0;
    if (rc == 0 && cfg->stdin_fd >= 0) {
        (void)dd_fd_nonblock(cfg->stdin_fd);
        l->input = event_new(l->base, cfg->stdin_fd, EV_READ | EV_PERSIST, on_input, l);
        if (l->input == NULL || event_add(l->input, NULL) < 0)
            rc = dd_err_set(err, -ENOMEM, "out of memory");
    }
    parent_link_start(cfg->parent, &cb);
    return rc;
}
