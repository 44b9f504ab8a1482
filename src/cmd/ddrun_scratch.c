/* Makes the private directories of a node. */
#include "cmd/ddrun_run.h"

#include "base/auto.h"
#include "cmd/compile_cache_dirs.h"
#include "cmd/stage_dirs.h"

#include <string.h>

/* Find a directory in which other users cannot rename entries: TMPDIR, or else /tmp. */
static int scratch_find_tmp(const struct run *r, char **ret, struct dd_err *err)
{
    const char *tmp_dir = dd_env_get_nonempty(r->env.v, "TMPDIR");
    int rc = dd_scratch_parent(ret, tmp_dir != NULL ? tmp_dir : "/tmp", err);
    return rc < 0 && tmp_dir != NULL ? dd_scratch_parent(ret, "/tmp", NULL) : rc;
}

/* Without a directory for the files of PMIx, --mpi=auto serves PMI-1 only, as if ddrun-pmix were
 * missing. */
static int scratch_without_pmix(struct run *r, int rc, struct dd_err *err)
{
    if ((r->agent.mpi.protocols & MPI_SERVERS_PMI1) == 0)
        return dd_err_where(err, rc, "PMIx");
    r->agent.mpi.protocols &= ~MPI_SERVERS_PMIX;
    dd_log(&r->log, DD_LOG_WARN, "PMIx is not available to the workers: %s", err->text);
    err->text[0] = '\0';
    return 0;
}

/* True if `when` is "on", or "auto" on a node with GPUs. */
static bool scratch_wants(const struct run *r, const char *when)
{
    return strcmp(when, "on") == 0 || (strcmp(when, "auto") == 0 && r->gpus > 0);
}

/* Make private directories for the copies of --stage and --compile-cache, and for the files of
 * PMIx, Open MPI, PyTorch's flight recorder and CUDA; make error files of the workers unless they
 * have a log directory. */
int run_make_scratch(struct run *r, struct dd_err *err)
{
    struct dd_scratch *of = r->dirs.of;
    DD_AUTO(free) char *dir = NULL;
    if (r->stage_paths.n > 0 && stage_dirs_make(&of[NODE_DIR_STAGE], &of[NODE_DIR_STAGE_SPARE],
                                                &r->o->stage, r->env.v, err) < 0)
        return err->rc;
    if (r->compile_cache.path.n > 0)
        compile_cache_dirs_make(&of[NODE_DIR_CACHE], r->o->stage.dir, r->env.v, &r->log);
    dd_scratch_sweep(&of[NODE_DIR_CACHE]);
    /* copies of a job that was killed with its guardian occupy space that this job needs */
    dd_scratch_sweep(&of[NODE_DIR_STAGE]);
    dd_scratch_sweep(&of[NODE_DIR_STAGE_SPARE]);
    const bool logs = r->o->log_dir != NULL && *r->o->log_dir != '\0';
    const bool pmix = (r->agent.mpi.protocols & MPI_SERVERS_PMIX) != 0;
    const bool flight = scratch_wants(r, r->o->failure.flight_recorder);
    r->agent.ras.on = scratch_wants(r, r->o->failure.nccl_ras);
    const bool cuda = hang_options_cuda_core(&r->o->hang);
    int rc = pmix || flight || cuda || !logs ? scratch_find_tmp(r, &dir, err) : 0;
    if (rc == 0 && dir != NULL && !logs)
        (void)error_names_new(&r->error_names, dir, r->agent.slots, NULL);
    if (rc == 0 && (pmix || flight || cuda))
        rc = dd_scratch_new(&of[NODE_DIR_TMP], dir, err);
    r->agent.flight.tmp = flight ? &of[NODE_DIR_TMP] : NULL;
    r->agent.cuda_core.tmp = cuda ? &of[NODE_DIR_TMP] : NULL;
    if (rc < 0)
        return pmix ? scratch_without_pmix(r, rc, err) : 0;
    if (pmix)
        (void)dd_scratch_new(&of[NODE_DIR_SHM], "/dev/shm", NULL);
    err->text[0] = '\0';
    return 0;
}
