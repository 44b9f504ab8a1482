/* ddrun, from the top: read the command line, discover the machine, choose the role of this
 * process, run it. */
#include "base/io.h"
#include "base/screen.h"
#include "cmd/command_line.h"
#include "cmd/common.h"
#include "cmd/ddrun_launch.h"
#include "cmd/ddrun_launched.h"
#include "cmd/ddrun_run.h"
#include "launch/emulate.h"
#include "net/crypto.h"

#include <string.h>
#include <sys/random.h>

struct invocation {
    struct command_line command_line;
    struct local_machine machine;
    struct run run;
    char **argv;
};

static void invocation_done(struct invocation *v)
{
    run_done(&v->run);
    local_machine_done(&v->machine);
    command_line_done(&v->command_line);
    dd_screen_free(v->run.log.screen);
}

/* `launched`: the launcher that started this node has read and passed on the arguments. Return -1
 * to continue, otherwise the exit code. */
static int invocation_read(struct invocation *v, int argc, char **argv, bool launched)
{
    v->argv = argv;
    v->run = (struct run){
        .o = &v->command_line.options,
        .start_ns = dd_now_ns(),
        .log = {.fd = STDERR_FILENO, .colours = dd_log_has_colours(STDERR_FILENO), .who = "ddrun"},
        .machine = &v->machine};
    node_dirs_init(&v->run.dirs);
    int code = command_line_read(&v->command_line, argc, argv, launched, &v->run.log);
    if (code >= 0)
        return code;
    if (v->command_line.argv.n > 0)
        v->argv = v->command_line.argv.v;
    v->run.script = v->command_line.script.v;
    terminal_save(&v->run.terminal);
    return -1;
}

static int report_error(const struct run *r, const struct dd_err *err)
{
    dd_log(&r->log, DD_LOG_ERR, "%s", err->text);
    return EXIT_USAGE;
}

/* ---- role: the agent of one node ---- */

static int play_node(struct run *r, int index)
{
    return r->o->dry_run != NULL ? run_describe_node(r, index) : run_node(r, index);
}

/* ---- role: all nodes, simulated on this machine ---- */

static int simulated_node(void *arg, int index)
{
    return run_node(arg, index);
}

static int describe_simulated(struct run *r)
{
    int code = 0;
    for (int i = 0; i < r->emulate->nnodes && code == 0; i++)
        code = run_describe_node(r, i);
    return code;
}

static int play_simulation(struct run *r)
{
    const struct ddrun_options *o = r->o;
    struct dd_err err = {0};
    struct emulate e = {.nnodes = o->simulate_nodes,
                        .rdzv_id = o->rdzv_id,
                        /* with etcd, the leader may run on another machine */
                        .go_on = o->nnodes.range || o->max_restarts.most > 0 ||
                                 etcd_url_is(o->rdzv_endpoint)};
    if (getrandom(&e.random, sizeof(e.random), 0) < 0 ||
        getrandom(e.secret, sizeof(e.secret), 0) < 0) {
        dd_log(&r->log, DD_LOG_ERR, "getrandom failed: %m");
        return 1;
    }
    r->emulate = &e;
    if (o->dry_run != NULL)
        return describe_simulated(r);
    int rc = run_prepare(r, 0, &err); /* an error of one node concerns all: report it once */
    run_done(r);
    if (rc < 0)
        return report_error(r, &err);
    (void)snprintf(r->log.who, sizeof(r->log.who), "ddrun");
    if (e.nnodes > 1)
        net_crypto_preload(); /* for the links between the nodes, which are forked now */
    return emulate_run(&e, simulated_node, r, &r->log);
}

/* ---- role: launcher of all nodes, perhaps including this one ---- */

static int launcher_node(void *arg, const struct alloc *a, int index)
{
    struct run *r = arg;
    r->given = a;
    return play_node(r, index);
}

static int play_launcher(struct run *r, struct launch_plan *plan)
{
    r->log.waits_ms = CMD_LOG_WAIT_MS; /* this process forwards signals and exit codes and must not
                                          block on its log */
    return launch_run(plan, &(struct launch_node){.run = launcher_node, .arg = r});
}

/* ---- role: a node that a launcher has started ---- */

/* Runs in a child of the process that stays connected to the launcher. */
static int launched_node(struct bootstrap_payload *p, struct local_machine *m, int index,
                         uint64_t launched_ns)
{
    struct invocation v = {0};
    int code = invocation_read(&v, (int)p->argv.n, p->argv.v, true);
    if (code < 0) {
        v.run.machine = m;
        v.run.given = p->alloc;
        v.run.launched_ns = launched_ns;
        code = play_node(&v.run, index);
    }
    invocation_done(&v);
    return code;
}

/* ---- the main path ---- */

static int play_role(struct invocation *v)
{
    struct run *r = &v->run;
    struct dd_err err = {0};
    DD_AUTO(launch_plan) struct launch_plan *plan = NULL;
    if (r->o->check_for > 0)
        return run_check_for(r);
    if (r->o->simulate_nodes > 0)
        return play_simulation(r);
    if (r->o->standalone)
        return play_node(r, -1);
    int rc = run_plan_launch(r, v->argv, &plan, &err);
    if (rc < 0)
        return report_error(r, &err);
    return plan != NULL ? play_launcher(r, plan) : play_node(r, -1);
}

static int ddrun_main(int argc, char **argv)
{
    struct invocation v = {0};
    struct dd_err err = {0};
    int code = invocation_read(&v, argc, argv, false);
    if (code < 0)
        v.run.log.screen = dd_screen_new(STDERR_FILENO);
    if (code < 0)
        code = local_machine_discover(&v.machine, &err) < 0 ? report_error(&v.run, &err)
                                                            : play_role(&v);
    invocation_done(&v);
    return code;
}

int main(int argc, char **argv)
{
    DD_AUTO(strv) struct dd_strv copy = {0};
    cmd_sanitize_process();
    if (argc == 2 && strncmp(argv[1], LAUNCHED_ARGUMENT, sizeof(LAUNCHED_ARGUMENT) - 1) == 0)
        return launched_main(argv[1] + sizeof(LAUNCHED_ARGUMENT) - 1, launched_node);
    if (dd_strv_copy(&copy, argv) < 0) {
        (void)fputs("ddrun: error: out of memory\n", stderr);
        return 1;
    }
    return ddrun_main(argc, copy.v); /* ddrund overwrites argv with its name */
}
