/* The configuration that the leader's agent passes to its ddrund: one JSON object in an inherited
 * file. */
#ifndef DD_DAEMON_CONFIG_H
#define DD_DAEMON_CONFIG_H

#include "base/err.h"
#include "base/log.h"
#include "net/key.h"
#include "rdzv/machine.h"

#include <stdint.h>

/* When the stacks of all workers are read; ALL: also of workers without Python frames. */
enum { STACKS_AT_FAILURE = 1, STACKS_AT_HANG = 2, STACKS_ALL = 4 };

struct daemon_config {
    const char *job_id;
    const char *nodes;    /* folded host list */
    struct rdzv_cfg rdzv; /* without .nodes and .master_port */
    uint64_t heartbeat_ns;
    uint64_t start_ns; /* start time of the leader's ddrun */
    int port;
    int listen_fd; /* numbers of inherited descriptors */
    int leader_fd;
    int screen_fd; /* memory of base/screen; -1: no terminal */
    int log_level;
    int trace;  /* bits of DD_TRACE_* */
    int stacks; /* bits of STACKS_* */
    uint64_t stacks_ns;
    int profile; /* 1: measure the store's operations */
    struct net_key key;
    const char *munge_socket;        /* NULL: the default */
    const char *run;                 /* net/key.h */
    const char *notify, *web_helper; /* NULL: no web hook */
    const char *timeline;            /* file of --timeline; NULL: none */
    struct json_t *storage; /* owner of the strings after daemon_config_read(); NULL: the strings
                               are borrowed */
};

/* Write the configuration to an anonymous file. Return its close-on-exec descriptor or -errno. */
int daemon_config_write(const struct daemon_config *c, struct dd_err *err);
/* Read and close fd. daemon_config_done() frees *ret. */
int daemon_config_read(struct daemon_config *ret, int fd, struct dd_err *err);
void daemon_config_done(struct daemon_config *c);

#endif
