/* ddctl events: show past and new events of a running job. */
#include "cmd/ddctl_events.h"

#include "base/io.h"
#include "base/sig.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct events_options {
    const char *job, *format;
    bool follow;
};

static const struct opt_row rows[] = {
    JOB_ROW(struct events_options),
    {.name = "follow",
     .letter = 'f',
     .kind = OPT_FLAG,
     .no_env = true,
     .group = "Output",
     .help = "keep printing new events until the job ends",
     OPT_FIELD(struct events_options, follow)},
    {JOB_FORMAT(struct events_options), .help = "text, or one JSON object per line"},
};

const struct opt_table ddctl_events_options = {
    .program = "ddctl events",
    .version = PACKAGE_VERSION,
    .usage = "[options]",
    .about = "Shows the events of a running job with their timestamps: nodes that joined and "
             "left, rounds, failures, signals.",
    OPT_ROWS(rows),
    .foreign = job_json,
};

/* {how} is replaced by the signal or the exit code of a worker, {signal} by the name of the signal,
 * any other {name} by the event's member of that name. */
static const struct {
    const char *event, *form;
} forms[] = {
    {"join", "{node} joined, workers: {workers}"},
    {"leave", "{node} left: {text}"},
    {"round", "round {round} begins, nodes: {nodes}, workers: {workers}"},
    {"started", "round {round}: all workers started"},
    {"exit", "round {round}: rank {rank} ({node}) failed with {how}: {text}"},
    {"stop", "{text}"},
    {"signal", "{signal} sent to all workers from {node}"},
    {"drain", "{node} excluded: {text}"},
    {"warning", "{node}: {text}"},
    {"straggler", "straggler: {text}"},
    {"straggler-over", "no longer a straggler: {text}"},
    {"mark", "{node} is {text}"},
    {"mark-end", "{node} is in service again"},
    {"charge", "round {round}: failure no. {count} charged to {node}: {text}"},
    {"refused", "refused a connection from {address} (no. {count}): {text}"},
    {"finish", "the job ended with code {code}: {text}"},
};

static int ddctl_events_put_member(struct dd_buf *out, const json_t *e, const char *name)
{
    const int sig = json_number(e, "signal", 0);
    const json_t *v = json_object_get(e, name);
    if (sig > 0 && (strcmp(name, "how") == 0 || strcmp(name, "signal") == 0))
        return dd_buf_printf(out, "SIG%s", dd_signal_name(sig));
    if (strcmp(name, "how") == 0)
        return dd_buf_printf(out, "code %d", json_number(e, "code", 0));
    return json_is_integer(v) ? dd_buf_printf(out, "%d", json_number(e, name, 0))
                              : dd_buf_puts(out, json_text(e, name));
}

static int ddctl_events_put_form(struct dd_buf *out, const json_t *e, const char *form)
{
    int rc = 0;
    while (*form != '\0' && rc == 0) {
        char name[16] = "";
        const size_t plain = strcspn(form, "{");
        rc = dd_buf_append(out, form, plain);
        form += plain;
        if (rc < 0 || *form == '\0')
            break;
        const size_t n = strcspn(form, "}");
        (void)snprintf(name, sizeof(name), "%.*s", (int)(n - 1), form + 1);
        rc = ddctl_events_put_member(out, e, name);
        form += n + 1;
    }
    return rc;
}

int event_text(struct dd_buf *out, const json_t *e)
{
    const char *event = json_text(e, "event");
    const char *form = NULL;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (strcmp(forms[i].event, event) == 0)
            form = forms[i].form;
    const int rc = form != NULL
                       ? ddctl_events_put_form(out, e, form)
                       : dd_buf_puts(out, event); /* unknown: the event of a later version */
    while (rc == 0 && out->len > 0 &&
           strchr(" :", out->data[out->len - 1]) !=
               NULL) /* the last member was empty: remove the separator before it */
        out->len--;
    return rc;
}

static int ddctl_events_put_event(struct dd_buf *out, const json_t *e)
{
    int rc = dd_buf_printf(out, "%s  ", json_text(e, "time"));
    if (rc == 0)
        rc = event_text(out, e);
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
}

struct writing {
    bool json;
    struct dd_buf rest; /* incomplete line */
    struct dd_err *err;
};

static int ddctl_events_write_line(const struct writing *w, const char *line, size_t n)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    json_t *e = w->json ? NULL : json_loadb(line, n, 0, NULL);
    int rc = w->json ? dd_buf_printf(&out, "%.*s\n", (int)n, line)
                     : ddctl_events_put_event(&out, e);
    json_decref(e);
    if (rc == 0)
        rc = dd_write_full(STDOUT_FILENO, out.data, out.len);
    return rc < 0 && rc != -EPIPE ? dd_err_set(w->err, rc, "cannot print an event: %s",
                                               rc == -EMSGSIZE ? "it is too long" : strerror(-rc))
                                  : rc == -EPIPE;
}

/* Write all complete lines. Return 0, 1 if the reader of stdout has closed it, or -errno. */
static int ddctl_events_on_piece(void *arg, const char *piece)
{
    struct writing *w = arg;
    int rc = dd_buf_puts(&w->rest, piece);
    while (rc == 0) {
        const unsigned char *nl = w->rest.len > 0 ? memchr(w->rest.data, '\n', w->rest.len) : NULL;
        if (nl == NULL)
            return 0;
        const size_t n = (size_t)(nl - w->rest.data);
        rc = ddctl_events_write_line(w, (const char *)w->rest.data, n);
        dd_buf_consume(&w->rest, n + 1);
    }
    return rc;
}

int ddctl_events(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    struct events_options o = {0};
    struct dd_err err = {0};
    json_t *none = NULL;
    int code = cmd_options_alone(&ddctl_events_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    struct writing w = {
        .json = strcmp(o.format, "json") == 0, .rest = DD_BUF_INIT(1 << 20), .err = &err};
    int rc = job_no_operands(&res, argc, argv, &err);
    if (rc == 0)
        rc = job_ask(&none,
                     &(struct job_question){.job = o.job,
                                            .what = "events",
                                            .text = o.follow ? "follow" : "",
                                            .on_piece = ddctl_events_on_piece,
                                            .arg = &w},
                     &err);
    dd_buf_done(&w.rest);
    return rc < 0 ? job_fail(&ddctl_events_options, rc, &err) : 0;
}
