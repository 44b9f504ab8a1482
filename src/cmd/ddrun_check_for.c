/* Checks a command line of ddrun on a login node for ddctl submit, where only the number of the
 * job's nodes is known. */
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/ddrun_check.h"
#include "cmd/ddrun_run.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PATHS_MAX = 4 * PATH_MAX };

/* Check --nnodes against the number of nodes, as alloc_find() does in the job. --nnodes=1 is always
 * valid: it runs on one node of the job. */
static int check_nnodes(const struct ddrun_options *o, struct dd_err *err)
{
    const struct node_range *n = &o->nnodes;
    if (n->max <= 1 || o->standalone || o->simulate_nodes > 0 || o->hosts != NULL ||
        o->hostfile != NULL || o->rdzv_endpoint != NULL ||
        (o->check_for >= n->min && (n->range || o->check_for <= n->max)))
        return 0;
    const int rc = n->range ? dd_err_set(err, -EINVAL, "--nnodes=%d:%d contradicts --nodes=%d",
                                         n->min, n->max, o->check_for)
                            : dd_err_set(err, -EINVAL, "--nnodes=%d contradicts --nodes=%d", n->max,
                                         o->check_for);
    return dd_err_tip(err, rc, "omit --nnodes, or request as many nodes");
}

/* Check that the nearest existing directory of --log-dir is writable. ddrun makes the others. */
static int check_log_dir(const char *log_dir, struct dd_err *err)
{
    DD_AUTO(free) char *path = log_dir != NULL ? strdup(log_dir) : NULL;
    const char *there = path;
    if (path == NULL || *path == '\0')
        return 0;
    while (access(there, F_OK) < 0 && errno == ENOENT && strcmp(there, ".") != 0) {
        char *slash = strrchr(path, '/');
        if (slash != NULL)
            slash[slash == path] = '\0';
        there = slash != NULL ? path : ".";
    }
    return access(there, W_OK | X_OK) == 0
               ? 0
               : dd_err_tip(
                     err, dd_err_set(err, -errno, "--log-dir: cannot write to '%.300s': %m", there),
                     "use a directory that you may write to");
}

/* Append the absolute path, and a NUL byte. */
static int put_path(struct dd_buf *out, const char *directory, const char *path)
{
    int rc = *path == '/' ? 0 : dd_buf_printf(out, "%s/", directory);
    return rc < 0 ? rc : dd_buf_append(out, path, strlen(path) + 1);
}

static int describe(const struct run *r, struct dd_buf *out)
{
    DD_AUTO(free) char *here = r->directory == NULL ? get_current_dir_name() : strdup(r->directory);
    const char *script = r->script[0];
    int rc = here == NULL ? -ENOMEM : dd_buf_append(out, script, strlen(script) + 1);
    if (rc == 0)
        rc = put_path(out, here, r->program.v[0]);
    const size_t at = out->len;
    if (rc == 0)
        rc = put_path(out, here, script);
    if (rc == 0 && access((const char *)out->data + at, F_OK) < 0)
        out->len = at; /* no such file: SCRIPT is a module, or a program in PATH */
    return rc;
}

int run_check_for(struct run *r)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(PATHS_MAX);
    struct dd_err err = {0};
    (void)snprintf(r->hostname, sizeof(r->hostname), "%s", r->machine->hostname);
    int rc = dd_strv_copy(&r->env, environ);
    rc = rc < 0 ? dd_err_set(&err, rc, "out of memory") : check_nnodes(r->o, &err);
    if (rc == 0)
        rc = check_output_files(r->o, &err);
    if (rc == 0)
        rc = check_log_dir(r->o->log_dir, &err);
    if (rc == 0)
        rc = run_find_program(r, &err);
    if (rc == 0 && (rc = describe(r, &out)) < 0)
        (void)dd_err_set(&err, rc, "out of memory");
    if (rc == 0)
        rc = dd_write_full(STDOUT_FILENO, out.data, out.len);
    if (rc < 0 && err.text[0] != '\0')
        dd_log(&r->log, DD_LOG_ERR, "%s", err.text);
    return rc < 0 ? EXIT_USAGE : 0;
}
