#include "agent/frame_helpers.h"

#include "agent/agent.h"
#include "base/io.h"
#include "pystack/py_process.h"
#include "report/stacks.h"
#include "worker/children.h"
#include "worker/command.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    HELPERS_MAX = 8,
    PER_HELPER = 32, /* number of processes for which another child is started */
    OUT_MAX = 64 << 20,
    RECORD_MAX = 3 * STACKS_TEXT,
    TICK_MS = 50,
    STUCK_MS = 500,       /* a child in state D without a result for this time counts as blocked */
    STUCK_PART = 8,       /* or for 1/STUCK_PART of the time limit, if that is longer */
    STUCK_LEAST_MS = 100, /* lower bound: each process that blocks halves the time */
    OPEN_FILES = 128,     /* maximum number of processes whose memory the agent opens */
    SPARE_FILES = 64,     /* descriptors that must remain free for other use */
};

/* A child that reads every step-th process. */
struct helper {
    struct frame_helpers *all;
    struct command *command;
    size_t next;    /* index of the process that the child reads now */
    size_t parsed;  /* parsed bytes of the child's output */
    unsigned ticks; /* consecutive ticks in state D without a result */
    unsigned most;  /* limit of ticks, halved after each process that blocks */
    bool blocks;    /* the child was killed because it blocks */
};

struct frame_helpers {
    const struct round *round;
    struct frame_process *v;
    size_t n, step;
    int *mem; /* for each process, index of its memory in `open`; -1: not opened */
    int open[OPEN_FILES];
    size_t nopen;
    uint64_t end_ns;
    frame_helpers_result_f *result;
    void (*end)(void *arg);
    void *arg;
    struct event *tick;
    bool stopped;
    size_t running;
    struct helper helpers[HELPERS_MAX];
};

/* ---- in the child ---- */

/* Print "INDEX CODE LENGTH\n" and the text. */
static int print_result(size_t index, int rc, const char *text)
{
    DD_AUTO(buf) struct dd_buf record = DD_BUF_INIT(RECORD_MAX);
    const int made = dd_buf_printf(&record, "%zu %d %zu\n%s", index, rc, strlen(text), text);
    return made < 0 ? made : dd_write_full(STDOUT_FILENO, record.data, record.len);
}

static int read_processes(void *arg)
{
    const struct helper *helper = arg;
    const struct frame_helpers *h = helper->all;
    int rc = 0;
    (void)prctl(PR_SET_NAME, "ddrun-stacks");
    for (size_t i = helper->next; i < h->n && rc >= 0; i += h->step) {
        DD_AUTO(buf) struct dd_buf frames = DD_BUF_INIT(2 * STACKS_TEXT);
        struct dd_err err = {0};
        const int mem = h->mem[i] < 0 ? -1 : COMMAND_FIRST_KEPT + h->mem[i];
        const int code = py_process_read(h->v[i].pid, mem, &frames, &err);
        const char *text = code == 0 ? dd_buf_str(&frames) : err.text;
        rc = print_result(i, text == NULL ? -ENOMEM : code, text == NULL ? "out of memory" : text);
    }
    return rc < 0;
}

/* ---- results ---- */

/* Deliver the next complete record of the output. False: there is none. */
static bool take_record(struct helper *helper, const char *out)
{
    struct frame_helpers *h = helper->all;
    const char *begin = out + helper->parsed;
    char *at;
    const unsigned long index = strtoul(begin, &at, 10);
    const long rc = strtol(at, &at, 10);
    const unsigned long n = strtoul(at, &at, 10);
    if (*at != '\n' || index != helper->next || index >= h->n || rc > 0 || n > RECORD_MAX ||
        strnlen(at + 1, n) < n)
        return false;
    char *text = strndup(at + 1, n);
    helper->parsed += (size_t)(at + 1 - begin) + n;
    helper->next += h->step;
    helper->ticks = 0;
    if (!h->stopped)
        h->result(h->arg, index, text != NULL ? (int)rc : -ENOMEM,
                  text != NULL ? text : "out of memory");
    free(text);
    return true;
}

static void take_records(struct helper *helper, const char *out)
{
    while (take_record(helper, out))
        ;
}

static int helper_start(struct helper *helper);

static void on_end(void *arg, int code, const char *out)
{
    struct helper *helper = arg;
    struct frame_helpers *h = helper->all;
    take_records(helper, out);
    command_free(DD_TAKE(helper->command));
    h->running--;
    if (helper->next < h->n && !h->stopped && code != COMMAND_TOO_LATE) {
        h->result(h->arg, helper->next, -EIO,
                  helper->blocks ? "reading its memory blocks" : "the reader of its memory failed");
        helper->next += h->step;
        (void)helper_start(helper); /* on failure, the rest get no result */
    }
    if (h->running == 0)
        h->end(h->arg);
}

static int helper_start(struct helper *helper)
{
    struct frame_helpers *h = helper->all;
    const uint64_t now = dd_now_ns();
    const struct command_spec spec = {
        .run = read_processes,
        .run_arg = helper,
        .keep = h->open,
        .nkeep = h->nopen,
        .most_out = OUT_MAX,
        .limit_ms = now < h->end_ns ? (unsigned)((h->end_ns - now) / DD_NS_PER_MS) + 1 : 1};
    if (helper->next >= h->n)
        return 0;
    helper->parsed = 0;
    helper->ticks = 0;
    helper->blocks = false;
    const int rc = command_start(&helper->command, h->round->base, &spec, on_end, helper, NULL);
    if (rc < 0)
        return rc;
    h->running++;
    round_protect(h->round, command_pid(helper->command));
    return 0;
}

/* A child is briefly in state D also while it reads pages from swap or a file system, so it gets
 * some time. The time is halved after each process that blocks: otherwise many of them, which wait
 * for the same file system, would exhaust the limit. */
static unsigned first_ticks(unsigned limit_ms)
{
    const unsigned ms = limit_ms / STUCK_PART;
    return (ms > STUCK_MS ? ms : STUCK_MS) / TICK_MS;
}

static unsigned ticks_after_block(unsigned most)
{
    const unsigned least = STUCK_LEAST_MS / TICK_MS;
    return most / 2 > least ? most / 2 : least;
}

/* Kill the children that block. */
static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct frame_helpers *h = arg;
    (void)fd;
    (void)what;
    for (size_t i = 0; i < h->step; i++) {
        struct helper *helper = &h->helpers[i];
        if (helper->command == NULL || helper->blocks)
            continue;
        helper->ticks++;
        take_records(helper, command_out(helper->command));
        if (children_state_letter(command_pid(helper->command)) != 'D')
            helper->ticks = 0;
        helper->blocks = helper->ticks >= helper->most;
        if (!helper->blocks)
            continue;
        helper->most = ticks_after_block(helper->most);
        command_kill(helper->command);
    }
}

/* ---- begin and end ---- */

static size_t helpers_for(size_t n, size_t most)
{
    const size_t useful = 1 + n / PER_HELPER;
    most = most < HELPERS_MAX ? most : HELPERS_MAX;
    return most == 0 ? 1 : most < useful ? most : useful;
}

/* Open the memory of processes that only their ancestors may read, such as the agent. Its children
 * inherit the descriptors. The reader reports memory that cannot be opened. */
static void open_descendants(struct frame_helpers *h)
{
    struct rlimit files = {0};
    const bool limited = py_process_scope() == 1 && getrlimit(RLIMIT_NOFILE, &files) == 0;
    for (size_t i = 0; i < h->n; i++) {
        h->mem[i] = -1;
        if (!limited || h->v[i].permits || h->nopen == OPEN_FILES)
            continue;
        DD_AUTO(fd) int fd = py_process_open(h->v[i].pid);
        if (fd >= 0 && (rlim_t)fd + SPARE_FILES < files.rlim_cur) {
            h->mem[i] = (int)h->nopen;
            h->open[h->nopen++] = DD_TAKE_FD(fd);
        }
    }
}

static int copy_processes(struct frame_helpers *h, const struct frame_helpers_spec *spec)
{
    h->v = calloc(spec->n + 1, sizeof(*h->v));
    h->mem = calloc(spec->n + 1, sizeof(*h->mem));
    if (h->v == NULL || h->mem == NULL)
        return -ENOMEM;
    if (spec->n > 0)
        memcpy(h->v, spec->v, spec->n * sizeof(*h->v));
    h->n = spec->n;
    open_descendants(h);
    return 0;
}

int frame_helpers_start(struct frame_helpers **ret, const struct frame_helpers_spec *spec)
{
    static const struct timeval tick = {.tv_usec = TICK_MS * 1000L};
    struct frame_helpers *h = calloc(1, sizeof(*h));
    if (h == NULL)
        return -ENOMEM;
    *h = (struct frame_helpers){.round = spec->round,
                                .step = helpers_for(spec->n, spec->most),
                                .end_ns = dd_now_ns() + spec->limit_ms * DD_NS_PER_MS,
                                .result = spec->result,
                                .end = spec->end,
                                .arg = spec->arg};
    h->tick = event_new(spec->round->base, -1, EV_PERSIST, on_tick, h);
    int rc = h->tick == NULL || event_add(h->tick, &tick) < 0 ? -ENOMEM : copy_processes(h, spec);
    for (size_t i = 0; i < h->step && rc == 0; i++) {
        h->helpers[i] = (struct helper){.all = h, .next = i, .most = first_ticks(spec->limit_ms)};
        rc = helper_start(&h->helpers[i]);
    }
    if (rc == 0 && h->running == 0)
        rc = -ENODATA;
    if (rc < 0) {
        frame_helpers_free(h);
        return rc;
    }
    *ret = h;
    return 0;
}

void frame_helpers_collect(struct frame_helpers *h)
{
    for (size_t i = 0; i < h->step; i++)
        if (h->helpers[i].command != NULL)
            take_records(&h->helpers[i], command_out(h->helpers[i].command));
}

void frame_helpers_stop(struct frame_helpers *h)
{
    h->stopped = true;
    for (size_t i = 0; i < h->step; i++)
        if (h->helpers[i].command != NULL)
            command_kill(h->helpers[i].command);
}

void frame_helpers_free(struct frame_helpers *h)
{
    if (h == NULL)
        return;
    for (size_t i = 0; i < h->step; i++)
        command_free(h->helpers[i].command);
    for (size_t i = 0; i < h->nopen; i++)
        close(h->open[i]);
    if (h->tick != NULL)
        event_free(h->tick);
    free(h->v);
    free(h->mem);
    free(h);
}
