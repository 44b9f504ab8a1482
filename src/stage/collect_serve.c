/* The process of --collect: reads the setup from the agent, then sends or receives. */
#include "base/auto.h"
#include "net/loop.h"
#include "stage/collect_inner.h"
#include "stage/stage_client.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int collect_use_key(struct collect *c, struct dd_err *err)
{
    static char *none[] = {NULL};
    char *const *t = c->setup.texts.v;
    c->key_in = (struct net_key_input){.env = none,
                                       .psk = t[STAGE_COLLECT_KEY],
                                       .psk_source = "the round",
                                       .job_id = t[STAGE_COLLECT_JOB],
                                       .insecure = strcmp(t[STAGE_COLLECT_INSECURE], "1") == 0};
    if (c->key_in.insecure)
        c->key_in.psk = NULL;
    return net_key_for_leader(&c->key, &c->key_in, err);
}

static int take_setup(struct collect *c, struct dd_err *err)
{
    const int rc = collect_use_key(c, err);
    if (rc < 0)
        return rc;
    return c->setup.texts.v[STAGE_COLLECT_ADDR][0] != '\0' ? collect_send(c, err)
                                                           : collect_receive(c, err);
}

static void on_control(evutil_socket_t fd, short what, void *arg)
{
    struct collect *c = arg;
    struct dd_err err = {0};
    DD_AUTO(stage_msg) struct stage_msg m = {0};
    (void)what;
    int rc = stage_client_take(fd, &m);
    if (rc == -EAGAIN)
        return;
    if (rc == -ECONNRESET) /* the agent has exited, or has closed the socket */
        collect_exit(c, 0);
    if (rc == 0 && (m.type != STAGE_MSG_COLLECT || c->setup.texts.n > 0))
        rc = -EPROTO;
    if (rc == 0) {
        c->setup = m;
        m = (struct stage_msg){0};
        rc = take_setup(c, &err);
    }
    if (rc < 0)
        collect_fail(c, err.text[0] != '\0' ? err.text
                        : rc == -ENOMEM     ? "out of memory"
                                            : "malformed message from the agent");
}

static void on_alive(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    collect_tell(arg, STAGE_MSG_ALIVE, NULL);
}

int collect_serve(void)
{
    static struct collect c = {.control = STAGE_CLIENT_FD};
    const struct timeval alive = {.tv_sec = COLLECT_ALIVE_S};
    /* Survive the agent to remove incomplete files; the end of file on the agent's socket reports
     * its exit. */
    (void)prctl(PR_SET_PDEATHSIG, 0);
    c.base = net_loop_new();
    if (c.base == NULL)
        return 1;
    c.control_event = event_new(c.base, c.control, EV_READ | EV_PERSIST, on_control, &c);
    c.alive_event = event_new(c.base, -1, EV_PERSIST, on_alive, &c);
    if (c.control_event == NULL || c.alive_event == NULL || event_add(c.control_event, NULL) < 0 ||
        event_add(c.alive_event, &alive) < 0)
        return 1;
    event_base_dispatch(c.base);
    collect_exit(&c, 0);
}
