/* One node of a job: run its agent under its guardian, or describe it with --dry-run. */
#include "cmd/ddrun_run.h"

#include "agent/dry_run.h"
#include "agent/guardian.h"
#include "base/auto.h"
#include "base/core.h"
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/compile_cache_dirs.h"
#include "cmd/scratch_keeper.h"
#include "cmd/stage_dirs.h"

#include <string.h>
#include <unistd.h>

enum {
    GUARDIAN_EXTRA_MS = 5000
}; /* time after the grace period of the workers, in which ddrund informs the other nodes */

static void run_remove_scratch(const struct run *r)
{
    error_names_remove(&r->error_names);
    node_dirs_remove(&r->dirs);
}

static int run_agent(void *arg)
{
    struct run *r = arg;
    r->log.waits_ms = CMD_LOG_WAIT_MS;
    node_dirs_own(&r->dirs);
    dd_core_empty();
    int code = agent_run(&r->agent);
    run_remove_scratch(r); /* the guardian may have been killed before it removed the directories */
    run_done(r);
    return code;
}

static int run_guardian(struct run *r)
{
    const struct guardian_cfg guardian = {.grace_ms = r->agent.grace_ms + GUARDIAN_EXTRA_MS,
                                          .launched = r->launched_ns != 0,
                                          .terminal = &r->terminal,
                                          .log = &r->log};
    struct scratch_keeper keeper;
    scratch_keeper_start(&keeper, &r->dirs);
    r->agent.guardian = getpid();
    int code = guardian_run(run_agent, r, &guardian);
    run_remove_scratch(r);
    scratch_keeper_end(&keeper);
    node_dirs_sweep(&r->dirs);
    return torchrun_exit_code(r->o, code);
}

int run_node(struct run *r, int index)
{
    struct dd_err err = {0};
    int code = EXIT_USAGE;
    bool ready = run_prepare(r, index, &err) == 0 && run_make_scratch(r, &err) == 0;
    if (!ready && (r->alloc == NULL || r->alloc->nnodes == 1)) {
        if (err.rc != ALLOC_WRONG_FOR_ALL || cmd_is_first_task(environ))
            dd_log(&r->log, DD_LOG_ERR, "%s", err.text);
    } else {
        if (!ready) { /* report the error to the other nodes, so that they do not wait for this one
                       */
            r->agent.cannot = err.text;
            r->agent.slots = 1;
            r->agent.iface = NULL; /* the interface may be the cause of the error */
        }
        code = run_guardian(r);
    }
    run_done(r);
    return code;
}

static int run_describe(struct run *r, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64 << 20);
    DD_AUTO(free) char *stage = NULL;
    DD_AUTO(free) char *cache = NULL;
    const bool json = strcmp(r->o->dry_run, "json") == 0;
    if (r->stage_paths.n > 0 &&
        stage_dirs_describe(&stage, &r->o->stage, &r->stage_paths, r->env.v) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (r->compile_cache.path.n > 0 &&
        compile_cache_dirs_describe(&cache, r->compile_cache.path.v[0], r->o->stage.dir, r->env.v) <
            0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    r->agent.staging.plan = stage;
    r->agent.compile_cache.plan = cache;
    int rc = json ? agent_dry_run_json(&out, &r->agent, r->emulate != NULL, err)
                  : agent_dry_run(&out, &r->agent, r->emulate != NULL, err);
    r->agent.staging.plan = r->agent.compile_cache.plan = NULL;
    if (rc == 0)
        rc = dd_write_full(STDOUT_FILENO, out.data, out.len);
    if (rc < 0 && err->text[0] == '\0')
        (void)dd_err_set(err, rc, "cannot write to standard output: %s", strerror(-rc));
    return rc;
}

int run_describe_node(struct run *r, int index)
{
    struct dd_err err = {0};
    int rc = run_prepare(r, index, &err);
    if (rc == 0)
        rc = run_describe(r, &err);
    run_done(r);
    if (rc < 0)
        dd_log(&r->log, DD_LOG_ERR, "%s", err.text);
    return rc < 0 ? EXIT_USAGE : 0;
}
