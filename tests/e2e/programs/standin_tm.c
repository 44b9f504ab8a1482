/* A stand-in for PBS's libpbs.so.0 (and Torque's libtorque.so.2): the calls of the task manager, as
 * measured with OpenPBS 23.06.06.
 *
 * STANDIN_TMRSH: a program that starts a command on a host with the mom's environment, as
 * programs/pbs_tmrsh does. Without it the task starts on this machine, in a session of its own,
 * with the environment of a task.
 *
 * STANDIN_FAILS: tm_init fails with this number.
 *
 * STANDIN_DEAD: a host whose spawn is never answered.
 *
 * STANDIN_CALLS: a file to which each call is appended. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
    ENOEVENT = 17001,
    EBADENV = 17005,
    ENOTFOUND = 17006,
    BADINIT = 17007,
    MAX = 64,
    FIRST_ID = 100
};

struct roots {
    unsigned me, parent;
    int nnodes, ntasks, pool;
    unsigned *tasks;
};

static int begun, nhosts, nevents, next_event = 1;
static char hosts[MAX][256];
static struct {
    int number, is_obit;
    unsigned task;
    void *to;
} events[MAX];

static void note(const char *format, ...)
{
    const char *path = getenv("STANDIN_CALLS");
    FILE *f = path != NULL ? fopen(path, "ae") : NULL;
    va_list ap;
    if (f == NULL)
        return;
    va_start(ap, format);
    vfprintf(f, format, ap);
    va_end(ap);
    fclose(f);
}

/* Register an event to wait for: the stand-in keeps no other state of a connection. */
static int add_event(unsigned task, int is_obit, void *to)
{
    events[nevents].number = next_event++;
    events[nevents].is_obit = is_obit;
    events[nevents].task = task;
    events[nevents].to = to;
    return events[nevents++].number;
}

int tm_init(void *info, struct roots *roots)
{
    static const char *const needed[] = {"PBS_JOBID", "PBS_JOBCOOKIE", "PBS_NODENUM", "PBS_TASKNUM",
                                         "PBS_MOMPORT"};
    char path[512] = "";
    (void)info;
    note("init\n");
    if (begun)
        return BADINIT;
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (getenv(needed[i]) == NULL)
            return EBADENV;
    if (getenv("STANDIN_FAILS") != NULL)
        return atoi(getenv("STANDIN_FAILS"));
    snprintf(path, sizeof(path), "%s",
             getenv("STANDIN_NODES") != NULL ? getenv("STANDIN_NODES") : getenv("PBS_NODEFILE"));
    FILE *f = fopen(path, "re");
    while (f != NULL && nhosts < MAX && fscanf(f, "%255s", hosts[nhosts]) == 1)
        nhosts++;
    if (f != NULL)
        fclose(f);
    memset(roots, 0, sizeof(*roots));
    roots->nnodes = nhosts;
    roots->pool = -1;
    begun = 1;
    return 0;
}

int tm_nodeinfo(int **list, int *n)
{
    if (!begun)
        return BADINIT;
    *list = calloc((size_t)nhosts + 1, sizeof(**list));
    for (int i = 0; i < nhosts; i++)
        (*list)[i] = FIRST_ID + i;
    *n = nhosts;
    return 0;
}

/* Set the environment of a task: the mom's variables, overridden by those that the caller passes
 * on. */
static void set_environment(char **env)
{
    static const char *const kept[] = {"HOME", "PBS_JOBID", "PBS_JOBCOOKIE", "PBS_MOMPORT",
                                       "STANDIN_CALLS"};
    char *values[sizeof(kept) / sizeof(kept[0])];
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        values[i] = getenv(kept[i]) != NULL ? strdup(getenv(kept[i])) : NULL;
    clearenv();
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        if (values[i] != NULL)
            setenv(kept[i], values[i], 1);
    setenv("PATH", "/bin:/usr/bin", 1);
    setenv("PBS_NODENUM", "1", 1);
    setenv("PBS_TASKNUM", "20000001", 1);
    for (; env != NULL && *env != NULL; env++)
        putenv(*env);
}

static void become_task(int argc, char **argv, char **env, const char *host)
{
    const char *program = getenv("STANDIN_TMRSH");
    char **words = calloc((size_t)argc + 3, sizeof(*words));
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    if (program != NULL) {
        words[0] = strdup(program);
        words[1] = strdup(host);
        memcpy(words + 2, argv, (size_t)argc * sizeof(*argv));
        execv(program, words);
    } else {
        for (int sig = 1; sig < 32; sig++)
            if (sig != SIGHUP) /* tasks start with it ignored */
                signal(sig, SIG_DFL);
        signal(SIGHUP, SIG_IGN);
        memcpy(words, argv, (size_t)argc * sizeof(*argv));
        set_environment(env);
        if (chdir(getenv("HOME") != NULL ? getenv("HOME") : "/") == 0)
            execvp(words[0], words);
    }
    _exit(254);
}

int tm_spawn(int argc, char **argv, char **env, int where, unsigned *task, int *event)
{
    if (!begun)
        return BADINIT;
    if (argc <= 0 || argv == NULL || argv[0] == NULL || argv[0][0] == '\0' || where < FIRST_ID ||
        where >= FIRST_ID + nhosts)
        return ENOTFOUND;
    const char *host = hosts[where - FIRST_ID];
    note("spawn %d\n", where - FIRST_ID);
    const char *dead = getenv("STANDIN_DEAD");
    if (dead != NULL && strcmp(dead, host) == 0) {
        *event = add_event(0, 1, NULL);
        return 0;
    }
    pid_t pid = fork();
    if (pid == 0)
        become_task(argc, argv, env, host);
    *task = 0;
    *event = add_event((unsigned)pid, 0, task);
    return 0;
}

int tm_obit(unsigned task, int *status, int *event)
{
    if (!begun)
        return BADINIT;
    *event = add_event(task, 1, status);
    return 0;
}

int tm_kill(unsigned task, int sig, int *event)
{
    note("kill %d\n", sig);
    if (!begun)
        return BADINIT;
    kill(-(pid_t)task, sig);
    *event = add_event(task, 0, NULL);
    return 0;
}

/* True if event i has happened. */
static int came(int i)
{
    int status;
    if (events[i].is_obit &&
        (events[i].task == 0 || waitpid((pid_t)events[i].task, &status, WNOHANG) <= 0))
        return 0;
    if (events[i].is_obit)
        *(int *)events[i].to = WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
    else if (events[i].to != NULL)
        *(unsigned *)events[i].to = events[i].task;
    return 1;
}

int tm_poll(int which, int *event, int wait, int *error)
{
    if (!begun)
        return BADINIT;
    if (nevents == 0)
        return ENOTFOUND;
    *error = 0;
    do {
        for (int i = 0; i < nevents; i++)
            if (came(i)) {
                *event = events[i].number;
                events[i] = events[--nevents];
                return which == 0 ? 0 : ENOEVENT;
            }
        if (wait)
            usleep(10000);
    } while (wait);
    *event = 0;
    return 0;
}

int tm_finalize(void)
{
    note("finalize\n");
    if (!begun)
        return BADINIT;
    begun = 0;
    return 0;
}
