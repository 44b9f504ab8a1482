/* --warm: the messages between the agent and the interpreter that forks workers. Pure.
 *
 * The interpreter sends datagrams of a type, two numbers and a text. The agent's requests are
 * sequences of fields, each a number of 32 bits and as many bytes, which the program of the
 * interpreter (worker/warm_program.py) reads. */
#ifndef DD_WORKER_WARM_MSG_H
#define DD_WORKER_WARM_MSG_H

#include "base/buf.h"
#include "base/strv.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct spawn_request; /* worker/spawn.h */

enum warm_type {
    WARM_IMPORTING = 'B', /* text: module whose import begins */
    WARM_FAILED = 'F',    /* text: why a module cannot be imported, or, of a probe, the refusal */
    WARM_UNFIT = 'U',     /* text: module, "\n", reason against fork(); the interpreter exits */
    WARM_READY = 'R',     /* a: number of imported modules */
    WARM_WORKER = 'P',    /* a: index of the worker, b: pid of the worker */
    WARM_BATCH = 'D',     /* a: status, from waitpid(), of the process that forks the workers */
    WARM_PROBED = 'V',    /* a, b: version; text: source of the list, then a module on each line */
};

enum { WARM_TEXT_MAX = 4000, WARM_MSG_MAX = 9 + WARM_TEXT_MAX, WARM_REQUEST_MAX = 64 << 20 };

struct warm_msg {
    enum warm_type type;
    uint32_t a, b;
    char text[WARM_TEXT_MAX + 1];
};

/* Return 0, or -EPROTO for an unknown type, a wrong length or a NUL byte in the text. */
int warm_msg_decode(struct warm_msg *ret, const void *data, size_t len);

enum warm_mode { WARM_PROBE, WARM_SERVE };

/* What the agent sends to the interpreter before the interpreter imports modules. All borrowed. */
struct warm_config {
    enum warm_mode mode;
    const struct dd_strv *modules;  /* NULL: the modules of the script's last run, else torch */
    const struct dd_strv *left_out; /* modules not to import */
    const char *kind;               /* kind of the program: "script", "module" or "command" */
    const char *target;
    pid_t agent;
};

/* Append a request. Return 0, -ENOMEM or -EMSGSIZE. */
int warm_config_encode(struct dd_buf *out, const struct warm_config *c);
/* unbuffered: the worker's stdout and stderr are not buffered. records: the worker writes the list
 * of its modules when it exits. */
int warm_request_encode(struct dd_buf *out, const struct spawn_request *r, bool unbuffered,
                        bool records);

#endif
