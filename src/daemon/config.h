/* The configuration that the leader's agent passes to the ddrund that it starts: one JSON object in
 * an inherited file. */
#ifndef DD_DAEMON_CONFIG_H
#define DD_DAEMON_CONFIG_H

#include "base/err.h"
#include "base/log.h"
#include "net/key.h"
#include "rdzv/machine.h"

#include <stdint.h>

struct daemon_config {
    const char *job_id;
    const char *nodes;    /* folded host list */
    struct rdzv_cfg rdzv; /* without .nodes and .master_port */
    uint64_t heartbeat_ns;
    uint64_t start_ns; /* of the leader's ddrun */
    int port;
    int listen_fd; /* numbers of inherited descriptors */
    int leader_fd;
    int log_level;
    struct net_key key;
    const char *munge_socket;        /* NULL: the default */
    const char *run;                 /* net/key.h */
    const char *notify, *web_helper; /* NULL: no web hook */
    struct json_t *storage;          /* of the texts, once read; NULL: they are borrowed */
};

/* Writes it into an anonymous file and returns the descriptor (close-on-exec), or -errno. */
int daemon_config_write(const struct daemon_config *c, struct dd_err *err);
/* Reads and closes fd. Gives the content of *ret. */
int daemon_config_read(struct daemon_config *ret, int fd, struct dd_err *err);
void daemon_config_done(struct daemon_config *c);

#endif
