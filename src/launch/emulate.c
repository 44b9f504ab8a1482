#include "launch/emulate.h"

#include "base/sig.h"
#include "launch/codes.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BAD_INPUT = 2 };

void emulate_addr(const struct emulate *e, int index, char out[32])
{
    /* 127.64.0.0 to 127.127.255.255, 1024 addresses per job: neither 127.0.0.1 nor 127.0.1.1 */
    uint32_t host = 0x7f400000U + (uint32_t)(e->random % 4096) * EMULATE_MAX + (uint32_t)index + 1;
    (void)snprintf(out, 32, "127.%u.%u.%u", host >> 16 & 255, host >> 8 & 255, host & 255);
}

static int fill(struct alloc *a, const struct emulate *e, int index)
{
    char addr[32];
    emulate_addr(e, 0, addr);
    a->source = "simulated";
    a->nnodes = e->nnodes;
    a->index = index;
    a->host_addr = strdup(addr);
    if (a->host_addr == NULL || asprintf(&a->job_id, "simulated.%016" PRIx64, e->random) < 0 ||
        asprintf(&a->run_id, "%016" PRIx64, e->random) < 0 ||
        asprintf(&a->psk, "%016" PRIx64 "%016" PRIx64, e->secret[0], e->secret[1]) < 0)
        return -ENOMEM;
    int rc = hostlist_new(&a->nodes);
    for (int i = 0; i < e->nnodes && rc == 0; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "sim%d", i + 1);
        rc = hostlist_push(a->nodes, name);
    }
    return rc;
}

int emulate_alloc(struct alloc **ret, const struct emulate *e, int index, struct dd_err *err)
{
    DD_AUTO(alloc) struct alloc *a = calloc(1, sizeof(*a));
    if (a == NULL || fill(a, e, index) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory for %d simulated node%s", e->nnodes,
                          e->nnodes == 1 ? "" : "s");
    int rc = e->rdzv_id != NULL ? alloc_name_run(a, e->rdzv_id, err) : 0;
    if (rc == 0)
        *ret = DD_TAKE(a);
    return rc;
}

/* Signal all nodes, with sigqueue(): a node can then distinguish a signal that this process
 * forwards from one that it receives directly. */
static void signal_all(const pid_t *pids, int n, int sig)
{
    for (int i = 0; i < n; i++)
        if (pids[i] > 0 && sigqueue(pids[i], sig, (union sigval){.sival_int = 0}) < 0)
            kill(pids[i], sig);
}

/* Reap all processes that have exited. Return the number of nodes that still run. */
static int reap(pid_t *pids, int n, bool go_on, int *code)
{
    int left = 0;
    for (int i = 0; i < n; i++) {
        int status;
        if (pids[i] > 0 && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
            pids[i] = 0;
            *code = launch_code_of_job(*code, launch_exit_code(status), go_on);
        }
        left += pids[i] > 0;
    }
    return left;
}

static int start(const struct emulate *e, pid_t *pids, int (*node)(void *arg, int index), void *arg,
                 const sigset_t *mask)
{
    pid_t self = getpid();
    for (int i = 0; i < e->nnodes; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            return -errno;
        if (pids[i] > 0)
            continue;
        (void)sigprocmask(SIG_SETMASK, mask, NULL);
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        _exit(getppid() != self ? 1 : node(arg, i));
    }
    return 0;
}

int emulate_run(const struct emulate *e, int (*node)(void *arg, int index), void *arg,
                const struct dd_log *log)
{
    DD_AUTO(free) pid_t *pids = calloc((size_t)e->nnodes, sizeof(*pids));
    sigset_t waited;
    sigset_t old;
    int code = -1;
    if (pids == NULL)
        return 1;
    dd_signals_of_jobs(&waited);
    sigaddset(&waited, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &waited, &old);
    int rc = start(e, pids, node, arg, &old);
    if (rc < 0) {
        dd_log(log, DD_LOG_ERR, "cannot start all simulated nodes: %s", strerror(-rc));
        signal_all(pids, e->nnodes, SIGTERM);
        code = 1;
    }
    bool told = false;
    while (reap(pids, e->nnodes, e->go_on, &code) > 0) {
        siginfo_t si;
        /* A node has failed, perhaps before it could inform the others, or the leader has exited,
         * and with it the daemon: stop the others. */
        if (!told && (code == BAD_INPUT || (!e->go_on && (code > 0 || pids[0] == 0)))) {
            signal_all(pids, e->nnodes, SIGTERM);
            told = true;
        }
        int sig = sigwaitinfo(&waited, &si);
        /* do not forward a signal of the terminal, which the kernel sends to all processes */
        if (sig > 0 && sig != SIGCHLD && si.si_code != SI_KERNEL)
            signal_all(pids, e->nnodes, sig);
    }
    return code;
}
