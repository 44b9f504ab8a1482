/* ddrun: options; then the nodes of this machine, and on each the agent under its guardian. */
#include "agent/dry_run.h"
#include "agent/guardian.h"
#include "base/core.h"
#include "base/io.h"
#include "base/uid.h"
#include "cmd/common.h"
#include "cmd/ddrun_check.h"
#include "cmd/ddrun_doctor.h"
#include "cmd/ddrun_launched.h"
#include "cmd/ddrun_launch.h"
#include "cmd/ddrun_run.h"
#include "launch/emulate.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    GUARDIAN_EXTRA_MS = 5000
}; /* beyond the workers' grace, for ddrund to tell the other nodes */

static void remove_scratch(const struct run *r)
{
    error_names_remove(&r->error_names);
    (void)dd_scratch_remove(&r->tmp);
    (void)dd_scratch_remove(&r->shm);
}

static int run_agent(void *arg)
{
    struct run *r = arg;
    r->log.waits_ms = CMD_LOG_WAIT_MS;
    dd_scratch_own(&r->tmp);
    dd_scratch_own(&r->shm);
    dd_core_empty();
    int code = agent_run(&r->agent);
    remove_scratch(r); /* the guardian may have been killed */
    run_done(r);
    return code;
}

static int dry_run(struct run *r, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64 << 20);
    int rc = agent_dry_run(&out, &r->agent, r->emulate != NULL, err);
    if (rc == 0)
        rc = dd_write_full(STDOUT_FILENO, out.data, out.len);
    if (rc < 0 && err->text[0] == '\0')
        (void)dd_err_set(err, rc, "cannot write to standard output: %s", strerror(-rc));
    return rc;
}

/* Describes one node; the exit code. */
static int dry_run_node(struct run *r, int index)
{
    struct dd_err err = {0};
    int rc = run_prepare(r, index, &err);
    if (rc == 0)
        rc = dry_run(r, &err);
    run_done(r);
    if (rc < 0)
        dd_log(&r->log, DD_LOG_ERR, "%s", err.text);
    return rc < 0 ? EXIT_USAGE : 0;
}

static int dry_run_launched(void *arg, const struct alloc *a, int index)
{
    struct run *r = arg;
    run_done(r); /* run_prepare() looks around again */
    r->given = a;
    return dry_run_node(r, index);
}

/* Of this node, or of all the simulated ones. */
static int dry_run_all(struct run *r)
{
    const int n = r->emulate != NULL ? r->emulate->nnodes : 1;
    int code = 0;
    for (int i = 0; i < n && code == 0; i++)
        code = dry_run_node(r, r->emulate != NULL ? i : -1);
    return code;
}

/* The whole of one node; a simulated one is run in a process of its own. */
static int run_node(void *arg, int index)
{
    struct run *r = arg;
    struct dd_err err = {0};
    bool ready = run_prepare(r, index, &err) == 0 && run_make_scratch(r, &err) == 0;
    if (!ready && (r->alloc == NULL || r->alloc->nnodes == 1)) {
        if (err.rc != ALLOC_WRONG_FOR_ALL || cmd_is_first_task(environ))
            dd_log(&r->log, DD_LOG_ERR, "%s", err.text);
        run_done(r);
        return EXIT_USAGE;
    }
    if (!ready) { /* the other nodes must not wait for this one */
        r->agent.cannot = err.text;
        r->agent.slots = 1;
        r->agent.iface = NULL; /* may be what is wrong */
    }
    const struct guardian_cfg guardian = {.grace_ms = r->agent.grace_ms + GUARDIAN_EXTRA_MS,
                                          .terminal = &r->terminal,
                                          .log = &r->log};
    r->agent.guardian = getpid();
    int code = guardian_run(run_agent, r, &guardian);
    remove_scratch(r);
    dd_scratch_sweep(&r->tmp);
    dd_scratch_sweep(&r->shm);
    run_done(r);
    return torchrun_exit_code(r->o, code);
}

static int run_simulated(struct run *r)
{
    const struct ddrun_options *o = r->o;
    struct emulate e = {.nnodes = o->simulate_nodes,
                        /* with an etcd the host may be elsewhere */
                        .go_on = o->nnodes.range || o->max_restarts.most > 0 ||
                                 etcd_url_is(o->rdzv_endpoint)};
    if (getrandom(&e.random, sizeof(e.random), 0) < 0 ||
        getrandom(e.secret, sizeof(e.secret), 0) < 0) {
        dd_log(&r->log, DD_LOG_ERR, "no random numbers: %m");
        return 1;
    }
    r->emulate = &e;
    if (o->dry_run)
        return dry_run_all(r);
    struct dd_err err = {0};
    int rc = run_prepare(r, 0, &err); /* what is wrong for one is wrong for all: said once */
    run_done(r);
    if (rc < 0) {
        dd_log(&r->log, DD_LOG_ERR, "%s", err.text);
        return EXIT_USAGE;
    }
    (void)snprintf(r->log.who, sizeof(r->log.who), "ddrun");
    return emulate_run(&e, run_node, r, &r->log);
}

static int run_launched(void *arg, const struct alloc *a, int index)
{
    struct run *r = arg;
    run_done(r); /* what the start has found of this machine is found again */
    r->given = a;
    return run_node(r, index);
}

/* Starts the other nodes' agents where nobody has. -1: there is nothing to start. */
static int run_everywhere(struct run *r, char **argv)
{
    struct alloc_input in;
    struct dd_err err = {0};
    int code = -1;
    if (r->o->standalone)
        return -1;
    r->log.waits_ms =
        CMD_LOG_WAIT_MS; /* of the process that starts them: it has signals and ends to see to */
    if (run_look_around(r, &err) == 0 && run_alloc_input(r, &in, &err) == 0)
        code = launch_job(
            &(struct launch_input){.o = r->o,
                                   .argv = argv,
                                   .in = &in,
                                   .log = &r->log,
                                   .dry = r->o->dry_run,
                                   .node = r->o->dry_run ? dry_run_launched : run_launched,
                                   .arg = r});
    run_done(r);
    r->log.waits_ms = 0;
    return code;
}

/* "ddrun -x train.py": the last word was taken for the value of the one before it. */
static int no_script(int argc, char **argv, struct dd_err *err)
{
    const bool taken = argc > 2 && argv[argc - 1][0] != '-' && argv[argc - 2][0] == '-' &&
                       strchr(argv[argc - 2], '=') == NULL;
    int rc = taken ? dd_err_set(err, -EINVAL,
                                "missing SCRIPT ('%.100s' was taken as the value of %.60s)",
                                argv[argc - 1], argv[argc - 2])
                   : dd_err_set(err, -EINVAL, "missing SCRIPT");
    return dd_err_tip(err, rc, "for example: ddrun --nproc-per-node=2 train.py");
}

/* given: by the process that has started us on this node, the index-th; NULL. */
static int run(int argc, char **argv, const struct alloc *given, int index)
{
    struct ddrun_options o = {0};
    DD_AUTO(opt_result) struct opt_result res = {0};
    uint64_t start_ns = dd_now_ns();
    const bool by_torchrun = torchrun_is_name(argv[0]);
    DD_AUTO(horovodrun) struct horovodrun *hvd = &o.horovodrun;
    struct opt_table table = ddrun_options;
    DD_AUTO(free) struct opt_row *rows = by_torchrun ? torchrun_rows(&table) : NULL;
    if (rows != NULL) {
        table.program = "torchrun";
        table.rows = rows;
        table.epilog =
            "Examples:\n"
            "  torchrun --standalone --nproc-per-node=4 train.py --epochs 3\n"
            "  torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=node1:29500 train.py\n";
    }
    if (horovodrun_is_name(argv[0]))
        table.program = "horovodrun";
    int code = cmd_options(&table, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    torchrun_apply(&o, &table, &res, by_torchrun);
    o.shutdown_said = opt_is_given(&res, &table, "shutdown-timeout");
    struct run r = {.o = &o,
                    .start_ns = start_ns,
                    .log = {.fd = STDERR_FILENO, .who = "ddrun"},
                    .tmp = DD_SCRATCH_NONE,
                    .shm = DD_SCRATCH_NONE};
    r.given = given;
    r.log.level = cmd_log_level(o.log_level);
    cmd_warn_of_misspelt(&table, &r.log);
    if (r.given == NULL) { /* else it was said by who started us */
        cmd_warn_of_idle(&table, &res, &r.log);
        warn_of_fixed_size(&o, &table, &res, &r.log);
    }
    if (cmd_is_first_task(environ))
        torchrun_tell(&o, &r.log);
    struct dd_err err = {0};
    int rc = horovodrun_apply(hvd, &o, &err);
    if (rc == 0)
        rc = check_options(&o, &err);
    if (rc == 0 && !o.insecure)
        rc = dd_uid_check(&err);
    if (rc == 0 && r.given == NULL)
        warn_of_unset(&o, &r.log);
    if (rc == 0 && o.doctor != NULL)
        rc = doctor_become(&o, &err);
    else if (res.script >= argc)
        rc = no_script(argc, argv, &err);
    if (rc < 0) {
        if (cmd_is_first_task(environ))
            dd_log(&r.log, DD_LOG_ERR, "%s", err.text);
        return EXIT_USAGE;
    }
    DD_AUTO(strv) struct dd_strv script = {0};
    if (dd_strv_push(&script, argv[res.script]) < 0 || dd_strv_copy(&script, argv + res.args) < 0) {
        dd_log(&r.log, DD_LOG_ERR, "out of memory");
        return 1;
    }
    r.script = script.v;
    terminal_save(&r.terminal);
    if (o.simulate_nodes > 0)
        return run_simulated(&r);
    code = r.given == NULL ? run_everywhere(&r, argv) : -1;
    if (code < 0 && o.dry_run)
        return dry_run_all(&r);
    return code >= 0 ? code : run_node(&r, index);
}

static int run_joined(void *arg, struct bootstrap_payload *p, int index)
{
    (void)arg;
    return run((int)p->argv.n, p->argv.v, p->alloc, index);
}

int main(int argc, char **argv)
{
    cmd_sanitize_process();
    if (argc == 2 && strncmp(argv[1], "--launched=", 11) == 0)
        return launch_join(argv[1] + 11, &(struct joiner){.node = run_joined});
    return run(argc, argv, NULL, -1);
}
