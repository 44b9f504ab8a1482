/* InfiniBand ports: check that they are still active, and warn of errors since the last check. */
#include "node/health_inner.h"

#include "base/auto.h"
#include "base/num.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char ib[] = "sys/class/infiniband";

/* Src: Documentation/ABI/stable/sysfs-class-infiniband. */
static const struct counter {
    const char *file, *what;
} counters[HEALTH_PORT_COUNTERS] = {
    {"counters/link_downed", "failed link"},
    {"counters/symbol_error", "symbol error"},
    {"counters/port_rcv_errors", "receive error"},
};

/* Read one line: "4: ACTIVE". */
static bool read_line(const struct node_health *h, const char *port, const char *file,
                      char line[32])
{
    if (!health_read(h, ib, port, file, line, 31))
        return false;
    line[31] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return true;
}

/* Return the word after the number: "ACTIVE" of "4: ACTIVE". */
static const char *word_of(const char *line)
{
    const char *blank = strchr(line, ' ');
    return blank != NULL ? blank + 1 : line;
}

static int note_ports(struct node_health *h, const char *card)
{
    DD_AUTO(strv) struct dd_strv ports = {0};
    DD_AUTO(free) char *dir = NULL;
    if (asprintf(&dir, "%s/%s/ports", ib, card) < 0)
        return -ENOMEM;
    int rc = health_list(h, dir, &ports);
    for (size_t k = 0; k < ports.n && rc == 0; k++) {
        DD_AUTO(free) char *port = NULL;
        char state[32];
        if (asprintf(&port, "%s/ports/%s", card, ports.v[k]) < 0)
            return -ENOMEM;
        if (read_line(h, port, "state", state) && strstr(state, "ACTIVE") != NULL)
            rc = dd_strv_push(&h->ports, port);
    }
    return rc;
}

int health_ib_note(struct node_health *h)
{
    DD_AUTO(strv) struct dd_strv cards = {0};
    int rc = health_list(h, ib, &cards);
    for (size_t i = 0; i < cards.n && rc == 0; i++)
        rc = note_ports(h, cards.v[i]);
    return rc;
}

bool health_ib_idle(const struct node_health *h)
{
    return h->ports.n == 0;
}

static int check_state(const struct node_health *h, const char *port, struct dd_err *why)
{
    char state[32] = "", physical[32] = "";
    const bool there = read_line(h, port, "state", state);
    if (there && strstr(state, "ACTIVE") != NULL)
        return 0;
    const bool more = there && read_line(h, port, "phys_state", physical);
    return dd_err_set(why, 1, "InfiniBand port %s is %s%s%s%s, but was ACTIVE when the job started",
                      port, !there || state[0] == '\0' ? "gone" : word_of(state), more ? " (" : "",
                      more ? word_of(physical) : "", more ? ")" : "");
}

/* Warn of counters that have grown; a counter that is smaller than before was reset. */
static void compare(const struct node_health *h, const char *port, struct health_port *seen)
{
    for (int i = 0; i < HEALTH_PORT_COUNTERS; i++) {
        char line[32];
        uint64_t now = 0;
        if (!read_line(h, port, counters[i].file, line) ||
            dd_num_u64(line, 0, UINT64_MAX, &now) < 0)
            continue;
        const uint64_t before = seen->counters[i];
        if (seen->seen && now > before)
            health_page_warn(h->page, "InfiniBand port %s has had %llu %s%s since the last check",
                             port, (unsigned long long)(now - before), counters[i].what,
                             now - before == 1 ? "" : "s");
        seen->counters[i] = now;
    }
    seen->seen = true;
}

int health_ib_check(const struct node_health *h, const struct node_health_target *t,
                    struct dd_err *why)
{
    (void)t;
    int rc = 0;
    for (size_t i = 0; i < h->ports.n; i++) {
        health_page_begin(h->page, "InfiniBand port %.200s", h->ports.v[i]);
        if (i < HEALTH_PORTS_MAX)
            compare(h, h->ports.v[i], &h->page->ports[i]);
        if (rc == 0)
            rc = check_state(h, h->ports.v[i], why);
    }
    return rc;
}
