#include "report/metrics_text.h"

#include <string.h>

enum { NS_PER_S = 1000000000 };

/* A family of samples. Its name ends with its unit; the sample of a counter also ends with
 * "_total". Gauges replace the types of OpenMetrics that Prometheus' text format refuses (info,
 * stateset). */
enum family_type { GAUGE, COUNTER };
struct family {
    enum family_type type;
    const char *name, *unit, *help; /* unit NULL: a number without unit */
};

/* In the order of enum metric. */
static const struct family families[METRICS_MAX] = {
    [METRIC_START_TIME] = {GAUGE, "ddrun_job_start_time_seconds", "seconds",
                           "Unix time of ddrun's start"},
    [METRIC_EXIT_CODE] = {GAUGE, "ddrun_job_exit_code", NULL,
                          "Exit code of the job, once it has ended"},
    [METRIC_MAX_RESTARTS] = {GAUGE, "ddrun_max_restarts", NULL,
                             "Limit of the restarts (--max-restarts)"},
    [METRIC_ROUNDS] = {COUNTER, "ddrun_rounds", NULL, "Rounds that have begun"},
    [METRIC_RESTARTS] = {COUNTER, "ddrun_restarts", NULL, "Restarts after failures"},
    [METRIC_LOST_NODES] = {COUNTER, "ddrun_lost_nodes", NULL,
                           "Nodes that left the job before its end"},
    [METRIC_FAILED_WORKERS] = {COUNTER, "ddrun_failed_workers", NULL,
                               "Workers that failed while no stop was requested"},
    [METRIC_REFUSED_CONNECTIONS] = {COUNTER, "ddrun_refused_connections", NULL,
                                    "Connections that ddrund refused, of agents and to the store"},
    [METRIC_STARTUP] = {GAUGE, "ddrun_startup_seconds", "seconds",
                        "Time from ddrun's start until all workers of the first round had started"},
    [METRIC_RECOVERY] = {GAUGE, "ddrun_recovery_seconds", "seconds",
                         "Time of the last restart: from the end of a round until all workers of "
                         "the next one had started"},
    [METRIC_RUNNING] = {COUNTER, "ddrun_running_seconds", "seconds",
                        "Time during which all workers of a round were running"},
    [METRIC_STEP] = {GAUGE, "ddrun_step", NULL,
                     "Highest step that the program has reached (ddrun_step, --progress-regex)"},
    [METRIC_STORE_KEYS] = {GAUGE, "ddrun_store_keys", NULL, "Keys in the store"},
    [METRIC_STORE_MEMORY] = {GAUGE, "ddrun_store_memory_bytes", "bytes",
                             "Memory of the store's keys, values and buffers"},
    [METRIC_STORE_MEMORY_LIMIT] = {GAUGE, "ddrun_store_memory_limit_bytes", "bytes",
                                   "Limit of ddrun_store_memory_bytes"},
    [METRIC_STORE_WAITING] = {GAUGE, "ddrun_store_waiting_requests", NULL,
                              "Requests that wait for a key"},
    [METRIC_STORE_CONNECTIONS] = {GAUGE, "ddrun_store_connections", NULL,
                                  "Open connections to the store"},
    [METRIC_STORE_OPENED] = {COUNTER, "ddrun_store_opened_connections", NULL,
                             "Connections that the store has accepted"},
    [METRIC_DAEMON_MEMORY] = {GAUGE, "ddrun_daemon_resident_memory_bytes", "bytes",
                              "Resident memory of ddrund"},
    [METRIC_DAEMON_CPU] = {COUNTER, "ddrun_daemon_cpu_seconds", "seconds",
                           "Processor time of ddrund"},
    [METRIC_NOTIFY_QUEUED] = {GAUGE, "ddrun_notify_queued_events", NULL,
                              "Events that wait for the web hook (--notify)"},
    [METRIC_NOTIFY_DROPPED] = {COUNTER, "ddrun_notify_dropped_events", NULL,
                               "Events dropped because too many waited for the web hook"},
};

static int metrics_put_head(const struct family *f, struct dd_buf *out)
{
    int rc = dd_buf_printf(out, "# HELP %s %s.\n# TYPE %s %s\n", f->name, f->help, f->name,
                           f->type == COUNTER ? "counter" : "gauge");
    if (rc == 0 && f->unit != NULL)
        rc = dd_buf_printf(out, "# UNIT %s %s\n", f->name, f->unit);
    return rc;
}

static int metrics_put_name(const struct family *f, struct dd_buf *out)
{
    return dd_buf_printf(out, "%s%s", f->name, f->type == COUNTER ? "_total" : "");
}

/* Append a label, name="value", with the escapes that both formats have. */
static int metrics_put_label(struct dd_buf *out, const char *name, const char *value)
{
    int rc = dd_buf_printf(out, "%s=\"", name);
    for (; *value != '\0' && rc == 0; value++)
        rc = *value == '\n'                    ? dd_buf_puts(out, "\\n")
             : *value == '"' || *value == '\\' ? dd_buf_printf(out, "\\%c", *value)
                                               : dd_buf_append(out, value, 1);
    return rc == 0 ? dd_buf_puts(out, "\"") : rc;
}

static int metrics_put_one(const struct family *f, uint64_t v, struct dd_buf *out)
{
    const unsigned long long n = v;
    int rc = metrics_put_head(f, out);
    if (rc == 0)
        rc = metrics_put_name(f, out);
    if (rc < 0)
        return rc;
    return f->unit != NULL && strcmp(f->unit, "seconds") == 0
               ? dd_buf_printf(out, " %llu.%09llu\n", n / NS_PER_S, n % NS_PER_S)
               : dd_buf_printf(out, " %llu\n", n);
}

static int metrics_put_counts(const struct family *f, const char *label,
                              const struct metrics_counts *c, struct dd_buf *out)
{
    int rc = metrics_put_head(f, out);
    for (size_t i = 0; i < c->n && rc == 0; i++) {
        rc = metrics_put_name(f, out);
        if (rc == 0)
            rc = dd_buf_puts(out, "{");
        if (rc == 0)
            rc = metrics_put_label(out, label, c->v[i].name);
        if (rc == 0)
            rc = dd_buf_printf(out, "} %llu\n", (unsigned long long)c->v[i].n);
    }
    return rc;
}

static int metrics_put_info(const struct metrics *m, struct dd_buf *out)
{
    static const struct family info = {GAUGE, "ddrun_job_info", NULL,
                                       "The job: its id, the version of ddrun, the daemon's node"};
    const struct {
        const char *name, *value;
    } labels[] = {{"job_id", m->job_id}, {"version", m->version}, {"node", m->node}};
    int rc = metrics_put_head(&info, out);
    if (rc == 0)
        rc = metrics_put_name(&info, out);
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]) && rc == 0; i++) {
        rc = dd_buf_puts(out, i == 0 ? "{" : ",");
        if (rc == 0)
            rc = metrics_put_label(out, labels[i].name, labels[i].value);
    }
    return rc == 0 ? dd_buf_puts(out, "} 1\n") : rc;
}

int metrics_text(const struct metrics *m, struct dd_buf *out)
{
    const struct {
        struct family family;
        const char *label;
        const struct metrics_counts *counts;
    } labelled[] = {
        {{GAUGE, "ddrun_job_state", NULL, "1 for the state of the job, 0 for the others"},
         "state",
         &m->states},
        {{GAUGE, "ddrun_nodes", NULL, "Connected nodes by state"}, "state", &m->nodes},
        {{GAUGE, "ddrun_workers", NULL, "Workers by the state of their node"},
         "state",
         &m->workers},
        {{COUNTER, "ddrun_store_operations", NULL, "Operations that the store has executed"},
         "operation",
         &m->operations},
    };
    int rc = metrics_put_info(m, out);
    for (size_t i = 0; i < sizeof(labelled) / sizeof(labelled[0]) && rc == 0; i++)
        rc = metrics_put_counts(&labelled[i].family, labelled[i].label, labelled[i].counts, out);
    for (size_t i = 0; i < METRICS_MAX && rc == 0; i++)
        if (m->value[i].known)
            rc = metrics_put_one(&families[i], m->value[i].v, out);
    return rc == 0 ? dd_buf_puts(out, "# EOF\n") : rc;
}
