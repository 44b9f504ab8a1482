#include "cmd/ddctl_submit_check.h"

#include "cmd/common.h"
#include "cmd/ddctl_submit_run.h"
#include "config.h"

#include <errno.h>
#include <libgen.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

enum { OUTPUT_MAX = 16 << 20, SUBMIT_WHY = 64 };

void submit_failed(struct submit_checks *c, const struct dd_err *err)
{
    dd_log(c->log, c->force ? DD_LOG_WARN : DD_LOG_ERR, "%s", err->text);
    c->failed += !c->force;
}

/* Describe the result of submit_capture(): an exit code, or -errno. */
static const char *why_of(int rc, char out[SUBMIT_WHY])
{
    if (rc > 0)
        (void)snprintf(out, SUBMIT_WHY, "exit code %d", rc);
    else
        (void)snprintf(out, SUBMIT_WHY, "%s", strerror(-rc));
    return out;
}

/* ---- the ddrun command ---- */

/* ddrun itself prints the errors of its command line. */
void submit_check_command(struct submit_checks *c, const struct submit_request *r,
                          struct dd_strv *found)
{
    DD_AUTO(strv) struct dd_strv argv = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(OUTPUT_MAX);
    struct dd_err err = {0};
    char why[SUBMIT_WHY];
    int rc = dd_strv_push(&argv, r->command[0]);
    if (rc == 0)
        rc = dd_strv_pushf(&argv, "--check-for=%d", r->nodes);
    if (rc == 0)
        rc = dd_strv_copy(&argv, r->command + 1);
    if (rc == 0)
        rc = submit_capture((const char *const *)argv.v, -1, &out);
    if (rc == EXIT_USAGE) { /* ddrun has printed the error */
        c->failed += !c->force;
        return;
    }
    if (rc != 0) {
        (void)dd_err_set(&err, -EINVAL,
                         "cannot check the command line: '%.200s --check-for=%d' failed (%s)",
                         r->command[0], r->nodes, why_of(rc, why));
        if (rc > 0)
            (void)dd_err_tip(&err, -EINVAL, "use the ddrun of this version, %s", PACKAGE_VERSION);
        submit_failed(c, &err);
        return;
    }
    const char *text = (const char *)out.data;
    for (size_t at = 0; at < out.len; at += strnlen(text + at, out.len - at) + 1)
        if (dd_strv_pushn(found, text + at, strnlen(text + at, out.len - at)) < 0)
            return;
}

/* ---- files ---- */

static bool is_below(const char *path, const char *directory)
{
    const size_t n = strlen(directory);
    return strncmp(path, directory, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Refuse a path on a file system in memory, which belongs to one machine. Warn about a path below
 * /tmp, which is usually local. Other file systems cannot be judged: each node may have a copy, or
 * the login node may be the file server. */
static void check_shared(struct submit_checks *c, const char *path)
{
    struct dd_err err = {0};
    struct statfs fs;
    DD_AUTO(free) char *real = realpath(path, NULL);
    if (real == NULL || statfs(real, &fs) < 0)
        return;
    if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC) {
        (void)dd_err_tip(&err,
                         dd_err_set(&err, -EINVAL,
                                    "'%.300s' is on a %s of this machine, which no other "
                                    "machine can access",
                                    path, fs.f_type == TMPFS_MAGIC ? "tmpfs" : "ramfs"),
                         "move it to a file system that all nodes mount%s",
                         c->force ? "" : "; --force submits anyway");
        submit_failed(c, &err);
    } else if (!c->warned && (is_below(real, "/tmp") || is_below(real, "/var/tmp"))) {
        dd_log(c->log, DD_LOG_WARN,
               "'%.300s' is at %.300s, and /tmp and /var/tmp are usually local to each node"
               "\n  tip: move it to a file system that all nodes mount",
               path, real);
        c->warned = true;
    }
}

void submit_check_shared(struct submit_checks *c, char *const *paths)
{
    for (; paths != NULL && *paths != NULL; paths++)
        check_shared(c, *paths);
}

void submit_check_log(struct submit_checks *c, const struct submit_request *r)
{
    struct dd_err err = {0};
    DD_AUTO(free) char *copy = strdup(r->log);
    const char *directory = copy != NULL ? dirname(copy) : ".";
    if (access(directory, W_OK | X_OK) == 0) {
        check_shared(c, directory);
        return;
    }
    const bool missing = errno == ENOENT;
    (void)dd_err_tip(&err,
                     dd_err_set(&err, -errno,
                                "cannot write to directory '%.200s' of the log '%.200s': %m",
                                directory, r->log),
                     "%suse another directory: --log=DIRECTORY/%%j.out",
                     missing ? "create the directory, or " : "");
    submit_failed(c, &err);
}

void submit_check_cpus(const struct submit_checks *c, const struct submit_scheduler *s,
                       const struct submit_request *r)
{
    if (s->one_cpu && r->gpus_per_node > 0 && r->cpus_per_node == 0)
        dd_log(c->log, DD_LOG_WARN,
               "--gpus-per-node=%d without --cpus-per-node: unless this site has another default, "
               "a node gets 1 CPU"
               "\n  tip: add --cpus-per-node=N",
               r->gpus_per_node);
}

/* ---- the queue ---- */

/* Run the scheduler's queries and append their output. Return 0, or the exit status or -errno of
 * the query that failed. *program: name of the last query. */
static int ask(const struct submit_scheduler *s, struct dd_buf *out, const char **program)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < 2 && s->queries[i][0] != NULL; i++) {
        const char *argv[sizeof(s->queries[i]) / sizeof(s->queries[i][0])];
        char path[PATH_MAX];
        memcpy(argv, s->queries[i], sizeof(argv));
        *program = argv[0];
        if (!submit_scheduler_program(path, s, argv[0]))
            return -ENOENT;
        argv[0] = path;
        rc = submit_capture(argv, -1, out);
    }
    return rc;
}

/* rc: the exit status or -errno of ask(). */
static void queue_unchecked(struct submit_checks *c, const struct submit_scheduler *s,
                            const char *program, int rc)
{
    struct dd_err err = {0};
    char why[SUBMIT_WHY];
    (void)dd_err_set(&err, -EIO,
                     rc > 0 ? "cannot check the %s and its limits: '%s' failed (%s)"
                            : "cannot check the %s and its limits: cannot read the output of '%s': "
                              "%s",
                     s->queues.word, program, why_of(rc, why));
    if (c->dry_run || c->force) {
        dd_log(c->log, DD_LOG_WARN, "%s", err.text);
        return;
    }
    (void)dd_err_tip(&err, -EIO, "the scheduler may be down; --force submits without this check");
    submit_failed(c, &err);
}

void submit_check_queue(struct submit_checks *c, const struct submit_scheduler *s,
                        const struct submit_request *r)
{
    struct dd_err errs[SUBMIT_ERRORS_MAX] = {{0}};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(OUTPUT_MAX);
    const char *program = "";
    int rc = ask(s, &out, &program);
    const char *printed = rc == 0 ? dd_buf_str(&out) : NULL;
    if (rc == -ENOENT) {
        dd_log(c->log, DD_LOG_WARN,
               "cannot check the %s and its limits: cannot find '%s' on this machine",
               s->queues.word, program);
        return;
    }
    if (printed == NULL) {
        queue_unchecked(c, s, program, rc != 0 ? rc : -ENOMEM);
        return;
    }
    const size_t n = submit_queue_check(&s->queues, printed, r, errs);
    for (size_t i = 0; i < n; i++)
        submit_failed(c, &errs[i]);
}
