#include "doctor/judge.h"

#include "base/utf8.h"
#include "doctor/pair_figures.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (INT64_C(1) << 20)

enum {
    NOFILE_LEAST = 1024,
    MEMLOCK_LEAST_MIB = 64,
    SHM_LEAST_MIB = 64,
    NPROC_LEAST = 1024,
    OFFSET_MOST_MS = 60000, /* less than MUNGE's limit, 300 s: users compare timestamps of logs */
};

struct judge {
    const json_t *looks;
    const struct hostlist *nodes;
    const json_t *advice;
    json_t *findings;
};

/* ---- findings ---- */

static const char *judge_str(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s != NULL ? s : "";
}

static json_int_t judge_num(const json_t *o, const char *name, json_int_t otherwise)
{
    const json_t *v = json_object_get(o, name);
    return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

static const char *judge_node_name(const struct judge *j, json_int_t index)
{
    const char *name = index >= 0 ? hostlist_nth(j->nodes, (size_t)index) : NULL;
    return name != NULL ? name : "another node";
}

/* Add a finding. If another node has the same message, add this node to that finding. */
static void judge_find(struct judge *j, const char *node, bool hint, const char *what,
                       const char *advice)
{
    size_t i;
    json_t *f;
    json_array_foreach (j->findings, i, f) {
        if (strcmp(judge_str(f, "what"), what) == 0) {
            (void)json_array_append_new(json_object_get(f, "on"), json_string(node));
            return;
        }
    }
    (void)json_array_append_new(j->findings, json_pack("{s:[s],s:b,s:s,s:s}", "on", node, "hint",
                                                       hint, "what", what, "do", advice));
}

static void judge_vfind(struct judge *j, const json_t *look, bool hint, const char *advice,
                        const char *fmt, va_list ap) __attribute__((format(printf, 5, 0)));
static void judge_vfind(struct judge *j, const json_t *look, bool hint, const char *advice,
                        const char *fmt, va_list ap)
{
    char what[1200];
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    judge_find(j, judge_str(look, "node"), hint, dd_utf8_clean(what),
               advice); /* a cut inside a character would be invalid JSON */
}

static void judge_findf(struct judge *j, const json_t *look, const char *advice, const char *fmt,
                        ...) __attribute__((format(printf, 4, 5)));
static void judge_findf(struct judge *j, const json_t *look, const char *advice, const char *fmt,
                        ...)
{
    va_list ap;
    va_start(ap, fmt);
    judge_vfind(j, look, false, advice, fmt, ap);
    va_end(ap);
}

/* Add a hint: a finding in spite of which jobs can run. */
static void judge_hintf(struct judge *j, const json_t *look, const char *advice, const char *fmt,
                        ...) __attribute__((format(printf, 4, 5)));
static void judge_hintf(struct judge *j, const json_t *look, const char *advice, const char *fmt,
                        ...)
{
    va_list ap;
    va_start(ap, fmt);
    judge_vfind(j, look, true, advice, fmt, ap);
    va_end(ap);
}

/* ---- one node ---- */

static void judge_limits(struct judge *j, const json_t *l)
{
    json_int_t files = judge_num(l, "nofile", -1);
    json_int_t lock = judge_num(l, "memlock", -1);
    json_int_t procs = judge_num(l, "nproc", -1);
    if (files >= 0 && files < NOFILE_LEAST)
        judge_findf(
            j, l,
            "add 'ulimit -n 65536' to the job's script; the administrator can raise the hard "
            "limit",
            "only %" JSON_INTEGER_FORMAT " open files are allowed; data loaders and NCCL need more",
            files);
    if (json_is_true(json_object_get(l, "infiniband")) && lock >= 0 &&
        lock < MEMLOCK_LEAST_MIB * MIB)
        judge_findf(
            j, l,
            "ask the administrator for an unlimited 'memlock' of the scheduler's daemon on "
            "compute nodes",
            "only %" JSON_INTEGER_FORMAT
            " KiB of memory may be locked; InfiniBand and RoCE need more to register memory",
            lock / 1024);
    if (procs >= 0 && procs < NPROC_LEAST)
        judge_findf(j, l, "raise the limit with 'ulimit -u', or ask the administrator",
                    "only %" JSON_INTEGER_FORMAT " processes and threads are allowed", procs);
}

static void judge_room(struct judge *j, const json_t *l)
{
    json_int_t room = judge_num(l, "shm_free", -1);
    if (room >= 0 && room < SHM_LEAST_MIB * MIB)
        judge_findf(j, l,
                    "remove files of dead jobs, or enlarge /dev/shm; data loaders and NCCL use it",
                    "/dev/shm has only %" JSON_INTEGER_FORMAT " KiB left", room / 1024);
    if (judge_str(l, "tmp")[0] != '\0')
        judge_findf(j, l,
                    "set TMPDIR to a directory that is writable and has free space on each node",
                    "cannot write temporary files: %s", judge_str(l, "tmp"));
}

static void judge_cpus(struct judge *j, const json_t *l)
{
    json_int_t mine = judge_num(l, "cpus", 0);
    json_int_t online = judge_num(l, "cpus_online", 0);
    if (mine == 1 && online > 1)
        judge_findf(
            j, l,
            "use srun --cpu-bind=none or mpiexec --cpu-bind none, or request more CPUs per task",
            "ddrun may use 1 of %" JSON_INTEGER_FORMAT
            " CPUs (the launcher's CPU binding, or the job's cgroup); all workers share it",
            online);
}

static void judge_kernel(struct judge *j, const json_t *l)
{
    if (judge_num(l, "ptrace_scope", 0) >= 2)
        judge_hintf(
            j, l,
            "reports show no Python stacks, and gdb cannot attach; SIGABRT of --hang-timeout still prints stacks",
            "the kernel does not permit users to read the memory of their processes "
            "(kernel.yama.ptrace_scope is %" JSON_INTEGER_FORMAT ")",
            judge_num(l, "ptrace_scope", 0));
}

static void judge_variable(struct judge *j, const json_t *l, const json_t *v)
{
    const char *why = judge_str(v, "why");
    if (strcmp(why, "interface") == 0)
        judge_findf(j, l, "unset the variable: ddrun gives workers the interface to use",
                    "%s=%s: no interface of this node matches the first name", judge_str(v, "name"),
                    judge_str(v, "value"));
    else if (strcmp(why, "empty") == 0)
        judge_findf(j, l, "unset the variable, or request GPUs from the scheduler",
                    "%s is empty, so programs see no GPU", judge_str(v, "name"));
    else
        judge_hintf(j, l,
                    "unset the variable in the script: it misleads programs that run without ddrun",
                    "%s=%s is set, perhaps by an earlier command", judge_str(v, "name"),
                    judge_str(v, "value"));
}

static void judge_key(struct judge *j, const json_t *l)
{
    if (judge_str(l, "key_error")[0] != '\0')
        judge_findf(j, l,
                    "run munged on all nodes, or use a --key-file that is readable on all nodes",
                    "cannot get the job's key: %s", judge_str(l, "key_error"));
    if (judge_str(l, "listen_error")[0] != '\0')
        judge_findf(
            j, l,
            "find the program that uses the port with 'ss -ltnp', or choose a free port with "
            "--master-port",
            "%s", judge_str(l, "listen_error"));
    if (judge_str(l, "net_error")[0] != '\0')
        judge_findf(j, l, "check 'ulimit -n -u' and free memory on this node",
                    "other nodes cannot measure the network to this one: %s",
                    judge_str(l, "net_error"));
    if (judge_str(l, "iface_error")[0] != '\0')
        judge_findf(j, l,
                    "see 'ip addr' there; if interface names differ, set --iface on each node",
                    "%s", judge_str(l, "iface_error"));
}

/* ---- between nodes ---- */

static void judge_probe(struct judge *j, const json_t *l, const json_t *p)
{
    const char *to = judge_node_name(j, judge_num(p, "to", -1));
    json_int_t ms = judge_num(p, "offset_ns", 0) / 1000000;
    if (judge_str(p, "error")[0] != '\0')
        judge_findf(
            j, l,
            "check the name of that node in /etc/hosts or DNS, firewalls between the nodes, munged, "
            "and the clocks",
            "cannot reach %s: %s", to, judge_str(p, "error"));
    else if (ms > OFFSET_MOST_MS || ms < -OFFSET_MOST_MS)
        judge_findf(j, l, "synchronize the clocks (chrony, ntpd)",
                    "the clock of %s is %.0f s %s this node's", to,
                    (double)(ms < 0 ? -ms : ms) / 1000, ms < 0 ? "behind" : "ahead of");
    if (judge_str(p, "iface_error")[0] != '\0')
        judge_findf(j, l, "choose a network with --iface that connects all nodes",
                    "cannot reach the workers' address of %s, %s, through %s: %s", to,
                    judge_str(p, "iface_address"), judge_str(p, "iface"),
                    judge_str(p, "iface_error"));
}

static bool judge_is_in(const json_t *list, const char *s)
{
    size_t i;
    json_t *v;
    json_array_foreach (list, i, v)
        if (json_is_string(v) && strcmp(json_string_value(v), s) == 0)
            return true;
    return false;
}

static const json_t *judge_look_of(const struct judge *j, json_int_t index)
{
    size_t i;
    json_t *l;
    json_array_foreach (j->looks, i, l)
        if (judge_num(l, "index", -1) == index)
            return l;
    return NULL;
}

/* Check that a name resolves only to addresses which that node reports as its own. */
static void judge_name(struct judge *j, const json_t *l, const json_t *n)
{
    size_t i;
    json_t *address;
    const json_t *other = judge_look_of(j, judge_num(n, "to", -1));
    const char *to = judge_node_name(j, judge_num(n, "to", -1));
    const char
        *advice = "correct /etc/hosts or DNS: ddrun also asks Slurm, but most programs do not";
    if (judge_str(n, "error")[0] != '\0')
        judge_findf(j, l, advice, "cannot resolve the name %s: %s", to, judge_str(n, "error"));
    else if (other != NULL)
        json_array_foreach (json_object_get(n, "addresses"), i, address)
            if (json_is_string(address) &&
                !judge_is_in(json_object_get(other, "addresses"), json_string_value(address)))
                judge_findf(j, l, advice,
                            "the name %s resolves to %s, which is not an address of that node", to,
                            json_string_value(address));
}

/* Compare a number with the one that most nodes have; report the nodes that differ. Skip nodes
 * whose result lacks the number. what: name of the counted things, singular. */
static void judge_equal(struct judge *j, const char *name, const char *what, const char *advice)
{
    size_t i;
    size_t k;
    json_t *l;
    json_t *other;
    json_int_t usual = -1;
    size_t most = 0;
    json_array_foreach (j->looks, i, l) {
        size_t same = 0;
        json_array_foreach (j->looks, k, other)
            same += judge_num(other, name, -1) == judge_num(l, name, -1);
        if (same > most && judge_num(l, name, -1) >= 0) {
            most = same;
            usual = judge_num(l, name, -1);
        }
    }
    json_array_foreach (j->looks, i, l) {
        const json_int_t mine = judge_num(l, name, -1);
        if (mine >= 0 && mine != usual)
            judge_findf(j, l, advice,
                        "%" JSON_INTEGER_FORMAT " %s%s, where others have %" JSON_INTEGER_FORMAT,
                        mine, what, mine == 1 ? "" : "s", usual);
    }
}

/* Return the length of the part of the key's source that names its kind; the rest differs between
 * nodes anyway. */
static size_t judge_kind_of_key(const json_t *l)
{
    return strcspn(judge_str(l, "key"), "/'");
}

static void judge_keys(struct judge *j)
{
    size_t i;
    json_t *l;
    const json_t *first = json_array_get(j->looks, 0);
    json_array_foreach (j->looks, i, l)
        if (judge_str(l, "key")[0] != '\0' && judge_str(first, "key")[0] != '\0' &&
            (judge_kind_of_key(l) != judge_kind_of_key(first) ||
             strncmp(judge_str(l, "key"), judge_str(first, "key"), judge_kind_of_key(l)) != 0))
            judge_findf(j, l, "run munged on all nodes, or use --key-file",
                        "the key source is %s, but on %s it is %s", judge_str(l, "key"),
                        judge_str(first, "node"), judge_str(first, "key"));
}

static void judge_versions(struct judge *j)
{
    size_t i;
    json_t *l;
    const char *first = judge_str(json_array_get(j->looks, 0), "version");
    json_array_foreach (j->looks, i, l)
        if (strcmp(judge_str(l, "version"), first) != 0)
            judge_findf(j, l, "install the same version on all nodes",
                        "ddrun is version %s, but on %s it is %s", judge_str(l, "version"),
                        judge_str(json_array_get(j->looks, 0), "node"), first);
}

/* Report pairs of nodes that were not measured, or that are much slower than most. */
static int judge_pairs(struct judge *j)
{
    struct pair_figures f;
    char mine[PAIR_RATE_TEXT];
    char usual[PAIR_RATE_TEXT];
    int rc = pair_figures_of(&f, j->looks, j->nodes);
    for (size_t i = 0; i < f.n && rc == 0; i++) {
        const struct pair_figure *p = &f.v[i];
        char what[1200] = "";
        bool hint = p->error[0] == '\0';
        if (!hint)
            (void)snprintf(what, sizeof(what), "cannot measure the network to %s: %s", p->to,
                           p->error);
        else if (p->slow)
            (void)snprintf(what, sizeof(what),
                           "the bandwidth to %s is %s, less than half of the median, %s", p->to,
                           pair_rate_text(p->rate, mine), pair_rate_text(f.rate, usual));
        else if (p->late)
            (void)snprintf(what, sizeof(what),
                           "a round trip to %s takes %s, more than twice the median, %s", p->to,
                           pair_latency_text(p->latency_ns, mine),
                           pair_latency_text(f.latency_ns, usual));
        if (what[0] != '\0')
            judge_find(
                j, p->from, hint, dd_utf8_clean(what),
                hint
                    ? "compare the interfaces and link speeds of both nodes; other load on them or on the network can also cause this"
                    : "workers need connections between all nodes on any port: check "
                      "firewalls, or choose a network with --iface");
    }
    pair_figures_done(&f);
    return rc;
}

static void judge_missing(struct judge *j)
{
    for (size_t k = 0; k < hostlist_count(j->nodes); k++) {
        size_t i;
        json_t *l;
        bool there = false;
        json_array_foreach (j->looks, i, l)
            there |= judge_num(l, "index", -1) == (json_int_t)k;
        if (!there && (json_array_size(j->looks) == 0 ||
                       judge_num(json_array_get(j->looks, 0), "index", -1) >= 0))
            judge_find(
                j, hostlist_nth(j->nodes, k), false,
                "no result: ddctl was not started on this node, failed, or did not answer in time",
                "see the launcher's messages above; the node may be down");
    }
}

/* Add the hints on the fabric's variables, but not for nodes without GPUs: only NCCL uses these
 * variables. */
static void judge_fabric(struct judge *j, const json_t *l)
{
    size_t i;
    json_t *v;
    if (judge_num(l, "gpus", 0) > 0)
        json_array_foreach (json_object_get(j->advice, judge_str(l, "fabric")), i, v)
            judge_hintf(j, l, judge_str(v, "do"), "%s", judge_str(v, "what"));
}

/* ---- all ---- */

static void judge_node(struct judge *j, const json_t *l)
{
    size_t i;
    json_t *v;
    judge_key(j, l);
    json_array_foreach (json_object_get(l, "probes"), i, v)
        judge_probe(j, l, v);
    json_array_foreach (json_object_get(l, "names"), i, v)
        judge_name(j, l, v);
    judge_limits(j, l);
    judge_room(j, l);
    judge_cpus(j, l);
    judge_kernel(j, l);
    json_array_foreach (json_object_get(l, "variables"), i, v)
        judge_variable(j, l, v);
    judge_fabric(j, l);
}

/* Fold the node names of a finding to a host list. */
static int judge_fold_nodes(json_t *finding)
{
    size_t i;
    json_t *name;
    DD_AUTO(hostlist) struct hostlist *list = NULL;
    DD_AUTO(buf) struct dd_buf folded = DD_BUF_INIT(1 << 20);
    int rc = hostlist_new(&list);
    json_array_foreach (json_object_get(finding, "on"), i, name)
        if (rc == 0 && (rc = hostlist_push(list, json_string_value(name))) ==
                           -EINVAL) /* a name that the node reports itself may be invalid */
            rc = hostlist_push(list, "unknown");
    if (rc == 0)
        rc = hostlist_fold(list, &folded);
    const char *text = rc == 0 ? dd_buf_str(&folded) : NULL;
    if (text == NULL)
        return -ENOMEM;
    (void)json_object_set_new(finding, "nodes", json_string(text));
    return json_object_del(finding, "on");
}

json_t *doctor_judge(const json_t *looks, const struct hostlist *nodes, const json_t *advice)
{
    struct judge j = {.looks = looks, .nodes = nodes, .advice = advice, .findings = json_array()};
    size_t i;
    json_t *o;
    judge_missing(&j);
    json_array_foreach (looks, i, o)
        judge_node(&j, o);
    judge_equal(&j, "gpus", "GPU",
                "with --nproc-per-node=gpu, the number of workers differs; a GPU may be lost");
    judge_equal(&j, "cpus", "CPU",
                "a launcher may have bound ddrun to some CPUs, or the node is of another type");
    judge_keys(&j);
    judge_versions(&j);
    int rc = judge_pairs(&j);
    json_array_foreach (j.findings, i, o)
        if (rc == 0)
            rc = judge_fold_nodes(o);
    if (rc == 0)
        return j.findings;
    json_decref(j.findings);
    return NULL;
}

size_t doctor_faults(const json_t *findings)
{
    size_t i;
    size_t n = 0;
    const json_t *f;
    json_array_foreach (findings, i, f)
        n += !json_is_true(json_object_get(f, "hint"));
    return n;
}
