#include "agent/native_reader.h"

#include "agent/agent.h"
#include "base/io.h"
#include "report/native_stack.h"
#include "report/stacks.h"
#include "worker/children.h"
#include "worker/command.h"
#include "worker/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { NATIVE_OUT = 1 << 20 };

struct native_process {
    struct native_reader *reader;
    pid_t pid;
    bool was_stopped;
    struct command *command;
    char *frames; /* NULL: none */
    char note[STACKS_NAME];
};

struct native_reader {
    const struct round *round;
    void (*end)(void *arg);
    void *arg;
    uint64_t end_ns;
    unsigned limit_ms; /* time limit for all processes */
    const char *tool;  /* name of the tool */
    char *path;
    size_t n, next, running, parallel;
    struct native_process v[];
};

/* ---- the tool ---- */

/* The tools ask servers for debugging information if DEBUGINFOD_URLS is set. */
static const char *const eu_stack[] = {
    "env", "-u", "DEBUGINFOD_URLS", NULL, "-1", "-m", "-s", "-n", "100", "-p", NULL, NULL};
static const char *const gdb[] = {"env",
                                  "-u",
                                  "DEBUGINFOD_URLS",
                                  NULL,
                                  "-nx",
                                  "-batch",
                                  "-ex",
                                  "set print frame-arguments none",
                                  "-ex",
                                  "bt 100",
                                  "-p",
                                  NULL,
                                  NULL};
enum { TOOL_AT = 3, TOOL_WORDS = 16 };

static const struct {
    const char *name;
    const char *const *argv; /* NULL in place of the tool and of the pid, and at the end */
    size_t words;
} tools[] = {
    {"eu-stack", eu_stack, sizeof(eu_stack) / sizeof(eu_stack[0])},
    {"gdb", gdb, sizeof(gdb) / sizeof(gdb[0])},
};

static int find_tool(struct native_reader *r)
{
    for (size_t i = 0; i < sizeof(tools) / sizeof(tools[0]); i++)
        if (spawn_lookup(&r->path, tools[i].name, r->round->cfg->env) == 0) {
            r->tool = tools[i].name;
            return 0;
        }
    return -ENOENT;
}

static void fill_argv(const struct native_reader *r, const char *pid, const char *argv[TOOL_WORDS])
{
    for (size_t i = 0; i < sizeof(tools) / sizeof(tools[0]); i++)
        if (strcmp(tools[i].name, r->tool) == 0) {
            memcpy(argv, tools[i].argv, tools[i].words * sizeof(*argv));
            argv[TOOL_AT] = r->path;
            argv[tools[i].words - 2] = pid;
        }
}

/* ---- processes ---- */

/* A tool that is killed while it attaches leaves a SIGSTOP behind. */
static void native_resume(const struct native_process *p)
{
    if (!p->was_stopped)
        (void)kill(p->pid, SIGCONT);
}

static void take_output(struct native_process *p, const char *out)
{
    DD_AUTO(buf) struct dd_buf frames = DD_BUF_INIT(2 * STACKS_TEXT);
    DD_AUTO(buf) struct dd_buf reason = DD_BUF_INIT(2 * STACKS_NAME);
    if (native_stack_parse(out, &frames) == 0 && dd_buf_str(&frames) != NULL)
        p->frames = strdup(dd_buf_str(&frames));
    else if (native_stack_reason(p->reader->tool, out, &reason) == 0 && dd_buf_str(&reason) != NULL)
        (void)snprintf(p->note, sizeof(p->note), "%.150s", dd_buf_str(&reason));
}

static void start_some(struct native_reader *r);

/* end() may free r. */
static void on_native_done(void *arg, int code, const char *out)
{
    struct native_process *p = arg;
    struct native_reader *r = p->reader;
    if (code == COMMAND_TOO_LATE)
        (void)snprintf(p->note, sizeof(p->note), "%s did not finish within %.3g s", r->tool,
                       (double)r->limit_ms / 1e3);
    else
        take_output(p, out);
    if (code == COMMAND_TOO_LATE || code > 128) /* killed, for example by the kernel's OOM killer */
        native_resume(p);
    command_free(DD_TAKE(p->command));
    r->running--;
    start_some(r);
    if (r->running == 0)
        r->end(r->arg);
}

static void start_one(struct native_reader *r, struct native_process *p)
{
    const uint64_t now = dd_now_ns();
    char pid[16];
    const char *argv[TOOL_WORDS] = {NULL};
    struct dd_err err = {0};
    if (now >= r->end_ns) {
        (void)snprintf(p->note, sizeof(p->note), "no time was left for %s (limit %.3g s)", r->tool,
                       (double)r->limit_ms / 1e3);
        return;
    }
    (void)snprintf(pid, sizeof(pid), "%d", (int)p->pid);
    fill_argv(r, pid, argv);
    const struct command_spec spec = {.argv = argv,
                                      .env = r->round->cfg->env,
                                      .most_out = NATIVE_OUT,
                                      .limit_ms = (unsigned)((r->end_ns - now) / DD_NS_PER_MS) + 1};
    p->was_stopped = children_is_stopped(p->pid);
    if (command_start(&p->command, r->round->base, &spec, on_native_done, p, &err) < 0) {
        (void)snprintf(p->note, sizeof(p->note), "%.150s", err.text);
        return;
    }
    round_protect(r->round, command_pid(p->command));
    r->running++;
}

static void start_some(struct native_reader *r)
{
    while (r->next < r->n && r->running < r->parallel)
        start_one(r, &r->v[r->next++]);
}

/* ---- begin and end ---- */

int native_reader_start(struct native_reader **ret, const struct native_reader_spec *spec)
{
    struct native_reader *r = calloc(1, sizeof(*r) + spec->n * sizeof(r->v[0]));
    if (r == NULL)
        return -ENOMEM;
    *r = (struct native_reader){.round = spec->round,
                                .end = spec->end,
                                .arg = spec->arg,
                                .end_ns = dd_now_ns() + spec->limit_ms * DD_NS_PER_MS,
                                .limit_ms = spec->limit_ms,
                                .n = spec->n,
                                .parallel = spec->parallel};
    for (size_t i = 0; i < r->n; i++)
        r->v[i] = (struct native_process){.reader = r, .pid = spec->pids[i]};
    int rc = find_tool(r);
    if (rc == 0)
        start_some(r);
    if (rc == 0 && r->running == 0)
        rc = -ENODATA;
    if (rc < 0) {
        native_reader_free(r);
        return rc;
    }
    *ret = r;
    return 0;
}

const char *native_reader_frames(const struct native_reader *r, size_t index)
{
    return r->v[index].frames != NULL ? r->v[index].frames : "";
}

const char *native_reader_note(const struct native_reader *r, size_t index)
{
    return r->v[index].note;
}

void native_reader_free(struct native_reader *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; i < r->n; i++) {
        if (r->v[i].command != NULL) {
            command_free(r->v[i].command);
            native_resume(&r->v[i]);
        }
        free(r->v[i].frames);
    }
    free(r->path);
    free(r);
}
