/* alloc: options, host files and artificial environments; recorded ones are in
 * test_alloc_recorded.c. */
#include "alloc/alloc.h"
#include "alloc/alloc_inner.h"
#include "base/buf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "failing_alloc.h"

char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
int __real_vasprintf(char **ret, const char *fmt, va_list ap);
int __real___vasprintf_chk(char **ret, int flag, const char *fmt, va_list ap);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_vasprintf(char **ret, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
int __wrap___vasprintf_chk(char **ret, int flag, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

char *__wrap_strdup(const char *s)
{
    return failing() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return failing() ? NULL : __real_strndup(s, n);
}

int __wrap_vasprintf(char **ret, const char *fmt, va_list ap)
{
    return failing() ? -1 : __real_vasprintf(ret, fmt, ap);
}

int __wrap___vasprintf_chk(char **ret, int flag, const char *fmt,
                           va_list ap) /* called with _FORTIFY_SOURCE */
{
    return failing() ? -1 : __real___vasprintf_chk(ret, flag, fmt, ap);
}

/* ---- inputs ---- */

static int read_file(const char *path, struct dd_buf *out, struct dd_err *err)
{
    static const struct {
        const char *path;
        const char *text;
    } files[] = {
        {"plain", "node1\nnode2\n"},
        {"rich",
         "# two racks\n\n  r1n[1-2] slots=4 # first\r\nr2n1\tslots=8 max_slots=8\nr2n2:8\nr1n1"},
        {"word", "node1\nnode2 gpus=4\n"},
        {"list", "node1\nnode[2\n"},
        {"comment", "# nothing\n"},
        {"/var/spool/pbs/aux/7.srv", "node1.site\nnode1.site\nnode2.site\n"},
        {"/nodes", "node1.site\nnode2.site\n"},
        {"/first", "node2.site\nnode3.site\n"},
        {"/far", "far-a\nfar-b\n"},
        {"/var/spool/torque/aux/7-2.srv", "node1.site\nnode2.site\nnode2.site\n"},
        {"/gpus", "node2.site-gpu3\nnode1.site-gpu0\nnode2-gpu1\r\n\nnode2.site-gpu3\n"},
        {"/gpus-of-one", "NODE2-gpu12"},
        {"/gpus-of-none", "\n"},
        {"/gpus-of-slots", "node1\nnode2\n"},
        {"/gpus-without-number", "node1-gpu0\nnode1-gpu\n"},
        {"/gpus-of-others", "node1-gpu0\nnode7-gpu0\n"},
        {"/gpus-with-more", "node1-gpu0 exclusive\n"},
        {"/rack", "rack-gpu1-n2\nnode2\n"},
        {"/rack-gpus", "rack-gpu1-n2-gpu0\n"},
        {"/alone", "node1.site\nnode1.site\n"},
        {"/slots", "node1\nnode1\nnode2\nnode1\n"},
        {"/csm", "batch1\nnode1\nnode2\nnode3\n"},
        {"/pe",
         "node1.site 4 all.q@node1 UNDEFINED\nnode2.site 4 all.q@node2 0,1\nnode1.site 2 big.q@node1 0\n"},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (strcmp(path, files[i].path) == 0) {
            int rc = dd_buf_puts(out, files[i].text);
            return rc < 0 ? dd_err_set(err, rc, "out of memory") : 0;
        }
    return dd_err_set(err, -ENOENT, "cannot open '%s': No such file or directory", path);
}

static char addr_text[][16] = {"127.0.0.1", "10.0.0.2", "fe80::2", "2001:db8::2"};

static char *const *addresses(void *machine)
{
    static char *addrs[] = {addr_text[0], addr_text[1], addr_text[2], addr_text[3], NULL};
    (void)machine;
    return addrs;
}

/* Environment and options of a process on node2, 10.0.0.2. */
struct said {
    const char *env; /* separated by spaces */
    int min, max;
    int rank; /* --node-rank + 1; 0: not set */
    const char *master_addr;
    int master_port;
    const char *endpoint;
    const char *id;
    const char *hosts;
    const char *hostfile;
    char *const *command;
};

static struct alloc_input input(const struct said *s, struct dd_strv *env)
{
    if (s->env != NULL)
        assert_int_equal(dd_strv_split(env, s->env, " "), 0);
    return (struct alloc_input){.env = env->v,
                                .hostname = "node2",
                                .local_addrs = addresses,
                                .read_file = read_file,
                                .min_nodes = s->min,
                                .max_nodes = s->max,
                                .node_rank = s->rank - 1,
                                .master_addr = s->master_addr,
                                .master_port = s->master_port,
                                .rdzv_endpoint = s->endpoint,
                                .rdzv_id = s->id,
                                .hosts = s->hosts,
                                .hostfile = s->hostfile,
                                .command = s->command,
                                .nonce = 0xabc};
}

static void assert_refused(const struct said *s, const char *text)
{
    DD_AUTO(strv) struct dd_strv env = {0};
    struct alloc *a = NULL;
    struct dd_err err = {.text = ""};
    struct alloc_input in = input(s, &env);
    int rc = alloc_find(&a, &in, &err);
    if (rc >= 0)
        fail_msg("not refused with \"%s\"", text);
    assert_null(a);
    if (strstr(err.text, text) == NULL)
        fail_msg("\"%s\"\n does not say\n\"%s\"", err.text, text);
    const char *lf = strchr(err.text, '\n');
    assert_true(lf == NULL || strncmp(lf, "\n  tip: ", 8) == 0);
}

static struct alloc *found(const struct said *s)
{
    DD_AUTO(strv) struct dd_strv env = {0};
    struct alloc *a = NULL;
    struct dd_err err = {.text = ""};
    struct alloc_input in = input(s, &env);
    if (alloc_find(&a, &in, &err) != 0)
        fail_msg("%s", err.text);
    return a;
}

static void assert_nodes(const struct alloc *a, const char *expr)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1 << 20);
    assert_int_equal(hostlist_fold(a->nodes, &b), 0);
    assert_string_equal(dd_buf_str(&b), expr);
}

/* A '*' in the pattern stands for the 16 digits of a hash. */
static void assert_matches(const char *text, const char *pattern)
{
    const char *star = strchr(pattern, '*');
    if (star == NULL) {
        assert_string_equal(text, pattern);
        return;
    }
    size_t before = (size_t)(star - pattern);
    assert_int_equal(strncmp(text, pattern, before), 0);
    assert_int_equal(strspn(text + before, "0123456789abcdef"), 16);
    assert_string_equal(text + before + 16, star + 1);
}

/* The environment of a Slurm step of 2 nodes on node2. */
#define STEP_OF(nodes, tasks)                                                                      \
    "SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_PROCID=1 SLURM_NODEID=1 SLURM_LOCALID=0 "               \
    "SLURM_STEP_NODELIST=" nodes " SLURM_STEP_TASKS_PER_NODE=" tasks
#define STEP STEP_OF("node[1-2]", "1(x2)")
#define FOUR STEP_OF("node[1-4]", "1(x4)")
/* The environment of a PBS task on node2, the second of two hosts; the script is on the first. */
#define TASK "PBS_JOBID=7.srv PBS_NODENUM=1 PBS_TASKNUM=40000001 PBS_NODEFILE=/nodes"
#define SCRIPT "PBS_JOBID=7.srv PBS_NODENUM=0 PBS_TASKNUM=1"

/* ---- spare nodes of a list ---- */

static void node_rank_may_name_a_spare_node_of_a_list(void **state)
{
    (void)state;
    DD_AUTO(strv) struct dd_strv env = {0};
    DD_AUTO(alloc) struct alloc *a = NULL;
    struct dd_err err = {.text = ""};
    struct alloc_input in = input(
        &(struct said){.hosts = "node[1-4]", .min = 3, .max = 3, .rank = 4}, &env);
    in.spares = true;
    assert_int_equal(alloc_find(&a, &in, &err), 0);
    assert_int_equal(a->index, 3);
    assert_int_equal(a->nnodes, 4);
}

/* ---- rejected input ---- */

static void options_are_refused_with_a_sentence(void **state)
{
    (void)state;
    static const struct {
        struct said said;
        const char *text;
    } rows[] = {
        /* clang-format off */
        {{.min = 3, .max = 2}, "--nnodes=3:2 is not a range of nodes"},
        {{.min = 1, .max = 99999}, "--nnodes=1:99999 is not a range of nodes from 1 to 65536"},
        {{.min = 2, .max = 2}, "--nnodes=2, but no other node is known\n  tip: "},
        {{.min = 2, .max = 2, .master_port = 29500}, "--nnodes=2, but no other node is known"},
        {{.min = 2, .max = 2, .rank = 3, .master_addr = "node1"},
         "--node-rank=2 is out of range for --nnodes=2"},
        {{.rank = 2, .master_addr = "node1"},
         "--node-rank=1 is out of range for 1 node\n  tip: set --nnodes"},
        {{.min = 2, .max = 2, .rank = 2},
         "--node-rank=1 needs the address of node 0\n  tip: add --master-addr=HOST or --rdzv-endpoint="},
        {{.master_port = 65536}, "--master-port=65536 is not a port from 1 to 65535"},
        {{.id = ""}, "invalid value '' for --rdzv-id"},
        {{.min = 2, .max = 2, .endpoint = "node1:0"},
         "invalid endpoint 'node1:0': port 0"},
        {{.min = 2, .max = 2, .endpoint = "node1:x"},
         "--rdzv-endpoint: invalid endpoint 'node1:x': expected HOST or HOST:PORT, such as node1:29400 or [fe80::1]:29400"},
        {{.min = 2, .max = 2, .endpoint = "node1:65536"}, "--rdzv-endpoint: invalid endpoint 'node1:65536'"},
        {{.min = 2, .max = 2, .endpoint = "node1:"}, "--rdzv-endpoint: invalid endpoint 'node1:'"},
        {{.min = 2, .max = 2, .endpoint = ":29400"}, "--rdzv-endpoint: invalid endpoint ':29400'"},
        {{.min = 2, .max = 2, .endpoint = ""}, "--rdzv-endpoint: invalid endpoint ''"},
        {{.min = 2, .max = 2, .endpoint = "[fe80::1"}, "--rdzv-endpoint: invalid endpoint '[fe80::1'"},
        {{.min = 2, .max = 2, .endpoint = "[fe80::1]29400"}, "--rdzv-endpoint: invalid endpoint '[fe80::1]2"},
        {{.min = 2, .max = 2, .endpoint = "http://node1"}, "--rdzv-endpoint: invalid endpoint 'http://node1'"},
        {{.min = 2, .max = 2, .endpoint = "%eth0"}, "--rdzv-endpoint: invalid endpoint '%eth0'"},
        {{.min = 2, .max = 2, .rank = 1, .master_addr = "a b"}, "--master-addr: invalid endpoint 'a b'"},
        {{.env = STEP, .master_addr = "a b"}, "--master-addr: invalid endpoint 'a b'"},
        {{.hosts = "node[1-2", .id = "x"}, "--hosts: '[1-2' has an unmatched '['"},
        {{.hosts = ""}, "--hosts names no host"},
        {{.hosts = "node1,node3"}, "this host (node2) is not in --hosts (node[1,3])\n  tip: add --launcher=ssh"},
        {{.hosts = "node2,node2"}, "--hosts (node[2,2]) names this host (node2) more than once\n  tip: set --node-rank to this node's position in the list"},
        {{.hosts = "node2.a,node2.b"}, "more than once"},
        {{.hosts = "node[1-2]", .rank = 3}, "--node-rank=2 is out of range for the 2 hosts of --hosts"},
        {{.hosts = "node[1-2]", .min = 3, .max = 3},
         "--nnodes=3 contradicts the 2 nodes of this job (node[1-2], source: hosts)"},
        {{.hosts = "node2", .hostfile = "plain"}, "--hosts and --hostfile"},
        {{.hostfile = "missing"}, "--hostfile: cannot open 'missing'"},
        {{.hostfile = "word"},
         "--hostfile: word:2: invalid attribute 'gpus=4': expected a line NAME [slots=N]"},
        {{.hostfile = "list"}, "--hostfile: list:2: '[2' has an unmatched '['"},
        {{.hostfile = "comment"}, "--hostfile=comment names no host"},
        {{.env = FOUR, .min = 3, .max = 3},
         "--nnodes=3 contradicts the 4 nodes of this job (node[1-4], source: slurm-step)\n  tip: omit --nnodes, use --nnodes=3:3 to keep spare nodes, or use --nnodes=1 for this node alone"},
        {{.env = FOUR, .min = 2, .max = 3}, "--nnodes=2:3 contradicts the 4 nodes"},
        {{.env = FOUR, .min = 5, .max = 8}, "--nnodes=5:8 contradicts the 4 nodes"},
        {{.env = "LSB_JOBID=9 LSB_HOSTS=node2\tfar", .min = 3, .max = 3},
         "--nnodes=3 contradicts the 2 nodes of this job (node2,far, source: lsf)"},
        {{.env = FOUR, .rank = 1},
         "--node-rank=0 contradicts this host's rank, 1 in node[1-4]"},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_refused(&rows[i].said, rows[i].text);
}

/* Not that ddrun cannot start the other nodes: --nnodes would be wrong on each of them. */
static void tip_for_another_host_fits_a_job_of_slurm(void **state)
{
    (void)state;
    const struct said said = {.env = "SLURM_JOB_ID=7", .hosts = "node1,node3"};
    assert_refused(&said,
                   "this host (node2) is not in --hosts (node[1,3])\n  tip: omit the option: "
                   "ddrun uses the nodes of the Slurm job");
}

static void nnodes_of_another_size_is_refused_in_a_script(void **state)
{
    (void)state;
    static const struct {
        struct said said;
        const char *text;
    } rows[] = {
        {{.env = "SLURM_JOB_ID=12 SLURM_JOB_NODELIST=node[2-4]", .min = 2, .max = 2},
         "--nnodes=2 contradicts the 3 nodes of this job (node[2-4], source: slurm-batch)"},
        {{.env = "LSB_JOBID=9 LSB_DJOB_HOSTFILE=/slots", .min = 3, .max = 3},
         "--nnodes=3 contradicts the 2 nodes of this job (node[1-2], source: lsf)"},
        {{.env = SCRIPT " PBS_NODEFILE=/first", .min = 3, .max = 3},
         "--nnodes=3 contradicts the 2 nodes of this job (node[2-3].site, source: pbs)\n  tip: omit --nnodes, request the nodes with -l place=scatter, or use --nnodes=1 for this node alone"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_refused(&rows[i].said, rows[i].text);
}

static void variables_are_refused_with_their_name(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        const char *text;
    } rows[] = {
        /* clang-format off */
        {"SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_PROCID=1",
         "SLURM_STEP_ID is set, but SLURM_STEP_NODELIST is not"},
        {"SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_PROCID=1 SLURM_STEP_NODELIST=n1 "
         "SLURM_STEP_TASKS_PER_NODE=1", "SLURM_STEP_ID is set, but SLURM_NODEID is not"},
        {"SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_PROCID=1 SLURM_STEP_NODELIST=n1 "
         "SLURM_STEP_TASKS_PER_NODE=1 SLURM_NODEID=0", "but SLURM_LOCALID is not"},
        {"SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_PROCID=1 SLURM_STEP_NODELIST=n1 "
         "SLURM_STEP_TASKS_PER_NODE=1 SLURM_NODEID=1",
         "SLURM_NODEID=1 is not a number from 0 to 0"},
        {STEP_OF("node[1-2", "1(x2)"), "SLURM_STEP_NODELIST: '[1-2' has an unmatched '['"},
        {STEP_OF("node[1-99999]", "1"), "SLURM_STEP_NODELIST: host list 'node[1-99999]' has more than"},
        {STEP_OF("node[1-2]", "1(x3)"),
         "SLURM_STEP_TASKS_PER_NODE=1(x3) is for 3 nodes, but SLURM_STEP_NODELIST=node[1-2] has 2"},
        {STEP_OF("node[1-2]", "1(y2)"), "SLURM_STEP_TASKS_PER_NODE: '1(y2)' is not a list of tasks"},
        {STEP_OF("node[1-2]", "0(x2)"), "SLURM_STEP_TASKS_PER_NODE=0(x2) has no task on node SLURM_NODEID=1"},
        {STEP " SLURM_RESTART_COUNT=x", "SLURM_RESTART_COUNT=x is not a number from 0"},
        {STEP " SLURM_STEP_RESV_PORTS=21001-x", "SLURM_STEP_RESV_PORTS: '21001-x' is not a list of"},
        {"SLURM_JOB_ID=../12 SLURM_JOB_NODELIST=node2", "SLURM_JOB_ID=../12 is not a valid job id"},
        {"SLURM_JOB_ID=12 SLURM_JOB_NODELIST=node[", "SLURM_JOB_NODELIST: '[' has an unmatched '['"},
        {"PBS_JOBID=../x", "PBS_JOBID=../x is not a valid job id"},
        {"PBS_JOBID=8.srv PBS_TASKNUM=00000002 PBS_NODENUM=0",
         "cannot read the node file of job 8.srv on this host (cannot open '/var/spool/pbs/aux/8.srv': No such file or directory)\n  tip: name the nodes with --hosts=LIST or --hostfile=FILE"},
        {"PBS_JOBID=7.srv PBS_NODEFILE=word PBS_TASKNUM=00000002", "word:2: invalid attribute 'gpus=4'"},
        {"PBS_JOBID=7.srv PBS_NODEFILE=comment PBS_TASKNUM=00000002", "the node file comment of job "
                                                                    "7.srv is empty"},
        {"LSB_JOBID=9 LSB_DJOB_HOSTFILE=/slots", "ddrun was started once, from the script of a job of LSF with 2 nodes "
         "(node[1-2]), and cannot start the others\n  tip: check that blaunch is in PATH"},
        {"JOB_ID=3 SGE_ROOT=/sge PE_HOSTFILE=/pe", "of Grid Engine with 2 nodes (node[1-2].site)"},
        {"COBALT_JOBID=6 COBALT_PARTNAME=3-x PMI_RANK=0", "COBALT_PARTNAME=3-x is not a list of node numbers"},
        {"COBALT_JOBID=6 COBALT_PARTNAME=3-4,7 PMI_RANK=0", "this host (node2) is not a node of this job of "
         "Cobalt (nid[00003-00004,00007])"},
        {"LSB_JOBID=../9 LSB_MCPU_HOSTS=a", "LSB_JOBID=../9 is not a valid job id"},
        {"FLUX_JOB_ID=f2 FLUX_JOB_NNODES=2", "Flux job of 2 nodes"},
        {TASK " PALS_RANKID=3 PALS_LOCAL_SIZE=2",
         "mpiexec started 2 copies of ddrun on this node (PALS_LOCAL_SIZE); it needs one per node\n  tip: run: mpiexec -n 2 --ppn 1 "
         "--cpu-bind none ddrun --nproc-per-node=2"},
        {TASK " PALS_RANKID=0 PALS_LOCAL_SIZE=1 PMI_SIZE=1", "mpiexec started 1 copy of ddrun (PMI_SIZE), but the job has 2 nodes (node[1-2].site)\n  tip: run: mpiexec -n 2 --ppn 1 --cpu-bind none ddrun ..., or name the nodes to use with --hosts=LIST"},
        {"LSB_JOBID=9 LSB_DJOB_HOSTFILE=/slots JSM_NAMESPACE_RANK=3 JSM_NAMESPACE_SIZE=8 JSM_NAMESPACE_LOCAL_SIZE=4",
         "jsrun started 4 copies of ddrun on this node (JSM_NAMESPACE_LOCAL_SIZE); it needs one per node\n  tip: run: jsrun -n 2 -r 1 -a 1 "
         "-c ALL_CPUS -g ALL_GPUS ddrun --nproc-per-node=4"},
        {"COBALT_JOBID=6 COBALT_PARTNAME=3-4", "from the script of a job of Cobalt with 2 nodes (nid[00003-00004]), and cannot start the others\n  tip: check that aprun is in PATH"},
        {"FLUX_ENCLOSING_ID=f1 FLUX_URI=local:///x", "in the script of a Flux job (FLUX_ENCLOSING_ID), no variable names the nodes\n  tip: run: ddrun --launcher=flux --hosts=\"$(flux hostlist local)\""},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_refused(&(struct said){.env = rows[i].env}, rows[i].text);
}

/* ---- results ---- */

static const struct {
    struct said said;
    const char *source;
    const char *job_id;
    const char *run_id;
    const char *nodes;
    int index;
    int nnodes;
    const char *host_addr;
    uint16_t port; /* 0: none */
} said_and_found[] = {
    /* clang-format off */
    {{0}, "local", "local.node2.0000000000000abc", "0000000000000abc", "node2", 0, 1, NULL, 0},
    {{.min = 1, .max = 4}, "local", "local.node2.0000000000000abc", "0000000000000abc", "node2",
     0, 1, NULL, 0},
    {{.master_port = 4000, .id = "run 7"}, "local",
     "local.node2.0000000000000abc.*", "run 7", "node2", 0, 1, NULL, 4000},
    /* torchrun's static rendezvous */
    {{.min = 2, .max = 2, .rank = 2, .master_addr = "node1"}, "explicit", "explicit.29500", "none",
     "node1", 1, 2, "node1", 29500},
    {{.min = 2, .max = 2, .rank = 1, .master_addr = "10.0.0.2", .master_port = 1234}, "explicit",
     "explicit.1234", "none", "node2", 0, 2, "10.0.0.2", 1234},
    {{.min = 2, .max = 2, .rank = 1}, "explicit", "explicit.29500", "none", "node2", 0, 2, NULL,
     29500},
    {{.min = 1, .max = 1, .rank = 1, .master_addr = "127.0.0.1", .master_port = 29501}, "explicit",
     "explicit.29501.0000000000000abc", "none", "node2", 0, 1, "127.0.0.1", 29501},
    {{.master_addr = "127.0.0.1"}, "endpoint", "explicit.29500.0000000000000abc", "none", "node2",
     0, 1, "127.0.0.1", 29500},
    {{.min = 2, .max = 2, .master_addr = "node1"}, "endpoint", "explicit.29500", "none", "node1",
     -1, 2, "node1", 29500},
    /* torchrun's c10d rendezvous */
    {{.min = 4, .max = 4, .endpoint = "node1", .id = "77"}, "explicit", "explicit.29400.77", "77",
     "node1", -1, 4, "node1", 29400},
    {{.min = 2, .max = 4, .endpoint = "NODE2.site:99"}, "explicit", "explicit.99", "none",
     "node2", 0, 4, "NODE2.site", 99},
    {{.min = 2, .max = 2, .endpoint = "[2001:db8:0::2]:99"}, "explicit", "explicit.99", "none",
     "node2", 0, 2, "2001:db8:0::2", 99},
    {{.min = 2, .max = 2, .endpoint = "fe80::1%eth0"}, "explicit", "explicit.29400", "none",
     "fe80::1", -1, 2, "fe80::1%eth0", 29400},
    {{.min = 2, .max = 2, .endpoint = "node1", .master_addr = "ignored", .master_port = 5},
     "explicit", "explicit.5", "none", "node1", -1, 2, "node1", 5},
    {{.min = 2, .max = 2, .rank = 2, .endpoint = "node2"}, "explicit", "explicit.29400", "none",
     "node2", 1, 2, "node2", 29400},
    {{.min = 1, .max = 1, .endpoint = "localhost:0"}, "explicit",
     "explicit.0.0000000000000abc", "none", "node2", 0, 1, "localhost", 0},
    {{.endpoint = "daemon.site:29400"}, "endpoint", "explicit.29400", "none", "daemon.site", -1, 1,
     "daemon.site", 29400},
    /* lists */
    {{.hosts = "node[1-3]"}, "hosts", "hosts.*", "none", "node[1-3]", 1, 3, NULL, 0},
    {{.hosts = "10.0.0.[1-3]", .id = "a"}, "hosts", "hosts.*.a", "a",
     "10.0.0.[1-3]", 1, 3, NULL, 0},
    {{.hosts = "a,b,c", .rank = 3, .master_addr = "10.9.9.9", .master_port = 6}, "hosts",
     "hosts.*", "none", "a,b,c", 2, 3, "10.9.9.9", 6},
    {{.hosts = "node2.a,node2"}, "hosts", "hosts.*", "none", "node2.a,node2", 1, 2,
     NULL, 0},
    {{.hosts = "node[1-3]", .min = 1, .max = 1}, "hosts", "hosts.*.n1", "none",
     "node2", 0, 1, NULL, 0},
    {{.hostfile = "plain", .env = FOUR}, "hostfile", "hosts.*", "none", "node[1-2]",
     1, 2, NULL, 0},
    {{.hostfile = "rich", .rank = 4, .min = 4, .max = 4}, "hostfile", "hosts.*",
     "none", "r[1-2]n[1-2]", 3, 4, NULL, 0},
    /* Slurm steps */
    {{.env = STEP " SLURM_RESTART_COUNT=2"}, "slurm-step", "slurm.12.3.r2", "12", "node[1-2]", 1,
     2, NULL, 0},
    {{.env = STEP, .master_port = 777, .id = "x"}, "slurm-step", "slurm.12.3.r0.x", "x",
     "node[1-2]", 1, 2, NULL, 777},
    {{.env = STEP, .master_addr = "node1-ib", .min = 2, .max = 2}, "slurm-step", "slurm.12.3.r0",
     "12", "node[1-2]", 1, 2, "node1-ib", 0},
    {{.env = STEP, .endpoint = "node1-ib"}, "slurm-step", "slurm.12.3.r0", "12", "node[1-2]", 1, 2,
     "node1-ib", 29400},
    {{.env = FOUR, .min = 2, .max = 8}, "slurm-step", "slurm.12.3.r0", "12", "node[1-4]", 1, 4,
     NULL, 0},
    {{.env = FOUR, .min = 1, .max = 1}, "slurm-step", "slurm.12.3.r0.n1", "12", "node2", 0, 1, NULL,
     0},
    {{.env = FOUR, .rank = 2}, "slurm-step", "slurm.12.3.r0", "12", "node[1-4]", 1, 4, NULL, 0},
    {{.env = FOUR, .min = 4, .max = 4, .rank = 4, .master_addr = "node1"}, "explicit",
     "explicit.29500", "none", "node1", 3, 4, "node1", 29500},
    {{.env = FOUR, .min = 4, .max = 4, .endpoint = "node1:1"}, "explicit", "explicit.1", "none",
     "node1", -1, 4, "node1", 1},
    /* the interactive step of salloc is treated as the batch script */
    {{.env = "SLURM_JOB_ID=5 SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_JOB_NODELIST=node2"},
     "slurm-batch", "slurm.5.batch.r0", "5", "node2", 0, 1, NULL, 0},
    {{.env = "SLURM_JOB_ID=5 SLURM_NODELIST=node2.site"}, "slurm-batch", "slurm.5.batch.r0", "5",
     "node2.site", 0, 1, NULL, 0},
    /* PBS */
    {{.env = TASK}, "pbs", "pbs.7.srv", "7.srv", "node[1-2].site", 1, 2, NULL, 0},
    {{.env = SCRIPT " PMI_RANK=1"}, "pbs", "pbs.7.srv", "7.srv", "node[1-2].site", 1, 2, NULL, 0},
    {{.env = SCRIPT " PBS_NODEFILE=/nodes"}, "pbs", "pbs.7.srv", "7.srv", "node[1-2].site", 1, 2,
     NULL, 0},
    {{.env = "PBS_JOBID=7.srv"}, "pbs", "pbs.7.srv", "7.srv", "node[1-2].site", 1, 2, NULL, 0},
    {{.env = TASK " SLURM_JOB_ID="}, "pbs", "pbs.7.srv", "7.srv", "node[1-2].site", 1, 2, NULL, 0},
    {{.env = "LSB_JOBID=9 LSB_JOBINDEX=0 LSB_DJOB_HOSTFILE=/slots OMPI_COMM_WORLD_RANK=1"}, "lsf", "lsf.9", "9",
     "node[1-2]", 1, 2, NULL, 0},
    {{.env = "LSB_JOBID=9 LSB_JOBINDEX=4 LSB_DJOB_HOSTFILE=/csm JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=3"}, "lsf",
     "lsf.9.4", "9.4", "node[1-3]", 1, 3, NULL, 0},
    {{.env = "LSB_JOBID=9 LSB_MCPU_HOSTS=node2"}, "lsf", "lsf.9", "9", "node2", 0, 1, NULL, 0},
    {{.env = "JOB_ID=3 SGE_ROOT=/sge SGE_TASK_ID=undefined PE_HOSTFILE=/pe PMI_RANK=1"}, "sge", "sge.3", "3",
     "node[1-2].site", 1, 2, NULL, 0},
    {{.env = "JOB_ID=3 SGE_ROOT=/sge SGE_TASK_ID=7 RESTARTED=1 PE_HOSTFILE=/pe", .min = 1, .max = 1}, "sge", "sge.3.7.1.n1",
     "3.7.1", "node2.site", 0, 1, NULL, 0},
    {{.env = "JOB_ID=3 SGE_ROOT=/sge"}, "local", "local.node2.*", "0000000000000abc", "node2", 0, 1, NULL, 0},
    {{.env = "JOB_ID=3 PE_HOSTFILE=/pe"}, "local", "local.node2.*", "0000000000000abc", "node2", 0, 1, NULL, 0},
    {{.env = "OAR_JOB_ID=5 OAR_NODE_FILE=/slots PMIX_RANK=0"}, "oar", "oar.5", "5", "node[1-2]", 1, 2, NULL, 0},
    {{.env = "OAR_JOBID=5 OAR_ARRAY_INDEX=2 OAR_FILE_NODES=/slots PMIX_RANK=0"}, "oar", "oar.5.2", "5.2", "node[1-2]", 1, 2,
     NULL, 0},
    {{.env = "LSB_JOBID=9 LSB_HOSTS=node2"}, "lsf", "lsf.9", "9", "node2", 0, 1, NULL, 0},
    /* host names do not determine the node: the launcher's rank does, if each node has one process */
    {{.env = "LSB_JOBID=9 LSB_DJOB_HOSTFILE=/far JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_SIZE=1"}, "lsf",
     "lsf.9", "9", "far-a,far-b", 1, 2, NULL, 0},
    {{.env = "COBALT_JOBID=6 COBALT_PARTNAME=3-4,7 ALPS_APP_PE=2"}, "cobalt-xc", "cobalt-xc.6", "6", "nid[00003-00004,00007]",
     2, 3, NULL, 0},
    {{.env = "PBS_JOBID=7.srv PBS_NODEFILE=/far PBS_TASKNUM=1 PBS_NODENUM=0 PALS_RANKID=1 PALS_NODEID=1 PALS_LOCAL_SIZE=1 "
             "PMI_SIZE=2 PALS_APID=ab-12"}, "pbs", "pbs.7.srv.ab-12", "7.srv", "far-a,far-b", 1, 2, NULL, 0},
    {{.env = "PBS_VERSION=TORQUE-6.1.2 PBS_JOBID=7-2.srv PBS_TASKNUM=3 PBS_NODENUM=1 PBS_VNODENUM=2"}, "pbs", "pbs.7-2.srv",
     "7-2.srv", "node[1-2].site", 1, 2, NULL, 0},
    {{.env = "COBALT_JOBID=6 COBALT_NODEFILE=/slots PMI_RANK=0"}, "cobalt", "cobalt.6", "6", "node[1-2]", 1, 2, NULL, 0},
    {{.env = FOUR " FLUX_JOB_ID=f2 FLUX_JOB_NNODES=1"}, "local", "local.node2.*", "0000000000000abc", "node2", 0, 1, NULL, 0},
    {{.env = "FLUX_JOB_ID=f2 FLUX_JOB_NNODES=2 PMI_FD=5 PMI_RANK=1", .max = 1}, "local", "local.node2.*", "0000000000000abc",
     "node2", 0, 1, NULL, 0},
    {{.env = "FLUX_JOB_ID=f2 FLUX_JOB_NNODES=1"}, "local", "local.node2.*", "0000000000000abc", "node2", 0, 1, NULL, 0},
    /* clang-format on */
};

static void options_say_who_i_am(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(said_and_found) / sizeof(said_and_found[0]); i++) {
        DD_AUTO(alloc) struct alloc *a = found(&said_and_found[i].said);
        assert_string_equal(a->source, said_and_found[i].source);
        assert_matches(a->job_id, said_and_found[i].job_id);
        assert_string_equal(a->run_id, said_and_found[i].run_id);
        assert_nodes(a, said_and_found[i].nodes);
        assert_int_equal(a->index, said_and_found[i].index);
        assert_int_equal(a->nnodes, said_and_found[i].nnodes);
        if (said_and_found[i].host_addr == NULL)
            assert_null(a->host_addr);
        else
            assert_string_equal(a->host_addr, said_and_found[i].host_addr);
        assert_int_equal(a->nports, said_and_found[i].port != 0);
        assert_int_equal(a->ports[0], said_and_found[i].port);
        assert_int_equal(a->warnings.n, 0);
    }
}

/* A script that starts the job's nodes is distinguished from a task, and its nodes are counted. */
static void a_script_of_lsf_starts_its_jobs_nodes_alone(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        int index, nnodes;
        bool script;
    } rows[] = {
        {"LSB_JOBID=9 LSB_HOSTS=node2\tfar", 0, 2, true},
        {"LSB_JOBID=9 LSB_HOSTS=far1\tfar2", -1, 2, false}, /* a job of other hosts */
        {"LSB_JOBID=9 LSB_HOSTS=far1\tfar2 CSM_ALLOCATION_ID=4 LSB_MCPU_HOSTS=node2\t1\tfar1\t42\tfar2\t42",
         -1, 2, true},
        {"LSB_JOBID=9 LSB_DJOB_HOSTFILE=/csm CSM_ALLOCATION_ID=4", 1, 3, true},
        {"LSB_JOBID=9 CSM_ALLOCATION_ID=4 LSB_MCPU_HOSTS=node2\t42\tfar1\t42", 0, 2,
         true}, /* this node takes part */
        {"LSB_JOBID=9 CSM_ALLOCATION_ID=4 LSB_MCPU_HOSTS=node2\t1\tnode2\t42\tfar1\t42", 0, 2,
         true},
        {"LSB_JOBID=9 CSM_ALLOCATION_ID=4 LSB_MCPU_HOSTS=node2\t1\tfar1\t42", -1, 1, true},
        {"LSB_JOBID=9 CSM_ALLOCATION_ID=4 LSB_MCPU_HOSTS=node2\t42", 0, 1, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        struct alloc_input in = input(&(struct said){.env = rows[i].env}, &env);
        in.list_only = true;
        assert_int_equal(alloc_find(&a, &in, NULL), 0);
        if (a->index != rows[i].index || a->nnodes != rows[i].nnodes || a->script != rows[i].script)
            fail_msg("row %zu: %d of %d, %d", i, a->index, a->nnodes, a->script);
    }
    assert_refused(
        &(struct said){.env = "LSB_JOBID=9 CSM_ALLOCATION_ID=4 LSB_MCPU_HOSTS=node2\t1\tfar1\t42"},
        "a job of LSF with 1 node (far1), and cannot start one there");
}

#define TORQUE "PBS_VERSION=TORQUE-6.1.2 PBS_JOBID=7.srv PBS_TASKNUM=2 PBS_NODENUM=1 "

static void torque_tells_the_gpus_of_each_node(void **state)
{
    (void)state;
    static const struct {
        const char *env, *gpus[2]; /* GPUs of each node; NULL: not known */
        int min;
    } rows[] = {
        {TORQUE "PBS_NODEFILE=/nodes PBS_GPUFILE=/gpus", {"0", "1,3"}, 0},
        {TORQUE "PBS_NODEFILE=/nodes PBS_GPUFILE=/gpus-of-one", {"", "12"}, 0},
        {TORQUE "PBS_NODEFILE=/rack PBS_GPUFILE=/rack-gpus", {"0", ""}, 0},
        {TORQUE "PBS_NODEFILE=/nodes PBS_GPUFILE=/gpus-of-none", {NULL}, 0},
        {TORQUE "PBS_NODEFILE=/nodes PBS_GPUFILE=/of-the-first-node", {NULL}, 0},
        {TORQUE "PBS_NODEFILE=/nodes", {NULL}, 0},
        {TORQUE "PBS_NODEFILE=/nodes PBS_GPUFILE=/gpus",
         {"1,3"},
         1}, /* --nnodes=1: GPUs of this node */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(alloc) struct alloc *a = found(
            &(struct said){.env = rows[i].env, .min = rows[i].min, .max = rows[i].min});
        assert_int_equal(a->gpus.n, rows[i].gpus[0] == NULL ? 0 : a->nnodes);
        for (size_t k = 0; k < a->gpus.n; k++)
            assert_string_equal(a->gpus.v[k], rows[i].gpus[k]);
        DD_AUTO(alloc) struct alloc *copy = NULL;
        assert_int_equal(alloc_copy(&copy, a, 0), 0);
        assert_int_equal(copy->gpus.n, a->gpus.n);
    }
    static const char *const wrong[][2] = {
        {TORQUE "PBS_NODEFILE=/nodes PBS_GPUFILE=/gpus-of-slots",
         "/gpus-of-slots:1: invalid entry 'node1': expected HOST-gpuNUMBER"},
        {TORQUE "PBS_NODEFILE=/nodes PBS_GPUFILE=/gpus-without-number",
         "/gpus-without-number:2: invalid entry 'node1-gpu': expected HOST-gpuNUMBER"},
        {TORQUE "PBS_NODEFILE=/nodes PBS_GPUFILE=/gpus-with-more",
         "'node1-gpu0 exclusive': expected HOST-gpuNUMBER"},
        {TORQUE "PBS_NODEFILE=/nodes PBS_GPUFILE=/gpus-of-others",
         "node7 is not a node of the job (node[1-2].site)"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_refused(&(struct said){.env = wrong[i][0]}, wrong[i][1]);
}

static void stale_variables_are_refused_unless_this_host_is_wanted(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        const char *says, *right;
    } rows[] = {
        /* clang-format off */
        {"SLURM_JOB_ID=12 SLURM_JOB_NODELIST=node[3-4] SLURM_SUBMIT_HOST=login1",
         "SLURM_JOB_ID=12 belongs to a job of another machine: this host (node2) is not in node[3-4]\n ",
         "start ddrun with srun, or in the job's script; or unset SLURM_*, or use --nnodes=1 to run on this host (node2) alone"},
        {"LSB_JOBID=9 LSB_DJOB_HOSTFILE=/gone", "LSB_JOBID=9 is stale, or belongs to a job of another machine: cannot open", "unset LSB_*"},
        {"OAR_JOB_ID=5 OAR_NODEFILE=/alone", "OAR_JOB_ID=5 is stale, or belongs to a job of another machine: this host (node2) is not in node1.site\n ",
         "unset OAR_*"},
        {"JOB_ID=5 SGE_ROOT=/sge PE_HOSTFILE=/alone", "JOB_ID=5 is stale, or belongs to a job of another machine", "unset SGE_*, JOB_ID and PE_HOSTFILE"},
        {"COBALT_JOBID=5 COBALT_NODEFILE=/alone", "COBALT_JOBID=5 is stale, or belongs to a job of another machine", "unset COBALT_*"},
        {"PBS_JOBID=8.srv", "PBS_JOBID=8.srv is stale, or belongs to a job of another machine: cannot open", "run ddrun in the job's script; or unset PBS_*"},
        {"PBS_JOBID=8.srv PBS_NODEFILE=/alone",
         "PBS_JOBID=8.srv is stale, or belongs to a job of another machine: this host (node2) is not in node1.site\n ", "unset PBS_*"},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_refused(&(struct said){.env = rows[i].env}, rows[i].says);
        assert_refused(&(struct said){.env = rows[i].env}, rows[i].right);
        DD_AUTO(alloc) struct alloc *a = found(
            &(struct said){.env = rows[i].env, .min = 1, .max = 1});
        assert_string_equal(a->source, "local");
        assert_int_equal(a->warnings.n, 1);
        assert_int_equal(strncmp(a->warnings.v[0], rows[i].says, strlen(rows[i].says) - 2), 0);
    }
}

static void step_keeps_what_slurm_tells_besides(void **state)
{
    (void)state;
    DD_AUTO(alloc) struct alloc *a = found(
        &(struct said){.env = STEP " SLURM_CLUSTER_NAME=c SLURM_JOB_END_TIME=1795250000 "
                                   "SLURM_STEP_RESV_PORTS=21001-21003,22000,30000-30100"});
    assert_string_equal(a->job_id, "slurm.c.12.3.r0");
    assert_int_equal(a->end_time, 1795250000);
    assert_true(a->on_slurm);
    assert_int_equal(a->nports, ALLOC_MAX_PORTS);
    assert_int_equal(a->ports[2], 21003);
    assert_int_equal(a->ports[3], 22000);
    assert_int_equal(a->ports[15], 30011);
}

/* Slurm counts the runs of a job, PBS does not; other sources requeue no job. */
static void runs_of_a_requeued_job_share_an_id(void **state)
{
    (void)state;
    static const struct {
        struct said said;
        const char *id; /* NULL: none */
        bool requeued;
    } rows[] = {
        {{.env = STEP}, "slurm.12.3", false},
        {{.env = STEP " SLURM_RESTART_COUNT=1"}, "slurm.12.3", true},
        {{.env = STEP " SLURM_RESTART_COUNT=12", .id = "x"}, "slurm.12.3.x", true},
        {{.env = FOUR, .min = 1, .max = 1}, "slurm.12.3.n1", false},
        {{.env = TASK}, "pbs.7.srv", true},
        {{.hosts = "a,b", .rank = 1, .master_addr = "10.9.9.9"}, NULL, false},
        {{.min = 1, .max = 1}, NULL, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(alloc) struct alloc *a = found(&rows[i].said);
        DD_AUTO(alloc) struct alloc *copy = NULL;
        assert_int_equal(alloc_copy(&copy, a, 0), 0);
        assert_int_equal(a->requeued, rows[i].requeued);
        assert_true((copy->requeue_id != NULL) == (rows[i].id != NULL));
        if (rows[i].id != NULL)
            assert_string_equal(copy->requeue_id, rows[i].id);
    }
}

/* A script may call ddrun more than once; only Slurm's steps have numbers. */
static void ddruns_of_a_script_differ_by_their_commands(void **state)
{
    (void)state;
    static char python[] = "python", prepare[] = "prepare.py", train[] = "train.py",
                joined[] = "pythontrain.py";
    static char *const commands[][3] = {
        {python, prepare}, {python, train}, {python}, {joined}, {train, python}};
    enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };
    static const struct {
        struct said said;
        bool differ;
    } rows[] = {
        {{.env = TASK}, true},
        {{.env = SCRIPT}, true},
        {{.env = "SLURM_JOB_ID=12 SLURM_JOB_NODELIST=node2"}, true},
        {{.env = STEP}, false},
        {{.env = TASK, .id = "run7"}, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (size_t j = 0; j < (size_t)COMMANDS * COMMANDS; j++) {
            struct said one = rows[i].said;
            struct said two = rows[i].said;
            one.command = commands[j / COMMANDS];
            two.command = commands[j % COMMANDS];
            DD_AUTO(alloc) struct alloc *a = found(&one);
            DD_AUTO(alloc) struct alloc *b = found(&two);
            assert_string_equal(a->job_id, b->job_id);
            assert_int_equal(strcmp(a->requeue_id, b->requeue_id) != 0,
                             rows[i].differ && one.command != two.command);
        }
}

static void job_id_stays_short_enough_for_a_hello(void **state)
{
    (void)state;
    char id[201];
    memset(id, 'x', 200);
    id[200] = '\0';
    DD_AUTO(alloc) struct alloc *a = found(&(struct said){.id = id});
    assert_true(strlen(a->job_id) <= 200);
    assert_string_equal(a->run_id, id);
    id[199] = 'y';
    DD_AUTO(alloc) struct alloc *b = found(&(struct said){.id = id});
    assert_string_not_equal(a->job_id, b->job_id);
}

/* ---- parsers ---- */

static void tasks_per_node_are_read_as_slurm_writes_them(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n; /* 0: rejected */
        int total, most;
    } rows[] = {
        {"", 0, 0, 0},
        {",", 0, 0, 0},
        {"1,", 0, 0, 0},
        {"x", 0, 0, 0},
        {"1(2)", 0, 0, 0},
        {"1(x2", 0, 0, 0},
        {"1(x0)", 0, 0, 0},
        {"1(x)", 0, 0, 0},
        {"-1", 0, 0, 0},
        {"1 ", 0, 0, 0},
        {"99999", 0, 0, 0},
        {"1(x65537)", 0, 0, 0},
        {"2(x40000)", 0, 0, 0},
        {"1(x65536),1", 0, 0, 0},
        {"99999999999999999999", 0, 0, 0},
        {"1", 1, 1, 1},
        {"2,1", 2, 3, 2},
        {"4(x2)", 2, 8, 4},
        {"1(x3),2,4(x2)", 6, 13, 4},
        {"1(x65536)", 65536, 65536, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alloc_tasks t = {0};
        struct dd_err err = {.text = ""};
        int rc = alloc_tasks_parse(&t, rows[i].text, &err);
        assert_int_equal(rc, rows[i].n > 0 ? 0 : -EINVAL);
        assert_int_equal(t.n, rows[i].n);
        assert_int_equal(t.total, rows[i].total);
        assert_int_equal(t.most, rows[i].most);
        assert_int_equal(err.text[0] != '\0', rc < 0);
        free(t.per_node);
    }
}

static void ports_are_read_as_slurm_writes_them(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int n; /* -EINVAL: rejected */
    } rows[] = {
        {"", -EINVAL},      {"1-", -EINVAL},        {"-1", -EINVAL}, {"2-1", -EINVAL},
        {"0", -EINVAL},     {"65536", -EINVAL},     {"1,", -EINVAL}, {"1;2", -EINVAL},
        {"[1-2]", -EINVAL}, {"1-65535,x", -EINVAL}, {"21001", 1},    {"21001-21002", 2},
        {"1,3-4", 3},       {"1-65535", 16},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint16_t ports[ALLOC_MAX_PORTS];
        assert_int_equal(alloc_ports_parse(ports, rows[i].text, NULL), rows[i].n);
    }
}

static void hostfile_lines_may_be_truncated_anywhere(void **state)
{
    (void)state;
    static const char text[] = "r1n[1-2] slots=4 # x\nr2n1:8\r\n\nfe80::1\nr1n1";
    for (size_t n = 0; n < sizeof(text); n++) {
        DD_AUTO(hostlist) struct hostlist *h = NULL;
        struct dd_err err = {.text = ""};
        int rc = alloc_hostfile_parse(&h, "f", text, n, &err);
        assert_true(rc == 0 ? h != NULL : strncmp(err.text, "f:1: ", 5) == 0);
    }
    struct hostlist *h = NULL;
    assert_int_equal(alloc_hostfile_parse(&h, "f", "a\0b", 3, NULL), -EINVAL);
    assert_null(h);
}

/* A file in round-robin order has many more lines than hosts. */
static void hostfile_may_have_more_lines_than_the_limit_of_hosts(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(8 << 20);
    DD_AUTO(hostlist) struct hostlist *h = NULL;
    for (int i = 0; i < 70000; i++)
        assert_int_equal(dd_buf_printf(&b, "node%d\n", i % 40000), 0);
    assert_int_equal(alloc_hostfile_parse(&h, "f", (char *)b.data, b.len, NULL), 0);
    assert_int_equal(hostlist_count(h), 40000);
    struct dd_err err = {.text = ""};
    struct hostlist *none = NULL;
    for (int i = 0; i < 30000; i++)
        assert_int_equal(dd_buf_printf(&b, "more%d\n", i), 0);
    assert_int_equal(alloc_hostfile_parse(&none, "f", (char *)b.data, b.len, &err), -E2BIG);
    assert_null(none);
    assert_string_equal(err.text, "f:95537: too many hosts (limit 65536)");
}

/* ---- memory ---- */

static int all_sources(void)
{
    static const struct said rows[] = {
        /* clang-format off */
        {.env = FOUR " SLURM_STEP_RESV_PORTS=21001-21002", .master_addr = "x", .id = "i"},
        {.env = TASK " PBS_JOBCOOKIE=12345678 SLURM_JOB_ID=1 SLURM_JOB_NODELIST=node3"},
        {.min = 2, .max = 2, .endpoint = "node1:1", .id = "a b"},
        {.hostfile = "rich", .rank = 1, .min = 1, .max = 1},
        {.hosts = "node[1-9]"},
        {.env = "PBS_JOBID=9.srv", .min = 1, .max = 1},
        {.env = TASK " PBS_JOBCOOKIE=12345678 SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NODEID=0 SLURM_LOCALID=0 "
                "SLURM_STEP_NODELIST=far SLURM_STEP_TASKS_PER_NODE=1"},
        /* clang-format on */
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned at = fail_at;
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        fail_at = 0;
        struct alloc_input in = input(&rows[i], &env);
        fail_at = at;
        struct dd_err err = {.text = ""};
        rc = alloc_find(&a, &in, &err);
        if (rc < 0)
            assert_true(err.text[0] != '\0');
    }
    return rc;
}

static void agents_of_an_outer_launcher_are_the_nodes(void **state)
{
    (void)state;
    char *const names[] = {(char[]){"a1"}, (char[]){"a2"}, (char[]){"a1"}};
    const struct alloc_peers peers = {
        .names = names, .n = 3, .index = 2, .job = "ab12", .secret = "s3"};
    static const struct {
        struct said said;
        bool told;
        const char *source;
    } rows[] = {
        {{.env = "PMI_RANK=2"}, false, "mpiexec"},
        {{.env = "PMI_RANK=2", .master_addr = "10.0.0.9"}, false, "mpiexec"},
        {{.env = "PMI_RANK=2", .hosts = "node[1-2]"}, true, "hosts"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        struct alloc_input in = input(&rows[i].said, &env);
        assert_int_equal(alloc_is_told(&in), rows[i].told);
        in.peers = &peers;
        assert_int_equal(alloc_find(&a, &in, NULL), 0);
        assert_string_equal(a->source, rows[i].source);
        if (rows[i].told)
            continue;
        assert_int_equal(a->nnodes, 3);
        assert_int_equal(a->index, 2);
        assert_string_equal(a->job_id, "mpi.ab12");
        assert_string_equal(a->psk, "s3");
        assert_string_equal(hostlist_nth(a->nodes, 1), "a2");
    }
}

static void no_memory_is_an_error_like_any_other(void **state)
{
    (void)state;
    unsigned n = 0;
    do { /* until no allocation fails; a failure while formatting a warning is no error */
        fail_at = ++n;
        int rc = all_sources();
        if (rc != 0 && rc != -ENOMEM)
            fail_msg("allocation %u: %d", n, rc);
        assert_true(rc == 0 || fail_at == 0);
    } while (fail_at == 0);
    fail_at = 0;
    assert_true(n > 60);
}

static void table_has_names_and_lines_for_the_manual(void **state)
{
    (void)state;
    for (size_t i = 0; alloc_table[i] != NULL; i++) {
        assert_non_null(alloc_table[i]->detect);
        assert_non_null(alloc_table[i]->fill);
        assert_true(strlen(alloc_table[i]->name) > 0 && strlen(alloc_table[i]->doc) > 0);
    }
    alloc_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_refused_with_a_sentence),
        cmocka_unit_test(tip_for_another_host_fits_a_job_of_slurm),
        cmocka_unit_test(nnodes_of_another_size_is_refused_in_a_script),
        cmocka_unit_test(node_rank_may_name_a_spare_node_of_a_list),
        cmocka_unit_test(variables_are_refused_with_their_name),
        cmocka_unit_test(options_say_who_i_am),
        cmocka_unit_test(a_script_of_lsf_starts_its_jobs_nodes_alone),
        cmocka_unit_test(torque_tells_the_gpus_of_each_node),
        cmocka_unit_test(stale_variables_are_refused_unless_this_host_is_wanted),
        cmocka_unit_test(step_keeps_what_slurm_tells_besides),
        cmocka_unit_test(runs_of_a_requeued_job_share_an_id),
        cmocka_unit_test(ddruns_of_a_script_differ_by_their_commands),
        cmocka_unit_test(job_id_stays_short_enough_for_a_hello),
        cmocka_unit_test(tasks_per_node_are_read_as_slurm_writes_them),
        cmocka_unit_test(ports_are_read_as_slurm_writes_them),
        cmocka_unit_test(hostfile_lines_may_be_truncated_anywhere),
        cmocka_unit_test(hostfile_may_have_more_lines_than_the_limit_of_hosts),
        cmocka_unit_test(agents_of_an_outer_launcher_are_the_nodes),
        cmocka_unit_test(no_memory_is_an_error_like_any_other),
        cmocka_unit_test(table_has_names_and_lines_for_the_manual),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
