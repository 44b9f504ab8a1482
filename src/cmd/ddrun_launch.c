/* The launcher: ddrun starts itself on the other nodes. ddrun_launched.c contains the
 * part that runs there. */
#include "cmd/ddrun_launch.h"

#include "base/io.h"
#include "cmd/common.h"
#include "cmd/ddrun_check.h"
#include "launch/find.h"
#include "launch/launcher.h"
#include "launch/select.h"
#include "web/etcd_url.h"
#include "worker/rules.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    END_MS = 5000, /* time for the starters after the grace period of the workers */
    HEX = 2 * NET_KEY_LEN,
    FANOUT = 32,
    PATTERNS_MAX = 1 << 20,
};

struct launch_plan {
    struct launch_input l;
    const struct launch_node *node;
    const struct starter *starter;
    struct alloc *alloc;
    struct bootstrap_payload payload;
    char program[PATH_MAX], ddrun[PATH_MAX], id[32];
    char key_line[HEX + 2];      /* "", or the key and a newline */
    struct launch_ticket ticket; /* ticket for the started nodes */
    struct dd_strv key_env;
    struct net_key_input key_in;
    struct net_key key;
};

void launch_plan_free(struct launch_plan *p)
{
    if (p == NULL)
        return;
    net_key_cleanup(&p->key, &p->key_in);
    explicit_bzero(&p->key, sizeof(p->key));
    explicit_bzero(p->key_line, sizeof(p->key_line));
    launch_ticket_done(&p->ticket);
    dd_strv_done(&p->key_env);
    p->payload.alloc = NULL;
    bootstrap_payload_done(&p->payload);
    alloc_free(p->alloc);
    free(p);
}

/* True if a scheduler or a launcher has started this process. */
static bool launch_is_scheduled(const struct alloc_input *said)
{
    static const char *const ranks[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                        "SLURM_PROCID", "PALS_NODEID"};
    struct alloc_input in = *said;
    struct alloc *a = NULL;
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
        if (dd_env_get_nonempty(in.env, ranks[i]) != NULL)
            return true;
    in.hosts = in.hostfile = NULL;
    in.min_nodes = in.max_nodes = 0;
    const bool local = alloc_find(&a, &in, NULL) == 0 && strcmp(a->source, "local") == 0;
    alloc_free(a);
    return !local;
}

/* Return the name of the launcher. For hosts that are given by an option, horovodrun uses ssh, as
 * Horovod's own horovodrun does. */
static const char *launch_launcher_name(const struct launch_input *l)
{
    const struct ddrun_options *o = l->o;
    const bool hosts = o->hosts != NULL || o->hostfile != NULL;
    return strcmp(o->launcher, "auto") == 0 && horovodrun_is_name(l->argv[0]) && hosts &&
                   o->node_rank < 0 && !launch_is_scheduled(&l->in)
               ? "ssh"
               : o->launcher;
}

/* Find the nodes of the scheduler's job or step, although options name the first node. */
static struct alloc *launch_scheduled(const struct launch_plan *p)
{
    struct alloc *a = NULL;
    struct alloc_input in = p->l.in;
    in.rdzv_endpoint = in.rdzv_id = in.master_addr = NULL;
    in.min_nodes = in.max_nodes = 0;
    in.node_rank = -1;
    in.list_only = true;
    return alloc_find(&a, &in, NULL) < 0 ? NULL : a;
}

/* Warn if srun has started one task for each worker, as scripts for other launchers want: the
 * daemon refuses the agents beyond --nnodes. Only the second task warns. */
static void launch_warn_of_copies(const struct launch_plan *p, const struct alloc *a)
{
    const int most = p->l.o->nnodes.max;
    if (strcmp(a->source, "slurm-step") != 0 || a->index != 1 || most < 2 || a->nnodes <= most ||
        strcmp(hostlist_nth(a->nodes, 0), hostlist_nth(a->nodes, 1)) != 0)
        return;
    dd_log(p->l.log, DD_LOG_WARN,
           "srun started %d copies of %s, but --nnodes=%d"
           "\n  tip: srun -N%d --ntasks=%d --ntasks-per-node=1 %s ...",
           a->nnodes, p->l.o->by_torchrun ? "torchrun" : "ddrun", most, most, most,
           p->l.o->by_torchrun ? "torchrun" : "ddrun");
}

/* If options name the first node, ddrun starts no other nodes: the user is expected to start ddrun
 * on each. In a batch script with several nodes, a missing srun is the most frequent mistake, and
 * the job would wait in vain: warn. */
static void launch_warn_of_idle_nodes(const struct launch_plan *p)
{
    const struct ddrun_options *o = p->l.o;
    if (o->rdzv_endpoint == NULL && o->master_addr == NULL)
        return;
    DD_AUTO(alloc) struct alloc *a = launch_scheduled(p);
    if (a == NULL || a->nnodes < 2 || o->nnodes.max == 1)
        return;
    if (!a->script) {
        launch_warn_of_copies(p, a);
        return;
    }
    const char *name = o->by_torchrun ? "torchrun" : "ddrun";
    const bool slurm = strncmp(a->source, "slurm", 5) == 0;
    dd_log(
        p->l.log, DD_LOG_WARN,
        "this job has %d nodes, but with %s, %s starts workers on this node only"
        "\n  tip: start %s on each node%s%s%s%s",
        a->nnodes, o->rdzv_endpoint != NULL ? "--rdzv-endpoint" : "--master-addr", name, name,
        slurm ? ": srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 " : "", slurm ? name : "",
        slurm ? " ..." : "",
        etcd_url_is(o->rdzv_endpoint)
            ? ""
            : "\n  tip: omit the options that name nodes and endpoint; ddrun then starts all nodes itself");
}

/* The variables of a heterogeneous job name the nodes of its first component; only srun starts
 * tasks on the others. */
static void launch_warn_of_components(const struct launch_plan *p)
{
    const char *size = dd_env_get_nonempty(p->l.in.env, "SLURM_HET_SIZE");
    const long n = size != NULL ? strtol(size, NULL, 10) : 0;
    if (n < 2 || strcmp(p->alloc->source, "slurm-batch") != 0 || p->l.o->nnodes.max == 1)
        return;
    dd_log(
        p->l.log, DD_LOG_WARN,
        "this job has %ld components, but ddrun starts workers on the nodes of the first one only"
        "\n  tip: for all components: srun --het-group=0-%ld --ntasks-per-node=1 ddrun ...",
        n, n - 1);
}

/* Report that the chosen launcher cannot be used; why: as set by launch_find(). */
static int launch_refuse(const char *launcher, const struct dd_err *why, struct dd_err *err)
{
    const struct starter *st = starter_find(NULL, launcher, "");
    if (why->rc < 0)
        return dd_err_set(err, why->rc, "--launcher=%s: %s", launcher, why->text);
    if (st != NULL && st->directory != NULL)
        return dd_err_set(err, -ENOENT, "--launcher=%s: program '%s' not found in PATH or in %s",
                          launcher, st->program, st->directory);
    return dd_err_set(err, -ENOENT, "--launcher=%s: program '%s' not found%s", launcher,
                      st != NULL ? st->program : launcher,
                      st != NULL && st->ours ? "" : " in PATH");
}

/* Return 1 if this process is to start nodes; 0 if not, or if --launcher=auto finds no launcher;
 * < 0 with a message. */
static int launch_find_nodes(struct launch_plan *p, struct dd_err *err)
{
    const struct ddrun_options *o = p->l.o;
    const char *launcher = launch_launcher_name(&p->l);
    struct alloc_input in = p->l.in;
    struct dd_err why = {0};
    const bool asked = strcmp(launcher, "auto") != 0;
    if (etcd_url_is(o->rdzv_endpoint)) {
        launch_warn_of_idle_nodes(p);
        return 0;
    }
    in.list_only = true;
    const int rc = alloc_find(&p->alloc, &in, &why);
    if (rc < 0) /* without --launcher, run_prepare() repeats the search and reports the error */
        return asked ? dd_err_set(err, rc, "%s", why.text) : 0;
    const struct alloc *a = p->alloc;
    const bool named = strncmp(a->source, "host", 4) == 0 && o->node_rank < 0;
    launch_warn_of_components(p);
    if (asked && o->nnodes.max == 0 && strcmp(a->source, "local") == 0)
        return dd_err_set(err, -EINVAL,
                          "--launcher=%s: no scheduler and no option names the nodes of the job"
                          "\n  tip: add --hosts=LIST or --hostfile=FILE",
                          o->launcher);
    if (!asked && strcmp(a->source, "explicit") == 0)
        launch_warn_of_idle_nodes(p);
    if (!(a->script || (asked && named)) || (a->nnodes == 1 && a->index == 0) ||
        (o->nnodes.max == 1 && !o->nnodes.range))
        return 0;
    if (o->ssh_words != NULL && o->launch_command == NULL && strcmp(launcher, "ssh") == 0)
        return dd_err_set(err, -EINVAL,
                          "-p and -i have no effect when ddrun starts nodes by ssh"
                          "\n  tip: replace them by --launch-command='ssh -p PORT -i FILE'");
    why = (struct dd_err){0};
    p->starter = launch_find(p->program, launcher, a, o->launch_command, &why);
    if (p->starter != NULL)
        return 1;
    if (!asked && why.rc < 0)
        dd_log(p->l.log, DD_LOG_INFO, "no launcher can be used: %s", why.text);
    if (!asked)
        return 0;
    return launch_refuse(launcher, &why, err);
}

/* Return the patterns of --launch-env and the names that --env has without a value, stored in buf;
 * NULL: out of memory. */
static const char *launch_all_wanted(const struct ddrun_options *o, struct dd_buf *buf)
{
    int rc = dd_buf_puts(buf, o->launch_env);
    for (size_t i = 0; i < o->framework.env.n && rc == 0; i++)
        if (rule_env_wanted(o->framework.env.v[i]) != NULL)
            rc = dd_buf_printf(buf, ",%s", o->framework.env.v[i]);
    return rc == 0 ? dd_buf_str(buf) : NULL;
}

/* Remove the variables that --launch-env or --launch-env-exclude keeps from the other nodes, so
 * that all nodes of the job have the same variables. */
static int launch_leave_behind(const struct ddrun_options *o, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv names = {0};
    DD_AUTO(buf) struct dd_buf only = DD_BUF_INIT(PATTERNS_MAX);
    const char *patterns = NULL;
    if (o->launch_env != NULL && (patterns = launch_all_wanted(o, &only)) == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (select_env(&names, environ, patterns, o->launch_env_exclude) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < names.n; i++)
        (void)unsetenv(names.v[i]);
    return 0;
}

static int launch_find_ddrun(struct launch_plan *p, struct dd_err *err)
{
    ssize_t n = readlink("/proc/self/exe", p->ddrun, sizeof(p->ddrun) - 1);
    if (n <= 0)
        return dd_err_set(err, -errno, "cannot find the path of ddrun in /proc/self/exe: %m");
    p->ddrun[n] = '\0';
    return 0;
}

/* Replace this process by the one command that starts all nodes. Returns only on failure. */
static int launch_become_starter(struct launch_plan *p, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv argv = {0};
    const struct start s = {.program = p->program,
                            .words = p->l.o->launch_command,
                            .nnodes = p->alloc->nnodes,
                            .command = (const char *const *)p->l.argv,
                            .env = environ};
    uint64_t seed;
    char hex[17];
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        return dd_err_set(err, -EIO, "getrandom failed: %m");
    (void)snprintf(hex, sizeof(hex), "%016" PRIx64,
                   seed); /* only ports depend on the seed: it may cross the network unencrypted */
    if (setenv("DDRUN_PORT_SEED", hex, 1) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    p->l.argv[0] = p->ddrun;
    if (starter_command(&argv, p->starter, &s) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = cmd_unset(p->starter->unset, err);
    if (rc < 0)
        return rc;
    (void)execvp(argv.v[0], argv.v);
    return dd_err_set(err, -errno, "cannot run %s: %m", argv.v[0]);
}

static int launch_make_id(struct launch_plan *p, struct dd_err *err)
{
    uint64_t random;
    if (getrandom(&random, sizeof(random), 0) < 0)
        return dd_err_set(err, -errno, "getrandom failed: %m");
    (void)snprintf(p->id, sizeof(p->id), "launch.%016" PRIx64, random);
    if (strncmp(p->alloc->source, "host", 4) != 0 || p->l.o->rdzv_id != NULL)
        return 0;
    DD_AUTO(free) char *id = DD_TAKE(
        p->alloc->job_id); /* every run on these hosts is a job with its own id */
    return asprintf(&p->alloc->job_id, "%s.%016" PRIx64, id, random) < 0
               ? dd_err_set(err, -ENOMEM, "out of memory")
               : 0;
}

static void launch_to_hex(char out[HEX + 1], const unsigned char *bytes)
{
    for (size_t i = 0; i < NET_KEY_LEN; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static int launch_random_hex(char out[HEX + 1], struct dd_err *err)
{
    unsigned char bytes[NET_KEY_LEN];
    int rc = net_key_random(bytes);
    launch_to_hex(out, bytes);
    explicit_bzero(bytes, sizeof(bytes));
    return rc < 0 ? dd_err_set(err, rc,
                               "cannot create a key for the other nodes: getrandom failed: %s",
                               strerror(-rc))
                  : 0;
}

/* Make a key for this start; the nodes read it from the stdin of the starter. */
static int launch_key_on_stdin(struct launch_plan *p, struct dd_err *err)
{
    char hex[HEX + 1];
    int rc = launch_random_hex(hex, err);
    (void)snprintf(p->key_line, sizeof(p->key_line), "%s\n", hex);
    if (rc == 0 && dd_env_set(&p->key_env, "DDRUN_KEY", hex) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    explicit_bzero(hex, sizeof(hex));
    p->ticket.key = LAUNCH_KEY_STDIN;
    p->key_in = (struct net_key_input){.env = p->key_env.v, .job_id = p->id};
    return rc;
}

/* Choose a key source that the nodes can read themselves, for starters whose tasks get neither
 * stdin nor environment of this process, or whose transport others can read. */
static int launch_key_elsewhere(struct launch_plan *p, struct dd_err *err)
{
    const struct ddrun_options *o = p->l.o;
    const char *home = dd_env_get_nonempty(environ, "HOME");
    const char *file = o->key_file != NULL ? o->key_file
                                           : dd_env_get_nonempty(environ, "DDRUN_KEY_FILE");
    const bool cookie = strcmp(o->key_source, "pbs-cookie") == 0;
    const char *path = file != NULL ? file : cookie ? NULL : o->munge_socket;
    p->ticket.key = file != NULL   ? LAUNCH_KEY_FILE
                    : cookie       ? LAUNCH_KEY_COOKIE
                    : path != NULL ? LAUNCH_KEY_MUNGE
                                   : LAUNCH_KEY_OFFERED;
    if (home != NULL && dd_env_set(&p->key_env, "HOME", home) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (path != NULL && (p->ticket.path = realpath(path, NULL)) == NULL)
        p->ticket.path = path[0] == '/' ? strdup(path) : NULL;
    if (path != NULL && p->ticket.path == NULL)
        return dd_err_set(err, -errno, "cannot find the %s '%s': %m",
                          file != NULL ? "key file" : "socket of munged", path);
    p->key_in = (struct net_key_input){.env = p->key_env.v,
                                       .key_file = file != NULL ? p->ticket.path : NULL,
                                       .cookie = dd_env_get_nonempty(environ, "PBS_JOBCOOKIE"),
                                       .use_cookie = cookie,
                                       .munge_socket = o->munge_socket,
                                       .job_id = p->id};
    return 0;
}

/* Make the key with which the nodes fetch their payload, and the job's key in the payload unless
 * the user has given one. */
static int launch_make_key(struct launch_plan *p, struct dd_err *err)
{
    char hex[HEX + 1];
    int rc = p->starter->takes_stdin ? launch_key_on_stdin(p, err) : launch_key_elsewhere(p, err);
    if (rc == 0)
        rc = net_key_for_leader(&p->key, &p->key_in, err);
    if (rc == 0 && p->key.guessable)
        dd_log(p->l.log, DD_LOG_WARN, "%s", NET_KEY_COOKIE_WARNING);
    if (rc == 0 && p->alloc->psk == NULL && (rc = launch_random_hex(hex, err)) == 0 &&
        (p->alloc->psk = strdup(hex)) == NULL)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    explicit_bzero(hex, sizeof(hex));
    free(DD_TAKE(p->alloc->cookie)); /* the key of the job is new for each run; do not use the
                                        scheduler's cookie */
    return rc;
}

static int launch_fill_payload(struct launch_plan *p, struct dd_err *err)
{
    struct bootstrap_payload *k = &p->payload;
    mode_t mask = umask(0);
    (void)umask(mask);
    k->umask = mask;
    k->directory = getcwd(NULL, 0);
    if (k->directory == NULL)
        return dd_err_set(err, -errno, "cannot determine the current directory: %m");
    for (int i = 0; i < BOOTSTRAP_LIMITS; i++) {
        struct rlimit limit;
        k->limits[i] = getrlimit((__rlimit_resource_t)i, &limit) == 0 ? limit.rlim_cur
                                                                      : RLIM_INFINITY;
        k->limits_n++;
    }
    k->alloc = p->alloc;
    if (dd_strv_copy(&k->argv, p->l.argv) < 0 || dd_strv_copy(&k->env, environ) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    return 0;
}

static int launch_run_here(void *arg, int index)
{
    const struct launch_plan *p = arg;
    const int code = p->node->run(p->node->arg, p->alloc, index);
    net_key_cleanup(&p->key,
                    &p->key_in); /* in a child: remove what a killed parent may have left */
    return code;
}

static int launch_start_all(struct launch_plan *p, struct dd_err *err)
{
    const struct ddrun_options *o = p->l.o;
    int rc = launch_make_id(p, err);
    if (rc == 0)
        rc = launch_make_key(p, err);
    if (rc == 0)
        rc = local_machine_addresses(p->l.machine, &p->ticket.hosts, p->alloc, p->alloc->index,
                                     err);
    if (rc == 0)
        rc = launch_fill_payload(p, err);
    if (rc < 0)
        return rc;
    const struct launcher_cfg cfg = {.starter = p->starter,
                                     .program = p->program,
                                     .words = o->launch_command,
                                     .ddrun = p->ddrun,
                                     .payload = &p->payload,
                                     .here = p->alloc->index,
                                     .fanout = o->launch_fanout >= 0 ? o->launch_fanout
                                               : p->starter->tree    ? FANOUT
                                                                     : 0,
                                     .id = p->id,
                                     .key = &p->key,
                                     .key_in = &p->key_in,
                                     .key_for_stdin = p->starter->takes_stdin ? p->key_line : NULL,
                                     .ticket = &p->ticket,
                                     .go_on = o->nnodes.range || o->max_restarts.most > 0,
                                     .min_nodes = o->nnodes.range ? o->nnodes.min
                                                                  : p->alloc->nnodes,
                                     .limit_s = (unsigned)(o->rdzv_timeout / DD_NS_PER_S),
                                     .grace_ms = ddrun_grace_ms(o, p->alloc) + END_MS,
                                     .node = launch_run_here,
                                     .arg = p,
                                     .log = p->l.log,
                                     .stdin_fd = -1};
    return launcher_run(&cfg);
}

/* Describe the start on stdout, for --dry-run, and then one node. */
static int launch_describe(struct launch_plan *p, struct dd_err *err)
{
    const struct alloc *a = p->alloc;
    const int others = a->nnodes - (a->index >= 0);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(PATTERNS_MAX);
    DD_AUTO(buf) struct dd_buf nodes = DD_BUF_INIT(PATTERNS_MAX);
    if (hostlist_fold(a->nodes, &nodes) < 0 || dd_buf_str(&nodes) == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = strcmp(p->l.o->dry_run, "json") == 0
                 ? dd_buf_printf(&out,
                                 "{\"version\": 1, \"document\": \"launch\", \"starter\": \"%s\", "
                                 "\"starts\": %d, \"nodes\": \"%s\"}\n",
                                 p->starter->name, p->starter->starts_all ? a->nnodes : others,
                                 dd_buf_str(&nodes))
             : p->starter->starts_all
                 ? dd_buf_printf(&out, "%s would start ddrun on %d node%s: %s\n", p->starter->name,
                                 a->nnodes, a->nnodes == 1 ? "" : "s", dd_buf_str(&nodes))
                 : dd_buf_printf(&out, "%s would start ddrun on %d other node%s of %s\n",
                                 p->starter->name, others, others == 1 ? "" : "s",
                                 dd_buf_str(&nodes));
    if (rc == 0)
        rc = dd_write_full(STDOUT_FILENO, out.data, out.len);
    return rc < 0 ? dd_err_set(err, rc, "cannot write to standard output: %s", strerror(-rc))
                  : p->node->run(p->node->arg, a, a->index >= 0 ? a->index : 0);
}

int launch_plan_new(struct launch_plan **ret, const struct launch_input *in, struct dd_err *err)
{
    *ret = NULL;
    if (strcmp(in->o->launcher, "none") == 0)
        return 0;
    DD_AUTO(launch_plan) struct launch_plan *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    p->l = *in;
    int rc = launch_find_nodes(p, err);
    if (rc > 0)
        *ret = DD_TAKE(p);
    return rc < 0 ? rc : 0;
}

int launch_run(struct launch_plan *p, const struct launch_node *node)
{
    const struct ddrun_options *o = p->l.o;
    struct dd_err err = {0};
    p->node = node;
    for (size_t i = 0; i < p->alloc->warnings.n; i++)
        dd_log(p->l.log, DD_LOG_WARN, "%s", p->alloc->warnings.v[i]);
    int rc = launch_find_ddrun(p, &err);
    if (rc == 0 && o->dry_run == NULL)
        rc = launch_leave_behind(o, &err);
    if (rc == 0)
        rc = o->dry_run != NULL       ? launch_describe(p, &err)
             : p->starter->starts_all ? launch_become_starter(p, &err)
                                      : launch_start_all(p, &err);
    if (rc < 0)
        dd_log(p->l.log, DD_LOG_ERR, "%s", err.text);
    return rc < 0 ? EXIT_USAGE : rc;
}
