/* Options of other launchers, each with the option of ddrun that replaces it ("": none, ddrun
 * ignores the option), or with the end of an error message: "OPTION is ...". docs/coming-from.md
 * lists the usual ones. */
#include "cmd/foreign.h"

#define TIP "\n  tip: "
#define ONCE_A_NODE                                                                                \
    "pass it to sbatch or salloc, or run: srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 "        \
    "OPTION ddrun ..."
#define SRUN "a Slurm option" TIP ONCE_A_NODE
#define CPUS                                                                                       \
    "a Slurm option" TIP ONCE_A_NODE "; "                                                          \
    "ddrun divides the CPUs of a node among its workers (--bind)"
#define GPUS                                                                                       \
    "a Slurm option" TIP                                                                           \
    "request GPUs with this option of sbatch or salloc; ddrun starts one worker per GPU, or as "   \
    "many as --nproc-per-node says"
#define BINDING                                                                                    \
    "an option of another launcher" TIP                                                            \
    "--bind=auto splits the CPUs among the workers (default), --bind=none disables binding, "      \
    "--numa-binding=node binds each worker near its GPU"
#define PLACING                                                                                    \
    "an option of another launcher" TIP                                                            \
    "ddrun numbers ranks node by node, in the order of the host list; "                            \
    "--nproc-per-node=N sets the number of workers of a node"
#define FILES                                                                                      \
    "an option of another launcher" TIP                                                            \
    "--log-dir=DIR also writes the output of each worker to files; "                               \
    "with --redirects=3, ddrun does not show it"
#define MCA "an Open MPI option" TIP "set MCA parameters as variables: -x OMPI_MCA_NAME=VALUE"
#define HOROVOD                                                                                    \
    "a horovodrun option" TIP                                                                      \
    "set the corresponding HOROVOD_* variable, as in -x HOROVOD_TIMELINE=FILE"
#define SHOW                                                                                       \
    "an option of another launcher" TIP                                                            \
    "--dry-run shows ranks, commands and variables, and starts no workers"
#define PROGRAMS                                                                                   \
    "a Hydra option; in ddrun, all workers run the same program" TIP                               \
    "let the program check RANK, or use --wrap=RANKS:CMD"
#define ELASTIC "a deepspeed option" TIP "use --nnodes=MIN:MAX"
#define SPARES "an srun option" TIP "with --nnodes=MIN:MAX, a job continues without a lost node"
#define GENV "a Hydra option" TIP "use -x NAME=VALUE"
#define GENVLIST "a Hydra option" TIP "use --launch-env=NAME,NAME"
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
    {"--cpus-per-task", NULL, CPUS},
    {"-c", NULL, CPUS},
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
    {"--multi-prog", NULL,
     "an srun option; in ddrun, all workers run the same program" TIP
     "let the program check RANK, or use --wrap=RANKS:CMD"},
    {"--time", NULL,
     "a Slurm option" TIP
     "pass it to sbatch to limit the allocation, or use --timeout=TIME to limit the job"},
    {"--gpus", NULL, GPUS},
    {"-G", NULL, GPUS},
    {"--gpus-per-node", NULL, GPUS},
    {"--gpus-per-task", NULL, GPUS},
    {"--gres", NULL, GPUS},
    {"--gpu-bind", NULL, GPUS},
    {"--export", NULL,
     "an srun option" TIP
     "-x NAME=VALUE sets a variable for all workers, --launch-env=PATTERNS selects "
     "the variables of this shell to forward"},
    {"-o", NULL, FILES},
    {"--error", NULL, FILES},
    {"-e", NULL, FILES},
    {"--input", NULL,
     "an srun option" TIP "use ddrun ... <FILE, and --stdin=RANK if another rank than 0 reads it"},
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
    {"-rmk", NULL, "a Hydra option" TIP "omit it: ddrun detects the scheduler"},
    {"-usize", NULL,
     "a Hydra option" TIP
     "omit it: ddrun does not support MPI_Comm_spawn, so there is no universe size"},
    {"--timestamp-output", NULL,
     "an Open MPI option" TIP "use ddrun ... | ts (ts is part of moreutils)"},
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
     "a deepspeed option" TIP
     "select nodes with --hosts (in a Slurm job: srun --nodelist), and GPUs with CUDA_VISIBLE_DEVICES or --nproc-per-node"},
    {"--elastic-training", NULL, ELASTIC},
    {"--min-elastic-nodes", NULL, ELASTIC},
    {"--max-elastic-nodes", NULL, ELASTIC},
    {"--launcher-args", NULL,
     "a deepspeed option" TIP "use --launch-command='ssh ...' with the whole command"},
    {"--autotuning", NULL, "an option of the deepspeed launcher; ddrun only starts the program"},
    /* accelerate launch */
    {"--num-processes", "num-proc", NULL},
    {"--num-machines", "nnodes", NULL},
    {"--machine-rank", "node-rank", NULL},
    {"--main-process-ip", "master-addr", NULL},
    {"--main-process-port", "master-port", NULL},
    {"--multi-gpu", "", NULL},
    {"--same-network", "", NULL},
    {"--gpu-ids", NULL, "an accelerate option" TIP "set CUDA_VISIBLE_DEVICES"},
    {"--num-cpu-threads-per-process", NULL, "an accelerate option" TIP "set OMP_NUM_THREADS"},
    {"--mixed-precision", NULL,
     "an accelerate option" TIP
     "set it in the program: Accelerator(mixed_precision=...), or use -x ACCELERATE_MIXED_PRECISION=bf16"},
    {"--use-deepspeed", NULL, PLUGIN},
    {"--deepspeed-config-file", NULL, PLUGIN},
    {"--zero-stage", NULL, PLUGIN},
    {"--use-fsdp", NULL, PLUGIN},
    {"--cpu", NULL,
     "an accelerate option" TIP
     "set it in the program: Accelerator(cpu=True), or use -x ACCELERATE_USE_CPU=true"},
    {"--dynamo-backend", NULL,
     "an accelerate option" TIP
     "set it in the program: Accelerator(dynamo_backend=...), or use -x ACCELERATE_DYNAMO_BACKEND=inductor"},
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
     "a horovodrun option; ddrun runs no discovery script" TIP
     "start ddrun with --min-np=N --max-np=N on a new node to let it join"},
    {"--config-file", NULL,
     "a horovodrun option; ddrun does not read YAML" TIP
     "set HOROVOD_* variables for Horovod, and use options for all other settings"},
    {"--timeline-filename", NULL, HOROVOD},
    {"--fusion-threshold-mb", NULL, HOROVOD},
    {"--cycle-time-ms", NULL, HOROVOD},
    {"--autotune", NULL, HOROVOD},
    {"--stall-check-warning-time-seconds", NULL, HOROVOD},
    {"--no-stall-check", NULL, HOROVOD},
    {"--check-build", NULL,
     "a horovodrun option" TIP
     "run python -c 'import horovod.torch as h; print(h.gloo_built(), h.nccl_built())'"},
    {NULL, NULL, NULL},
};
