#include "agent/charges_file.h"

#include "agent/agent.h"
#include "agent/control.h"
#include "base/io.h"
#include "net/home_dir.h"
#include "rdzv/charges.h"
#include "worker/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WRITE_MS = 60000,
    READ_MS = 20000,
    LAST_MS = 10000,
    NO_FILE = 2, /* exit status of the reading child: there is no file */
};

struct charges_file {
    struct charges_file_parts parts;
    const char *id; /* id of the job in all runs; NULL: the job is never requeued */
    char *charges;  /* text to write; NULL: none */
    uint64_t at_ms; /* wall-clock time when the charges were received */
    bool removes;   /* the file is to be removed */
    bool exists;    /* the file may exist */
    bool warned;
    const char *failure; /* message if the child fails */
    struct command *child;
    bool reads; /* the child reads the file; call then() when it has exited */
    void (*then)(void *arg);
    void *arg;
};

static int charges_file_open(const struct charges_file *f, struct home_file *ret, bool create,
                             struct dd_err *err)
{
    const struct home_file_name name = {
        .env = f->parts.loop->cfg->env, .job_id = f->id, .suffix = "charges"};
    return home_file_open(ret, &name, create, err);
}

static void charges_file_log(const struct charges_file *f, enum dd_log_level level,
                             const char *what, const char *why)
{
    dd_log(f->parts.loop->cfg->log, level, "%s: %.*s", what, (int)strcspn(why, "\n"), why);
}

/* ---- child ---- */

static int charges_file_write(const struct charges_file *f, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(CHARGES_FILE_MAX);
    struct home_file to;
    time_t now;
    int rc = charges_file_format(&text, f->id, f->at_ms, f->charges);
    if (rc < 0)
        return rc == -ENOMEM
                   ? dd_err_set(err, rc, "out of memory")
                   : dd_err_set(err, rc, "job id '%s' has an invalid character or is too long",
                                f->id);
    rc = charges_file_open(f, &to, true, err);
    if (rc < 0)
        return rc;
    rc = home_file_write(&to, text.data, text.len, &now, err);
    if (rc == 0)
        home_file_sweep(&to, now);
    home_file_close(&to);
    return rc;
}

static int charges_file_remove(const struct charges_file *f, struct dd_err *err)
{
    struct home_file to;
    int rc = charges_file_open(f, &to, false, err);
    if (rc < 0)
        return rc;
    rc = home_file_remove(&to);
    home_file_close(&to);
    errno = -rc;
    return rc < 0 ? dd_err_set(err, rc, "cannot remove '%s': %m", to.shown) : 0;
}

/* On failure, print the reason. */
static int charges_file_run(void *arg)
{
    const struct charges_file *f = arg;
    struct dd_err err = {0};
    const int rc = f->removes ? charges_file_remove(f, &err) : charges_file_write(f, &err);
    if (rc == -ENOENT && f->removes)
        return 0;
    if (rc < 0)
        (void)dd_write_full(STDOUT_FILENO, err.text, strlen(err.text));
    return rc < 0;
}

/* ---- agent ---- */

/* Warn once, and only with --blame-window: without it, charges have no effect on the next run. */
static void charges_file_failed(struct charges_file *f, const char *why)
{
    const bool matters = f->parts.loop->cfg->rdzv.blame_window_ns > 0 && !f->warned;
    charges_file_log(f, matters ? DD_LOG_WARN : DD_LOG_DEBUG, f->failure, why);
    f->warned |= matters;
}

static void charges_file_begin(struct charges_file *f);

static void charges_file_on_done(void *arg, int code, const char *out)
{
    struct charges_file *f = arg;
    char how[60];
    (void)snprintf(how, sizeof(how), "the helper process exited with code %d", code);
    if (code != 0)
        charges_file_failed(f, code == COMMAND_TOO_LATE ? "the home directory does not respond"
                               : out[0] != '\0'         ? out
                                                        : how);
    command_free(DD_TAKE(f->child));
    charges_file_begin(f);
}

/* Write or remove the file, unless a child still does. */
static void charges_file_begin(struct charges_file *f)
{
    const struct command_spec spec = {.run = charges_file_run, .run_arg = f, .limit_ms = WRITE_MS};
    struct dd_err err = {0};
    if (f->child != NULL || (f->charges == NULL && !f->removes))
        return;
    f->exists = !f->removes;
    f->failure =
        f->removes
            ? "cannot remove the file with the failures charged to nodes (--blame-window)"
            : "cannot save the failures charged to nodes (--blame-window) for the next run of "
              "this job";
    if (command_start(&f->child, f->parts.loop->base, &spec, charges_file_on_done, f, &err) < 0)
        charges_file_failed(f, err.text);
    else
        round_protect(f->parts.round, command_pid(f->child));
    free(DD_TAKE(f->charges)); /* the child has a copy */
    f->removes = false;
}

void charges_file_take(struct charges_file *f, const char *text)
{
    if (f->id == NULL || text[0] == '\0')
        return;
    free(f->charges);
    f->charges = strdup(text);
    f->at_ms = dd_now_real_ns() / DD_NS_PER_MS;
    charges_file_begin(f);
}

void charges_file_finish(struct charges_file *f, int code)
{
    if (code != 0 || !f->exists)
        return;
    free(DD_TAKE(f->charges));
    f->removes = true;
    charges_file_begin(f);
}

void charges_file_start(struct charges_file *f)
{
    if (f->id != NULL)
        uplink_send(f->parts.uplink,
                    MSG(CTL_REQUEST, .id = CONTROL_ID_CHARGES, .what = "blame", .text = "follow"));
}

/* ---- the start of a run ---- */

static int charges_file_parse_own(const struct charges_file *f, const char *text, const char **ret,
                                  uint64_t *ret_age_ms)
{
    return charges_file_parse(text, f->id, dd_now_real_ns() / DD_NS_PER_MS, ret, ret_age_ms);
}

/* Read the file of this job. Returns 0, -ENOENT if there is no file, or another negative errno with
 * a message. */
static int charges_file_read(const struct charges_file *f, char text[CHARGES_FILE_MAX],
                             struct dd_err *err)
{
    struct home_file from;
    const char *charges;
    uint64_t age_ms;
    int rc = charges_file_open(f, &from, false, err);
    if (rc < 0)
        return rc == -ENOKEY ? -ENOENT : rc;
    rc = home_file_read(&from, "file", (unsigned char *)text, CHARGES_FILE_MAX, err);
    home_file_close(&from);
    if (rc < 0)
        return rc;
    text[rc] = '\0';
    rc = charges_file_parse_own(f, text, &charges, &age_ms);
    if (rc == -ENOMEM)
        return dd_err_set(err, rc, "out of memory");
    return rc < 0 ? dd_err_set(err, rc, "file '%s' is damaged, or of another job", from.shown) : 0;
}

/* In the child: print the file, or the reason why it cannot be used. */
static int charges_file_print(void *arg)
{
    const struct charges_file *f = arg;
    DD_AUTO(free) char *text = calloc(1, CHARGES_FILE_MAX);
    struct dd_err err = {0};
    int rc = text != NULL ? charges_file_read(f, text, &err)
                          : dd_err_set(&err, -ENOMEM, "out of memory");
    const char *out = rc < 0 ? err.text : text;
    if (rc == -ENOENT)
        return NO_FILE;
    return dd_write_full(STDOUT_FILENO, out, strlen(out)) < 0 || rc < 0;
}

static void charges_file_go_on(struct charges_file *f)
{
    f->reads = false;
    f->then(f->arg);
}

static void charges_file_not_read(const struct charges_file *f, const char *why)
{
    charges_file_log(f, DD_LOG_WARN,
                     "ignoring the failures charged to nodes in the last run of this job", why);
}

static void charges_file_on_read(void *arg, int code, const char *out)
{
    struct charges_file *f = arg;
    const char *charges;
    uint64_t age_ms;
    char how[60];
    (void)snprintf(how, sizeof(how), "the helper process exited with code %d", code);
    f->exists = code != NO_FILE;
    if (code == 0 && charges_file_parse_own(f, out, &charges, &age_ms) == 0)
        round_history_add_charges(f->parts.history, charges, age_ms);
    else if (code != NO_FILE)
        charges_file_not_read(f, code == COMMAND_TOO_LATE ? "the home directory does not respond"
                                 : code == 0 ? "the helper process returned no valid file"
                                 : code == 1 && out[0] != '\0' ? out
                                                               : how);
    command_free(DD_TAKE(f->child));
    charges_file_go_on(f);
}

void charges_file_load(struct charges_file *f, void (*then)(void *arg), void *arg)
{
    const struct command_spec spec = {
        .run = charges_file_print, .run_arg = f, .most_out = CHARGES_FILE_MAX, .limit_ms = READ_MS};
    const struct alloc *al = f->parts.loop->cfg->alloc;
    struct dd_err err = {0};
    f->then = then;
    f->arg = arg;
    f->reads = f->id != NULL && al->requeued && al->index == 0;
    if (f->reads &&
        command_start(&f->child, f->parts.loop->base, &spec, charges_file_on_read, f, &err) == 0)
        return;
    if (f->reads)
        charges_file_not_read(f, err.text);
    charges_file_go_on(f);
}

/* ---- life ---- */

int charges_file_new(struct charges_file **ret, const struct charges_file_parts *parts)
{
    struct charges_file *f = *ret = calloc(1, sizeof(*f));
    if (f == NULL)
        return -ENOMEM;
    *f = (struct charges_file){.parts = *parts, .id = parts->loop->cfg->alloc->requeue_id};
    return 0;
}

/* Wait for the child and report its failure. False: the child is still running. */
static bool charges_file_wait(struct charges_file *f)
{
    if (f->child == NULL)
        return true;
    command_wait(f->child, LAST_MS);
    const bool ended = command_pid(f->child) == 0;
    const char *why = ended ? command_out(f->child) : "the home directory does not respond";
    if (why[0] != '\0')
        charges_file_failed(f, why);
    command_free(DD_TAKE(f->child));
    return ended;
}

void charges_file_free(struct charges_file *f)
{
    if (f == NULL)
        return;
    if (f->reads)
        command_free(DD_TAKE(f->child)); /* the agent ends before the charges were needed */
    if (charges_file_wait(f)) {
        charges_file_begin(f); /* the write or removal that waited for that child */
        (void)charges_file_wait(f);
    }
    free(f->charges);
    free(f);
}
