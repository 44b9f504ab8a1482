/* What the report is made of: told by the messages of the agents, on the daemon's clock. */
#ifndef DD_DAEMON_ACCOUNT_H
#define DD_DAEMON_ACCOUNT_H

#include "base/err.h"

#include <stdint.h>

struct account;
struct daemon;
struct dd_buf;
struct guest;
struct msg;

/* How far an agent's clock is behind the daemon's, judged by its quickest message. */
struct account_clock {
    int64_t behind_ns;
    int known;
};
void account_clock(struct account_clock *c, int64_t sent_ns, uint64_t here_ns);
uint64_t account_time(const struct account_clock *c, int64_t there_ns, uint64_t here_ns);

int account_new(struct account **ret, const struct daemon *d, uint64_t start_ns,
                struct dd_err *err);
void account_free(struct account *a);

/* Before the machine gets it. */
void account_msg(struct account *a, struct daemon *d, struct guest *g, const struct msg *m);
/* After every step of the machine: a round may have begun, or the job be over. */
void account_step(struct account *a, struct daemon *d);

/* "ValueError: boom" of the failure that was taken last, for the machine's sentence; lent, "" too.
 */
const char *account_why(const struct account *a);
/* What FINISH says: the job's exit code, the text for a person, the JSON. The texts are appended.
 */
int account_code(const struct account *a, const struct daemon *d);
void account_texts(const struct account *a, struct dd_buf *text, struct dd_buf *json);

#endif
