/* The ends of workers: told from those that we ended ourselves, and with what is known about the
 * why. */
#include "agent/inner.h"

#include "agent/error_files.h"
#include "agent/health_check.h"
#include "base/auto.h"
#include "base/io.h"
#include "node/oom.h"
#include "report/error_file.h"
#include "report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAIL_MAX = 10000 }; /* bytes of a failed worker's last lines that are sent on */

void ends_begin(struct agent *a)
{
    a->ends = (struct ends){.oom_kills = node_oom_kills("")};
}

static int read_error(const struct agent *a, int local_rank, struct report_error *ret)
{
    const char *path = error_files_path(a->errors, local_rank);
    DD_AUTO(free) char *text = malloc(ERROR_FILE_MAX);
    /* a worker may have put anything there, also something that nobody ever writes to */
    DD_AUTO(fd) int fd = path[0] != '\0' ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
                                         : -1;
    ssize_t len = text != NULL && fd >= 0 ? read(fd, text, ERROR_FILE_MAX) : 0;
    return len > 0 ? report_error_parse(ret, text, (size_t)len) : -ENOENT;
}

static void tell(struct agent *a, const struct worker_exit *e)
{
    a->ends.failed++;
    char hung[80];
    const char *why = mpi_why(a, e->local_rank);
    struct report_error error = {0};
    const char *tail = a->output != NULL ? worker_output_tail(a->output, e->local_rank) : "";
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TAIL_MAX);
    (void)report_tail(tail, &text);
    if (hang_ended(a, e->local_rank)) {
        (void)snprintf(hung, sizeof(hung), "it gave no sign of life for %g s",
                       (double)a->cfg->hang.timeout_ns / 1e9);
        why = hung;
    }
    if (read_error(a, e->local_rank, &error) < 0 && why != NULL)
        error.message = strdup(why);
    agent_send(a, MSG(EXIT, .round = a->plan.round, .rank = a->plan.first_rank + e->local_rank,
                      .local_rank = e->local_rank, .pid = e->pid, .code = e->code & 255,
                      .signal = e->signal, .oom = node_oom_kills("") > a->ends.oom_kills,
                      .ended_ns = (int64_t)e->at_ns, .sent_ns = (int64_t)dd_now_ns(),
                      .error = error.message, .trace = error.trace,
                      .log = (a->output != NULL ? worker_output_log(a->output, e->local_rank) : ""),
                      .text = dd_buf_str(&text)));
    report_error_done(&error);
}

void ends_worker(struct agent *a, const struct worker_exit *e)
{
    struct ends *n = &a->ends;
    bool settling = e->code != 0 &&
                    signals_settling(a); /* the scheduler's signal, which we shall see soon */
    bool by_us = settling || (n->stop_sig != 0 && (e->signal == n->stop_sig ||
                                                   e->code == 128 + n->stop_sig || e->code == 0));
    if (by_us)
        n->stopped++;
    else if (n->stop_sig != 0 && e->signal == SIGKILL)
        n->killed++;
    else if (e->code == 0)
        n->left++;
    else
        tell(a, e);
}

void ends_failed(struct agent *a, int round, int code, const char *why)
{
    agent_send(a, MSG(EXIT, .round = round, .rank = a->plan.first_rank,
                      .ended_ns = (int64_t)dd_now_ns(), .sent_ns = (int64_t)dd_now_ns(),
                      .code = code, .error = why));
    a->ends = (struct ends){.failed = 1};
    ends_all(a, round);
}

static void send_done(struct agent *a)
{
    const struct ends *n = &a->ends;
    if (a->state != AGENT_IDLE)
        return; /* the daemon was lost meanwhile: another one is told in JOIN */
    agent_send(a, MSG(DONE, .round = n->round, .left = n->left, .stopped = n->stopped,
                      .killed = n->killed, .sent_ns = (int64_t)dd_now_ns(), .ports = ports_text(a),
                      .unfit = health_unfit(a)));
}

/* The node is looked at when there may be a next round: not after success, nor when all has to end.
 */
void ends_all(struct agent *a, int round)
{
    const struct ends *n = &a->ends;
    bool bad = n->stop_sig != 0 || n->failed > 0;
    bool again = a->plan.restart_count < a->plan.max_restarts || rdzv_is_elastic(&a->cfg->rdzv);
    a->ends.round = round;
    if (bad && again && a->signals.last == 0)
        health_check(a, send_done);
    else
        send_done(a);
}
