#include "cmd/ddctl_submit_scheduler.h"

#include "alloc/endtime.h"
#include "worker/spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* PBS and Grid Engine both have a qsub. Only Grid Engine has SGE_ROOT and, beside qsub, qconf. */
static bool submit_is_grid_engine(const char *path)
{
    char qconf[PATH_MAX];
    const char *root = getenv("SGE_ROOT");
    const char *slash = strrchr(path, '/');
    const int n = slash != NULL ? (int)(slash + 1 - path) : 0;
    if (root != NULL && root[0] != '\0')
        return true;
    return snprintf(qconf, sizeof(qconf), "%.*sqconf", n, path) < (int)sizeof(qconf) &&
           access(qconf, X_OK) == 0;
}

static bool submit_is_pbs(const char *path)
{
    return !submit_is_grid_engine(path);
}

/* PBS starts the script in the home directory with the environment of a login shell. PBS's own
 * output file appears only when the job ends, so the script writes a log that can be followed. */
static const struct submit_scheduler schedulers[] = {
    {.name = "slurm",
     .program = "sbatch",
     .options = "--parsable",
     .wait = {"--wait"},
     .cancel = "scancel",
     .queries = {{"scontrol", "--all", "--oneliner", "show", "partition"}},
     .queues = {.word = "partition", .next = submit_next_slurm_queue},
     .template = "#!/bin/bash\n"
                 "#SBATCH --job-name=@NAME@\n"
                 "#SBATCH --nodes=@NODES@ --ntasks-per-node=1\n"
                 "#SBATCH --gpus-per-node=@GPUS_PER_NODE@\n"
                 "#SBATCH --cpus-per-task=@CPUS_PER_NODE@\n"
                 "#SBATCH --time=@TIME@\n"
                 "#SBATCH --partition=@QUEUE@\n"
                 "#SBATCH --account=@ACCOUNT@\n"
                 "#SBATCH --output=@LOG@\n"
                 "exec @COMMAND@\n"},
    {.name = "pbs",
     .program = "qsub",
     .directory = ALLOC_PBS_DIRECTORY,
     .wait = {"-Wblock=true"},
     .owns = submit_is_pbs,
     .cancel = "qdel",
     .queries = {{"qstat", "-Q", "-f"}, {"qstat", "-B", "-f"}},
     .queues = {.word = "queue", .next = submit_next_pbs_queue},
     .one_cpu = true,
     .job_id = "PBS_JOBID",
     .template = "#!/bin/bash\n"
                 "#PBS -S /bin/bash\n"
                 "#PBS -N @NAME@\n"
                 "#PBS -l select=@SELECT@ -l place=scatter\n"
                 "#PBS -l walltime=@TIME@\n"
                 "#PBS -q @QUEUE@\n"
                 "#PBS -A @ACCOUNT@\n"
                 "#PBS -j oe\n"
                 "cd @DIRECTORY@ || exit\n"
                 "export @ENVIRONMENT@\n"
                 "exec @COMMAND@ >@LOG@ 2>&1\n"},
    {.name = "gridengine",
     .program = "qsub",
     .options = "-terse",
     .wait = {"-sync", "y"},
     .terminal = true,
     .owns = submit_is_grid_engine,
     .cancel = "qdel",
     .queries = {{"qconf", "-sql"}},
     .queues = {.word = "queue", .next = submit_next_grid_engine_queue},
     .job_id = "JOB_ID"},
};

bool submit_scheduler_program(char ret[PATH_MAX], const struct submit_scheduler *s,
                              const char *name)
{
    DD_AUTO(free) char *path = NULL;
    if (spawn_lookup(&path, name, environ) == 0)
        return snprintf(ret, PATH_MAX, "%s", path) < PATH_MAX;
    return s->directory != NULL &&
           snprintf(ret, PATH_MAX, "%s/%s", s->directory, name) < PATH_MAX &&
           access(ret, X_OK) == 0;
}

static bool submit_scheduler_is_here(const struct submit_scheduler *s)
{
    char path[PATH_MAX];
    return submit_scheduler_program(path, s, s->program) && (s->owns == NULL || s->owns(path));
}

const struct submit_scheduler *submit_scheduler_find(const char *name)
{
    const bool any = strcmp(name, "auto") == 0;
    for (size_t i = 0; i < sizeof(schedulers) / sizeof(schedulers[0]); i++)
        if (any ? submit_scheduler_is_here(&schedulers[i]) : strcmp(name, schedulers[i].name) == 0)
            return &schedulers[i];
    return NULL;
}
