/* A link: an authenticated connection between an agent and the daemon that carries frames. It wraps
 * one bufferevent: plain for a socketpair (between the leader and its own daemon) or with
 * --insecure, else TLS 1.3 with a PSK.
 *
 * Callbacks may call link_free(); the link is then freed after the callback has returned. Callbacks
 * are called from the event loop only, never from within a function of this file. The program must
 * ignore SIGPIPE. */
#ifndef DD_NET_LINK_H
#define DD_NET_LINK_H

#include "base/err.h"
#include "base/log.h"
#include "net/addr.h"
#include "net/frame.h"
#include "net/key.h"

struct event;
struct event_base;
struct link;
struct net_tls; /* TLS context; defined in net/tls.c */

struct link_cb {
    void (*on_frame)(void *arg, struct link *l, const struct frame *f);
    /* Called once; the link is dead and must be freed. clean: the peer has sent BYE. why: a
     * message, valid during the call. */
    void (*on_close)(void *arg, struct link *l, bool clean, const char *why);
    void *arg;
};

/* Make a link from a connected stream socket that both sides trust by construction; takes fd on
 * success. 0, or -ENOMEM with a message. */
int link_new_trusted(struct link **ret, struct event_base *base, int fd, const struct link_cb *cb,
                     struct dd_err *err);
/* A link from link_accept or link_find reads nothing until this is called. */
void link_set_cb(struct link *l, const struct link_cb *cb);
/* Set the maximum length of a frame, in both directions; initially LINK_FRAME_MAX, at most
 * FRAME_MAX. */
enum { LINK_FRAME_MAX = 1 << 20 };
void link_set_max(struct link *l, uint32_t max);
/* Send at least one frame every ms / 3, and declare the peer dead (on_close) if it sends nothing
 * for ms. Time during which this process was suspended does not count. 0 or -ENOMEM. */
int link_set_heartbeat(struct link *l, unsigned ms);
/* Tolerate ms more of silence at any time, from a peer that may serve many others first. */
void link_set_patience(struct link *l, unsigned ms);
/* Tolerate silence of the peer for ms from now, for example while it is blocked on a slow file
 * system. 0: end the tolerance. */
void link_excuse(struct link *l, unsigned ms);
/* Queue one frame. -ENOBUFS: the peer reads too slowly and the queue has reached FRAME_MAX * 2
 * bytes; EXCHANGE and OUTPUT frames leave 2 MiB of it to other types. -EMSGSIZE: longer than the
 * maximum. -EPIPE: the link has failed or is being closed. -ENOMEM. */
int link_send(struct link *l, uint16_t type, const void *data, size_t n);
/* Frames for many links, stored once however many links still have to write them;
 * reference-counted. */
struct link_frames;
struct link_frames *link_frames_new(void); /* NULL: no memory */
int link_frames_add(struct link_frames *f, uint16_t type, const void *data,
                    size_t n); /* before the frames are sent; 0, -EMSGSIZE or -ENOMEM */
size_t link_frames_size(const struct link_frames *f);
void link_frames_free(struct link_frames *f); /* drops the caller's reference; NULL does nothing */
int link_send_frames(struct link *l,
                     struct link_frames *f); /* all frames or none; errors as for link_send() */
/* End the link because link_send() has failed with rc and the peer would wait for the message
 * forever, or with -EPROTO because of what the peer has sent. on_close reports the reason from the
 * event loop; nothing is received or sent any more. what: the name of the message, or what was
 * received. */
void link_fail(struct link *l, const char *what, int rc);
size_t link_queued(const struct link *l); /* bytes not yet written */
/* on_close's why after a BYE without a reason; a BYE with data carries the reason. */
#define LINK_GOODBYE "it sent BYE"
enum { LINK_WHY_MAX = 400 };
/* Send BYE and free the link from the event loop, once all data is written and the peer has closed,
 * or after 1 s; a link that cannot send is freed at once. No further callbacks. NULL does nothing.
 */
void link_bye(struct link *l);
void link_free(struct link *l);                          /* at once; NULL does nothing */
const struct net_addr *link_local(const struct link *l); /* of TCP links; len 0 for trusted ones */
const struct net_addr *link_peer(const struct link *l);
/* Times of the steps by which link_find() has made this link, on the monotonic clock; 0: unknown.
 */
struct link_times {
    uint64_t begun;     /* the search */
    uint64_t resolved;  /* the first address was known */
    uint64_t attempted; /* the attempt that has succeeded */
    uint64_t connected; /* TCP */
    uint64_t keyed;     /* hello exchanged, key known */
    uint64_t open;      /* TLS */
};
struct link_times *link_times(struct link *l); /* lent until link_free() */
/* Inside on_close: the link was lost because this process is out of memory. */
bool link_lacks_memory(const struct link *l);
const char *link_node(const struct link *l); /* node name from the peer's hello; "": none */

/* ---- daemon's side: a connection whose first byte is HELLO_FIRST_BYTE -------------------------
 */

/* State shared by all connections of a daemon: the TLS context, the credential (renewed at most
 * every 20 s, whatever the number of requests), the rate limit of the log, the number of
 * handshakes. Zero-initialized; must live as long as the daemon accepts connections. */
struct link_shared {
    struct net_tls *tls;
    struct credential_maker *maker; /* of MUNGE credentials; NULL: not started */
    char *cred;                     /* owned; NULL: none, for the reason in cred_err */
    uint64_t cred_ns;               /* time at which cred was made or making it failed; 0: never */
    struct dd_err cred_err;
    uint64_t log_since_ns;
    unsigned logged, unlogged;
    unsigned handshakes; /* TLS handshakes in progress */
    struct link_accept_queue {
        struct link_accept *tqh_first, **tqh_last;
    } uncredited,       /* hellos that wait for the credential */
        waiting;        /* whole ClientHellos that wait for a handshake, in the order of arrival */
    struct event *turn; /* begins some of the waiting handshakes; NULL: none has waited yet */
};
/* Create the TLS context now, including everything that OpenSSL loads for it, rather than on the
 * first connection, and the thread that makes MUNGE credentials. */
int link_shared_prepare(struct link_shared *s, struct event_base *base, const struct net_key *key,
                        const struct net_key_input *in, struct dd_err *err);
void link_shared_done(struct link_shared *s);

/* The pointers are borrowed until done or link_accept_free() is called. */
struct link_accept_cfg {
    const char *job_id;
    const struct net_key *key;
    const struct net_key_input *key_in; /* for credentials and the session key */
    const struct dd_log *log; /* for refusals: rate-limited, with the peer's name escaped */
    unsigned timeout_ms; /* for the hello, for the ClientHello after it, and for the handshake */
    struct link_shared *shared;
};

struct link_accept;
struct link_accept_cb {
    void (*done)(void *arg, struct link_accept *a, struct link *l, const char *why);
    /* Called when the peer has completed a step, which restarts its timeout. waits: the peer now
     * waits for this process, and its timeout is suspended. NULL: ignored. */
    void (*on_progress)(void *arg, bool waits);
    void *arg;
};
/* Take fd. done is called once, from the event loop, with a live link (given to the caller) or with
 * NULL and the reason (valid during the call); the caller calls link_accept_free() in both cases.
 * An agent tries several addresses at once and closes all but the first link that opens, so the
 * loss of a link before its first frame is not the loss of a node. With MUNGE, the first hello
 * starts a thread that makes the credentials, unless link_shared_prepare() has. */
int link_accept_start(struct link_accept **ret, struct event_base *base, int fd,
                      const struct link_accept_cfg *cfg, const struct link_accept_cb *cb,
                      struct dd_err *err);
void link_accept_free(struct link_accept *a); /* allowed inside done */
/* Inside done: false if the peer disconnected or belongs to another job. True otherwise: it failed
 * to authenticate, sent invalid data or timed out, or this process failed. */
bool link_accept_is_suspect(const struct link_accept *a);

/* ---- agent's side: find the daemon among many candidates ----------------------------------------
 */

struct link_find_cfg {
    const char *job_id, *node; /* node: name of this node */
    const char *host;          /* name or numeric address of the leader's node */
    char *const *addrs;        /* numeric addresses of host, NULL-terminated; no others are tried.
                                  NULL: resolve host */
    bool try_scontrol;         /* may ask Slurm for the host's address */
    bool host_is_me;           /* accept loopback addresses of the name */
    const uint16_t *ports;     /* candidates, copied */
    size_t nports;
    size_t nfurther; /* number of further ports after the nports candidates, which a daemon uses if
                        the candidates are occupied; a few are tried per pass */
    const char *bind_addr;              /* source address of outgoing connections; NULL: any */
    const struct net_key_input *key_in; /* borrowed for the life of the search */
    struct net_tls **tls; /* TLS context shared by several searches, borrowed and created on first
                             use; NULL: the search has its own */
    const struct dd_log *log;
    unsigned attempt_ms; /* limit for hello and handshake of one connection, 0: 3000; after timeouts
                            up to 8 times as long */
    unsigned
        nnodes; /* of the job: more nodes extend the patience with a daemon that has accepted the
                   connection (a new connection would go to the end of the daemon's queue) */
    /* This process has been unable to connect to any address for 1 s: it is out of memory, or
     * OpenSSL does not start (link_probe ignores this). The search is over; the callback may free
     * it. NULL: go on searching. */
    void (*cannot)(void *arg, const char *why);
};

struct link_find;
/* Try every address of host with every port, all combinations of a pass in parallel. Repeat passes
 * with back-off (3 ms growing by a factor of 1.5 to 1 s, +-20 %) and occasional new look-ups of the
 * name, until one combination completes hello, key and TLS. Once the back-off has reached 1 s, each
 * pass also tries some of the further ports, in a cycle. done is called once, with the link
 * (given); the caller calls link_find_free(), also allowed inside done. The caller enforces the
 * overall time limit. An attempt that waits for an answer does not delay the others. */
int link_find_start(struct link_find **ret, struct event_base *base,
                    const struct link_find_cfg *cfg, void (*done)(void *arg, struct link *l),
                    void *arg, struct dd_err *err);
/* Return the state of the search as one message, valid until the next call: "found no address of
 * node1: …", "no daemon of this job at node1 (10.0.0.1) ports 21013, 4711 …", "10.0.0.1:4711 is of
 * this job, but the keys differ (key source here: …)". */
const char *link_find_status(struct link_find *f);
/* What the last attempts have found at the candidate ports. */
enum link_listener {
    LINK_LISTENER_UNKNOWN, /* no attempt has finished, no address responds, or this process cannot
                              connect */
    LINK_LISTENER_NONE,
    LINK_LISTENER_SILENT,
    LINK_LISTENER_FOREIGN, /* another program, or the daemon of another job */
    LINK_LISTENER_BUSY,    /* this job's daemon has answered the hello; the handshake goes on */
    LINK_LISTENER_OURS,    /* this job's daemon, whether or not a link was opened, or a ddrund of
                              another protocol version, whose job is unknown */
};
enum link_listener link_find_listener(const struct link_find *f);
/* True if the search waits for the daemon alone, which does not listen or has not answered yet.
 * The other nodes then wait as well, unless this node searches at a wrong port or an old address,
 * or behind a firewall that rejects its connections. */
bool link_find_waits_for_daemon(const struct link_find *f);
void link_find_free(struct link_find *f);

/* ---- one probe of many nodes ---- */

struct link_probe_cfg {
    struct link_find_cfg find; /* host is ignored; attempt_ms: limit of each port, not 0 */
    char *const *hosts;
    size_t nhosts;
    /* Takes l, a link to a daemon of this job; may be called several times. */
    void (*found)(void *arg, struct link *l);
    void (*done)(void *arg); /* once, at the end: every node has responded or timed out */
    void *arg;
};

struct link_probe;
/* Try all ports of all hosts once, a bounded number of nodes at a time. Strings, ports
 * and hosts are copied. A node that is down costs one timeout. The caller calls
 * link_probe_free(), also allowed inside both callbacks. */
int link_probe_start(struct link_probe **ret, struct event_base *base,
                     const struct link_probe_cfg *cfg, struct dd_err *err);
void link_probe_free(struct link_probe *k);

#endif
