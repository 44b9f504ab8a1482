#include "cmd/ddrun_options.h"

#include "agent/agent.h"
#include "agent/requeue.h"
#include "base/num.h"
#include "base/sig.h"
#include "cmd/foreign.h"
#include "config.h"
#include "launch/emulate.h"
#include "launch/starter.h"
#include "launch/word.h"
#include "node/gpu.h"
#include "node/health.h"
#include "rdzv/plan.h"

#include <errno.h>
#include <string.h>

enum { RESTARTS_MAX = 1000000, RESTARTS_MAX_WITHIN = 1000 };

/* "4" or "2:4" */
static int parse_nnodes(const char *text, void *field, struct dd_err *err)
{
    struct node_range *r = field;
    char copy[32];
    int min;
    int max;
    size_t len = strlen(text);
    if (len < sizeof(copy)) {
        memcpy(copy, text, len + 1);
        char *colon = strchr(copy, ':');
        if (colon != NULL)
            *colon = '\0';
        if (dd_num_int(copy, 1, PLAN_MAX_NODES, &min) == 0 &&
            dd_num_int(colon != NULL ? colon + 1 : copy, min, PLAN_MAX_NODES, &max) == 0) {
            *r = (struct node_range){min, max, colon != NULL};
            return 0;
        }
    }
    return dd_err_set(err, -EINVAL, "invalid value '%s': expected a number of nodes from 1 to %d, or MIN:MAX", text, PLAN_MAX_NODES);
}

/* "3", or "3/1h": at most three within any hour */
static int parse_restarts(const char *text, void *field, struct dd_err *err)
{
    struct restart_budget *r = field;
    char copy[48];
    size_t len = strlen(text);
    *r = (struct restart_budget){0};
    if (len < sizeof(copy)) {
        memcpy(copy, text, len + 1);
        char *slash = strchr(copy, '/');
        if (slash != NULL)
            *slash = '\0';
        if (dd_num_int(copy, 0, slash != NULL ? RESTARTS_MAX_WITHIN : RESTARTS_MAX, &r->most) == 0 &&
            (slash == NULL || (dd_num_duration_ns(slash + 1, &r->within_ns) == 0 && r->within_ns > 0)))
            return 0;
    }
    return dd_err_set(err, -EINVAL,
                      "'%s' is not a number of restarts from 0 to %d, nor N/TIME; write for example "
                      "--max-restarts=3 or --max-restarts=3/1h",
                      text, RESTARTS_MAX);
}

/* Read once as if there were a GPU and a CPU: what there is does not matter to what is written. */
static int parse_nproc(const char *text, void *field, struct dd_err *err)
{
    const char **ret = field;
    const struct node_gpus some = {.count = 1};
    int rc = node_nproc(text, &some, 1, err);
    if (rc < 0)
        return rc;
    *ret = text;
    return 0;
}

/* "USR1@120", as sbatch writes it */
static int parse_signal_at(const char *text, void *field, struct dd_err *err)
{
    struct signal_at *r = field;
    char name[16];
    const char *at = strchr(text, '@');
    size_t len = at != NULL ? (size_t)(at - text) : 0;
    if (at != NULL && len < sizeof(name)) {
        memcpy(name, text, len);
        name[len] = '\0';
        r->sig = dd_signal_parse(name);
        if ((dd_signal_ends_jobs(r->sig) || dd_signal_announces(r->sig)) &&
            dd_num_duration_ns(at + 1, &r->ns) == 0)
            return 0;
    }
    return dd_err_set(err, -EINVAL, "'%s' is not SIGNAL@TIME with one of USR1, USR2, TERM, INT, HUP, QUIT; write for example "
                                    "--signal-before-end=USR1@120", text);
}

/* horovodrun's -p PORT; srun's -p is its partition, which nobody here would mind. */
static int parse_ssh_port(const char *text, void *field, struct dd_err *err)
{
    int port;
    *(const char **)field = text;
    return dd_num_int(text, 1, 65535, &port) == 0
               ? 0
               : dd_err_set(err, -EINVAL, "invalid SSH port '%.60s'; pass a partition to sbatch or srun", text);
}

static int parse_stdin(const char *text, void *field, struct dd_err *err)
{
    int *ret = field;
    if (strcmp(text, "all") == 0)
        *ret = STDIN_ALL;
    else if (strcmp(text, "none") == 0)
        *ret = STDIN_NONE;
    else if (dd_num_int(text, 0, PLAN_MAX_NODES * PLAN_MAX_SLOTS - 1, ret) < 0)
        return dd_err_set(err, -EINVAL, "'%s' is neither a rank nor 'all' or 'none'; write for example --stdin=0",
                          text);
    return 0;
}

static int parse_output(const char *text, void *field, struct dd_err *err)
{
    static const char *const styles[] = {[OUTPUT_LINES] = "lines", [OUTPUT_LABELS] = "labels", [OUTPUT_RAW] = "raw"};
    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++)
        if (strcmp(text, styles[i]) == 0) {
            *(enum output_style *)field = (enum output_style)i;
            return 0;
        }
    int rc = dd_err_set(err, -EINVAL, "invalid value '%.200s': expected lines, labels or raw", text);
    return strpbrk(text, "%./") == NULL ? rc
                                        : dd_err_tip(err, rc, "--log-dir=DIR --redirects=3 writes files for each worker; --tee=3 also shows them");
}

static int parse_requeue(const char *text, void *field, struct dd_err *err)
{
    int bits = requeue_parse(text, err);
    *(int *)field = bits > 0 ? bits : 0;
    return bits < 0 ? bits : 0;
}

static int parse_health(const char *text, void *field, struct dd_err *err)
{
    int *ret = field;
    int bits = node_health_parse(text, err);
    if (bits < 0)
        return bits;
    *ret = bits;
    return 0;
}

#define FIELD(name) OPT_FIELD(struct ddrun_options, name)

static const struct opt_row rows[] = {
    {.name = "nproc-per-node",
     .common = true,
     .kind = OPT_CUSTOM,
     .metavar = "N|auto|gpu|cpu",
     .def_doc = "as many as GPUs, or 1",
     .example = "4",
     .group = "Nodes and workers",
     .help = "workers on this node",
     .more = "'gpu' is the number of GPUs that the job may use on this node, 'cpu' the number of "
             "CPUs, 'auto' the GPUs if there are any, else the CPUs. Nodes may differ.",
     .parse = parse_nproc,
     FIELD(nproc_per_node)},
    {.name = "nnodes",
     .common = true,
     .kind = OPT_CUSTOM,
     .metavar = "N|MIN:MAX",
     .def_doc = "the nodes of the allocation",
     .example = "4",
     .group = "Nodes and workers",
     .help = "nodes that take part",
     .more = "Needed only where no scheduler says it. --nnodes=1 inside an allocation runs on this "
             "node alone. With MIN:MAX the job runs on any number of nodes between them: it starts "
             "when all are here, or MIN and --last-call is over, and goes on after a loss with "
             "those that are left. More nodes than MAX are spare. ddrun started again on a lost "
             "node, with the same options, joins the job that goes on (see --grow).",
     .parse = parse_nnodes,
     FIELD(nnodes)},
    {.name = "node-rank",
     .kind = OPT_INT,
     .metavar = "R",
     .def = "-1",
     .def_doc = "found out",
     .min = -1,
     .max = PLAN_MAX_NODES - 1,
     .example = "0",
     .group = "Nodes and workers",
     .help = "which of the nodes this one is, from 0",
     FIELD(node_rank)},
    {.name = "num-proc",
     .letter = 'n',
     .aliases = "np",
     .one_dash = true,
     .kind = OPT_INT,
     .metavar = "N",
     .def = "0",
     .def_doc = "as --nproc-per-node says",
     .min = 0,
     .max = PLAN_MAX_NODES * PLAN_MAX_SLOTS,
     .example = "8",
     .no_env = true,
     .group = "Nodes and workers",
     .help = "workers of all nodes together, as mpirun's and srun's -n",
     .more = "May be written -np N, too. Where --hosts or --hostfile say how many slots a host has, they are filled in order; "
             "else each node has as many workers as the others.",
     FIELD(horovodrun.np)},
    {.name = "min-np",
     .aliases = "min-num-proc",
     .kind = OPT_INT,
     .metavar = "N",
     .def = "0",
     .def_doc = "all of them",
     .min = 0,
     .max = PLAN_MAX_NODES * PLAN_MAX_SLOTS,
     .example = "4",
     .no_env = true,
     .group = "Nodes and workers",
     .help = "go on with as few workers as this, for elastic Horovod",
     .more = "With --max-np the same as --nnodes=MIN:MAX, in workers: both are multiples of what a node has, by --nproc-per-node "
             "or by the slots of --hosts. The workers get HOROVOD_ELASTIC=1. See docs/horovod.md.",
     FIELD(horovodrun.min_np)},
    {.name = "max-np",
     .aliases = "max-num-proc",
     .kind = OPT_INT,
     .metavar = "N",
     .def = "0",
     .def_doc = "as --num-proc says",
     .min = 0,
     .max = PLAN_MAX_NODES * PLAN_MAX_SLOTS,
     .example = "8",
     .no_env = true,
     .group = "Nodes and workers",
     .help = "with --min-np: take no more workers than this",
     FIELD(horovodrun.max_np)},
    {.name = "hosts",
     .common = true,
     .letter = 'H',
     .kind = OPT_STRING,
     .metavar = "LIST",
     .example = "'node[1-4]'",
     .group = "Nodes and workers",
     .help = "the nodes, as a host list; start ddrun with it on each, or say --launcher=ssh",
     .more = "With NAME:SLOTS, as in -H node1:4,node2:4, each has so many workers.",
     FIELD(hosts)},
    {.name = "hostfile",
     .one_dash = true,
     .kind = OPT_STRING,
     .metavar = "FILE",
     .example = "nodes.txt",
     .group = "Nodes and workers",
     .help = "the nodes, one a line, as 'name [slots=N]'",
     FIELD(hostfile)},
    {.name = "launcher",
     .common = true,
     .kind = OPT_STRING,
     .metavar = "NAME",
     .def = "auto",
     .choices = STARTER_NAMES,
     .group = "Nodes and workers",
     .help = "what starts ddrun on the other nodes",
     .more = "In a batch script ddrun starts itself on all nodes of the job: with 'auto', by what the scheduler has for "
             "that (Slurm: srun; PBS: pbs_tmrsh, pbsdsh, else its library (tm); LSF: jsrun, blaunch; Grid Engine: qrsh; OAR: oarsh; Cobalt: aprun, ssh). Where one ddrun was started on each node already, nothing "
             "is started. With --hosts or --hostfile say --launcher=ssh; without it, start ddrun on each of "
             "the hosts yourself. The other nodes get this shell's environment, folder, umask and limits; "
             "key and environment are never in an argument list. 'none' starts nothing.",
     FIELD(launcher)},
    {.name = "launch-command",
     .kind = OPT_STRING,
     .metavar = "COMMAND",
     .example = "ssh -p 2222",
     .group = "Nodes and workers",
     .help = "run this in place of the launcher's own program, words separated by blanks",
     .more = "For example --launcher=ssh --launch-command='ssh -p 2222 -o BatchMode=yes'.",
     FIELD(launch_command)},
    {.name = "launch-fanout",
     .kind = OPT_INT,
     .metavar = "N",
     .def = "-1",
     .def_doc = "32 with ssh, oarsh and blaunch, else 0",
     .min = -1,
     .max = LAUNCH_FANOUT_MAX,
     .group = "Nodes and workers",
     .help = "start N nodes from here, and let them start the others; 0: all from here",
     .more = "Where there are more than N, each of these starts its share of the others by the same launcher, and so on. "
             "A node that could not be started from there is started from here. Where one call starts all nodes (srun), "
             "this has no effect.",
     FIELD(launch_fanout)},
    {.name = "launch-env",
     .kind = OPT_STRING,
     .metavar = "PATTERNS",
     .example = "NCCL_*,OMP_*,LD_LIBRARY_PATH",
     .group = "Nodes and workers",
     .help = "give the job's nodes only these of this shell's variables, separated by commas",
     .more = "Patterns are a shell's. What the scheduler has set, DDRUN_*, PATH, HOME, TMPDIR and the like go along in any case. "
             "Without this option all variables do, except those that are true of one machine only. It counts where ddrun "
             "starts the nodes itself (--launcher), and then for the workers of this machine as well.",
     FIELD(launch_env)},
    {.name = "launch-env-exclude",
     .kind = OPT_STRING,
     .metavar = "PATTERNS",
     .example = "*_TOKEN,LS_COLORS",
     .group = "Nodes and workers",
     .help = "give the job's nodes none of these of this shell's variables",
     .more = "Patterns as with --launch-env. A variable that is named here stays behind, whatever --launch-env says, PATH and "
             "the scheduler's too.",
     FIELD(launch_env_exclude)},
    {.name = "standalone",
     .kind = OPT_FLAG,
     .group = "Nodes and workers",
     .help = "this machine alone, whatever the scheduler's variables say",
     FIELD(standalone)},
    {.name = "simulate-nodes",
     .common = true,
     .kind = OPT_INT,
     .metavar = "N",
     .def = "0",
     .min = 0,
     .max = EMULATE_MAX,
     .example = "2",
     .group = "Nodes and workers",
     .help = "run N nodes on this machine, to try things out",
     .more = "Each simulated node has an agent and a loopback address of its own; GPUs and CPUs "
             "are shared out among them.",
     FIELD(simulate_nodes)},

    {.name = "module",
     .common = true,
     .letter = 'm',
     .kind = OPT_FLAG,
     .group = "Program",
     .help = "SCRIPT is a Python module, as in python3 -m",
     FIELD(module)},
    {.name = "no-python",
     .kind = OPT_FLAG,
     .group = "Program",
     .help = "run SCRIPT as it is, even if its name ends in .py",
     FIELD(no_python)},
    {.name = "run-path",
     .kind = OPT_FLAG,
     .group = "Program",
     .help = "run SCRIPT by Python's runpy, whatever its name; an exception goes to the error file",
     .more = "The error file is written by PyTorch's record(), where PyTorch is there. Wins over "
             "--no-python.",
     FIELD(run_path)},
    {.name = "chdir",
     .letter = 'D',
     .common = true,
     .kind = OPT_STRING,
     .metavar = "DIR",
     .example = "/data/run7",
     .group = "Program",
     .help = "the folder in which the workers run; SCRIPT is looked for there",
     .more = "It must be there on every node. Files that ddrun itself reads and writes (--hostfile, --log-dir, --report) are "
             "looked for where ddrun was started.",
     FIELD(chdir)},
    {.name = "stdin",
     .kind = OPT_CUSTOM,
     .metavar = "RANK|all|none",
     .def = "0",
     .group = "Program",
     .help = "who may read ddrun's standard input",
     .more = "With 'all', the workers share it: each byte comes to one of them. The others read "
             "/dev/null. A terminal is given to nobody while ddrun runs in the background.",
     .parse = parse_stdin,
     FIELD(stdin_rank)},
    {.name = "pty",
     .kind = OPT_INT,
     .metavar = "RANK",
     .def = "-1",
     .def_doc = "none",
     .implied = "0",
     .min = -1,
     .max = INT32_MAX,
     .group = "Program",
     .help = "run this rank on a terminal of its own, for debuggers",
     .more = "For pdb, progress bars and whatever else looks for a terminal. All keys go to that rank, "
             "Ctrl-C too, which so interrupts the program and not the job; size and modes of the window are "
             "passed on and restored. In a Slurm job: srun --pty.",
     FIELD(pty)},

    {.name = "bind",
     .kind = OPT_STRING,
     .metavar = "HOW",
     .def = "auto",
     .choices = "auto,none",
     .group = "CPUs, GPUs and environment of the workers",
     .help = "share the CPUs of this node out among its workers, or leave them unbound",
     FIELD(bind)},
    {.name = "numa-binding",
     .kind = OPT_STRING,
     .metavar = "HOW",
     .choices = "node,socket,exclusive,core-complex",
     .group = "CPUs, GPUs and environment of the workers",
     .help = "keep each worker on the CPUs and the memory near its GPU, in place of --bind",
     .more = "'node': those of the GPU's NUMA node; 'socket': of all NUMA nodes of that socket; 'exclusive': the "
             "node's cores are divided among its GPUs; 'core-complex': the cores of one last-level cache "
             "there. Worker i has GPU i. Without GPUs the NUMA nodes are dealt out to the workers in order. "
             "Memory comes from elsewhere only when there is none left.",
     FIELD(numa_binding)},
    {.name = "virtual-local-rank",
     .kind = OPT_FLAG,
     .group = "CPUs, GPUs and environment of the workers",
     .help = "each worker sees one GPU: LOCAL_RANK is 0, CUDA_VISIBLE_DEVICES has one entry",
     .more = "The entry is the worker's among those of CUDA_VISIBLE_DEVICES, or the local rank where that "
             "is not set.",
     FIELD(virtual_local_rank)},
    {.name = "role",
     .kind = OPT_STRING,
     .metavar = "NAME",
     .def = "default",
     .group = "CPUs, GPUs and environment of the workers",
     .help = "ROLE_NAME of the workers",
     FIELD(role)},
    {.name = "slurm-env",
     .kind = OPT_STRING,
     .metavar = "HOW",
     .def = "rewrite",
     .choices = "rewrite,keep,strip",
     .group = "CPUs, GPUs and environment of the workers",
     .help = "what the workers see of SLURM_*",
     .more = "'rewrite' makes SLURM_PROCID, SLURM_LOCALID, SLURM_NTASKS and their like true for "
             "each worker, as if srun had started it; 'keep' leaves the agent's values; 'strip' "
             "takes them all away.",
     FIELD(slurm_env)},

    {TOLD_FRAMEWORK(struct ddrun_options),
     .group = "Program",
     .help = "also say what this framework looks for: jax, tensorflow, paddle, mindspore",
     .more = "PyTorch, DeepSpeed, oneCCL and others that read the same variables need nothing. jax: where Slurm is not, five "
             "of its variables, from which jax.distributed.initialize() takes rank and size; within a Slurm job "
             "they are there in any case. tensorflow: --tf. paddle: what paddle.distributed.launch sets. mindspore: the "
             "variables of its dynamic cluster, and its scheduler, a second process of the program beside rank 0. "
             "docs/frameworks.md has a section for each framework."},
    {.name = "mpi",
     .kind = OPT_STRING,
     .metavar = "HOW",
     .def = "none",
     .choices = "none,pmi1,pmix,auto",
     .example = "auto",
     .group = "Program",
     .help = "start MPI programs, in place of mpirun or mpiexec",
     .more = "'pmi1' is what MPICH, MVAPICH and Intel MPI speak with their launcher, 'pmix' what Open MPI speaks; 'auto' offers "
             "the worker both. A rank that ends without MPI_Finalize has failed, and MPI_Abort ends the job with its code. "
             "docs/mpi.md has more.",
     FIELD(mpi)},
    {TOLD_TF(struct ddrun_options),
     .group = "Program",
     .help = "give the workers TF_CONFIG, for TensorFlow",
     .more = "Each worker has a port of its own, which ddrun holds for it, another one after each restart. Where several "
             "workers share a node's GPUs, each sees one."},
    {TOLD_ROLES(struct ddrun_options),
     .group = "Program",
     .help = "with --tf: what the ranks are, from 0 on: chief, worker, ps, evaluator",
     .more = "One N may be '*', all that are left. Where there are parameter servers, the job has succeeded when the chief "
             "has, else when chief and workers have; the others are then ended."},

    {TOLD_ENV(struct ddrun_options),
     .group = "Program",
     .letter = 'x',
     .common = true,
     .help = "set NAME for all workers, or for those of RANKS, as 0,3-5",
     .more = "Goes before whatever else would set it. May be given several times. NAME alone (as with mpirun's -x) is the "
             "variable of this shell: it goes along to all nodes, even where --launch-env does not name it. What is true of one "
             "machine only, as TMPDIR is, stays each node's own; NAME=VALUE sets it."},
    {.name = "wrap",
     .kind = OPT_REPEATED,
     .metavar = "RANKS:CMD",
     .no_env = true,
     .example = "'0:nsys profile -o report.$RANK'",
     .group = "Program",
     .help = "put CMD in front of the program of these ranks: nsys, gdb, valgrind, strace",
     .more = "A shell reads CMD, with the worker's environment, and replaces itself by it. Of several that are for the same "
             "rank the first is the outermost. For a debugger that reads keys see --pty.",
     FIELD(wrap)},
    {.name = "preload",
     .kind = OPT_REPEATED,
     .metavar = "RANKS:LIB",
     .no_env = true,
     .example = "0:/opt/lib/libmpitrace.so",
     .group = "Program",
     .help = "put LIB in front of LD_PRELOAD of these ranks: a tracer, another malloc",
     .more = "LIB is a path, or a name that the dynamic linker finds; several stand between colons. What LD_PRELOAD has "
             "already stays behind it. May be given several times.",
     FIELD(preload)},

    {.name = "dry-run",
     .common = true,
     .kind = OPT_FLAG,
     .no_env = true,
     .group = "Program",
     .help = "show what would be started on this node, and start nothing",
     .more = "The ranks, the command of each worker, and of its environment what ddrun adds, changes and removes. No node "
             "asks another: addresses that only the job finds out stand as a word in <>.",
     FIELD(dry_run)},
    {.name = "doctor",
     .common = true,
     .kind = OPT_STRING,
     .metavar = "FORMAT",
     .choices = "text,json",
     .implied = "text",
     .no_env = true,
     .group = "Program",
     .help = "look on all nodes of the job for what would keep it from starting, and start no workers",
     .more = "It is ddctl doctor, with those options of this command line that ddctl doctor has; SCRIPT may be left out. "
             "It looks at the nodes that a scheduler, --hosts or --hostfile names; where none does, at this one alone.",
     FIELD(doctor)},

    {.name = "rdzv-endpoint",
     .kind = OPT_STRING,
     .metavar = "HOST[:PORT]",
     .example = "node1:29400",
     .group = "Finding each other",
     .help = "where the first node can be reached, when no scheduler says it; or an etcd: etcd://HOST/PREFIX",
     .more = "etcd://[USER@]HOST[:2379][,HOST...]/PREFIX, or etcds:// for TLS, is an etcd through which the nodes find the "
             "first one, or become it: for several allocations, or machines without a scheduler. It needs --rdzv-id and "
             "--nnodes. It may end with ?cacert=FILE&cert=FILE&key=FILE&password-file=FILE, or some of these. Put "
             "USER's password into that file, or into the variable DDRUN_ETCD_PASSWORD. See docs/clusters.md.",
     FIELD(rdzv_endpoint)},
    {.name = "rdzv-id",
     .kind = OPT_STRING,
     .metavar = "ID",
     .example = "run7",
     .def_doc = "from the job",
     .group = "Finding each other",
     .help = "name of this run; must be the same on all its nodes",
     FIELD(rdzv_id)},
    {.name = "master-addr",
     .kind = OPT_STRING,
     .metavar = "ADDR",
     .example = "10.0.0.1",
     .group = "Finding each other",
     .help = "name or address of the first node",
     FIELD(master_addr)},
    {.name = "master-port",
     .kind = OPT_INT,
     .metavar = "PORT",
     .min = 0,
     .max = 65535,
     .def_doc = "elected from the job's id",
     .example = "29500",
     .group = "Finding each other",
     .help = "the one port that the job uses on the first node",
     FIELD(master_port)},
    {.name = "iface",
     .kind = OPT_STRING,
     .metavar = "NAME",
     .example = "ib0",
     .group = "Finding each other",
     .help = "the workers' network, by the name of its interface on this node",
     .more = "MASTER_ADDR is then the first node's address at its interface of that name, which every "
             "node must reach through its own; GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME name it. The agents "
             "themselves meet through whatever network the first node's name leads to. Where the "
             "names differ from node to node, give each node its own.",
     FIELD(iface)},
    {.name = "rdzv-timeout",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "600s",
     .min = 1000000,
     .max = INT64_MAX,
     .group = "Finding each other",
     .help = "how long to wait until all nodes are here",
     FIELD(rdzv_timeout)},
    {.name = "last-call",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "30s",
     .min = 0,
     .max = INT64_C(86400000000000),
     .group = "Finding each other",
     .help = "with --nnodes=MIN:MAX: how long to wait for more than MIN nodes; with spare nodes: for those that are not there",
     FIELD(last_call)},
    {.name = "local-addr",
     .kind = OPT_STRING,
     .metavar = "ADDR",
     .example = "10.0.0.1",
     .group = "Finding each other",
     .help = "MASTER_ADDR of a job on this node alone",
     .more = "With several nodes it is accepted and not needed: MASTER_ADDR is an address of the first "
             "node that the others have reached. --iface chooses the network.",
     FIELD(local_addr)},
    {.name = "rdzv-backend",
     .kind = OPT_CUSTOM,
     .metavar = "NAME",
     .def = "static",
     .group = "Finding each other",
     .help = "with etcd, --rdzv-endpoint is one; static, c10d: no effect, for torchrun's sake",
     .more = "With etcd or etcd-v2, --rdzv-endpoint=HOST:PORT means etcd://HOST:PORT/torchelastic/p2p, or etcds://, with what "
             "--rdzv-conf says of it. Other names are refused.",
     .parse = torchrun_parse_backend,
     FIELD(rdzv_backend)},
    {.name = "rdzv-conf",
     .kind = OPT_CUSTOM,
     .metavar = "K=V,...",
     .example = "timeout=900",
     .group = "Finding each other",
     .help = "settings of the rendezvous, as torchrun has them",
     .more = "Its join_timeout, else its timeout, in whole seconds, stands for --rdzv-timeout where that is not "
             "given; last_call_timeout for --last-call; keep_alive_interval times keep_alive_max_attempt for "
             "--heartbeat. For an etcd protocol=https, cacert, cert, key (ca_cert, ssl_cert, ssl_cert_key with etcd-v2) and "
             "etcd_prefix count. Other keys of torchrun's are accepted and have no effect.",
     .parse = torchrun_parse_conf,
     FIELD(rdzv_conf)},

    {.name = "key-file",
     .kind = OPT_STRING,
     .metavar = "FILE",
     .example = "~/.ddrun.key",
     .group = "Security",
     .help = "file with the job's secret, readable by you alone",
     .more = "Without it the first of these that is there: the variable DDRUN_KEY, a secret of ddrun's own launcher, "
             "MUNGE, a file in a shared home directory. A secret that looks easy to guess is refused: 'openssl rand -hex 32' "
             "makes a good one.",
     FIELD(key_file)},
    {.name = "key-source",
     .kind = OPT_STRING,
     .metavar = "NAME",
     .def = "auto",
     .choices = "auto,pbs-cookie",
     .group = "Security",
     .help = "where the key comes from if none is given",
     .more = "'pbs-cookie' takes PBS_JOBCOOKIE, for PBS clusters without MUNGE and without a shared home directory. It is not "
             "secret: a user with a job on the same node can compute it, join the job and read its environment.",
     FIELD(key_source)},
    {.name = "munge-socket",
     .kind = OPT_STRING,
     .metavar = "PATH",
     .def_doc = "munge's own",
     .example = "/run/munge/munge.socket.2",
     .group = "Security",
     .help = "socket of the MUNGE daemon",
     FIELD(munge_socket)},
    {.name = "insecure",
     .kind = OPT_FLAG,
     .group = "Security",
     .help = "no key and no encryption: whoever reaches the port can join",
     FIELD(insecure)},

    {.name = "max-restarts",
     .common = true,
     .kind = OPT_CUSTOM,
     .metavar = "N[/TIME]",
     .def_doc = "0",
     .example = "3",
     .group = "Failures",
     .help = "start all workers again after a failure, at most N times",
     .more = "With a time, as in 3/1h, at most N times within any such time, for as long as the job "
             "runs. A lost node costs a job with --nnodes=MIN:MAX no restart.",
     .parse = parse_restarts,
     FIELD(max_restarts)},
    {.name = "rejoin-timeout",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "30s",
     .min = 0,
     .max = INT64_C(86400000000000),
     .example = "2m",
     .group = "Failures",
     .help = "how long to wait for a lost node where too few are left",
     FIELD(rejoin_timeout)},
    {.name = "grow",
     .kind = OPT_STRING,
     .metavar = "WHEN",
     .def = "next",
     .choices = "next,now,no",
     .group = "Failures",
     .help = "with --nnodes=MIN:MAX: when a node that comes late takes part",
     .more = "'next': when all workers are started again for another reason; 'now': all workers are "
             "stopped and started again with it; 'no': only in the place of a lost one.",
     FIELD(grow)},
    {.name = "heartbeat",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "5s",
     .min = 100000000,
     .max = INT64_C(3600000000000),
     .example = "20s",
     .group = "Failures",
     .help = "a node that says nothing for this long is lost",
     FIELD(heartbeat)},
    {.name = "exit-code",
     .kind = OPT_STRING,
     .metavar = "HOW",
     .def = "first",
     .choices = "first,1",
     .group = "Failures",
     .help = "after a failure: the code of the worker that failed first, or 1",
     .more = "1 is torchrun's way, and the default where ddrun is called by that name.",
     FIELD(exit_code)},
    {.name = "report",
     .kind = OPT_STRING,
     .metavar = "FILE",
     .example = "report.json",
     .group = "Failures",
     .help = "write how the job went to FILE, as JSON",
     .more = "Also after success. The first node that is left writes it, in one piece, at the end. What is "
             "in it: docs/report.md.",
     FIELD(report)},

    {.name = "notify",
     .kind = OPT_STRING,
     .metavar = "URL",
     .example = "https://hooks.example.org/ddrun",
     .group = "Failures",
     .help = "tell a web hook what happens in the job",
     .more = "One POST of a JSON object for each event, with a sentence for people in \"text\": a round begins, a worker "
             "fails, a node is lost, the job is over. An event that could not be delivered is sent again. The job does not wait "
             "for that; only its end does, for at most 2 seconds. A bearer token goes into the variable DDRUN_NOTIFY_TOKEN; a URL that is "
             "a secret into DDRUN_NOTIFY. The fields: docs/notify.md.",
     FIELD(notify)},

    {.name = "health",
     .kind = OPT_CUSTOM,
     .metavar = "WHAT,...",
     .def = "gpu,ib",
     .example = "gpu,ib,shm,disk",
     .group = "Unfit nodes and hung workers",
     .help = "what is looked at on each node before each round: gpu, ib, shm, disk, all or none",
     .more = "gpu: as many GPUs answer as the job uses on the node. ib: InfiniBand ports that were active at the "
             "start are so still. shm: 16 MiB are free in /dev/shm. disk: a file can be written where TMPDIR says. "
             "A node that is not fit is named and left out; when too few are left, the job ends.",
     .parse = parse_health,
     FIELD(health)},
    {.name = "health-check",
     .kind = OPT_STRING,
     .metavar = "CMD",
     .example = "'nvidia-smi -L'",
     .group = "Unfit nodes and hung workers",
     .help = "shell command that must exit 0 for the node to be used",
     .more = "It runs on each node before each round. Otherwise the last line that it writes is the reason.",
     FIELD(health_check)},
    {.name = "health-timeout",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "60s",
     .min = 1000000,
     .max = INT64_C(3600000000000),
     .group = "Unfit nodes and hung workers",
     .help = "how long --health-check may take, and the checks of --health before it; then they have failed",
     FIELD(health_timeout)},
    {.name = "hang-timeout",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "0",
     .def_doc = "never",
     .min = 0,
     .max = INT64_C(31536000000000000),
     .example = "10m",
     .group = "Unfit nodes and hung workers",
     .help = "end a worker that gives no sign of life for so long",
     .more = "This is a failure like any other. What the worker was doing is told: its state in the "
             "kernel, and its Python stack where py-spy is in PATH. Then it gets SIGABRT, at which "
             "Python's faulthandler writes its stacks, and SIGKILL 10 s later. Time in which ddrun or "
             "the worker is stopped does not count.",
     FIELD(hang_timeout)},
    {.name = "hang-sign",
     .kind = OPT_STRING,
     .metavar = "WHAT",
     .def = "any",
     .choices = "output,file,any",
     .needs = "hang-timeout",
     .group = "Unfit nodes and hung workers",
     .help = "sign of life: what the worker writes, a touch of its file, either",
     .more = "The file's path is in the variable DDRUN_HEARTBEAT_FILE; a training loop may call "
             "os.utime(os.environ[\"DDRUN_HEARTBEAT_FILE\"]) in each step. In a container that path leads nowhere: "
             "there os.utime(int(os.environ[\"DDRUN_HEARTBEAT_FD\"])) touches the same file, which the worker has "
             "open. To see output, ddrun takes it through a pipe.",
     FIELD(hang_sign)},
    {.name = "on-hang",
     .kind = OPT_STRING,
     .metavar = "CMD",
     .example = "'gcore $DDRUN_HUNG_PID'",
     .needs = "hang-timeout",
     .group = "Unfit nodes and hung workers",
     .help = "shell command to run before a hung worker is killed",
     .more = "Instead of py-spy and SIGABRT, for at most 60 s. DDRUN_HUNG_PID and DDRUN_HUNG_RANK "
             "name the worker; what the command writes is told.",
     FIELD(on_hang)},

    {.name = "timeout",
     .common = true,
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "0",
     .def_doc = "never",
     .min = 0,
     .max = INT64_C(31536000000000000),
     .example = "2h",
     .group = "Signals and the end",
     .help = "stop the job after TIME, with exit code 124",
     .more = "As with mpirun's option of this name; 124 is timeout(1)'s code. The workers get SIGTERM, and SIGKILL after "
             "--shutdown-timeout. The time counts from the start of ddrun on the first node (with an etcd, on the one that "
             "becomes the host), the wait for the others included; a node that has not found it by then stops, too.",
     FIELD(timeout)},
    {.name = "shutdown-timeout",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "30s",
     .min = 0,
     .max = INT64_C(86400000000000),
     .env = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
     .group = "Signals and the end",
     .help = "time that workers have between SIGTERM and SIGKILL",
     .more = "Under PBS it is 8s when nothing is said, as PBS kills what is left 10 s after its own SIGTERM.",
     FIELD(shutdown_timeout)},
    {.name = "signal-before-end",
     .kind = OPT_CUSTOM,
     .metavar = "SIG@TIME",
     .example = "USR1@120",
     .group = "Signals and the end",
     .help = "send SIG to all workers so long before the allocation ends",
     .more = "USR1 and USR2 go to workers that catch them, once to each, also to those that are restarted "
             "later; they end nothing. TERM, INT, HUP and QUIT "
             "end the job, as if they were sent to ddrun. When the allocation ends is asked of the "
             "scheduler once (squeue, qstat, bjobs, oarstat, flux), unless SLURM_JOB_END_TIME, COBALT_ENDTIME or TORQUE's PBS_WALLTIME says it. "
             "PBS' own `qsig -s USR1` reaches the workers of all nodes too, but it ends a script that runs under a login "
             "shell, and the job with it; for that, submit ddrun itself: qsub ... -- /PATH/OF/ddrun ...",
     .parse = parse_signal_at,
     FIELD(signal_before_end)},
    {.name = "requeue-on",
     .kind = OPT_CUSTOM,
     .metavar = "WHY,...",
     .example = "preempt,timeout",
     .group = "Signals and the end",
     .help = "let the scheduler start the job again: preempt, timeout, node-loss",
     .more = "See REQUEUE.",
     .parse = parse_requeue,
     FIELD(requeue_on)},
    {.name = "signals-to-handle",
     .kind = OPT_CUSTOM,
     .metavar = "NAMES",
     .def = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     .group = "Signals and the end",
     .help = "signals to ddrun that end the job",
     .more = "Those of the default end it in any case; SIGUSR1 and SIGUSR2, which else only reach the workers, "
             "where they are named. Other signals do to ddrun what they do to any program.",
     .parse = torchrun_parse_signals,
     FIELD(signals)},

    {.name = "output",
     .kind = OPT_CUSTOM,
     .metavar = "lines|labels|raw",
     .def = "lines",
     .group = "Output",
     .help = "pass on whole lines, lines with the rank in front, or raw bytes",
     .more = "Lines of several workers never mix. On a terminal, rank 0 keeps a terminal for its output, as progress bars "
             "and debuggers need it. With 'raw', workers write to ddrun's stdout and stderr themselves, and a report of a "
             "failure has none of their lines. See OUTPUT.",
     .parse = parse_output,
     FIELD(output)},
    {.name = "label",
     .common = true,
     .letter = 'l',
     .kind = OPT_FLAG,
     .group = "Output",
     .help = "put the rank in front of each line, as --output=labels",
     FIELD(label)},
    {.name = "log-dir",
     .common = true,
     .kind = OPT_STRING,
     .metavar = "DIR",
     .example = "logs",
     .group = "Output",
     .help = "write the output of each worker to files in DIR, too",
     .more = "--redirects and --tee choose streams and workers; called as torchrun, only they log. See FILES.",
     FIELD(log_dir)},
    {.name = "redirects",
     .letter = 'r',
     .kind = OPT_STRING,
     .metavar = "WHAT",
     .def_doc = "0",
     .example = "3",
     .group = "Output",
     .help = "what goes to files only: 0 nothing, 1 stdout, 2 stderr, 3 both",
     .more = "Or per local rank, as in 0:1,1:3.",
     FIELD(redirects)},
    {.name = "tee",
     .common = true,
     .letter = 't',
     .kind = OPT_STRING,
     .metavar = "WHAT",
     .def_doc = "0",
     .example = "3",
     .group = "Output",
     .help = "what goes to files and to the terminal: 1 stdout, 2 stderr, 3 both",
     FIELD(tee)},
    {.name = "local-ranks-filter",
     .kind = OPT_STRING,
     .metavar = "RANKS",
     .example = "0,1",
     .group = "Output",
     .help = "only these local ranks write to the terminal",
     FIELD(local_ranks_filter)},
    {.name = "duplicate-stdout-filters",
     .kind = OPT_STRING,
     .metavar = "TEXTS",
     .example = "loss,accuracy",
     .needs = "tee",
     .group = "Output",
     .help = "--tee: lines of stdout with one of these also go to filtered_stdout.log",
     .more = "The file lies in the directory of the attempt and has the lines of all workers of the node. "
             "Texts are separated by commas; a comma in one is written twice.",
     FIELD(stdout_filters)},
    {.name = "duplicate-stderr-filters",
     .kind = OPT_STRING,
     .metavar = "TEXTS",
     .example = "Error,Warning",
     .needs = "tee",
     .group = "Output",
     .help = "the same for stderr and filtered_stderr.log",
     FIELD(stderr_filters)},
    {.name = "log-level",
     .common = true,
     .kind = OPT_STRING,
     .metavar = "LEVEL",
     .def = "notice",
     .choices = "error,warning,notice,info,debug",
     .group = "Output",
     .help = "how much ddrun itself says",
     FIELD(log_level)},

    {.name = "ssh-port",
     .letter = 'p',
     .kind = OPT_CUSTOM,
     .parse = parse_ssh_port,
     .metavar = "PORT",
     .example = "22",
     .no_env = true,
     .hidden = true,
     .group = "Without effect, for horovodrun's sake",
     .help = "--launch-command has the words of ssh",
     FIELD(ssh_words)},
    {.name = "ssh-identity-file",
     .letter = 'i',
     .kind = OPT_STRING,
     .metavar = "FILE",
     .no_env = true,
     .hidden = true,
     .group = "Without effect, for horovodrun's sake",
     .help = "--launch-command has the words of ssh",
     FIELD(ssh_words)},
    {.name = "monitor-interval",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "0.1",
     .min = 0,
     .max = INT64_MAX,
     .group = "Without effect, for torchrun's sake",
     .help = "every exit is seen at once",
     FIELD(monitor_interval)},
    {.name = "start-method",
     .kind = OPT_STRING,
     .metavar = "HOW",
     .def = "spawn",
     .choices = "spawn,fork,forkserver",
     .group = "Without effect, for torchrun's sake",
     .help = "each worker is started as a program of its own",
     FIELD(start_method)},
    {.name = "event-log-handler",
     .kind = OPT_STRING,
     .metavar = "NAME",
     .def = "null",
     .group = "Without effect, for torchrun's sake",
     .help = "there are no torchelastic events",
     FIELD(event_log_handler)},
    {.name = "logs-specs",
     .kind = OPT_CUSTOM,
     .metavar = "NAME",
     .example = "default",
     .group = "Without effect, for torchrun's sake",
     .help = "only 'default': others would be Python code",
     .parse = torchrun_parse_logs_specs,
     FIELD(logs_specs)},
};

const struct opt_table ddrun_options = {
    .program = "ddrun",
    .version = PACKAGE_VERSION,
    .usage = "[options] SCRIPT [ARG...]",
    .about = "Starts the workers of a distributed training job on every node of the job that a scheduler "
             "(Slurm, PBS and others) runs, or on this machine, and looks after them until the end.",
    .epilog = "Examples:\n"
              "  ddrun --nproc-per-node=4 train.py --epochs 3\n"
              "  ddrun --launcher=ssh --hosts='node[1-4]' train.py\n"
              "  ddrun --simulate-nodes=2 --nproc-per-node=2 train.py\n",
    .foreign = foreign_options,
    .env_prefixes = "DDRUN_,PET_",
    .env_more = "DDRUN_KEY,DDRUN_NODES,DDRUN_ROUND",
    /* torchrun's, so that its abbreviations stay what they are. Src: torch 2.13.0 */
    .first = "duplicate-stderr-filters,duplicate-stdout-filters,event-log-handler,help,local-addr,"
             "local-ranks-filter,log-dir,logs-specs,master-addr,master-port,max-restarts,module,"
             "monitor-interval,nnodes,no-python,node-rank,nproc-per-node,numa-binding,rdzv-backend,"
             "rdzv-conf,rdzv-endpoint,rdzv-id,redirects,role,run-path,shutdown-timeout,"
             "signals-to-handle,standalone,start-method,tee,virtual-local-rank",
    OPT_ROWS(rows),
};
