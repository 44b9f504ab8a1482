/* The daemon: one listening socket, the agents' sessions, the round machine and the store of one
 * job; or, without a job (standing), a store for any worker of this user. */
#ifndef DD_DAEMON_DAEMON_H
#define DD_DAEMON_DAEMON_H

#include "base/err.h"
#include "base/log.h"
#include "daemon/job.h"
#include "net/key.h"
#include "rdzv/machine.h"
#include "store/store_server.h"

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct daemon;

struct daemon_cfg {
    const char *job_id;    /* NULL: standing, without a job. All pointers are borrowed until
                              daemon_free() */
    struct rdzv_cfg rdzv;  /* configuration of the round machine */
    uint64_t heartbeat_ns; /* silence after which an agent is lost */
    uint64_t start_ns;     /* dd_now_ns() at the start of the leader's ddrun; 0: now */
    int listen_fd;         /* taken over */
    uint16_t port;         /* port of listen_fd */
    int leader_fd;         /* taken over: socketpair to the leader's agent; -1 if standing */
    struct net_key key;
    struct net_key_input key_in;
    struct store_limits limits;
    bool share_memory; /* lower limits.max_bytes as daemon/store_memory.h describes */
    enum store_old_clients old;
    const char *
        notify; /* URL of the web hook; NULL: none. Its token is DDRUN_NOTIFY_TOKEN in key_in.env */
    const char *web_helper; /* path of ddrun-web */
    const char *timeline;   /* file of --timeline; NULL: none */
    struct job_stacks_cfg stacks;
    bool profile;    /* measure the operations of the store */
    bool open_store; /* admit workers without looking up their owner (--insecure) */
    const struct dd_log *log;
    void (*on_over)(void *arg, int code); /* the job is over, and all agents have been informed */
    void *arg;
};

int daemon_new(struct daemon **ret, struct event_base *base, const struct daemon_cfg *cfg,
               struct dd_err *err);
/* Handle a signal to ddrund: stop the job, or call on_over at once if the daemon is standing. */
void daemon_stop(struct daemon *d);
void daemon_free(struct daemon *d);

#endif
