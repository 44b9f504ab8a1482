#include "stage/stage_mount.h"

#include "base/auto.h"
#include "base/err.h"
#include "stage/stage_client.h"
#include "stage/stage_view.h"

#include <errno.h>
#include <unistd.h>

/* Answer READY: with READY and the namespaces, or with FAILED. */
static int mount_answer(const struct stage_msg *m, int *servers)
{
    struct dd_err err = {0};
    int fds[2];
    const int n = stage_view_make(fds, m->texts.v + STAGE_READY_PAIRS, servers, &err);
    char *const why[] = {err.text, NULL};
    const int rc = n > 0 ? stage_client_send(STAGE_CLIENT_FD, STAGE_MSG_READY, m->texts.v, fds, n)
                         : stage_client_send(STAGE_CLIENT_FD, STAGE_MSG_FAILED, why, NULL, 0);
    for (int i = 0; i < n; i++)
        close(fds[i]);
    return rc;
}

int stage_mount_serve(void)
{
    int servers = -1; /* the image servers exit when this descriptor is closed */
    for (;;) {
        int fds[STAGE_CLIENT_FDS];
        DD_AUTO(stage_msg) struct stage_msg m = {0};
        const int n = stage_client_receive(STAGE_CLIENT_FD, &m, fds);
        for (int i = 0; i < n; i++)
            close(fds[i]);
        if (n == -EAGAIN)
            continue;
        if (n < 0 || m.type != STAGE_MSG_READY || servers >= 0 || mount_answer(&m, &servers) < 0)
            return n == -ECONNRESET ? 0 : 1;
    }
}
