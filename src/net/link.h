/* A link: an authenticated, framed connection between an agent and the daemon. One bufferevent
 * behind it, plain for a socketpair (host agent and its own daemon) or --insecure, TLS 1.3 with PSK
 * otherwise.
 *
 * Callbacks may call link_free(); the object then dies after the callback has returned. No callback
 * comes from inside one of the functions here, only from the loop. The program must ignore SIGPIPE.
 */
#ifndef DD_NET_LINK_H
#define DD_NET_LINK_H

#include "base/err.h"
#include "base/log.h"
#include "net/addr.h"
#include "net/frame.h"
#include "net/key.h"

struct event_base;
struct link;
struct net_tls; /* contexts made once per process; net/tls_inner.h is private to this room */

struct link_cb {
    void (*on_frame)(void *arg, struct link *l, const struct frame *f);
    /* Once; the link is dead and must be freed. clean: the peer had said BYE. why: a sentence,
     * lent. */
    void (*on_close)(void *arg, struct link *l, bool clean, const char *why);
    void *arg;
};

/* Takes a connected stream socket that both sides trust by construction. */
int link_new_trusted(struct link **ret, struct event_base *base, int fd, const struct link_cb *cb,
                     struct dd_err *err);
/* A link that came from link_accept or link_find reads nothing before this was called. */
void link_set_cb(struct link *l, const struct link_cb *cb);
/* The longest frame that is taken and sent; LINK_FRAME_MAX at first, at most FRAME_MAX. */
enum { LINK_FRAME_MAX = 1 << 20 };
void link_set_max(struct link *l, uint32_t max);
/* From now on the peer hears from us at least every ms / 3, and is taken for dead (on_close) when
 * it has said nothing for ms. Time in which this process itself stood still does not count. */
int link_set_heartbeat(struct link *l, unsigned ms);
/* The peer does something for which it may stand still: its silence counts from ms from now on. 0:
 * it has done it. */
void link_excuse(struct link *l, unsigned ms);
/* Queues one frame. -ENOBUFS when the peer reads so slowly that the high-water mark (FRAME_MAX * 2)
 * is passed; bulk data (EXCHANGE, OUTPUT) leaves room for 2 MiB of other frames. -EMSGSIZE: longer
 * than the maximum. -EPIPE: the link is dead already. */
int link_send(struct link *l, uint16_t type, const void *data, size_t n);
/* Frames for many links, held once however many have still to write them: freed with the last
 * reference. */
struct link_frames;
struct link_frames *link_frames_new(void); /* NULL: no memory */
int link_frames_add(struct link_frames *f, uint16_t type, const void *data,
                    size_t n); /* before they are sent; -EMSGSIZE, -ENOMEM */
size_t link_frames_size(const struct link_frames *f);
void link_frames_free(struct link_frames *f); /* lets go of the caller's reference; NULL is fine */
int link_send_frames(struct link *l,
                     struct link_frames *f); /* all or none, as link_send() does one */
/* A message that link_send() has refused with rc is lost, and the peer would wait for it: the link
 * is as good as dead. on_close says why, from the loop; nothing is taken or sent any more. `what`:
 * its name. */
void link_fail(struct link *l, const char *what, int rc);
size_t link_queued(const struct link *l); /* bytes that wait for the peer to read */
/* on_close's why after a BYE: this, or the reason that came as its data. */
#define LINK_GOODBYE "it said goodbye"
enum { LINK_WHY_MAX = 400 };
/* Sends BYE, closes when all of it has been written and the peer has closed, or after 1 s, then
 * frees, from the loop: run it until then. No callbacks any more. */
void link_bye(struct link *l);
void link_free(struct link *l);                          /* at once; NULL is fine */
const struct net_addr *link_local(const struct link *l); /* of TCP links; len 0 for trusted */
const struct net_addr *link_peer(const struct link *l);
const char *link_node(const struct link *l); /* name that the caller gave in its hello; "" */

/* ---- daemon's side: a connection whose first byte is HELLO_FIRST_BYTE -------------------------
 */

/* What all connections of one daemon have in common: the TLS context, the MUNGE credential (made
 * anew when it is some seconds old, whoever asks), how often refusals are logged, how many
 * handshakes there are. The daemon keeps one, zeroed at first, for as long as it accepts. */
struct link_shared {
    struct net_tls *tls;
    char *cred;
    uint64_t cred_ns; /* when it was made, or could not be */
    struct dd_err cred_err;
    uint64_t log_since_ns;
    unsigned logged, unlogged;
    unsigned handshakes; /* in TLS just now */
};
/* Makes the TLS context now, with all that OpenSSL loads for it, instead of for the first
 * connection. */
int link_shared_prepare(struct link_shared *s, struct dd_err *err);
void link_shared_done(struct link_shared *s);

/* The strings and objects are borrowed until done was called or link_accept_free(). */
struct link_accept_cfg {
    const char *job_id;
    const struct net_key *key;
    const struct net_key_input *key_in; /* for MUNGE credentials */
    const struct dd_log
        *log;            /* refusals are logged, with the caller's name, escaped, rate limited */
    unsigned timeout_ms; /* whole hello and handshake */
    struct link_shared *shared; /* NULL: nothing is shared, each connection pays for itself */
};

struct link_accept;
/* Takes fd. done is called once, from the loop: a live link (given), or NULL and the reason, lent;
 * link_accept_free() is the caller's in both cases. A guest tries several ways at once and drops
 * all but the first: so a link that closes before its first frame is no loss of a node. With MUNGE,
 * making the credential waits for munged (normally well below 1 ms), at most once in some seconds.
 */
int link_accept_start(struct link_accept **ret, struct event_base *base, int fd,
                      const struct link_accept_cfg *cfg,
                      void (*done)(void *arg, struct link_accept *a, struct link *l,
                                   const char *why),
                      void *arg, struct dd_err *err);
void link_accept_free(struct link_accept *a); /* legal inside done */
/* Inside done: the caller did not speak as a node of this job does; false if it hung up, or belongs
 * to another job. */
bool link_accept_is_suspect(const struct link_accept *a);

/* ---- agent's side: find the daemon among many candidates ----------------------------------------
 */

struct link_find_cfg {
    const char *job_id, *node; /* node: my name */
    const char *host;          /* name or numeric address of the host */
    char *const *addrs; /* its numeric addresses, NULL-ended, and nothing else is tried; NULL: those
                           of its name */
    bool try_scontrol;  /* Slurm may be asked for the host's address */
    bool host_is_me;    /* loopback addresses of the name are good */
    const uint16_t *ports; /* candidates, copied */
    size_t nports;
    size_t nfurther; /* behind those, of a daemon that found others there: link_find tries them, a
                        few at a time */
    const char *bind_addr;              /* source address for outgoing connections, or NULL */
    const struct net_key_input *key_in; /* borrowed for the life of the search */
    const struct dd_log *log;
    unsigned attempt_ms; /* limit for one connection's whole hello and handshake, 0: 3000; up
                          * to 8 times as long where it was not enough */
};

struct link_find;
/* Passes over (all addresses of host) x (ports), all of one pass at once, again with back-off (3 ms
 * growing by 1.5 to 1 s, +-20 %), names looked up again now and then, until one completes hello,
 * key and TLS. Once that second is reached, each pass tries some of the further ports
 * as well, round and round. done is called once, with the link (given); link_find_free() is the
 * caller's then, too, and legal inside done. The caller holds the overall time limit and frees the
 * search when it is over. A try that is still waiting for an answer does not hold up the others. */
int link_find_start(struct link_find **ret, struct event_base *base,
                    const struct link_find_cfg *cfg, void (*done)(void *arg, struct link *l),
                    void *arg, struct dd_err *err);
/* One sentence that says how it stands, lent until the next call: "node1 has no address: …",
 * "nothing of this job listens on node1 (10.0.0.1) ports 21013, 4711 …", "10.0.0.1:4711 is this
 * job's but our keys differ (ours is from …)". */
const char *link_find_status(struct link_find *f);
/* What the last tries have met at the candidate ports. */
enum link_listener {
    LINK_LISTENER_UNKNOWN, /* no try is over, or no address answers */
    LINK_LISTENER_NONE,
    LINK_LISTENER_SILENT,
    LINK_LISTENER_FOREIGN, /* another program, or the daemon of another job */
    LINK_LISTENER_OURS,    /* this job's daemon, whatever keeps the link from opening */
};
enum link_listener link_find_listener(const struct link_find *f);
void link_find_free(struct link_find *f);

/* ---- one look at many nodes ---- */

struct link_look_cb {
    void (*found)(void *arg,
                  struct link *l); /* a link to a daemon of this job, given; there may be several */
    void (*done)(void *arg);       /* once, at the end: all have answered, or had their time */
    void *arg;
};

struct link_look;
/* Tries all ports of all hosts once, cfg->attempt_ms each (not 0), some nodes at a time; host of
 * cfg is not used. One that is down costs one such time, and not more. link_look_free() is the
 * caller's, and legal inside both callbacks. */
int link_look_start(struct link_look **ret, struct event_base *base,
                    const struct link_find_cfg *cfg, char *const *hosts, size_t n,
                    const struct link_look_cb *cb, struct dd_err *err);
void link_look_free(struct link_look *k);

#endif
