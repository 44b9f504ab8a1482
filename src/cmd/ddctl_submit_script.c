#include "cmd/ddctl_submit_script.h"

#include "base/io.h"
#include "base/num.h"
#include "base/quote.h"
#include "base/strv.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_LEN = 1 << 20 };

/* ---- values of placeholders ---- */

struct values {
    const char *job_id;
    const struct submit_request *r;
};

/* Append the value of a placeholder. Return 1; 0: it is not set; -errno. */
typedef int put_f(struct dd_buf *out, const struct values *v);

static int put_text(struct dd_buf *out, const char *text)
{
    int rc = text == NULL ? 0 : dd_buf_puts(out, text);
    return rc < 0 ? rc : text != NULL;
}

static int put_number(struct dd_buf *out, int n)
{
    int rc = n == 0 ? 0 : dd_buf_printf(out, "%d", n);
    return rc < 0 ? rc : n != 0;
}

static int put_word(struct dd_buf *out, const char *text)
{
    int rc = text == NULL ? 0 : dd_quote_sh(out, text);
    return rc < 0 ? rc : text != NULL;
}

static int put_name(struct dd_buf *out, const struct values *v)
{
    return put_text(out, v->r->name);
}

static int put_queue(struct dd_buf *out, const struct values *v)
{
    return put_text(out, v->r->queue);
}

static int put_account(struct dd_buf *out, const struct values *v)
{
    return put_text(out, v->r->account);
}

static int put_nodes(struct dd_buf *out, const struct values *v)
{
    return put_number(out, v->r->nodes);
}

static int put_gpus(struct dd_buf *out, const struct values *v)
{
    return put_number(out, v->r->gpus_per_node);
}

static int put_cpus(struct dd_buf *out, const struct values *v)
{
    return put_number(out, v->r->cpus_per_node);
}

static int put_directory(struct dd_buf *out, const struct values *v)
{
    return put_word(out, v->r->directory);
}

/* Export only the variables that determine which programs and modules run: PBS shows the variables
 * of `qsub -V` to all users, and some may be secrets. */
static int put_environment(struct dd_buf *out, const struct values *v)
{
    static const char *const names[] = {"PATH",         "LD_LIBRARY_PATH", "VIRTUAL_ENV",
                                        "CONDA_PREFIX", "PYTHONPATH",      "PYTHON_EXEC"};
    int rc = 0;
    const size_t at = out->len;
    for (size_t i = 0; rc == 0 && i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = dd_env_get(v->r->env, names[i]);
        if (value == NULL)
            continue;
        rc = dd_buf_printf(out, "%s%s=", out->len > at ? " " : "", names[i]);
        if (rc == 0)
            rc = dd_quote_sh(out, value);
    }
    return rc < 0 ? rc : out->len > at;
}

/* Hours may exceed 24; Slurm and PBS both accept that. */
static int put_time(struct dd_buf *out, const struct values *v)
{
    const uint64_t s = v->r->seconds;
    if (s == 0)
        return 0;
    int rc = dd_buf_printf(out, "%02" PRIu64 ":%02u:%02u", s / 3600, (unsigned)(s / 60 % 60),
                           (unsigned)(s % 60));
    return rc < 0 ? rc : 1;
}

/* Append the value of PBS's "select": one chunk per node, each with one MPI process, which is
 * ddrun's agent. */
static int put_select(struct dd_buf *out, const struct values *v)
{
    const struct submit_request *r = v->r;
    int rc = dd_buf_printf(out, "%d", r->nodes);
    if (rc == 0 && r->cpus_per_node > 0)
        rc = dd_buf_printf(out, ":ncpus=%d", r->cpus_per_node);
    if (rc == 0 && r->gpus_per_node > 0)
        rc = dd_buf_printf(out, ":ngpus=%d", r->gpus_per_node);
    if (rc == 0)
        rc = dd_buf_puts(out, ":mpiprocs=1");
    return rc < 0 ? rc : 1;
}

/* Append the slots of Grid Engine: one for each CPU of all nodes. */
static int put_slots(struct dd_buf *out, const struct values *v)
{
    const struct submit_request *r = v->r;
    const long long slots = (long long)r->nodes * (r->cpus_per_node > 0 ? r->cpus_per_node : 1);
    int rc = dd_buf_printf(out, "%lld", slots);
    return rc < 0 ? rc : 1;
}

static int put_log(struct dd_buf *out, const struct values *v)
{
    char id[64];
    const char *log = v->r->log;
    if (log == NULL || v->job_id == NULL)
        return put_text(out, log);
    (void)snprintf(id, sizeof(id), "\"$%s\"", v->job_id);
    int rc = submit_log_name(out, log, id);
    return rc < 0 ? rc : 1;
}

static int put_command(struct dd_buf *out, const struct values *v)
{
    int rc = 0;
    for (char *const *word = v->r->command; rc == 0 && *word != NULL; word++) {
        if (word != v->r->command)
            rc = dd_buf_puts(out, " ");
        if (rc == 0)
            rc = submit_is_plain(*word, "/=:,+@%") ? dd_buf_puts(out, *word)
                                                   : dd_quote_sh(out, *word);
    }
    return rc < 0 ? rc : 1;
}

static const struct placeholder {
    const char *name;
    put_f *put;
} placeholders[] = {
    {"ACCOUNT", put_account},    {"COMMAND", put_command},
    {"CPUS_PER_NODE", put_cpus}, {"DIRECTORY", put_directory},
    {"GPUS_PER_NODE", put_gpus}, {"LOG", put_log},
    {"NAME", put_name},          {"NODES", put_nodes},
    {"PARTITION", put_queue},    {"ENVIRONMENT", put_environment},
    {"QUEUE", put_queue},        {"SELECT", put_select},
    {"SLOTS", put_slots},        {"TIME", put_time},
};

/* ---- templates ---- */

/* Return the length of a placeholder at text, with both '@'; 0: none. */
static size_t placeholder_length(const char *text)
{
    const size_t n = text[0] == '@' && isupper((unsigned char)text[1])
                         ? strspn(text + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
                         : 0;
    return n > 0 && text[1 + n] == '@' ? n + 2 : 0;
}

static const struct placeholder *placeholder_find(const char *text, size_t n)
{
    for (size_t i = 0; i < sizeof(placeholders) / sizeof(placeholders[0]); i++)
        if (strlen(placeholders[i].name) == n - 2 &&
            memcmp(placeholders[i].name, text + 1, n - 2) == 0)
            return &placeholders[i];
    return NULL;
}

static int refuse_placeholder(const char *text, size_t n, unsigned line, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf names = DD_BUF_INIT(500);
    for (size_t i = 0; i < sizeof(placeholders) / sizeof(placeholders[0]); i++)
        (void)dd_buf_printf(&names, "%s@%s@", i > 0 ? " " : "", placeholders[i].name);
    const char *known = dd_buf_str(&names);
    return dd_err_tip(err,
                      dd_err_set(err, -EINVAL, "line %u of the template: unknown placeholder %.*s",
                                 line, n < 40 ? (int)n : 40, text),
                      "the placeholders are %s", known != NULL ? known : "in the manual");
}

/* Reject a value with a line break in a comment: the break ends the comment, even inside quotes,
 * and the shell would run the rest of the value. */
static int refuse_break(const char *text, size_t n, unsigned line, struct dd_err *err)
{
    return dd_err_tip(
        err,
        dd_err_set(err, -EINVAL,
                   "line %u of the template: the value of %.*s, which follows a '#', "
                   "contains a line break",
                   line, (int)n, text),
        "move the placeholder before the '#', or remove the line break from the value");
}

static bool has_break(const struct dd_buf *b, size_t from)
{
    return memchr(b->data + from, '\n', b->len - from) != NULL ||
           memchr(b->data + from, '\r', b->len - from) != NULL;
}

struct expansion {
    struct values v;
    unsigned line;
    bool has_command;
};

/* Expand one line without its newline. Return 1; 0: a value is not set; -errno. */
static int expand_line(struct dd_buf *out, const char *at, const char *end, struct expansion *x,
                       struct dd_err *err)
{
    const char *comment = memchr(at, '#', (size_t)(end - at));
    int rc, all = 1;
    while (at < end) {
        const size_t before = out->len;
        const size_t n = placeholder_length(at);
        const struct placeholder *p = n > 0 ? placeholder_find(at, n) : NULL;
        if (n > 0 && p == NULL)
            return refuse_placeholder(at, n, x->line, err);
        rc = p != NULL ? p->put(out, &x->v) : dd_buf_append(out, at, 1);
        if (rc < 0)
            return dd_err_set(err, rc, "cannot expand line %u of the template: %s", x->line,
                              strerror(-rc));
        if (p != NULL && rc == 0)
            all = 0;
        if (p != NULL && rc > 0 && comment != NULL && comment < at && has_break(out, before))
            return refuse_break(at, n, x->line, err);
        if (p != NULL && p->put == put_command)
            x->has_command = true;
        at += n > 0 ? n : 1;
    }
    return all;
}

int submit_script_write(struct dd_buf *out, const char *template, const char *job_id,
                        const struct submit_request *r, struct dd_err *err)
{
    struct expansion x = {.v = {.job_id = job_id, .r = r}};
    for (const char *at = template; *at != '\0';) {
        DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(LINE_MAX_LEN);
        const char *end = strchrnul(at, '\n');
        x.line++;
        int rc = expand_line(&line, at, end, &x, err);
        if (rc < 0)
            return rc;
        if (rc > 0 && (rc = dd_buf_append(out, line.data, line.len)) == 0)
            rc = dd_buf_puts(out, "\n");
        if (rc == -EMSGSIZE)
            return dd_err_set(err, rc, "the job script exceeds %zu MiB", out->max >> 20);
        if (rc < 0)
            return dd_err_set(err, rc, "out of memory");
        at = *end == '\n' ? end + 1 : end;
    }
    return x.has_command
               ? 0
               : dd_err_tip(err,
                            dd_err_set(err, -EINVAL, "the template does not contain @COMMAND@"),
                            "write 'exec @COMMAND@' as its last line");
}

/* ---- names and times ---- */

bool submit_is_plain(const char *text, const char *more)
{
    const char *at = text;
    while (isalnum((unsigned char)*at) || (*at != '\0' && strchr("._-", *at) != NULL) ||
           (*at != '\0' && strchr(more, *at) != NULL))
        at++;
    return *at == '\0' && at > text;
}

bool submit_is_log(const char *log)
{
    for (const char *at = log; (at = strchr(at, '%')) != NULL; at++)
        if (at[1] != 'j')
            return false;
    return submit_is_plain(log, "/+=:,@%") && log[strlen(log) - 1] != '/' && log[0] != '-';
}

int submit_log_name(struct dd_buf *out, const char *log, const char *job_id)
{
    int rc = 0;
    for (const char *at = log; rc == 0 && *at != '\0';) {
        const char *mark = strstr(at, "%j");
        rc = dd_buf_append(out, at, mark != NULL ? (size_t)(mark - at) : strlen(at));
        if (rc == 0 && mark != NULL)
            rc = dd_buf_puts(out, job_id);
        at = mark != NULL ? mark + 2 : at + strlen(at);
    }
    return rc;
}

/* Read digits and step over the separator after them. */
static bool take_number(const char **at, char separator, uint64_t *ret)
{
    char digits[12];
    const size_t n = strspn(*at, "0123456789");
    if (n == 0 || n >= sizeof(digits) - 2 || (*at)[n] != separator)
        return false;
    (void)snprintf(digits, sizeof(digits), "%.*s", (int)n, *at);
    *at += n + (separator != '\0');
    return dd_num_u64(digits, 0, UINT32_MAX, ret) == 0;
}

int submit_time_parse(const char *text, uint64_t *ret_seconds)
{
    const char *at = text;
    uint64_t days = 0, hours, minutes, seconds, ns;
    if (strchr(text, ':') == NULL) {
        if (dd_num_duration_ns(text, &ns) < 0 || ns < DD_NS_PER_S)
            return -EINVAL;
        *ret_seconds = ns / DD_NS_PER_S;
        return 0;
    }
    if (strchr(text, '-') != NULL && !take_number(&at, '-', &days))
        return -EINVAL;
    if (!take_number(&at, ':', &hours) || !take_number(&at, ':', &minutes) ||
        !take_number(&at, '\0', &seconds) || minutes > 59 || seconds > 59)
        return -EINVAL;
    const uint64_t all = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
    if (all == 0)
        return -EINVAL;
    *ret_seconds = all;
    return 0;
}
