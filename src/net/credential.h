/* Makes and reads the credentials of NET_KEY_MUNGE in a thread. munged answers within a
 * millisecond, but other users can keep its few threads busy, and libmunge then waits for most of a
 * minute. */
#ifndef DD_NET_CREDENTIAL_H
#define DD_NET_CREDENTIAL_H

#include "base/err.h"
#include "net/key.h"

struct event_base;

struct credential_maker_cb {
    /* Called from the event loop. text: the credential, valid during the call; NULL: there is none,
     * err has the reason. */
    void (*done)(void *arg, const char *text, const struct dd_err *err);
    void *arg;
};

/* Start the thread. It copies the key and the fields of `in` that it uses. Call this before the
 * process confines itself. */
struct credential_maker;
int credential_maker_new(struct credential_maker **ret, struct event_base *base,
                         const struct net_key *key, const struct net_key_input *in,
                         const struct credential_maker_cb *cb, struct dd_err *err);
/* Ask for a credential; done is called once. Has no effect while an earlier request is unanswered.
 */
int credential_maker_ask(struct credential_maker *m);
/* NULL is accepted. Does not wait for an unanswered request: the thread then ends by itself as soon
 * as libmunge returns. */
void credential_maker_free(struct credential_maker *m);

struct credential_reader_cb {
    /* Called once, from the event loop. key is valid during the call; NULL: there is none, err has
     * the reason. The callback may free the reader. */
    void (*done)(void *arg, const struct net_key *key, const struct dd_err *err);
    void *arg;
};

/* Start a thread that gets the key from this credential with net_key_accept(). It copies cred and
 * the fields of `in` that it uses. */
struct credential_reader;
int credential_reader_new(struct credential_reader **ret, struct event_base *base,
                          const struct net_key_input *in, const char *cred,
                          const struct credential_reader_cb *cb, struct dd_err *err);
/* NULL is accepted. Does not wait for the thread, which ends by itself. */
void credential_reader_free(struct credential_reader *r);

#endif
