#include "cmd/ddctl_submit_queue.h"

#include "base/num.h"
#include "base/strv.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { TIME_TEXT = 32 };

/* ---- what schedulers print ---- */

/* "UNLIMITED", "INFINITE" and anything else that is not a number mean: no limit. */
static int limit_of(const char *value)
{
    int n;
    return dd_num_int(value, 1, INT_MAX, &n) == 0 ? n : 0;
}

static uint64_t seconds_of(const char *value)
{
    uint64_t s;
    return submit_time_parse(value, &s) == 0 ? s : 0;
}

static void set_slurm(struct submit_queue *q, const char *key, const char *value)
{
    if (strcmp(key, "PartitionName") == 0)
        (void)snprintf(q->name, sizeof(q->name), "%s", value);
    else if (strcmp(key, "Default") == 0)
        q->is_default = strcmp(value, "YES") == 0;
    else if (strcmp(key, "MinNodes") == 0)
        q->least_nodes = limit_of(value);
    else if (strcmp(key, "MaxNodes") == 0)
        q->most_nodes = limit_of(value);
    else if (strcmp(key, "TotalNodes") == 0)
        q->nodes = limit_of(value);
    else if (strcmp(key, "MaxTime") == 0)
        q->most_seconds = seconds_of(value);
    else if (strcmp(key, "State") == 0 &&
             (strcmp(value, "DRAIN") == 0 || strcmp(value, "INACTIVE") == 0))
        (void)snprintf(q->closed, sizeof(q->closed), "state %s", value);
}

/* Split "KEY=VALUE" or "KEY = VALUE" of n bytes, and call `set` with both parts. */
static void set_pair(struct submit_queue *q, const char *text, size_t n, const char *between,
                     void (*set)(struct submit_queue *, const char *, const char *))
{
    char pair[512];
    if (n >= sizeof(pair))
        return;
    memcpy(pair, text, n);
    pair[n] = '\0';
    char *value = strstr(pair, between);
    if (value == NULL)
        return;
    *value = '\0';
    set(q, pair, value + strlen(between));
}

bool submit_next_slurm_queue(const char **at, struct submit_queue *ret)
{
    *ret = (struct submit_queue){.name = ""};
    while (**at != '\0' && ret->name[0] == '\0') {
        const char *end = strchrnul(*at, '\n');
        while (*at < end) {
            const size_t n = strcspn(*at, " \n");
            set_pair(ret, *at, n, "=", set_slurm);
            *at += n;
            *at += strspn(*at, " ");
        }
        *at = *end == '\n' ? end + 1 : end;
    }
    return ret->name[0] != '\0';
}

static void set_pbs(struct submit_queue *q, const char *key, const char *value)
{
    if (strcmp(key, "resources_max.walltime") == 0)
        q->most_seconds = seconds_of(value);
    else if (strcmp(key, "resources_max.nodect") == 0)
        q->most_nodes = limit_of(value);
    else if (strcmp(key, "resources_min.nodect") == 0)
        q->least_nodes = limit_of(value);
    else if (strcmp(key, "enabled") == 0 && strcmp(value, "False") == 0)
        (void)snprintf(q->closed, sizeof(q->closed), "not enabled");
}

/* Read the next queue. Blocks begin with "Queue: NAME" or "Server: NAME" and end with an empty
 * line. */
bool submit_next_pbs_queue(const char **at, struct submit_queue *ret)
{
    *ret = (struct submit_queue){.name = ""};
    while (**at != '\0') {
        const char *line = *at, *end = strchrnul(line, '\n');
        const int n = (int)(end - line);
        if (strncmp(line, "Queue: ", 7) == 0) {
            if (ret->name[0] != '\0')
                return true;
            (void)snprintf(ret->name, sizeof(ret->name), "%.*s", n - 7, line + 7);
        } else if (ret->name[0] != '\0' && n == 0) {
            return true;
        } else if (ret->name[0] != '\0') {
            const size_t blanks = strspn(line, " ");
            set_pair(ret, line + blanks, (size_t)n - blanks, " = ", set_pbs);
        }
        *at = *end == '\n' ? end + 1 : end;
    }
    return ret->name[0] != '\0';
}

/* True if the PBS server names this queue as its default. */
static bool is_pbs_default(const char *printed, const char *name)
{
    static const char key[] = " default_queue = ";
    const char *at = strstr(printed, key);
    const size_t n = strlen(name);
    return at != NULL && strncmp(at + sizeof(key) - 1, name, n) == 0 &&
           (at[sizeof(key) - 1 + n] == '\n' || at[sizeof(key) - 1 + n] == '\0');
}

/* Read the next queue; each line has one name. */
bool submit_next_grid_engine_queue(const char **at, struct submit_queue *ret)
{
    *ret = (struct submit_queue){.name = ""};
    *at += strspn(*at, " \r\n");
    const size_t n = strcspn(*at, " \r\n");
    (void)snprintf(ret->name, sizeof(ret->name), "%.*s", n < sizeof(ret->name) ? (int)n : 0, *at);
    *at += n;
    return n > 0;
}

/* ---- whether a job fits ---- */

struct check {
    const struct submit_queue_kind *kind;
    const char *printed;
    const struct submit_request *r;
    struct dd_err *errs;
    size_t n;
};

static struct dd_err *next_error(struct check *c)
{
    return &c->errs[c->n < SUBMIT_ERRORS_MAX ? c->n++ : SUBMIT_ERRORS_MAX - 1];
}

static void check_nodes(struct check *c, const struct submit_queue *q)
{
    const char *word = c->kind->word;
    const int n = c->r->nodes;
    const int most = q->nodes > 0 && (q->most_nodes == 0 || q->nodes < q->most_nodes)
                         ? q->nodes
                         : q->most_nodes;
    if (most > 0 && n > most) {
        struct dd_err *err = next_error(c);
        (void)dd_err_tip(err,
                         dd_err_set(err, -EINVAL,
                                    "%s '%s' accepts at most %d node%s per job; --nodes=%d "
                                    "requests more",
                                    word, q->name, most, most == 1 ? "" : "s", n),
                         "use --nodes=%d or less, or another %s", most, word);
    } else if (n < q->least_nodes) {
        struct dd_err *err = next_error(c);
        (void)dd_err_tip(err,
                         dd_err_set(err, -EINVAL,
                                    "%s '%s' requires at least %d nodes per job; --nodes=%d "
                                    "requests fewer",
                                    word, q->name, q->least_nodes, n),
                         "use --nodes=%d or more, or another %s", q->least_nodes, word);
    }
}

static const char *time_text(uint64_t s, char out[TIME_TEXT])
{
    (void)snprintf(out, TIME_TEXT, "%" PRIu64 ":%02u:%02u", s / 3600, (unsigned)(s / 60 % 60),
                   (unsigned)(s % 60));
    return out;
}

static void check_time(struct check *c, const struct submit_queue *q)
{
    const uint64_t most = q->most_seconds;
    char wanted[TIME_TEXT];
    char limit[TIME_TEXT];
    if (most == 0 || c->r->seconds <= most)
        return;
    struct dd_err *err = next_error(c);
    (void)dd_err_tip(err,
                     dd_err_set(err, -EINVAL, "--time=%s exceeds the limit of %s '%s' (%s)",
                                time_text(c->r->seconds, wanted), c->kind->word, q->name,
                                time_text(most, limit)),
                     "use a shorter --time, or another %s", c->kind->word);
}

static void check_fit(struct check *c, const struct submit_queue *q)
{
    if (q->closed[0] != '\0') {
        struct dd_err *err = next_error(c);
        (void)dd_err_tip(err,
                         dd_err_set(err, -EINVAL, "%s '%s' accepts no jobs (%s)", c->kind->word,
                                    q->name, q->closed),
                         "use another %s", c->kind->word);
    }
    check_nodes(c, q);
    check_time(c, q);
}

static void report_missing(struct check *c, const char *name)
{
    DD_AUTO(buf) struct dd_buf names = DD_BUF_INIT(300);
    struct dd_err *err = next_error(c);
    struct submit_queue q;
    bool more = false;
    for (const char *at = c->printed; !more && c->kind->next(&at, &q);)
        more = dd_buf_printf(&names, "%s%s", names.len > 0 ? ", " : "", q.name) < 0;
    const char *known = dd_buf_str(&names);
    int rc = dd_err_set(err, -ENOENT, "%s '%.100s' does not exist", c->kind->word, name);
    if (known != NULL && *known != '\0')
        (void)dd_err_tip(err, rc, "use --partition=NAME with one of: %s%s", known,
                         more ? ", ..." : "");
    else
        (void)dd_err_tip(err, rc, "omit --partition: the scheduler lists no %s", c->kind->word);
}

/* name NULL: the default queue, if the scheduler has one. */
static void check_queue(struct check *c, const char *name)
{
    struct submit_queue q;
    for (const char *at = c->printed; c->kind->next(&at, &q);)
        if (name != NULL ? strcmp(q.name, name) == 0
                         : q.is_default || is_pbs_default(c->printed, q.name)) {
            check_fit(c, &q);
            return;
        }
    if (name != NULL)
        report_missing(c, name);
}

size_t submit_queue_check(const struct submit_queue_kind *kind, const char *printed,
                          const struct submit_request *r, struct dd_err errs[SUBMIT_ERRORS_MAX])
{
    DD_AUTO(strv) struct dd_strv names = {0};
    struct check c = {.kind = kind, .printed = printed, .r = r, .errs = errs};
    if (r->queue == NULL) {
        check_queue(&c, NULL);
        return c.n;
    }
    if (dd_strv_split(&names, r->queue, ",") < 0)
        (void)dd_err_set(next_error(&c), -ENOMEM, "out of memory");
    for (size_t i = 0; i < names.n; i++)
        if (strchr(names.v[i], '@') == NULL) /* skip a queue of another server */
            check_queue(&c, names.v[i]);
    return c.n;
}
