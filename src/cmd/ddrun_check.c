#include "cmd/ddrun_check.h"

#include "base/io.h"
#include "base/utf8.h"
#include "cmd/common.h"
#include "launch/find.h"
#include "web/etcd_url.h"
#include "worker/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOTIFY_MAX = 2000, NOTIFY_TOKEN_MAX = 8000, PBS_GRACE_MS = 8000 };

/* Reject contradictory options instead of choosing one of them. */
static int check_places(const struct ddrun_options *o, struct dd_err *err)
{
    const int here = o->standalone ? 1 : o->simulate_nodes;
    const struct node_range *n = &o->nnodes;
    const char *other = NULL;
    char nnodes[48] = "";
    if (n->max > 0 && n->range)
        (void)snprintf(nnodes, sizeof(nnodes), "--nnodes=%d:%d", n->min, n->max);
    else if (n->max > 0)
        (void)snprintf(nnodes, sizeof(nnodes), "--nnodes=%d", n->max);
    if (o->hosts != NULL)
        other = "--hosts";
    else if (o->hostfile != NULL)
        other = "--hostfile";
    else if (o->standalone && o->simulate_nodes > 0)
        other = "--simulate-nodes";
    else if (n->max > 0 && (here < n->min || (here > n->max && !n->range)) &&
             !etcd_url_is(o->rdzv_endpoint)) /* with etcd, nodes of other machines may join */
        other = nnodes;
    if (here == 0 || other == NULL)
        return 0;
    return dd_err_set(
        err, -EINVAL, "%s runs %d node%s on this machine and cannot be combined with %s",
        o->standalone ? "--standalone" : "--simulate-nodes", here, here == 1 ? "" : "s", other);
}

/* ddrun reads the file again for the node on which it runs, and a pipe would be empty by then. */
static int check_hostfile(const struct ddrun_options *o, struct dd_err *err)
{
    struct stat st;
    if (o->hostfile == NULL || stat(o->hostfile, &st) < 0 || !S_ISFIFO(st.st_mode))
        return 0;
    return dd_err_tip(err,
                      dd_err_set(err, -EINVAL,
                                 "--hostfile=%.300s is a pipe, but ddrun reads it several times",
                                 o->hostfile),
                      "write the names to a file, or use --hosts=LIST");
}

static int check_rules(const struct ddrun_options *o, struct dd_err *err)
{
    int rc = framework_options_check(&o->framework, err);
    for (size_t i = 0; i < o->wrap.n && rc == 0; i++)
        rc = rule_check(o->wrap.v[i], "--wrap", "'0:gdb -batch -ex run -ex bt --args'", err);
    return rc;
}

/* -p and -i of horovodrun are ignored when ddrun starts no nodes; with --launcher=ssh they would
 * have to take effect. */
static int check_ssh(const struct ddrun_options *o, struct dd_err *err)
{
    return o->ssh_words != NULL && strcmp(o->launcher, "ssh") == 0
               ? dd_err_set(err, -EINVAL,
                            "-p and -i have no effect with --launcher=ssh"
                            "\n  tip: replace them by --launch-command='ssh -p PORT -i FILE'")
               : 0;
}

static int check_etcd(const struct ddrun_options *o, struct dd_err *err)
{
    return strncmp(o->rdzv_backend, "etcd", 4) == 0 && o->rdzv_endpoint == NULL && !o->standalone
               ? dd_err_set(
                     err, -EINVAL,
                     "--rdzv-backend=%s needs the address of etcd: --rdzv-endpoint=HOST:PORT"
                     "\n  tip: omit both options in a scheduler's job, where ddrun finds the nodes",
                     o->rdzv_backend)
               : 0;
}

/* True for an http or https URL with HOST, HOST:PORT or [v6]:PORT, and an optional USER:PASSWORD@.
 * A '/' in the password is rejected: the part of the password before it would be parsed as a port,
 * and logged. */
static bool is_web_hook(const char *url)
{
    const char *host = strncasecmp(url, "http://", 7) == 0    ? url + 7
                       : strncasecmp(url, "https://", 8) == 0 ? url + 8
                                                              : "";
    const size_t n = strcspn(host, "/?#");
    const char *at = memrchr(host, '@', n);
    const char *name = at != NULL ? at + 1 : host;
    const char *colon = memrchr(name, ':', (size_t)(host + n - name));
    if (name == host + n || strlen(url) > NOTIFY_MAX)
        return false;
    if (colon != NULL && *name != '[' &&
        strspn(colon + 1, "0123456789") < (size_t)(host + n - colon - 1))
        return false;
    for (size_t len = 0; *url != '\0'; url += len) {
        len = dd_utf8_len(url, strlen(url));
        if (len == 0 || (unsigned char)*url <= ' ' || *url == '\x7f')
            return false;
    }
    return true;
}

/* The error does not quote the URL, which may be a secret. */
static int check_notify(const struct ddrun_options *o, struct dd_err *err)
{
    const char *url = o->notify;
    const char *token = dd_env_get_nonempty(environ, "DDRUN_NOTIFY_TOKEN");
    if (url == NULL)
        return 0;
    if (!is_web_hook(url))
        return dd_err_set(
            err, -EINVAL,
            "--notify: invalid URL: expected http[s]://[USER:PASSWORD@]HOST[:PORT]... in UTF-8 "
            "without blanks, of at most %d bytes"
            "\n  tip: write '/' in a password as %%2F",
            NOTIFY_MAX);
    if (token != NULL &&
        strlen(token) > NOTIFY_TOKEN_MAX) /* web servers limit a header line to about 8 KiB */
        return dd_err_set(err, -EINVAL,
                          "DDRUN_NOTIFY_TOKEN has %zu bytes, more than the maximum of %d",
                          strlen(token), NOTIFY_TOKEN_MAX);
    for (const char *p = token; p != NULL && *p != '\0'; p++)
        if (*p <= ' ' || *p > '~')
            return dd_err_set(
                err, -EINVAL,
                "DDRUN_NOTIFY_TOKEN contains blanks, control or non-ASCII characters");
    return 0;
}

/* Reject values that are not UTF-8: they become part of a JSON text for ddrund. */
static int check_utf8(const struct ddrun_options *o, struct dd_err *err)
{
    const struct {
        const char *name, *value;
    } rows[] = {{"--timeline", o->timeline}, {"--munge-socket", o->munge_socket}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].value != NULL && !dd_utf8_is(rows[i].value))
            return dd_err_set(err, -EINVAL, "%s: the file name is not UTF-8", rows[i].name);
    return 0;
}

static int check_output(const struct ddrun_options *o, struct dd_err *err)
{
    return (o->label || o->fold) && o->output == OUTPUT_RAW
               ? dd_err_set(err, -EINVAL, "--%s and --output=raw are mutually exclusive",
                            o->label ? "label" : "fold")
               : 0;
}

/* CUDA's driver replaces %h, %p and %t in the name of a dump. */
static int check_cuda_core(const struct ddrun_options *o, struct dd_err *err)
{
    if (!hang_options_cuda_core(&o->hang))
        return 0;
    if (o->log_dir == NULL || *o->log_dir == '\0')
        return dd_err_set(err, -EINVAL,
                          "--on-hang=cuda-core needs --log-dir=DIR for the core dumps");
    if (strcmp(o->stacks.when, "off") == 0)
        return dd_err_set(err, -EINVAL,
                          "--on-hang=cuda-core and --stacks=off are mutually exclusive: nodes wait "
                          "for the dumps of others only while stacks are read");
    return strchr(o->log_dir, '%') != NULL
               ? dd_err_set(err, -EINVAL,
                            "--on-hang=cuda-core: --log-dir='%.300s' contains '%%', which CUDA's "
                            "driver would replace in the names of the dumps",
                            o->log_dir)
               : 0;
}

int check_options(const struct ddrun_options *o, struct dd_err *err)
{
    int rc = check_places(o, err);
    if (rc == 0)
        rc = check_hostfile(o, err);
    if (rc == 0)
        rc = check_cuda_core(o, err);
    if (rc == 0)
        rc = check_output(o, err);
    if (rc == 0)
        rc = check_etcd(o, err);
    if (rc == 0)
        rc = check_notify(o, err);
    if (rc == 0)
        rc = check_ssh(o, err);
    if (rc == 0)
        rc = launch_command_check(o->launch_command, err);
    if (rc == 0)
        rc = check_utf8(o, err);
    if (rc == 0)
        rc = warm_options_check(o, err);
    return rc == 0 ? check_rules(o, err) : rc;
}

/* True if the directory lets only the owner of a file replace it, and this user does not own it. */
static bool check_is_held(const char *dir, const struct stat *file)
{
    struct stat st;
    const uid_t own = geteuid();
    return own != 0 && file->st_uid != own && stat(dir, &st) == 0 && st.st_uid != own &&
           (st.st_mode & S_ISVTX) != 0;
}

/* Check that the file can be created or replaced. A device or a named pipe would be replaced by a
 * regular file, or would have to be read. A link is refused, too: only some of the files would be
 * written through it. */
static int check_output_file(const char *option, const char *path, struct dd_err *err)
{
    struct stat st;
    DD_AUTO(free) char *dir = NULL;
    if (path == NULL)
        return 0;
    const char *slash = strrchr(path, '/');
    if (asprintf(&dir, "%.*s.", slash != NULL ? (int)(slash + 1 - path) : 0, path) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (path[0] == '\0' || access(dir, W_OK | X_OK) < 0)
        return dd_err_set(err, -EINVAL, "%s: cannot write '%s': %s", option, path,
                          strerror(path[0] == '\0' ? ENOENT : errno));
    if (lstat(path, &st) < 0)
        return 0;
    if (!S_ISREG(st.st_mode))
        return dd_err_set(err, -EINVAL, "%s: cannot write '%s': %s", option, path,
                          S_ISDIR(st.st_mode) ? strerror(EISDIR) : "it is not a regular file");
    if (!check_is_held(dir, &st))
        return 0;
    return dd_err_tip(err,
                      dd_err_set(err, -EINVAL,
                                 "%s: cannot write '%s': it belongs to uid %u, and only that user "
                                 "can replace it in this directory (sticky bit)",
                                 option, path, (unsigned)st.st_uid),
                      "choose another file");
}

int check_output_files(const struct ddrun_options *o, struct dd_err *err)
{
    int rc = check_output_file("--report", o->report, err);
    if (rc == 0)
        rc = check_output_file("--timeline", o->timeline, err);
    return rc == 0 ? check_output_file("--metrics", o->metrics, err) : rc;
}

int check_preload(const struct ddrun_options *o, struct dd_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < o->preload.n && rc == 0; i++)
        rc = rule_check_preload(o->preload.v[i], err);
    return rc;
}

void warn_of_fixed_size(const struct ddrun_options *o, const struct opt_table *t,
                        const struct opt_result *res, const struct dd_log *log)
{
    static const char *const names[] = {"grow", "last-call"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && cmd_is_first_task(environ); i++) {
        const struct opt_source *src = opt_result_source(res, t, names[i]);
        /* --min-np and --max-np set the range later */
        const bool elastic = o->nnodes.range || o->horovodrun.min_np > 0 ||
                             o->horovodrun.max_np > 0;
        if (!elastic && src != NULL && src->from == OPT_FROM_COMMAND_LINE)
            dd_log(log, DD_LOG_WARN, "--%s has no effect without --nnodes=MIN:MAX", names[i]);
    }
}

void warn_of_unset(const struct ddrun_options *o, const struct dd_log *log)
{
    for (size_t i = 0; i < o->framework.env.n && cmd_is_first_task(environ); i++) {
        const char *name = rule_env_wanted(o->framework.env.v[i]);
        if (name != NULL && getenv(name) == NULL)
            dd_log(log, DD_LOG_WARN,
                   "-x %s: this variable is not set in the environment of ddrun"
                   "\n  tip: use -x %s=VALUE to set it",
                   name, name);
    }
}

unsigned ddrun_grace_ms(const struct ddrun_options *o, const struct alloc *a)
{
    const uint64_t ms = o->shutdown_timeout / DD_NS_PER_MS;
    return (unsigned)(!o->shutdown_said && alloc_is_pbs(a) && ms > PBS_GRACE_MS ? PBS_GRACE_MS
                                                                                : ms);
}
