#include "cmd/pmi_bootstrap.h"

#include "base/io.h"
#include "pmi/pmi_client.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

/* Write this agent's record NAME/JOB/SECRET. Job and secret of the first agent become those of all.
 */
static int pmi_bootstrap_say(char *out, size_t size, const char *hostname, struct dd_err *err)
{
    uint64_t r[3];
    if (getrandom(r, sizeof(r), 0) != sizeof(r))
        return dd_err_set(err, -EIO, "getrandom failed: %m");
    (void)snprintf(out, size, "%s/%016" PRIx64 "/%016" PRIx64 "%016" PRIx64, hostname, r[0], r[1],
                   r[2]);
    return 0;
}

/* Split a record in place; the name remains at its start. */
static int pmi_bootstrap_take_apart(char *text, char **job, char **secret)
{
    *job = strchr(text, '/');
    if (*job == NULL)
        return -EPROTO;
    *(*job)++ = '\0';
    *secret = strchr(*job, '/');
    if (*secret == NULL)
        return -EPROTO;
    *(*secret)++ = '\0';
    return hostlist_name_ok(text) && **job != '\0' && strlen(*secret) >= 32 ? 0 : -EPROTO;
}

int pmi_bootstrap_peers(struct pmi_bootstrap *ret, const struct alloc_input *in, unsigned limit_ms,
                        struct dd_err *err)
{
    char text[512];
    char *job = NULL;
    char *secret = NULL;
    const int n = pmi_client_size(in->env, &ret->peers.index);
    if (n < 2 || alloc_is_told(in))
        return 0;
    int rc = pmi_bootstrap_say(text, sizeof(text), in->hostname, err);
    if (rc == 0)
        rc = pmi_client_gather(&ret->texts, in->env, text, limit_ms, err);
    for (size_t i = ret->texts.n; i > 0 && rc == 0;
         i--) /* backwards, so that job and secret of the first record remain */
        if (pmi_bootstrap_take_apart(ret->texts.v[i - 1], &job, &secret) < 0)
            rc = dd_err_set(err, -EPROTO,
                            "process %zu of the MPI launcher is not ddrun, or not of this version"
                            "\n  tip: start ddrun only, of the same version on all nodes",
                            i - 1);
    if (rc < 0)
        return rc;
    ret->peers.names = ret->texts.v;
    ret->peers.n = n;
    ret->peers.job = job;
    ret->peers.secret = secret;
    return 1;
}
