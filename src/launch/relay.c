#include "launch/relay.h"

#include "base/io.h"
#include "base/sig.h"
#include "launch/parent_link.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <unistd.h>

struct relay {
    struct relay_cb cb;
    struct event *input; /* EOF on stdin; NULL: not watched */
};

static void relay_on_message(void *arg, const struct launch_msg *m)
{
    const struct relay *r = arg;
    if (m->type == LAUNCH_CANCEL)
        r->cb.on_cancel(r->cb.arg, m->node);
    else if (m->type == LAUNCH_SIGNAL)
        r->cb.on_signal(r->cb.arg, m->node, (int)(m->value & 255),
                        (int)m->value & (DD_SIGNAL_AT_ONCE | DD_SIGNAL_LEAVE));
}

static void relay_on_room(void *arg)
{
    const struct relay *r = arg;
    r->cb.on_room(r->cb.arg);
}

static void relay_on_lost(void *arg, const char *why)
{
    const struct relay *r = arg;
    (void)why;
    r->cb.on_lost(r->cb.arg);
}

static void relay_on_input(evutil_socket_t fd, short what, void *arg)
{
    const struct relay *r = arg;
    char bytes[256];
    (void)what;
    ssize_t n = read(fd, bytes, sizeof(bytes));
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    (void)event_del(r->input);
    r->cb.on_lost(r->cb.arg);
}

static int relay_watch_input(struct relay *r, struct event_base *base, int fd)
{
    (void)dd_fd_nonblock(fd);
    r->input = event_new(base, fd, EV_READ | EV_PERSIST, relay_on_input, r);
    return r->input == NULL || event_add(r->input, NULL) < 0 ? -ENOMEM : 0;
}

int relay_new(struct relay **ret, struct parent_link *parent, int stdin_fd,
              const struct relay_cb *cb, struct dd_err *err)
{
    struct relay *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    r->cb = *cb;
    *ret = r;
    parent_link_start(parent, &(struct parent_link_cb){.on_message = relay_on_message,
                                                       .on_room = relay_on_room,
                                                       .on_lost = relay_on_lost,
                                                       .arg = r});
    return stdin_fd >= 0 && relay_watch_input(r, parent_link_base(parent), stdin_fd) < 0
               ? dd_err_set(err, -ENOMEM, "out of memory")
               : 0;
}

void relay_free(struct relay *r)
{
    if (r == NULL)
        return;
    if (r->input != NULL)
        event_free(r->input);
    free(r);
}
