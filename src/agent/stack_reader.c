#include "agent/stack_reader.h"

#include "agent/agent.h"
#include "agent/child_stacks.h"
#include "agent/cuda_core.h"
#include "agent/flight_recorder.h"
#include "agent/frame_helpers.h"
#include "agent/native_reader.h"
#include "agent/nccl_query.h"
#include "base/io.h"
#include "rdzv/msg.h"
#include "report/native_stack.h"
#include "report/py_spy.h"
#include "report/stacks.h"
#include "report/traceback.h"
#include "worker/children.h"
#include "worker/command.h"
#include "worker/output.h"
#include "worker/python_process.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

enum {
    AT_ONCE = 8, /* maximum number of pending requests */
    PY_SPY_OUT = 4 << 20,
    TRIES = 2, /* py-spy does not stop the process, so a stack that changes may not be readable */
    LEAST_PARALLEL = 4,
    FILE_MAX = 64 << 20,
    WRITE_MS = 5000,
    END_MS = 1000,   /* time to finish writing stacks.txt after the last worker has ended */
    RECORDS_MS = 50, /* interval of checking flight recorders, NCCL and core dumps */
};

struct reading;

/* A worker whose frames are to be read. */
struct target {
    struct reading *reading;
    int rank;
    pid_t worker, python;
    struct command *command;
    char kernel[STACKS_NAME]; /* state of the process in the kernel at the time of the request */
    char note[STACKS_NAME];   /* why the frames could not be read without py-spy */
    bool needs_py_spy;
    int tries;
    bool done;
    const char *native;            /* native frames; NULL: none */
    char native_note[STACKS_NAME]; /* why `native` is NULL or empty */
};

/* One request of the daemon. */
struct reading {
    LIST_ENTRY(reading) entry;
    struct stack_reader *reader;
    int64_t id;
    bool all;              /* also workers without frames */
    bool keep;             /* write files to the log directory */
    bool answered;         /* the reply was sent; commands still run */
    struct rank_set ranks; /* requested ranks; empty: all */
    uint64_t begin_ns, limit_ns;
    struct event *limit;
    struct event *records; /* pending while flight recorders, NCCL or core dumps are not complete */
    struct stacks found;
    struct frame_helpers *helpers; /* NULL: not begun, or all have ended */
    struct native_reader *natives; /* NULL: native frames are not wanted, or cannot be read */
    bool native, native_runs;
    struct child_stacks *children; /* processes for which workers wait */
    bool children_read;            /* reading the children has begun */
    char *py_spy;
    bool searched; /* py_spy was searched for */
    struct target *v;
    int n, next, running, parallel;
    struct target *others; /* workers without Python, if native frames are wanted */
    int nothers;
};

struct stack_reader {
    const struct round *round;
    struct dd_buf text; /* content of stacks.txt */
    struct command *writer;
    LIST_HEAD(, reading) readings;
    int n;
};

static void read_next(struct reading *d);

/* ---- the answer ---- */

static void reading_free(struct reading *d)
{
    LIST_REMOVE(d, entry);
    d->reader->n--;
    for (int i = 0; i < d->n; i++)
        command_free(d->v[i].command);
    frame_helpers_free(d->helpers);
    native_reader_free(d->natives);
    child_stacks_free(d->children);
    if (d->limit != NULL)
        event_free(d->limit);
    if (d->records != NULL)
        event_free(d->records);
    stacks_done(&d->found);
    rank_set_done(&d->ranks);
    free(d->py_spy);
    free(d->v);
    free(d->others);
    free(d);
}

static void send_stacks(const struct round *r, int64_t id, const struct stacks *s)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(STACKS_MESSAGE);
    if (stacks_write(s, STACKS_MESSAGE - 1, &text) < 0)
        (void)dd_buf_puts(&text, "{\"groups\":[]}");
    round_send(r, MSG(STACKS, .id = id, .text = dd_buf_str(&text)));
}

/* Write a file in the directory of this attempt, if there is text. */
static int write_log(const struct stack_reader *s, const char *name, const void *text, size_t len)
{
    DD_AUTO(buf) struct dd_buf path = DD_BUF_INIT(PATH_MAX);
    const char *log = worker_output_error_file(s->round->output, 0);
    const char *rank = memrchr(log, '/', strlen(log));
    const char *attempt = rank != NULL ? memrchr(log, '/', (size_t)(rank - log)) : NULL;
    if (len == 0)
        return 0;
    if (attempt == NULL || dd_buf_append(&path, log, (size_t)(attempt - log)) < 0 ||
        dd_buf_puts(&path, name) < 0 || dd_buf_str(&path) == NULL)
        return -EINVAL;
    DD_AUTO(fd) int fd = open(dd_buf_str(&path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : dd_write_full(fd, text, len);
}

/* Write the stacks in a child, since the file system of the logs may hang. On failure, print the
 * reason. */
static int write_in_child(void *arg)
{
    const struct stack_reader *s = arg;
    const char *ras = nccl_query_answer(s->round);
    const int rc = write_log(s, "/stacks.txt", s->text.data, s->text.len);
    const int rc_ras = write_log(s, "/nccl_ras.txt", ras, strlen(ras));
    if (rc < 0 || rc_ras < 0)
        (void)dprintf(STDOUT_FILENO, "%s: %s", rc < 0 ? "stacks.txt" : "nccl_ras.txt",
                      strerror(rc < 0 ? -rc : -rc_ras));
    return rc < 0 || rc_ras < 0;
}

static void on_written(void *arg, int code, const char *out)
{
    struct stack_reader *s = arg;
    char why[120];
    (void)snprintf(why, sizeof(why), "exit code %d of the writing process", code);
    if (code != 0 && code != COMMAND_TOO_LATE && out[0] != '\0')
        dd_log(s->round->cfg->log, DD_LOG_WARN, "cannot write to the log directory: %.200s", out);
    else if (code != 0)
        dd_log(s->round->cfg->log, DD_LOG_WARN,
               "cannot write stacks.txt or nccl_ras.txt to the log directory: %s",
               code == COMMAND_TOO_LATE ? "the file system does not respond" : why);
    command_free(DD_TAKE(s->writer));
}

static void write_file(struct stack_reader *s, struct stacks *found)
{
    const struct round *r = s->round;
    const struct command_spec spec = {.run = write_in_child, .run_arg = s, .limit_ms = WRITE_MS};
    if (r->output == NULL || worker_output_error_file(r->output, 0)[0] == '\0' ||
        (found->n == 0 && !found->ras.answered) || s->writer != NULL)
        return;
    stacks_sort(found);
    dd_buf_clear(&s->text);
    if (stacks_text_long(found, &s->text) == 0 &&
        command_start(&s->writer, r->base, &spec, on_written, s, NULL) == 0)
        round_protect(r, command_pid(s->writer));
}

/* Find in the traceback of a worker's output the frames in which it waited for other ranks. False:
 * there are none. */
static bool has_failed_in(const struct reading *d, int rank, struct dd_buf *frames)
{
    const struct round *r = d->reader->round;
    const char *tail = r->output != NULL ? worker_output_tail(r->output, rank - r->plan.first_rank)
                                         : "";
    return traceback_of_waiting(tail, frames) == 0 && dd_buf_str(frames) != NULL;
}

/* Add a worker that has ended, or is about to end. */
static void add_ended(struct reading *d, int rank)
{
    DD_AUTO(buf) struct dd_buf frames = DD_BUF_INIT(STACKS_TEXT);
    const bool failed = has_failed_in(d, rank, &frames);
    const struct stack ended = {.kind = STACK_ENDED, .frames = failed ? dd_buf_str(&frames) : ""};
    (void)stacks_add(&d->found, &ended, rank, rank); /* -ENOMEM: the answer omits it */
}

static void add_kernel(struct reading *d, const struct target *t, const char *note)
{
    char state[STACKS_NAME + 16];
    (void)snprintf(state, sizeof(state), "state %.150s", t->kernel);
    const bool ended = t->kernel[0] == 'Z' || t->kernel[0] == 'X' || t->kernel[0] == '?';
    const struct stack what = {.kind = STACK_KERNEL,
                               .frames = t->native,
                               .state = state,
                               .note = note[0] != '\0' ? note : t->native_note};
    if (ended)
        add_ended(d, t->rank);
    else
        (void)stacks_add(&d->found, &what, t->rank, t->rank); /* -ENOMEM: the answer omits it */
}

static bool has_ended(const struct round *r, const struct target *t)
{
    return r->group == NULL ||
           worker_group_pid(r->group, t->rank - r->plan.first_rank) != t->worker;
}

/* Add the collectives that the workers are in, also of workers that have ended after they wrote a
 * record without a request. */
static void add_records(struct reading *d)
{
    const struct round *r = d->reader->round;
    for (int i = 0; i < r->plan.local_size; i++) {
        const int rank = r->plan.first_rank + i;
        struct flight_record record;
        if ((d->ranks.n == 0 || rank_set_has(&d->ranks, rank)) &&
            flight_recorder_read(r, i, &record) == 0)
            (void)flight_groups_add(&d->found.collectives, &record, rank, rank);
    }
    if (d->ranks.n == 0)
        (void)nccl_query_take(r, &d->found.ras);
}

/* Answer with the stacks that have been read so far. d may be freed. */
static void reading_answer(struct reading *d)
{
    char late[STACKS_NAME];
    if (d->helpers != NULL && !d->answered)
        frame_helpers_collect(d->helpers);
    (void)snprintf(late, sizeof(late), "%s within %.3g s",
                   d->py_spy != NULL ? "py-spy did not finish" : "not read",
                   (double)d->limit_ns / 1e9);
    for (int i = 0; i < d->nothers && !d->answered && d->native_runs; i++)
        add_kernel(d, &d->others[i], late);
    for (int i = 0; i < d->n && !d->answered; i++)
        if (!d->v[i].done && has_ended(d->reader->round, &d->v[i]))
            add_ended(d, d->v[i].rank);
        else if (!d->v[i].done)
            add_kernel(d, &d->v[i], late);
    if (!d->answered) {
        child_stacks_add_to(d->children, &d->found.children);
        add_records(d);
        d->found.seconds = (double)(dd_now_ns() - d->begin_ns) / 1e9;
        if (d->keep)
            write_file(d->reader, &d->found);
        send_stacks(d->reader->round, d->id, &d->found);
    }
    d->answered = true;
    event_del(d->limit);
    event_del(d->records);
    d->native_runs = false;
    native_reader_free(DD_TAKE(d->natives));
    if (d->helpers != NULL)
        frame_helpers_stop(d->helpers); /* on_helpers_end() frees the request */
    else if (d->running == 0)
        reading_free(d);
}

/* Answer once all readers, the flight recorders, NCCL and, after a hang, the core dumps of GPUs are
 * complete: no node ends its workers before the daemon has the answers of all. d may be freed. */
static void reading_try_answer(struct reading *d)
{
    static const struct timeval later = {.tv_usec = RECORDS_MS * 1000L};
    if (d->running > 0 || d->helpers != NULL)
        return;
    const bool ready = flight_recorder_is_ready(d->reader->round) &&
                       (d->ranks.n > 0 || nccl_query_is_ready(d->reader->round)) &&
                       (!d->keep || cuda_core_is_ready(d->reader->round));
    if (d->answered || ready || evtimer_add(d->records, &later) < 0)
        reading_answer(d);
}

static void on_records(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    reading_try_answer(arg);
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    reading_answer(arg);
}

/* ---- py-spy ---- */

static void add_frames(struct reading *d, const struct target *t, const char *frames)
{
    DD_AUTO(buf) struct dd_buf merged = DD_BUF_INIT(4 * STACKS_TEXT);
    char state = children_state_letter(t->python);
    if (native_stack_merge(stack_text(t->native), frames, &merged) == 0 && merged.len > 0)
        frames = dd_buf_str(&merged) != NULL ? dd_buf_str(&merged) : frames;
    if (state == 'D' && t->kernel[0] != 'D')
        state = 'S'; /* a short wait for a disk, as in any process that reads a file */
    const struct stack what = {.kind = STACK_PYTHON,
                               .frames = frames,
                               .state = stack_remarkable_state(state),
                               .note = t->native_note};
    (void)stacks_add(&d->found, &what, t->rank, t->rank);
}

/* py-spy may print warnings before the JSON. */
static int parse_output(const struct target *t, const char *out, struct dd_buf *frames)
{
    const char *begin = out[0] == '[' ? out : strstr(out, "\n[");
    return begin == NULL ? -EPROTO : py_spy_parse(begin, strlen(begin), (int)t->python, frames);
}

static void on_read(void *arg, int code, const char *out)
{
    struct target *t = arg;
    struct reading *d = t->reading;
    DD_AUTO(buf) struct dd_buf frames = DD_BUF_INIT(2 * STACKS_TEXT);
    DD_AUTO(buf) struct dd_buf reason = DD_BUF_INIT(2 * STACKS_NAME);
    const int rc = code == 0 ? parse_output(t, out, &frames) : -EPROTO;
    if (!d->answered && rc == 0) {
        add_frames(d, t, dd_buf_str(&frames));
        t->done = true;
    } else if (!d->answered && code != COMMAND_TOO_LATE && t->tries >= TRIES) {
        (void)py_spy_reason(out, &reason);
        (void)children_state(t->python, t->kernel, sizeof(t->kernel)); /* it may have ended */
        add_kernel(d, t, rc == -ENODATA ? "py-spy: no Python frame" : dd_buf_str(&reason));
        t->done = true;
    }
    command_free(DD_TAKE(t->command));
    d->running--;
    read_next(d);
}

/* Start py-spy for a target. False: it was not started. */
static bool read_target(struct reading *d, struct target *t)
{
    const struct round *r = d->reader->round;
    const uint64_t spent = dd_now_ns() - d->begin_ns;
    char number[16];
    (void)snprintf(number, sizeof(number), "%d", (int)t->python);
    const char *argv[] = {d->py_spy, "dump", "--json", "--nonblocking", "--pid", number, NULL};
    const struct command_spec spec = {
        .argv = argv,
        .env = r->cfg->env,
        .most_out = PY_SPY_OUT,
        .limit_ms = spent < d->limit_ns ? (unsigned)((d->limit_ns - spent) / DD_NS_PER_MS) + 1 : 1};
    struct dd_err err = {0};
    t->tries++;
    if (command_start(&t->command, r->base, &spec, on_read, t, &err) < 0) {
        add_kernel(d, t, err.text);
        t->done = true;
        return false;
    }
    round_protect(r, command_pid(t->command));
    d->running++;
    return true;
}

/* Start as many py-spy processes as may run at a time; answer when all have ended. d may be freed.
 */
static void read_next(struct reading *d)
{
    for (int pass = 0; pass < TRIES && !d->answered; pass++)
        for (int i = pass == 0 ? d->next : 0; i < d->n && d->running < d->parallel; i++) {
            struct target *t = &d->v[i];
            if (pass == 0)
                d->next = i + 1;
            if (t->needs_py_spy && !t->done && t->command == NULL && t->tries == pass)
                (void)read_target(d, t);
        }
    reading_try_answer(d);
}

/* ---- without py-spy ---- */

/* True with --py-spy=none. */
static bool is_without_py_spy(const struct reading *d)
{
    const char *wanted = d->reader->round->cfg->stacks.py_spy;
    return wanted != NULL && strcmp(wanted, "none") == 0;
}

/* True if the worker is about to end because another rank is lost or late: its interpreter prints
 * the traceback, or is being finalized afterwards. */
static bool is_ending(const struct reading *d, const struct target *t, int rc, const char *text)
{
    DD_AUTO(buf) struct dd_buf frames = DD_BUF_INIT(STACKS_TEXT);
    const bool may = rc == 0 ? traceback_is_printed(text)
                             : rc == -ENODATA || rc == -EAGAIN || rc == -ESRCH;
    return may && has_failed_in(d, t->rank, &frames);
}

static void on_frames(void *arg, size_t index, int rc, const char *text)
{
    struct reading *d = arg;
    struct target *t = &d->v[index];
    if (is_ending(d, t, rc, text)) {
        add_ended(d, t->rank);
    } else if (rc == 0) {
        add_frames(d, t, text);
        if (stack_waits_for_child(text))
            child_stacks_find(d->children, t->rank, t->python);
    } else if (rc == -ENOTSUP && !is_without_py_spy(d)) {
        (void)snprintf(t->note, sizeof(t->note), "%s", text);
        t->needs_py_spy = true;
        return;
    } else {
        (void)children_state(t->python, t->kernel, sizeof(t->kernel)); /* it may have ended */
        add_kernel(d, t, text);
    }
    t->done = true;
}

/* Read the remaining targets by py-spy. d may be freed. */
static void read_by_py_spy(struct reading *d)
{
    const struct round *r = d->reader->round;
    char note[2 * STACKS_NAME];
    for (int i = 0; i < d->n; i++) {
        struct target *t = &d->v[i];
        if (!t->needs_py_spy || t->done)
            continue;
        if (d->py_spy == NULL && !d->searched)
            (void)python_process_py_spy(&d->py_spy, t->python, r->cfg->worker.program->v[0],
                                        r->cfg->env, r->cfg->stacks.py_spy);
        d->searched = true;
        if (d->py_spy != NULL)
            break;
        (void)snprintf(note, sizeof(note), "%s%spy-spy not found", t->note,
                       t->note[0] != '\0' ? "; " : "");
        add_kernel(d, t, note);
        t->done = true;
    }
    read_next(d);
}

static void on_child_frames(void *arg, size_t index, int rc, const char *text)
{
    const struct reading *d = arg;
    child_stacks_take(d->children, index, rc, text);
}

static bool start_helpers(struct reading *d, const struct frame_process *v, size_t n,
                          frame_helpers_result_f *result);

/* Read the children for which workers wait, after the workers. False: there are none, or they have
 * been read. */
static bool read_children(struct reading *d)
{
    size_t n;
    const struct frame_process *v = child_stacks_processes(d->children, &n);
    const bool first = !d->children_read;
    d->children_read = true;
    return first && start_helpers(d, v, n, on_child_frames);
}

/* d may be freed. */
static void on_helpers_end(void *arg)
{
    struct reading *d = arg;
    frame_helpers_free(DD_TAKE(d->helpers));
    if (!d->answered && read_children(d))
        return;
    if (!d->answered)
        read_by_py_spy(d);
    else if (d->running == 0)
        reading_free(d);
}

static int cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Read n processes. False: there is none, or no helper could be started. */
static bool start_helpers(struct reading *d, const struct frame_process *v, size_t n,
                          frame_helpers_result_f *result)
{
    const uint64_t spent = dd_now_ns() - d->begin_ns;
    const uint64_t left = spent < d->limit_ns ? d->limit_ns - spent : 0;
    const struct frame_helpers_spec spec = {.round = d->reader->round,
                                            .v = v,
                                            .n = n,
                                            .most = (size_t)cpus(),
                                            .limit_ms = (unsigned)(left / DD_NS_PER_MS) + 1,
                                            .result = result,
                                            .end = on_helpers_end,
                                            .arg = d};
    return n > 0 && frame_helpers_start(&d->helpers, &spec) == 0;
}

/* Read the frames of all targets; with --py-spy=FILE, by that program. d may be freed. */
static void read_targets(struct reading *d)
{
    const struct round *r = d->reader->round;
    DD_AUTO(free) struct frame_process *v = calloc((size_t)d->n + 1, sizeof(*v));
    for (int i = 0; i < d->n && v != NULL; i++)
        v[i] = (struct frame_process){.pid = d->v[i].python,
                                      .permits = d->v[i].python == d->v[i].worker};
    const bool own = r->cfg->stacks.py_spy == NULL || is_without_py_spy(d);
    if (own && v != NULL && start_helpers(d, v, (size_t)d->n, on_frames))
        return;
    for (int i = 0; i < d->n; i++)
        d->v[i].needs_py_spy = true;
    read_by_py_spy(d);
}

/* ---- native frames ---- */

static struct target *native_target(const struct reading *d, int i)
{
    return i < d->n ? &d->v[i] : &d->others[i - d->n];
}

static void add_other(struct reading *d, struct target *t)
{
    (void)children_state(t->worker, t->kernel, sizeof(t->kernel)); /* the process may have ended */
    add_kernel(d, t, "");
    t->done = true;
}

/* Take the native frames, and continue with Python frames. d may be freed. */
static void on_native_end(void *arg)
{
    struct reading *d = arg;
    d->native_runs = false;
    for (int i = 0; i < d->n + d->nothers; i++) {
        struct target *t = native_target(d, i);
        t->native = native_reader_frames(d->natives, (size_t)i);
        (void)snprintf(t->native_note, sizeof(t->native_note), "%s",
                       native_reader_note(d->natives, (size_t)i));
        if (i >= d->n)
            add_other(d, t);
    }
    read_targets(d);
}

/* Record why there are no native frames, and add the targets without Python. */
static void go_without_native(struct reading *d, int rc)
{
    const char *why = rc == -ENOENT ? "neither eu-stack nor gdb found" : strerror(-rc);
    for (int i = 0; i < d->n + d->nothers; i++) {
        struct target *t = native_target(d, i);
        (void)snprintf(t->native_note, sizeof(t->native_note), "no native frames: %s", why);
        if (i >= d->n)
            add_other(d, t);
    }
}

/* Read the native frames of all targets. False: they are not wanted, or cannot be read. */
static bool read_natives(struct reading *d)
{
    const size_t n = (size_t)d->n + (size_t)d->nothers;
    DD_AUTO(free) pid_t *pids = calloc(n + 1, sizeof(*pids));
    for (int i = 0; i < (int)n && pids != NULL; i++) {
        const struct target *t = native_target(d, i);
        pids[i] = t->python > 0 ? t->python : t->worker;
    }
    const struct native_reader_spec spec = {.round = d->reader->round,
                                            .pids = pids,
                                            .n = n,
                                            .parallel = (size_t)d->parallel,
                                            .limit_ms = (unsigned)(d->limit_ns / 2 / DD_NS_PER_MS),
                                            .end = on_native_end,
                                            .arg = d};
    if (!d->native || n == 0)
        return false;
    const int rc = pids != NULL ? native_reader_start(&d->natives, &spec) : -ENOMEM;
    d->native_runs = rc == 0;
    if (rc < 0)
        go_without_native(d, rc);
    return rc == 0;
}

/* ---- the request ---- */

/* Order the targets: one worker of each state in the kernel before the second of any, and rare
 * states first. Workers that are not read in time then most likely resemble others that are. */
static int order_targets(struct reading *d)
{
    DD_AUTO(stacks) struct stacks states = {0};
    struct target *sorted = calloc((size_t)d->n + 1, sizeof(*sorted));
    int rc = sorted == NULL ? -ENOMEM : 0;
    for (int i = 0; i < d->n && rc == 0; i++) {
        const struct stack what = {.kind = STACK_KERNEL, .state = d->v[i].kernel};
        rc = stacks_add(&states, &what, i, i);
    }
    stacks_sort(&states);
    int n = 0;
    for (size_t turn = 0; n < d->n && rc == 0; turn++)
        for (size_t i = 0; i < states.n; i++) {
            const int at = rank_set_nth(&states.v[i].ranks, turn);
            if (at >= 0)
                sorted[n++] = d->v[at];
        }
    if (rc == 0) {
        free(d->v);
        d->v = DD_TAKE(sorted);
    }
    free(sorted);
    return rc;
}

/* Add one worker: queue it for reading its frames or, if it has no Python process, add its kernel
 * state. A stopped worker is always added, because the other ranks wait for it. */
static void add_worker(struct reading *d, int local_rank)
{
    static const struct stack podman = {.kind = STACK_UNREAD, .note = STACK_IN_PODMAN};
    const struct round *r = d->reader->round;
    struct target t = {.reading = d,
                       .rank = r->plan.first_rank + local_rank,
                       .worker = worker_group_pid(r->group, local_rank)};
    if (t.worker == 0) {
        add_ended(d, t.rank);
        return;
    }
    t.python = python_process_find(t.worker);
    if (t.python <= 0 && python_process_is_in_podman(t.worker)) {
        (void)stacks_add(&d->found, &podman, t.rank, t.rank);
        return;
    }
    const bool stopped = t.python <= 0 && children_is_stopped(t.worker);
    if (t.python > 0 || d->all || d->native || stopped)
        (void)children_state(t.python > 0 ? t.python : t.worker, t.kernel, sizeof(t.kernel));
    if (t.python > 0)
        d->v[d->n++] = t;
    else if (d->native)
        d->others[d->nothers++] = t;
    else if (d->all || stopped)
        add_kernel(d, &t, "");
}

static int reading_new(struct reading **ret, struct stack_reader *s,
                       const struct msg_stacks_request *m)
{
    struct reading *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return -ENOMEM;
    *d = (struct reading){.reader = s,
                          .id = m->id,
                          .all = m->all,
                          .keep = m->keep,
                          .native = m->native || (m->keep && s->round->cfg->stacks.native),
                          .begin_ns = dd_now_ns(),
                          .limit_ns = (uint64_t)m->limit_ms * DD_NS_PER_MS,
                          .parallel = 2 * cpus()};
    if (d->parallel < LEAST_PARALLEL)
        d->parallel = LEAST_PARALLEL;
    LIST_INSERT_HEAD(&s->readings, d, entry);
    s->n++;
    const struct timeval limit = dd_timeval(d->limit_ns);
    d->v = calloc((size_t)s->round->plan.local_size, sizeof(*d->v));
    d->others = calloc((size_t)s->round->plan.local_size, sizeof(*d->others));
    d->limit = evtimer_new(s->round->base, on_limit, d);
    d->records = evtimer_new(s->round->base, on_records, d);
    d->children = child_stacks_new();
    if (d->v == NULL || d->others == NULL || d->children == NULL || d->limit == NULL ||
        d->records == NULL || evtimer_add(d->limit, &limit) < 0) {
        reading_free(d);
        return -ENOMEM;
    }
    *ret = d;
    return 0;
}

static void stack_reader_request(struct stack_reader *s, const struct msg_stacks_request *m)
{
    const struct round *r = s->round;
    const struct stacks nothing = {0};
    struct reading *d;
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    const bool some = m->ranks[0] != '\0';
    if (r->group == NULL || m->round != r->plan.round || s->n >= AT_ONCE ||
        (some && rank_set_parse(&ranks, m->ranks) < 0) || reading_new(&d, s, m) < 0) {
        send_stacks(r, m->id, &nothing);
        return;
    }
    d->ranks = ranks;
    ranks = (struct rank_set){0};
    flight_recorder_ask(r);
    if (!some)
        nccl_query_start(r, d->limit_ns / 16 * 15);
    for (int i = 0; i < r->plan.local_size; i++)
        if (!some || rank_set_has(&d->ranks, r->plan.first_rank + i))
            add_worker(d, i);
    if (d->n > 1)
        (void)order_targets(d); /* -ENOMEM: in the order of ranks */
    if (!read_natives(d))
        read_targets(d);
}

/* ---- hooks ---- */

static int stack_reader_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct stack_reader *s = *state = calloc(1, sizeof(*s));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    s->round = r;
    s->text = DD_BUF_INIT(FILE_MAX);
    return 0;
}

static void stack_reader_message(void *state, const struct round *r, const struct round_message *m)
{
    (void)r;
    if (m->type == ROUND_STACKS)
        stack_reader_request(state, m->stacks);
}

/* The workers are about to be signalled: answer with what is known. */
static void stack_reader_stopping(void *state, const struct round *r)
{
    struct stack_reader *s = state;
    struct reading *next;
    (void)r;
    for (struct reading *d = LIST_FIRST(&s->readings); d != NULL; d = next) {
        next = LIST_NEXT(d, entry);
        reading_answer(d);
    }
}

static void stack_reader_end(void *state, const struct round *r)
{
    struct stack_reader *s = state;
    stack_reader_stopping(s, r); /* before DONE: the daemon waits for the answer */
    while (!LIST_EMPTY(&s->readings))
        reading_free(LIST_FIRST(&s->readings));
    command_wait(s->writer, END_MS);
    command_free(s->writer);
    dd_buf_done(&s->text);
    free(s);
}

const struct round_feature stack_reader_feature = {
    .name = "stack-reader",
    .prepare = stack_reader_prepare,
    .message = stack_reader_message,
    .stopping = stack_reader_stopping,
    .end = stack_reader_end,
};
