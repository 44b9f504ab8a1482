#include "agent/guardian.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/num.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

struct guardian {
    pid_t agent;
    int status; /* of the agent, once it is gone */
    bool agent_gone;
    bool children_left;
    sigset_t waited;
    const struct dd_log *log;
};

/* Takes the exits that are there; what is left is told by waitpid. */
static void reap(struct guardian *g)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == g->agent) {
            g->status = status;
            g->agent_gone = true;
        }
    g->children_left = pid == 0;
}

static pid_t parent_of(const char *pid)
{
    char path[64];
    char text[512];
    (void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    DD_AUTO(file) FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(text, 1, sizeof(text) - 1, f) : 0;
    text[n] = '\0';
    char *after = strrchr(text, ')'); /* the name before it may hold anything */
    char *ppid = after != NULL && strlen(after) > 4 ? after + 4 : NULL;
    int id;
    if (ppid == NULL)
        return -1;
    ppid[strcspn(ppid, " ")] = '\0';
    return dd_num_int(ppid, 0, 1 << 30, &id) == 0 ? id : -1;
}

/* Orphans of the agent are our children now. */
static void signal_children(int sig)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    int pid;
    while (d != NULL && (e = readdir(d)) != NULL)
        if (dd_num_int(e->d_name, 1, 1 << 30, &pid) == 0 && parent_of(e->d_name) == getpid())
            kill(pid, sig);
    if (d != NULL)
        closedir(d);
}

static void pass_on(const struct guardian *g, const siginfo_t *si)
{
    /* A terminal's signal goes to the whole process group: the agent has it already. */
    if (si->si_signo != SIGCHLD && si->si_code != SI_KERNEL && !g->agent_gone)
        kill(g->agent, si->si_signo);
}

/* Waits for a signal until `deadline_ns` (0: for ever) and handles it. */
static void wait_once(struct guardian *g, uint64_t deadline_ns)
{
    siginfo_t si;
    uint64_t now = dd_now_ns();
    uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    struct timespec t = {.tv_sec = (time_t)(left / DD_NS_PER_S), .tv_nsec = (long)(left % DD_NS_PER_S)};
    int sig = sigtimedwait(&g->waited, &si, deadline_ns == 0 ? NULL : &t);
    if (sig > 0)
        pass_on(g, &si);
    reap(g);
}

/* The agent is gone; end whatever of the job still lives. ddrund takes SIGTERM as "tell the other
 * nodes, then leave". Each KILL may hand us new orphans, so it is repeated until none is left. */
static void end_orphans(struct guardian *g, unsigned grace_ms)
{
    uint64_t deadline = dd_now_ns() + grace_ms * DD_NS_PER_MS;
    signal_children(SIGTERM);
    while (g->children_left && dd_now_ns() < deadline)
        wait_once(g, deadline);
    while (g->children_left) {
        signal_children(SIGKILL);
        wait_once(g, dd_now_ns() + 20 * DD_NS_PER_MS);
    }
}

static int start_agent(struct guardian *g, int (*fn)(void *arg), void *arg)
{
    pid_t self = getpid();
    g->agent = fork();
    if (g->agent < 0)
        return -errno;
    if (g->agent > 0)
        return 0;
    /* signals stay blocked, so that none ends the agent before it handles them */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    _exit(getppid() != self ? 1 : fn(arg));
}

int guardian_run(int (*fn)(void *arg), void *arg, unsigned grace_ms, const struct dd_log *log)
{
    struct guardian g = {.log = log, .children_left = true};
    sigemptyset(&g.waited);
    sigaddset(&g.waited, SIGCHLD);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
        sigaddset(&g.waited, passed_on[i]);
    (void)sigprocmask(SIG_BLOCK, &g.waited, NULL);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    int rc = start_agent(&g, fn, arg);
    if (rc < 0) {
        dd_log(log, DD_LOG_ERR, "cannot fork: %s", strerror(-rc));
        return 1;
    }
    while (!g.agent_gone)
        wait_once(&g, 0);
    if (WIFSIGNALED(g.status))
        dd_log(log, DD_LOG_ERR, "the agent was killed by signal %d; ending what is left of its workers",
               WTERMSIG(g.status));
    if (g.children_left)
        end_orphans(&g, grace_ms);
    return WIFSIGNALED(g.status) ? 128 + WTERMSIG(g.status) : WEXITSTATUS(g.status);
}
