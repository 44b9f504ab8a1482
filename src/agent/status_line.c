/* The agent asks the daemon once a second what the job waits for, and draws the answer. Without a
 * terminal it does neither. */
#include "agent/status_line.h"

#include "agent/agent.h"
#include "agent/agent_loop.h"
#include "agent/control.h"
#include "agent/uplink.h"
#include "base/auto.h"
#include "base/io.h"
#include "base/screen.h"
#include "rdzv/waiting.h"

#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { TICK_MS = 1000, LINE_SIZE = 600 };

struct status_line {
    const struct agent_loop *loop;
    struct uplink *uplink;
    struct event *tick;
    uint64_t since_ns; /* beginning of this wait; 0: the agent does not wait */
    bool asked;        /* the daemon has not answered yet */
    bool progress;     /* the line of status_line_progress() is shown */
};

DD_AUTO_DEFINE(status_line, struct status_line *, status_line_free);

static bool status_line_waits(const struct status_line *l)
{
    static const bool waits[AM_STATES] = {
        [AM_SEEKING] = true,      [AM_LEADING] = true, [AM_JOINED] = true,     [AM_IDLE] = true,
        [AM_FAILING_OVER] = true, [AM_TRYING] = true,  [AM_CONTENDING] = true,
    };
    return waits[l->loop->machine.state];
}

static struct dd_screen *screen_of(const struct status_line *l)
{
    return l->loop->cfg->log->screen;
}

static int seconds_since(uint64_t ns)
{
    return (int)((dd_now_ns() - ns) / DD_NS_PER_S);
}

static void status_line_draw(const struct status_line *l, const struct rdzv_wait *w)
{
    char line[LINE_SIZE];
    waiting_line(line, sizeof(line), dd_screen_columns(screen_of(l)), w);
    dd_screen_draw(screen_of(l), line);
}

/* Draw the status line of a node that has no link to a daemon. */
static void status_line_seeking(const struct status_line *l)
{
    const struct agent_cfg *c = l->loop->cfg;
    const bool later = l->loop->machine.lost_at != 0;
    const struct rdzv_wait w = {
        .what = WAITING_FOR_DAEMON,
        .waited_s = seconds_since(l->since_ns),
        .limit_s = (int)((later ? c->rdzv.rejoin_ns : c->rdzv_timeout_ns) / DD_NS_PER_S),
        .starts_s = -1};
    status_line_draw(l, &w);
}

static void on_status_tick(evutil_socket_t fd, short what, void *arg)
{
    struct status_line *l = arg;
    (void)fd;
    (void)what;
    if (!dd_screen_claim(screen_of(l)))
        return;
    if (!status_line_waits(l)) {
        status_line_hide(l);
        return;
    }
    if (l->since_ns == 0)
        l->since_ns = dd_now_ns();
    if (!uplink_is_up(l->uplink))
        status_line_seeking(l);
    else if (!l->asked) {
        l->asked = true;
        uplink_send(l->uplink,
                    MSG(CTL_REQUEST, .id = CONTROL_ID_WAITING, .what = "waiting", .text = ""));
    }
}

static int number_of(const json_t *o, const char *name)
{
    const json_int_t i = json_integer_value(json_object_get(o, name));
    return i >= -1 && i <= INT32_MAX ? (int)i : 0;
}

static const char *text_of(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));
    return text != NULL ? text : "";
}

/* Parse the reply of the daemon. False: the job waits for nothing. */
static bool status_line_read(struct rdzv_wait *w, const struct status_line *l, const char *text)
{
    json_t *o = json_loads(text, 0, NULL);
    const char *names = text_of(o, "names");
    *w = (struct rdzv_wait){.what = waiting_kind(text_of(o, "what")),
                            .ready = number_of(o, "ready"),
                            .wanted = number_of(o, "wanted"),
                            .workers = number_of(o, "workers"),
                            .attempt = number_of(o, "attempt"),
                            .attempts = number_of(o, "attempts"),
                            .waited_s = number_of(o, "waited_s"),
                            .limit_s = number_of(o, "limit_s"),
                            .starts_s = number_of(o, "starts_s")};
    (void)dd_log_escape(w->names, sizeof(w->names), names, strlen(names));
    json_decref(o);
    if (w->what == WAITING_FOR_STOP) {
        /* the daemon does not have the value of --shutdown-timeout */
        w->waited_s = seconds_since(l->since_ns);
        w->limit_s = (int)(l->loop->cfg->grace_ms / 1000);
    }
    return w->what != WAITING_FOR_DAEMON;
}

void status_line_answer(struct status_line *l, const struct msg_ctl_reply *m)
{
    struct rdzv_wait w;
    if (l == NULL)
        return;
    l->asked = false;
    if (!status_line_waits(l) || l->since_ns == 0)
        return;
    if (m->ok && status_line_read(&w, l, m->detail))
        status_line_draw(l, &w);
    else
        dd_screen_clear(screen_of(l));
}

void status_line_link_changed(struct status_line *l)
{
    if (l != NULL)
        l->asked = false;
}

void status_line_progress(struct status_line *l, const char *text)
{
    char line[LINE_SIZE];
    if (l == NULL || (text[0] == '\0' && !l->progress) || !dd_screen_claim(screen_of(l)))
        return;
    const size_t columns = dd_screen_columns(screen_of(l));
    (void)snprintf(line, columns < sizeof(line) ? columns : sizeof(line), "%s", text);
    l->progress = text[0] != '\0';
    if (l->progress)
        dd_screen_draw(screen_of(l), line);
    else
        dd_screen_clear(screen_of(l));
}

void status_line_hide(struct status_line *l)
{
    if (l == NULL || l->since_ns == 0)
        return;
    l->since_ns = 0;
    dd_screen_clear(screen_of(l));
}

int status_line_new(struct status_line **ret, const struct agent_loop *loop, struct uplink *uplink)
{
    const struct agent_cfg *c = loop->cfg;
    const struct timeval t = dd_timeval(TICK_MS * DD_NS_PER_MS);
    *ret = NULL;
    if (c->log->screen == NULL || c->log->level < DD_LOG_NOTICE || c->output.raw)
        return 0;
    DD_AUTO(status_line) struct status_line *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return -ENOMEM;
    l->loop = loop;
    l->uplink = uplink;
    l->tick = event_new(loop->base, -1, EV_PERSIST, on_status_tick, l);
    if (l->tick == NULL || event_add(l->tick, &t) < 0)
        return -ENOMEM;
    if (c->alloc->index == 0) /* of several nodes on this machine, the first one draws */
        (void)dd_screen_claim(c->log->screen);
    *ret = DD_TAKE(l);
    return 0;
}

void status_line_free(struct status_line *l)
{
    if (l == NULL)
        return;
    status_line_hide(l);
    status_line_progress(l, "");
    if (l->tick != NULL)
        event_free(l->tick);
    free(l);
}
