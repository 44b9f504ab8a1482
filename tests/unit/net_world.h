/* A caller and up to HOSTS_MAX listeners (daemons and others) in one loop, over the loopback
 * interface. */
#ifndef DD_TESTS_NET_WORLD_H
#define DD_TESTS_NET_WORLD_H

#include "net/hello.h"
#include "net/link.h"

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdio.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { WORLD_LIMIT_MS = 60000, HOSTS_MAX = 4, CONNECTIONS_MAX = 256 };

enum manner {
    DAEMON,
    GARBAGE,     /* greets like an SSH server */
    SILENT,      /* accepts and sends nothing */
    HANGS_UP,    /* accepts and closes */
    STALLS,      /* replies as the daemon and sends nothing else */
    BABBLES,     /* replies as the daemon and sends garbage instead of TLS */
    CERTIFICATE, /* replies as the daemon and presents a certificate */
    NEWER,       /* replies in another protocol version */
    OFFERS,      /* replies as a daemon whose key comes from MUNGE */
};

struct world;

struct host {
    struct world *w;
    enum manner manner;
    const char *job;
    struct net_key key;
    struct net_key_input in;
    struct link_shared shared;
    uint16_t port;
    int fd;
    unsigned timeout_ms;
    unsigned delay_ms; /* before a DAEMON accepts */
    struct event *ev;
    struct link_accept *accepts[CONNECTIONS_MAX];
    struct link *links[CONNECTIONS_MAX];
    struct bufferevent *others[CONNECTIONS_MAX]; /* connections of listeners other than DAEMON */
    size_t naccepts, nlinks, nothers, nrefused, nlate;
    char why[256];
};

struct world {
    struct event_base *base;
    struct event *limit;
    struct host hosts[HOSTS_MAX];
    size_t nhosts, fds;
    struct dd_log log;
    int log_pipe[2];
    char logged[65536];
    struct link_find_cfg cfg; /* for the next find(); initially the defaults */
    struct net_key_input guest;
    char *env[4];
    struct link_find *find;
    struct link *found;
    /* recorded by the links' callbacks */
    size_t frames, bytes, wrong_bytes, closed;
    bool clean, timed_out, free_in_frame, free_in_close;
    unsigned char last[64];
    int expected; /* by a condition of world_run_until() */
    char why[256];
    void *ssl_ctx; /* of CERTIFICATE */
};

extern char key_a[], key_b[]; /* "DDRUN_KEY=..." */

int world_set_up(void **state);    /* *state is a struct world * */
int world_tear_down(void **state); /* checks that no descriptor is left open */

#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)

/* Start a listener. env is one "NAME=value", or NULL for --insecure. */
struct host *world_host(struct world *w, const char *addr, uint16_t port, enum manner manner,
                        const char *job, char *env);
struct host *world_host_with(struct world *w, const struct net_key_input *in);
void world_close_host(struct host *h);
void world_find(struct world *w, const char *host, const uint16_t *ports, size_t n, char *env);
void world_run_until(struct world *w, bool (*is_done)(struct world *));
const char *world_logged(struct world *w);
size_t world_count_logged(struct world *w, const char *text);
struct link_cb world_callbacks(struct world *w);

/* Start a daemon with host_env and a caller with guest_env, link them and set callbacks at both
 * ends. */
struct host *world_link_up(struct world *w, char *host_env, char *guest_env);

/* Return a blocking connection to h. */
int world_connect(const struct host *h);

size_t open_fds(void);
bool is_linked(struct world *w); /* both ends have the link */
bool has_frame(struct world *w);
bool has_closed(struct world *w);
bool status_has(struct world *w, const char *text);

#endif
