/* daemon_config: any bytes as ddrund's configuration; an accepted one survives being written and
 * read back. */
#include "daemon/config.h"

#include "base/io.h"
#include "rdzv/plan.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static bool same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void check(const struct daemon_config *c)
{
    struct daemon_config again = {0};
    must(c->port >= 1 && c->port <= 65535 && c->job_id != NULL && c->nodes != NULL);
    must(c->rdzv.min_nodes >= 1 && c->rdzv.max_nodes <= PLAN_MAX_NODES && c->rdzv.capacity >= 1);
    must(daemon_config_read(&again, daemon_config_write(c, NULL), NULL) == 0);
    must(same(c->job_id, again.job_id) && same(c->nodes, again.nodes) &&
         same(c->notify, again.notify));
    must(same(c->munge_socket, again.munge_socket) && same(c->web_helper, again.web_helper));
    must(c->port == again.port && c->listen_fd == again.listen_fd &&
         c->log_level == again.log_level && c->trace == again.trace);
    must(c->rdzv.join_ns == again.rdzv.join_ns && c->rdzv.epoch == again.rdzv.epoch &&
         c->start_ns == again.start_ns);
    must(c->key.method == again.key.method &&
         memcmp(c->key.bytes, again.key.bytes, NET_KEY_LEN) == 0);
    daemon_config_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct daemon_config c = {0};
    struct dd_err err = {.text = ""};
    int fd = memfd_create("config", MFD_CLOEXEC);
    must(fd >= 0 && dd_write_full(fd, data, size) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    if (daemon_config_read(&c, fd, &err) == 0)
        check(&c);
    else
        must(err.text[0] != '\0' && c.job_id == NULL);
    daemon_config_done(&c);
    return 0;
}
