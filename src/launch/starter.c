#include "launch/starter.h"

#include "alloc/endtime.h"
#include "base/auto.h"
#include "base/buf.h"
#include "base/num.h"

#include <errno.h>
#include <string.h>

enum { COMMAND_MAX = 1 << 20 };

char *starter_quote(const char *const *argv)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(COMMAND_MAX);
    int rc = 0;
    for (size_t i = 0; argv[i] != NULL && rc == 0; i++) {
        const char *s = argv[i];
        if (i > 0)
            rc = dd_buf_puts(&out, " ");
        if (rc == 0 && *s != '\0' && s[strspn(s, plain)] == '\0') {
            rc = dd_buf_puts(&out, s);
            continue;
        }
        rc |= dd_buf_puts(&out, "'");
        for (; *s != '\0' && rc == 0; s++)
            rc = *s == '\'' ? dd_buf_puts(&out, "'\\''") : dd_buf_append(&out, s, 1);
        rc |= dd_buf_puts(&out, "'");
    }
    return rc == 0 ? dd_buf_steal(&out) : NULL;
}

/* Push the user's command, split into words, or the path of the starter. */
static int push_program(struct dd_strv *out, const struct start *s)
{
    return s->words != NULL ? dd_strv_split(out, s->words, " \t") : dd_strv_push(out, s->program);
}

static int push_command(struct dd_strv *out, const struct start *s)
{
    int rc = 0;
    for (size_t i = 0; s->command[i] != NULL && rc == 0; i++)
        rc = dd_strv_push(out, s->command[i]);
    return rc;
}

/* Src: sshd passes its arguments to a shell as one line. */
static int push_line(struct dd_strv *out, const struct start *s)
{
    DD_AUTO(free) char *line = starter_quote(s->command);
    return line == NULL ? -ENOMEM : dd_strv_pushf(out, "exec %s", line);
}

/* Src: measured, Grid Engine 8.1.9: qrsh joins its arguments with blanks and passes them to a
 * shell. */
static int push_quoted(struct dd_strv *out, const struct start *s)
{
    int rc = 0;
    for (size_t i = 0; s->command[i] != NULL && rc == 0; i++) {
        const char *const word[] = {s->command[i], NULL};
        DD_AUTO(free) char *quoted = starter_quote(word);
        rc = quoted == NULL ? -ENOMEM : dd_strv_push(out, quoted);
    }
    return rc;
}

/* srun gives a step as many GPUs per task as the job requested, and ddrun starts one task per node:
 * request the GPUs of all tasks of the job, with their type. SLURM_GPUS_PER_TASK is "1" or
 * "a100:1". Src: measured, 22.05. */
static int push_gpus(struct dd_strv *out, const struct start *s)
{
    const char *each = dd_env_get_nonempty(s->env, "SLURM_GPUS_PER_TASK");
    const char *tasks = dd_env_get_nonempty(s->env, "SLURM_NTASKS");
    const char *colon = each != NULL ? strrchr(each, ':') : NULL;
    int n;
    int k;
    if (each == NULL || tasks == NULL || dd_num_int(tasks, 1, 1 << 20, &n) < 0 ||
        dd_num_int(colon != NULL ? colon + 1 : each, 1, 1 << 10, &k) < 0)
        return 0;
    return dd_strv_pushf(out, "--gpus=%.*s%d", colon != NULL ? (int)(colon + 1 - each) : 0, each,
                         n * k);
}

/* Push one word of a row's `command`; %n may be part of a word, as in "-N%n". */
static int push_word(struct dd_strv *out, const char *word, const struct start *s)
{
    const char *number = strstr(word, "%n");
    if (number != NULL)
        return dd_strv_pushf(out, "%.*s%d", (int)(number - word), word, s->nnodes);
    if (strcmp(word, "%program") == 0)
        return push_program(out, s);
    if (strcmp(word, "%host") == 0)
        return dd_strv_push(out, s->host);
    if (strcmp(word, "%command") == 0)
        return push_command(out, s);
    if (strcmp(word, "%line") == 0)
        return push_line(out, s);
    if (strcmp(word, "%quoted") == 0)
        return push_quoted(out, s);
    return strcmp(word, "%gpus") == 0 ? push_gpus(out, s) : dd_strv_push(out, word);
}

/* Src: srun(1): variables of the batch script that srun would read as its own options. */
#define SRUN_TAKES                                                                                        \
    "SLURM_NTASKS,SLURM_NPROCS,SLURM_NTASKS_PER_NODE,SLURM_NTASKS_PER_GPU,SLURM_NTASKS_PER_CORE,"         \
    "SLURM_NTASKS_PER_SOCKET,SLURM_TASKS_PER_NODE,SLURM_CPUS_PER_TASK,SRUN_CPUS_PER_TASK,SLURM_CPU_BIND," \
    "SLURM_GPUS_PER_TASK,SLURM_TRES_PER_TASK,SLURM_GPU_BIND,SLURM_DISTRIBUTION,SLURM_ARBITRARY_NODELIST," \
    "SLURM_KILL_BAD_EXIT,SLURM_WAIT,SLURM_NNODES,SLURM_JOB_NUM_NODES"

/* srun: one task per node with all CPUs and GPUs of the job there; without options, a step would
 * take the number of tasks and their CPUs and GPUs from the variables of the script. ddrun itself
 * handles lost nodes. -X: the first Ctrl-C stops the workers instead of printing the state of
 * tasks; -Q: srun prints errors only. PALS and aprun: without --cpu-bind none or -cc none, a
 * process gets one core. jsrun: one resource set per node with everything, to which the task is
 * bound. pbsdsh: -h selects a host by name; without --, OpenPBS's would parse the options of the
 * command. tm: replaces pbs_tmrsh where that is not installed. ssh: never prompt, and detect a node
 * that is down soon. */
static const struct starter starters[] = {
    {.name = "srun",
     .sources = "slurm-batch",
     .program = "srun",
     .starts_all = true,
     .unset = SRUN_TAKES,
     .command =
         "%program -X -Q --nodes=%n --ntasks=%n --ntasks-per-node=1 --cpu-bind=none --export=ALL --mpi=none --no-kill "
         "--kill-on-bad-exit=0 --wait=0 %gpus %command"},
    {.name = "pbs_tmrsh",
     .sources = "pbs",
     .program = "pbs_tmrsh",
     .directory = ALLOC_PBS_DIRECTORY,
     .must_outlive = true,
     .loses_output = true,
     .command = "%program %host %command"},
    {.name = "pbsdsh",
     .sources = "pbs",
     .program = "pbsdsh",
     .directory = "/opt/torque/bin",
     .must_outlive = true,
     .loses_output = true,
     .command = "%program -h %host -- %command"},
    {.name = "tm",
     .sources = "pbs",
     .program = "ddrun-tm",
     .ours = true,
     .must_outlive = true,
     .loses_output = true,
     .command = "%program %host %command"},
    {.name = "pals",
     .sources = "",
     .program = "mpiexec",
     .starts_all = true,
     .command = "%program -n %n --ppn 1 --cpu-bind none --envall %command"},
    {.name = "jsrun",
     .sources = "lsf",
     .program = "jsrun",
     .starts_all = true,
     .command = "%program -n %n -r 1 -a 1 -c ALL_CPUS -g ALL_GPUS -b rs %command"},
    {.name = "blaunch",
     .sources = "lsf",
     .program = "blaunch",
     .tree = true,
     .command = "%program %host %command"},
    {.name = "qrsh",
     .sources = "sge",
     .program = "qrsh",
     .command = "%program -inherit -nostdin -V %host %quoted"},
    {.name = "flux",
     .sources = "",
     .program = "flux",
     .starts_all = true,
     .command = "%program run -N%n -n%n -o cpu-affinity=off -o gpu-affinity=off %command"},
    {.name = "oarsh",
     .sources = "oar",
     .program = "oarsh",
     .takes_stdin = true,
     .tree = true,
     .command = "%program %host %line"},
    {.name = "aprun",
     .sources = "cobalt-xc",
     .program = "aprun",
     .starts_all = true,
     .command = "%program -n %n -N 1 -cc none %command"},
    {.name = "ssh",
     .sources = "cobalt",
     .program = "ssh",
     .takes_stdin = true,
     .tree = true,
     .options = "-o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15 -T",
     .command = "%program %host %line"},
};

enum { STARTERS = sizeof(starters) / sizeof(starters[0]) };

/* True if `word` is in the comma-separated `list`. */
static bool is_among(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; n > 0 && p != NULL && *p != '\0';
         p = strchr(p, ',') != NULL ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

const struct starter *starter_find(const struct starter *after, const char *name,
                                   const char *source)
{
    bool any = strcmp(name, "auto") == 0;
    for (size_t i = after != NULL ? (size_t)(after - starters) + 1 : 0; i < STARTERS; i++)
        if (any ? is_among(starters[i].sources, source) : strcmp(starters[i].name, name) == 0)
            return &starters[i];
    return NULL;
}

int starter_command(struct dd_strv *out, const struct starter *st, const struct start *s)
{
    DD_AUTO(strv) struct dd_strv words = {0};
    int rc = dd_strv_split(&words, st->command, " ");
    for (size_t i = 0; i < words.n && rc == 0; i++) {
        rc = push_word(out, words.v[i], s);
        if (rc == 0 && i == 0 && st->options != NULL && s->words == NULL)
            rc = dd_strv_split(out, st->options, " ");
    }
    return rc;
}
