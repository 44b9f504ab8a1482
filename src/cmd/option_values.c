#include "cmd/option_values.h"

#include "agent/agent.h"
#include "agent/requeue.h"
#include "base/io.h"
#include "base/log.h"
#include "base/num.h"
#include "base/sig.h"
#include "base/strv.h"
#include "cmd/ddrun_options.h"
#include "node/gpu.h"
#include "node/health.h"
#include "rdzv/plan.h"
#include "worker/hang.h"
#include "worker/step_lines.h"

#include <errno.h>
#include <string.h>

enum { RESTARTS_MAX = 1000000, RESTARTS_MAX_WITHIN = 1000 };

/* Parse "4" or "2:4". */
int parse_nnodes(const char *text, void *field, struct dd_err *err)
{
    struct node_range *r = field;
    char copy[32];
    int min;
    int max;
    size_t len = strlen(text);
    if (len < sizeof(copy)) {
        memcpy(copy, text, len + 1);
        char *colon = strchr(copy, ':');
        if (colon != NULL)
            *colon = '\0';
        if (dd_num_int(copy, 1, PLAN_MAX_NODES, &min) == 0 &&
            dd_num_int(colon != NULL ? colon + 1 : copy, 1, PLAN_MAX_NODES, &max) == 0) {
            *r = (struct node_range){min, max, colon != NULL};
            return min <= max ? 0
                              : dd_err_set(err, -EINVAL,
                                           "invalid value '%s': minimum %d exceeds maximum %d",
                                           text, min, max);
        }
    }
    return dd_err_set(err, -EINVAL,
                      "invalid value '%s': expected a number of nodes from 1 to %d, or MIN:MAX",
                      text, PLAN_MAX_NODES);
}

/* Parse "3", or "3/1h": at most three within any period of one hour. */
int parse_restarts(const char *text, void *field, struct dd_err *err)
{
    struct restart_budget *r = field;
    char copy[48];
    size_t len = strlen(text);
    *r = (struct restart_budget){0};
    if (len < sizeof(copy)) {
        memcpy(copy, text, len + 1);
        char *slash = strchr(copy, '/');
        if (slash != NULL)
            *slash = '\0';
        if (dd_num_int(copy, 0, slash != NULL ? RESTARTS_MAX_WITHIN : RESTARTS_MAX, &r->most) ==
                0 &&
            (slash == NULL ||
             (dd_num_duration_ns(slash + 1, &r->within_ns) == 0 && r->within_ns > 0)))
            return 0;
    }
    return dd_err_set(
        err, -EINVAL,
        "invalid value '%s': expected a number of restarts from 0 to %d, or N/TIME such as 3/1h "
        "with N up to %d",
        text, RESTARTS_MAX, RESTARTS_MAX_WITHIN);
}

/* Check the syntax only, as if there were one GPU and one CPU. */
int parse_nproc(const char *text, void *field, struct dd_err *err)
{
    const char **ret = field;
    const struct node_gpus some = {.count = 1};
    int rc = node_nproc(text, &some, 1, err);
    if (rc < 0)
        return rc;
    *ret = text;
    return 0;
}

/* Parse "USR1@120", the syntax of sbatch --signal. */
int parse_signal_at(const char *text, void *field, struct dd_err *err)
{
    struct signal_at *r = field;
    char name[16];
    const char *at = strchr(text, '@');
    size_t len = at != NULL ? (size_t)(at - text) : 0;
    if (at != NULL && len < sizeof(name)) {
        memcpy(name, text, len);
        name[len] = '\0';
        r->sig = dd_signal_parse(name);
        if ((dd_signal_ends_jobs(r->sig) || dd_signal_announces(r->sig)) &&
            dd_num_duration_ns(at + 1, &r->ns) == 0)
            return 0;
    }
    return dd_err_set(
        err, -EINVAL,
        "invalid value '%s': expected SIGNAL@TIME, such as USR1@120, with signal USR1, USR2, "
        "TERM, INT, HUP or QUIT",
        text);
}

/* Parse "USR1@60". The signal must not end the job, which continues. */
int parse_drain_signal(const char *text, void *field, struct dd_err *err)
{
    struct signal_at at = {0};
    struct dd_err other;
    if (parse_signal_at(text, &at, &other) < 0 || !dd_signal_announces(at.sig) ||
        at.ns > 86400 * DD_NS_PER_S)
        return dd_err_set(
            err, -EINVAL,
            "invalid value '%.60s': expected USR1@TIME or USR2@TIME, such as USR1@60, "
            "with a time of at most one day",
            text);
    *(struct signal_at *)field = at;
    return 0;
}

/* -p is the ssh port of horovodrun. A value of srun's -p, the partition, must not be ignored
 * silently. */
int parse_ssh_port(const char *text, void *field, struct dd_err *err)
{
    int port;
    *(const char **)field = text;
    return dd_num_int(text, 1, 65535, &port) == 0
               ? 0
               : dd_err_set(err, -EINVAL,
                            "invalid SSH port '%.60s': expected 1 to 65535"
                            "\n  tip: pass a partition to sbatch or srun",
                            text);
}

int parse_stdin(const char *text, void *field, struct dd_err *err)
{
    int *ret = field;
    if (strcmp(text, "all") == 0)
        *ret = STDIN_ALL;
    else if (strcmp(text, "none") == 0)
        *ret = STDIN_NONE;
    else if (dd_num_int(text, 0, PLAN_MAX_NODES * PLAN_MAX_SLOTS - 1, ret) < 0)
        return dd_err_set(err, -EINVAL,
                          "invalid value '%s': expected a rank from 0 to %d, 'all' or 'none'", text,
                          PLAN_MAX_NODES * PLAN_MAX_SLOTS - 1);
    return 0;
}

int parse_output(const char *text, void *field, struct dd_err *err)
{
    static const char *const styles[] = {
        [OUTPUT_LINES] = "lines", [OUTPUT_LABELS] = "labels", [OUTPUT_RAW] = "raw"};
    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++)
        if (strcmp(text, styles[i]) == 0) {
            *(enum output_style *)field = (enum output_style)i;
            return 0;
        }
    int rc = dd_err_set(err, -EINVAL, "invalid value '%.200s': expected lines, labels or raw",
                        text);
    return strpbrk(text, "%./") == NULL
               ? rc
               : dd_err_tip(
                     err, rc,
                     "--log-dir=DIR --redirects=3 writes files for each worker; --tee=3 also shows them");
}

int parse_requeue(const char *text, void *field, struct dd_err *err)
{
    int bits = requeue_parse(text, err);
    *(int *)field = bits > 0 ? bits : 0;
    return bits < 0 ? bits : 0;
}

/* Parse rules. A job that ends with code 93 is not requeued unless a rule names this code. */
int parse_exit_rules(const char *text, void *field, struct dd_err *err)
{
    struct exit_rules r = {0};
    r.of[REQUEUE_NEVER_CODE] = EXIT_NO_REQUEUE;
    int rc = exit_rules_parse(&r, text, err);
    if (rc == 0)
        *(struct exit_rules *)field = r;
    return rc;
}

int parse_progress_regex(const char *text, void *field, struct dd_err *err)
{
    struct step_lines *lines;
    int rc = step_lines_new(&lines, text, err);
    if (rc < 0)
        return rc;
    step_lines_free(lines);
    *(const char **)field = text;
    return 0;
}

/* Parse "machine,link". */
int parse_trace(const char *text, void *field, struct dd_err *err)
{
    static const struct {
        const char *name;
        unsigned part;
    } parts[] = {{"machine", DD_TRACE_MACHINE}, {"link", DD_TRACE_LINK}};
    enum { PARTS = sizeof(parts) / sizeof(parts[0]) };
    unsigned *ret = field;
    DD_AUTO(strv) struct dd_strv words = {0};
    if (dd_strv_split(&words, text, ",") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *ret = 0;
    for (size_t w = 0; w < words.n; w++) {
        size_t i = 0;
        while (i < PARTS && strcmp(words.v[w], parts[i].name) != 0)
            i++;
        if (i == PARTS)
            return dd_err_set(err, -EINVAL,
                              "invalid value '%.200s': expected 'machine', 'link' or "
                              "'machine,link'",
                              text);
        *ret |= parts[i].part;
    }
    return 0;
}

/* Parse "output,network". */
int parse_hang_signs(const char *text, void *field, struct dd_err *err)
{
    static const struct {
        const char *name;
        int signs;
    } names[] = {{"output", HANG_SIGN_OUTPUT},     {"file", HANG_SIGN_FILE},
                 {"cpu", HANG_SIGN_CPU},           {"io", HANG_SIGN_IO},
                 {"network", HANG_SIGN_NETWORK},   {"any", HANG_SIGN_OUTPUT | HANG_SIGN_FILE},
                 {"activity", HANG_SIGNS_ACTIVITY}};
    enum { NAMES = sizeof(names) / sizeof(names[0]) };
    DD_AUTO(strv) struct dd_strv words = {0};
    int *signs = field;
    *signs = 0;
    if (dd_strv_split(&words, text, ",") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < words.n; i++) {
        size_t k = 0;
        while (k < NAMES && strcmp(words.v[i], names[k].name) != 0)
            k++;
        if (k == NAMES)
            return dd_err_set(err, -EINVAL,
                              "invalid value '%s': expected some of output, file, cpu, io, "
                              "network, any, activity",
                              words.v[i]);
        *signs |= names[k].signs;
    }
    return *signs != 0 ? 0
                       : dd_err_set(err, -EINVAL,
                                    "expected some of output, file, cpu, io, network, any, "
                                    "activity, got nothing");
}

int parse_health(const char *text, void *field, struct dd_err *err)
{
    return node_health_parse(field, text, err);
}
