/* ddrun-tm HOST COMMAND [ARG...]: starts a command on a node of a PBS job through the job's task
 * manager, as pbs_tmrsh does, and exits with its exit code. This is the only program of ddrun that
 * loads the library of PBS, at run time. ddrun-tm --check: exit 0 if this works here, otherwise
 * print the reason.
 *
 * The task gets pbs_mom's small environment and the home directory. ddrun-tm forwards no variables:
 * those that tm_spawn() passes would override the task's own PBS_NODENUM and PBS_TASKNUM. Signals
 * that are not ignored are forwarded to the task. If the parent exits, the task gets SIGTERM.
 *
 * Src: OpenPBS 23.06.06, measured: tm_init() works once in a process; a lost node's obituary may
 * never come. */
#include "launch/tm.h"

#include "base/auto.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/io.h"
#include "base/library.h"
#include "base/strv.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_USAGE = 2,
    EXIT_FAILED = 255, /* pbs_tmrsh and ssh use the same code */
    SIGNALLED = 128,
    CHECK_S = 20,
    PAUSE_MAX_MS = 200,
    ORPHAN_S = 30, /* time limit for a task that has been signalled after the loss of the parent */
    FILE_MAX = 16 << 20,
};

struct manager {
    struct tm_calls call;
    char library[256];
    unsigned task; /* number of the task in TM; 0: not started yet */
    sigset_t signals;
    pid_t parent;
    uint64_t orphan_ns; /* time at which the loss of the parent was noticed; 0: not lost */
};

/* ---- the library ---- */

static bool is_torque(void)
{
    const char *version = dd_env_get_nonempty(environ, "PBS_VERSION");
    return version != NULL && strncmp(version, "TORQUE", 6) == 0;
}

static void *open_library(struct manager *t, struct dd_err *err)
{
    static const char *const names[] = {"libpbs.so.0", "/opt/pbs/lib/libpbs.so.0", "libtorque.so.2",
                                        "/opt/torque/lib/libtorque.so.2",
                                        "/usr/local/lib/libtorque.so.2"};
    enum { NAMES = sizeof(names) / sizeof(names[0]), PRO = 2 };
    const size_t first = is_torque() ? PRO : 0;
    (void)dd_err_set(
        err, -ENOENT,
        "cannot load PBS's library: tried libpbs.so.0 (also in /opt/pbs/lib) and libtorque.so.2 "
        "(also in /opt/torque/lib and /usr/local/lib)"
        "\n  tip: set LD_LIBRARY_PATH to its directory");
    for (size_t i = 0; i < NAMES; i++) {
        const char *name = names[(first + i) % NAMES];
        void *lib = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
        (void)snprintf(t->library, sizeof(t->library), "%s", name);
        if (lib != NULL)
            return lib;
        const char *why = dlerror();
        if (name[0] == '/' && access(name, F_OK) == 0)
            (void)dd_err_set(err, -ELIBBAD, "cannot load PBS's library: %.300s",
                             why != NULL ? why : name);
    }
    return NULL;
}

static int load(struct manager *t, struct dd_err *err)
{
    static const struct dd_library_row rows[] = {
        {"tm_init", offsetof(struct tm_calls, init)},
        {"tm_nodeinfo", offsetof(struct tm_calls, nodeinfo)},
        {"tm_spawn", offsetof(struct tm_calls, spawn)},
        {"tm_obit", offsetof(struct tm_calls, obit)},
        {"tm_kill", offsetof(struct tm_calls, kill)},
        {"tm_poll", offsetof(struct tm_calls, poll)},
        {"tm_finalize", offsetof(struct tm_calls, finalize)},
    };
    const char *missing = "";
    void *lib = open_library(t, err);
    if (lib == NULL)
        return -ENOENT;
    if (dd_library_bind(&t->call, lib, rows, sizeof(rows) / sizeof(rows[0]), &missing) < 0)
        return dd_err_set(err, -ELIBBAD, "%s has no symbol %s of PBS's task manager", t->library,
                          missing);
    return 0;
}

static int failed(const struct manager *t, const char *what, int rc, struct dd_err *err)
{
    return dd_err_set(err, -EIO, "%s of %s failed: %s (%d)", what, t->library, tm_words(rc), rc);
}

static int begin(struct manager *t, struct dd_err *err)
{
    static const char *const needed[] = {"PBS_JOBID", "PBS_JOBCOOKIE", "PBS_NODENUM", "PBS_TASKNUM",
                                         "PBS_MOMPORT"};
    struct tm_roots roots = {0};
    int rc = load(t, err);
    for (size_t i = 0; rc == 0 && i < sizeof(needed) / sizeof(needed[0]); i++)
        if (dd_env_get_nonempty(environ, needed[i]) == NULL)
            return dd_err_set(
                err, -EINVAL,
                "%s is unset or empty: PBS starts tasks only from a job's script and its tasks",
                needed[i]);
    if (rc < 0)
        return rc;
    rc = t->call.init(NULL, &roots);
    return rc == 0 ? 0 : failed(t, "tm_init", rc, err);
}

/* ---- node numbers ---- */

/* Src: measured: tasks on the first node lack PBS_NODEFILE, but the file exists. */
static int read_nodes(struct dd_buf *text, char **ret_path, struct dd_err *err)
{
    DD_AUTO(free) char *path = NULL;
    const char *named = dd_env_get_nonempty(environ, "PBS_NODEFILE");
    const int n = named != NULL
                      ? asprintf(&path, "%s", named)
                      : asprintf(&path, "/var/spool/%s/aux/%s", is_torque() ? "torque" : "pbs",
                                 dd_env_get_nonempty(environ, "PBS_JOBID"));
    if (n < 0) {
        path = NULL;
        return dd_err_set(err, -ENOMEM, "out of memory");
    }
    const int rc = dd_read_file(path, text, err);
    *ret_path = DD_TAKE(path);
    return rc;
}

static int find_node(const struct manager *t, const char *host, int *ret, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(FILE_MAX);
    DD_AUTO(free) int *ids = NULL;
    DD_AUTO(free) char *path = NULL;
    int n = 0;
    int lines = 0;
    int rc = read_nodes(&text, &path, err);
    if (rc < 0)
        return rc;
    const int line = tm_line_of(text.len > 0 ? (const char *)text.data : "", text.len, host,
                                &lines);
    if (line < 0)
        return dd_err_set(err, -ENOENT,
                          "node '%.200s' is not in the job's node file '%.200s' (%d line%s)", host,
                          path, lines, lines == 1 ? "" : "s");
    rc = t->call.nodeinfo(&ids, &n);
    if (rc != 0)
        return failed(t, "tm_nodeinfo", rc, err);
    if (n != lines)
        return dd_err_set(err, -EPROTO,
                          "the job's node file '%.200s' has %d line%s, but %s reports %d node%s",
                          path, lines, lines == 1 ? "" : "s", t->library, n, n == 1 ? "" : "s");
    *ret = ids[line];
    return 0;
}

/* ---- the task ---- */

static void take_signals(struct manager *t)
{
    static const int all[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    struct sigaction now;
    sigemptyset(&t->signals);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (sigaction(all[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&t->signals, all[i]);
    (void)sigprocmask(SIG_BLOCK, &t->signals, NULL);
}

static void tell(const struct manager *t, int sig)
{
    int event;
    if (t->task == 0)
        exit(SIGNALLED + sig);
    (void)t->call.kill(t->task, sig, &event);
}

/* Wait `ms` milliseconds, or until a signal arrives. Return false if the parent exited ORPHAN_S
 * ago.
 */
static bool rest(struct manager *t, unsigned ms)
{
    const struct timespec pause = {.tv_nsec = (long)ms * (long)DD_NS_PER_MS};
    const int sig = sigtimedwait(&t->signals, NULL, &pause);
    if (sig > 0)
        tell(t, sig);
    if (t->orphan_ns == 0 && getppid() != t->parent) {
        t->orphan_ns = dd_now_ns();
        tell(t, SIGTERM);
    }
    return t->orphan_ns == 0 || dd_now_ns() - t->orphan_ns < ORPHAN_S * DD_NS_PER_S;
}

/* Poll: a blocking call of the library would notice neither signals nor the loss of the parent.
 * Return 0, or TM's error number. */
static int wait_for(struct manager *t, int wanted)
{
    int event = TM_NO_EVENT;
    int error = 0;
    for (unsigned ms = 1;; ms = ms < PAUSE_MAX_MS / 2 ? 2 * ms : PAUSE_MAX_MS) {
        int rc = t->call.poll(TM_NO_EVENT, &event, 0, &error);
        if (rc != 0 || event == wanted)
            return rc != 0 ? rc : error;
        if (event == TM_NO_EVENT && !rest(t, ms))
            exit(SIGNALLED + SIGTERM);
    }
}

static int run(struct manager *t, int argc, char **argv, int *code, struct dd_err *err)
{
    int node = -1;
    int event;
    int status = 0;
    unsigned task = 0;
    int rc = find_node(t, argv[0], &node, err);
    if (rc < 0)
        return rc;
    rc = t->call.spawn(argc - 1, argv + 1, NULL, node, &task, &event);
    if (rc == 0)
        rc = wait_for(t, event);
    if (rc != 0)
        return failed(t, "tm_spawn", rc, err);
    t->task = task;
    rc = t->call.obit(task, &status, &event);
    if (rc == 0)
        rc = wait_for(t, event);
    if (rc != 0)
        return failed(t, "tm_obit", rc, err);
    *code = tm_exit_code(status);
    return 0;
}

int main(int argc, char **argv)
{
    static const char usage[] = "usage: ddrun-tm HOST COMMAND [ARG...], or ddrun-tm --check\n";
    const bool check = argc == 2 && strcmp(argv[1], "--check") == 0;
    struct manager t = {.parent = getppid()};
    struct dd_err err = {0};
    int code = 0;
    if (!check && argc < 3) {
        (void)fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (check)
        (void)alarm(CHECK_S);
    else
        take_signals(&t);
    int rc = begin(&t, &err);
    if (rc == 0) {
        rc = check ? 0 : run(&t, argc - 1, argv + 1, &code, &err);
        (void)t.call.finalize();
    }
    if (rc == 0)
        return code;
    (void)fprintf(stderr, "ddrun-tm: %s\n", err.text);
    return EXIT_FAILED;
}
