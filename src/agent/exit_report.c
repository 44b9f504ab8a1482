#include "agent/exit_report.h"

#include "agent/agent.h"
#include "agent/held_ports.h"
#include "agent/round.h"
#include "base/auto.h"
#include "base/io.h"
#include "rdzv/msg.h"
#include "worker/aside.h"
#include "worker/output.h"
#include "node/oom.h"
#include "report/error_file.h"
#include "report/report.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { TAIL_MAX = 10000 }; /* bytes of a failed worker's last lines that EXIT carries */

void exit_report_begin(struct round *r)
{
    r->stop_sig = 0;
    r->exits = (struct exit_tally){.round = r->plan.round, .oom_kills = node_oom_kills("")};
}

/* After a file system that did not respond, read no further error file of this round. */
static int exit_report_read_error(struct exit_tally *n, const char *path, struct report_error *ret)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(2 * ERROR_FILE_MAX);
    if (path[0] == '\0' || n->files_hang)
        return -ENOENT;
    n->files_hang = aside_read_end(path, ERROR_FILE_MAX, &text) == -ETIMEDOUT;
    return text.len > 0 ? report_error_parse(ret, (const char *)text.data, text.len) : -ENOENT;
}

static void send_exit(struct round *r, const struct worker_end *end)
{
    const struct worker_exit *e = &end->exit;
    struct report_error error = {0};
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TAIL_MAX);
    r->exits.failed++;
    (void)report_tail(r->output != NULL ? worker_output_tail(r->output, e->local_rank) : "", &text);
    if (exit_report_read_error(&r->exits, end->error_file, &error) < 0 && end->why[0] != '\0')
        error.message = strdup(end->why);
    round_send(r, MSG(EXIT, .round = r->plan.round, .rank = r->plan.first_rank + e->local_rank,
                      .local_rank = e->local_rank, .pid = e->pid, .code = e->code & 255,
                      .signal = e->signal, .oom = node_oom_kills("") > r->exits.oom_kills,
                      .ended_ns = (int64_t)e->at_ns, .sent_ns = (int64_t)dd_now_ns(),
                      .error = error.message, .trace = error.trace,
                      .log = (r->output != NULL ? worker_output_log(r->output, e->local_rank) : ""),
                      .text = dd_buf_str(&text)));
    report_error_done(&error);
}

static void note_left(struct round *r, const struct worker_exit *e)
{
    struct exit_tally *n = &r->exits;
    n->left++;
    if (n->first_ns != 0 && n->first_ns <= e->at_ns)
        return;
    n->first_rank = r->plan.first_rank + e->local_rank;
    n->first_ns = e->at_ns;
}

void exit_report_worker(struct round *r, const struct worker_end *end)
{
    const struct worker_exit *e = &end->exit;
    const int sig = r->stop_sig;
    struct exit_tally *n = &r->exits;
    bool by_us = end->settling ||
                 (sig != 0 && (e->signal == sig || e->code == 128 + sig || e->code == 0));
    if (by_us)
        n->stopped++;
    else if (sig != 0 && e->signal == SIGKILL)
        n->killed++;
    else if (e->code == 0)
        note_left(r, e);
    else
        send_exit(r, end);
}

void exit_report_no_start(struct round *r, int round, int code, const char *why)
{
    if (why != NULL)
        round_send(r, MSG(EXIT, .round = round, .rank = r->plan.first_rank,
                          .ended_ns = (int64_t)dd_now_ns(), .sent_ns = (int64_t)dd_now_ns(),
                          .code = code, .error = why));
    r->stop_sig = 0;
    r->exits = (struct exit_tally){.failed = 1, .round = round};
}

bool exit_report_wants_check(const struct round *r)
{
    bool bad = r->stop_sig != 0 || r->exits.failed > 0;
    bool again = r->plan.restart_count < r->plan.max_restarts || rdzv_is_elastic(&r->cfg->rdzv);
    return bad && again;
}

void exit_report_done(const struct round *r, const char *unfit)
{
    const struct exit_tally *n = &r->exits;
    round_send(r, MSG(DONE, .round = n->round, .left = n->left, .stopped = n->stopped,
                      .killed = n->killed, .first_rank = n->first_rank,
                      .first_ns = (int64_t)n->first_ns, .sent_ns = (int64_t)dd_now_ns(),
                      .ports = held_ports_text(r), .unfit = unfit));
}
