/* The socket between the agent and ddrun-stage: the agent's side, and what both sides share. */
#ifndef DD_STAGE_STAGE_CLIENT_H
#define DD_STAGE_STAGE_CLIENT_H

#include "base/err.h"
#include "stage/stage_msg.h"

#include <sys/types.h>

enum { STAGE_CLIENT_FD = 3, STAGE_CLIENT_FDS = 3, STAGE_KEY_TEXT = 65 };

struct stage_client {
    pid_t pid; /* 0: none */
    int fd;    /* -1: none */
};

/* Make a random key of 32 bytes, as hexadecimal text. */
int stage_client_make_key(char ret[STAGE_KEY_TEXT], struct dd_err *err);
/* Start `helper` with `mode` as its argument. The helper ignores the signals that end jobs, and is
 * killed when the caller exits. */
int stage_client_start(struct stage_client *c, const char *helper, const char *mode,
                       char *const *env, struct dd_err *err);
/* Let stage_client_send() wait at most 5 s for the other side. */
void stage_client_limit(int fd);
/* Send one packet, with n descriptors. 0 or -errno. */
int stage_client_send(int fd, enum stage_msg_type type, char *const *texts, const int *fds, int n);
/* Send progress, unless the other side has not read all earlier packets: a stopped process must not
 * let the socket become full, which would block the sender. */
void stage_client_progress(int fd, const char *text);
/* Receive one packet. Return the number of descriptors, which the caller owns, or -EAGAIN,
 * -ECONNRESET (the other side has closed the socket), -EPROTO or another -errno. The caller frees
 * ret->texts. */
int stage_client_receive(int fd, struct stage_msg *ret, int fds[STAGE_CLIENT_FDS]);
/* In ddrun-stage: receive one packet without descriptors. Return 0, -EAGAIN, -ECONNRESET, -EPROTO
 * or -ENOMEM. The caller frees ret->texts. */
int stage_client_take(int fd, struct stage_msg *ret);
/* Close the socket, upon which the helper exits, and wait for its exit; kill it after 2 s. */
void stage_client_close(struct stage_client *c);
/* Kill the helper, and wait at most 2 s for its exit. */
void stage_client_end(struct stage_client *c);

#endif
