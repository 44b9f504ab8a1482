/* What users of other launchers write: what it means here, or one sentence. docs/coming-from.md has
 * the usual ones. */
#include "cmd/foreign.h"

#define TIP "\n  tip: "
#define SRUN                                                                                       \
    "an srun option" TIP                                                                           \
    "pass it to sbatch or salloc, or run: srun --ntasks-per-node=1 OPTION ddrun ..."
#define GPUS                                                                                       \
    "a Slurm option" TIP                                                                           \
    "ask sbatch or salloc for the GPUs; ddrun starts a worker for each GPU of a node, or --nproc-per-node=N workers"
#define BINDING                                                                                    \
    "an option of another launcher" TIP                                                            \
    "--bind=auto splits the CPUs among the workers (default), --bind=none disables binding, "      \
    "--numa-binding=node binds each worker near its GPU"
#define PLACING                                                                                    \
    "an option of another launcher" TIP                                                            \
    "ranks go node by node, in the order of the host list; --nproc-per-node=N sets the workers of a node"
#define FILES                                                                                      \
    "an option of another launcher" TIP                                                            \
    "--log-dir=DIR writes and shows the output of each worker, --log-dir=DIR --redirects=3 only writes it"
#define MCA "an Open MPI option" TIP "its parameters are variables, too: -x OMPI_MCA_NAME=VALUE"
#define HOROVOD                                                                                    \
    "a horovodrun option" TIP                                                                      \
    "set the HOROVOD_ variable that it stands for, as in -x HOROVOD_TIMELINE=FILE"
#define SHOW                                                                                       \
    "an option of another launcher" TIP                                                            \
    "--dry-run shows ranks, commands and variables, and starts nothing"
#define PROGRAMS                                                                                   \
    "not known here: all workers run the same program; let it look at RANK, or put another command before some with --wrap"
#define ELASTIC "a deepspeed option" TIP "--nnodes=MIN:MAX"
#define SPARES "an srun option" TIP "with --nnodes=MIN:MAX a job goes on without a lost node"
#define GENV "a Hydra option" TIP "-x NAME=VALUE"
#define GENVLIST "a Hydra option" TIP "--launch-env=NAME,NAME"
#define PLUGIN                                                                                     \
    "an accelerate option" TIP                                                                     \
    "set it in the program: Accelerator(deepspeed_plugin=...) or Accelerator(fsdp_plugin=...)"

const struct opt_foreign foreign_options[] = {
    /* srun, sbatch */
    {"--ntasks", "num-proc", NULL},
    {"--ntasks-per-node", "nproc-per-node", NULL},
    {"--tasks-per-node", "nproc-per-node", NULL},
    {"--nodes", "nnodes", NULL},
    {"-N", NULL, "ambiguous" TIP "use --nnodes=N (srun's -N) or --nproc-per-node=N (mpirun's -N)"},
    {"--nodelist", NULL, SRUN},
    {"-w", NULL, SRUN},
    {"--exclude", NULL, SRUN},
    {"--cpus-per-task", NULL, SRUN},
    {"-c", NULL, SRUN},
    {"--mem", NULL, SRUN},
    {"--mem-per-cpu", NULL, SRUN},
    {"--partition", NULL, SRUN},
    {"--account", NULL, SRUN},
    {"-A", NULL, SRUN},
    {"--qos", NULL, SRUN},
    {"--constraint", NULL, SRUN},
    {"-C", NULL, SRUN},
    {"--job-name", NULL, SRUN},
    {"-J", NULL, SRUN},
    {"--exclusive", NULL, SRUN},
    {"--overlap", NULL, SRUN},
    {"--exact", NULL, SRUN},
    {"--jobid", NULL, SRUN},
    {"--reservation", NULL, SRUN},
    {"--distribution", NULL, SRUN},
    {"--wait", NULL, SRUN},
    {"-W", NULL, SRUN},
    {"--time", NULL,
     "a Slurm option" TIP
     "pass it to sbatch as the limit of the allocation; --timeout=TIME ends a job by itself"},
    {"--gpus", NULL, GPUS},
    {"-G", NULL, GPUS},
    {"--gpus-per-node", NULL, GPUS},
    {"--gpus-per-task", NULL, GPUS},
    {"--gres", NULL, GPUS},
    {"--gpu-bind", NULL, GPUS},
    {"--export", NULL,
     "srun's: -x NAME=VALUE sets a variable for all workers, --launch-env=PATTERNS says which of this shell's go along"},
    {"-o", NULL, FILES},
    {"--error", NULL, FILES},
    {"-e", NULL, FILES},
    {"--input", NULL,
     "srun's: write ddrun ... <FILE, and --stdin=RANK where not rank 0 is to read it"},
    {"--no-kill", NULL, SPARES},
    {"-k", NULL, SPARES},
    {"--cpu-bind", NULL, BINDING},
    {"--mem-bind", NULL, BINDING},
    {"--hint", NULL, BINDING},
    {"--threads-per-core", NULL, BINDING},
    {"--kill-on-bad-exit", "", NULL},
    {"-K", "", NULL},
    {"--unbuffered", "", NULL},
    {"-u", "", NULL},
    {"--resv-ports", "", NULL},
    {"--propagate", "", NULL},
    {"-V", "version", NULL},
    {"--ntasks-per-gpu", NULL, SRUN},
    {"--cpus-per-gpu", NULL, SRUN},
    /* mpirun (Open MPI), mpiexec (Hydra) */
    {"--host", "hosts", NULL},
    {"-host", "hosts", NULL},
    {"-hosts", "hosts", NULL},
    {"--machinefile", "hostfile", NULL},
    {"-machinefile", "hostfile", NULL},
    {"-f", "hostfile", NULL},
    {"-ppn", "nproc-per-node", NULL},
    {"--ppn", "nproc-per-node", NULL},
    {"-perhost", "nproc-per-node", NULL},
    {"--npernode", "nproc-per-node", NULL},
    {"-npernode", "nproc-per-node", NULL},
    {"--wdir", "chdir", NULL},
    {"-wdir", "chdir", NULL},
    {"--wd", "chdir", NULL},
    {"-wd", "chdir", NULL},
    {"--tag-output", "label", NULL},
    {"-tag-output", "label", NULL},
    {"-prepend-rank", "label", NULL},
    {"-launcher", "launcher", NULL},
    {"-bootstrap", "launcher", NULL},
    {"-launcher-exec", "launch-command", NULL},
    {"-bootstrap-exec", "launch-command", NULL},
    {"-iface", "iface", NULL},
    {"-timeout", "timeout", NULL},
    {"--do-not-launch", "dry-run", NULL},
    {"--verbose", "log-level=info", NULL},
    {"-verbose", "log-level=info", NULL},
    {"-v", "log-level=info", NULL},
    {"--quiet", "log-level=error", NULL},
    {"-quiet", "log-level=error", NULL},
    {"-q", "log-level=error", NULL},
    {"--oversubscribe", "", NULL},
    {"-oversubscribe", "", NULL},
    {"--nooversubscribe", "", NULL},
    {"--use-hwthread-cpus", "", NULL},
    {"--allow-run-as-root", "", NULL},
    {"-genvall", "", NULL},
    {"-envall", "", NULL},
    {"-genv", NULL, GENV},
    {"-env", NULL, GENV},
    {"-genvlist", NULL, GENVLIST},
    {"-envlist", NULL, GENVLIST},
    {"--bind-to", NULL, BINDING},
    {"-bind-to", NULL, BINDING},
    {"--report-bindings", NULL, BINDING},
    {"-report-bindings", NULL, BINDING},
    {"--cpu-set", NULL, BINDING},
    {"-membind", NULL, BINDING},
    {"--map-by", NULL, PLACING},
    {"-map-by", NULL, PLACING},
    {"--rank-by", NULL, PLACING},
    {"-rank-by", NULL, PLACING},
    {"--bynode", NULL, PLACING},
    {"--byslot", NULL, PLACING},
    {"--rankfile", NULL, PLACING},
    {"-rf", NULL, PLACING},
    {"--mca", NULL, MCA},
    {"-mca", NULL, MCA},
    {"--display", NULL, SHOW},
    {"--display-map", NULL, SHOW},
    {"--display-allocation", NULL, SHOW},
    {"-info", NULL, SHOW},
    {"--output-filename", NULL, FILES},
    {"-output-filename", NULL, FILES},
    {"-outfile-pattern", NULL, FILES},
    {"-errfile-pattern", NULL, FILES},
    {"--enable-each-rank-log", NULL, FILES},
    {"-configfile", NULL, PROGRAMS},
    {"--pernode", "nproc-per-node=1", NULL},
    {"--default-hostfile", "hostfile", NULL},
    {"--debug-daemons", "log-level=debug", NULL},
    {"--disable-recovery", "", NULL},
    {"--leave-session-attached", "", NULL},
    {"--novm", "", NULL},
    {"-disable-hostname-propagation", "", NULL},
    {"-topolib", NULL, BINDING},
    {"--nolocal", NULL, PLACING},
    {"-rmk", NULL, "Hydra's: ddrun sees by itself which scheduler's job this is; leave it out"},
    {"-usize", NULL,
     "Hydra's: MPI_Comm_spawn is not there, so neither is a universe of a size; leave it out"},
    {"--timestamp-output", NULL, "Open MPI's: write ddrun ... | ts, with ts of moreutils"},
    /* torch.distributed.launch */
    {"--use-env", "", NULL},
    /* deepspeed */
    {"--num-nodes", "nnodes", NULL},
    {"--num-gpus", "nproc-per-node", NULL},
    {"--bind-cores-to-rank", "bind=auto", NULL},
    {"--no-ssh", "", NULL},
    {"--no-ssh-check", "", NULL},
    {"--force-multi", "", NULL},
    {"--no-local-rank", "", NULL},
    {"--include", NULL,
     "deepspeed's: name the nodes with --hosts, and their GPUs with CUDA_VISIBLE_DEVICES or --nproc-per-node"},
    {"--elastic-training", NULL, ELASTIC},
    {"--min-elastic-nodes", NULL, ELASTIC},
    {"--max-elastic-nodes", NULL, ELASTIC},
    {"--launcher-args", NULL,
     "deepspeed's: write --launch-command='ssh ...', with all words of that command"},
    {"--autotuning", NULL, "for deepspeed's own launcher; ddrun only starts the program"},
    /* accelerate launch */
    {"--num-processes", "num-proc", NULL},
    {"--num-machines", "nnodes", NULL},
    {"--machine-rank", "node-rank", NULL},
    {"--main-process-ip", "master-addr", NULL},
    {"--main-process-port", "master-port", NULL},
    {"--multi-gpu", "", NULL},
    {"--same-network", "", NULL},
    {"--gpu-ids", NULL, "accelerate's: set CUDA_VISIBLE_DEVICES"},
    {"--num-cpu-threads-per-process", NULL, "accelerate's: set OMP_NUM_THREADS"},
    {"--mixed-precision", NULL,
     "an accelerate option" TIP
     "set it in the program: Accelerator(mixed_precision=...), or write -x ACCELERATE_MIXED_PRECISION=bf16"},
    {"--use-deepspeed", NULL, PLUGIN},
    {"--deepspeed-config-file", NULL, PLUGIN},
    {"--zero-stage", NULL, PLUGIN},
    {"--use-fsdp", NULL, PLUGIN},
    {"--cpu", NULL,
     "an accelerate option" TIP
     "set it in the program: Accelerator(cpu=True), or write -x ACCELERATE_USE_CPU=true"},
    {"--dynamo-backend", NULL,
     "an accelerate option" TIP
     "set it in the program: Accelerator(dynamo_backend=...), or write -x ACCELERATE_DYNAMO_BACKEND=inductor"},
    /* horovodrun */
    {"--network-interfaces", "iface", NULL},
    {"--network-interface", "iface", NULL},
    {"--nics", "iface", NULL},
    {"--start-timeout", "rdzv-timeout", NULL},
    {"--elastic-timeout", "rejoin-timeout", NULL},
    {"--reset-limit", "max-restarts", NULL},
    {"--slots-per-host", "nproc-per-node", NULL},
    {"--jsrun", "launcher=jsrun", NULL},
    {"--gloo", "", NULL},
    {"--disable-cache", "", NULL},
    {"--host-discovery-script", NULL,
     "horovodrun's, and ddrun runs no discovery script: nodes that start ddrun join by themselves; write --min-np=N --max-np=N"},
    {"--config-file", NULL,
     "a YAML file's, and ddrun reads no YAML: give Horovod's settings as HOROVOD_* variables, all others as options"},
    {"--timeline-filename", NULL, HOROVOD},
    {"--fusion-threshold-mb", NULL, HOROVOD},
    {"--cycle-time-ms", NULL, HOROVOD},
    {"--autotune", NULL, HOROVOD},
    {"--stall-check-warning-time-seconds", NULL, HOROVOD},
    {"--no-stall-check", NULL, HOROVOD},
    {"--check-build", NULL,
     "horovodrun's: ask python -c 'import horovod.torch as h; print(h.gloo_built(), h.nccl_built())'"},
    {NULL, NULL, NULL},
};
