/* The option tables of all programs are sound, and misspelt environment variables are detected. */
#include "cmd/ddctl.h"
#include "cmd/ddrun_options.h"
#include "cmd/ddrund_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <stdint.h>

#include <cmocka.h>

static void tables_are_sound(void **state)
{
    const struct opt_table *const tables[] = {
        &ddrun_options,         &ddrund_options,        &ddctl_env_options,
        &ddctl_hosts_options,   &ddctl_status_options,  &ddctl_drain_options,
        &ddctl_events_options,  &ddctl_kv_options,      &ddctl_signal_options,
        &ddctl_jobs_options,    &ddctl_metrics_options, &ddctl_submit_options,
        &ddctl_profile_options, &ddctl_web_options,     &ddctl_blame_options,
        &ddctl_report_options};
    (void)state;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        struct dd_err err = {0};
        int rc = opt_table_check(tables[i], &err);
        assert_string_equal(err.text, "");
        assert_int_equal(rc, 0);
    }
}

static const struct {
    const char *entry, *meant; /* NULL: not a misspelling */
} rows[] = {
    {"DDRUN_LOGDIR=x", "DDRUN_LOG_DIR"},
    {"DDRUN_LOG_DIRS=x", "DDRUN_LOG_DIR"},
    {"DDRUN_NPROC_PER_NODES=", "DDRUN_NPROC_PER_NODE"},
    {"DDRUN_KEYS=x", "DDRUN_KEY"},
    {"DDRUN_RDZV_TIMOUT=1", "DDRUN_RDZV_TIMEOUT"},
    {"DDRUN_LOG_DIR=x", NULL},
    {"DDRUN_SHUTDOWN_TIMEOUT=1", NULL},
    {"DDRUN_KEY=x", NULL},
    {"DDRUN_NODES=n[1-2]", NULL}, /* set by ddrun for workers */
    {"DDRUN_ROUND=0", NULL},
    {"DDRUN_BUILD=x", NULL},
    {"DDRUN_=x", NULL},
    {"DDRUND_LISTENS=x", NULL},
    {"PATH=x", NULL},
};

static void misspelt_variables_are_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char right[64] = "";
        bool seen = opt_env_misspelt(&ddrun_options, rows[i].entry, right);
        assert_string_equal(seen ? right : "none", rows[i].meant != NULL ? rows[i].meant : "none");
    }
}

/* A new option is refused in a project file until it is listed here and in docs/config.md. */
static void a_project_file_sets_exactly_these_options(void **state)
{
    static const char *const allowed[] = {
        "nproc-per-node", "nnodes",       "bind",         "numa-binding",
        "rdzv-timeout",   "last-call",    "max-restarts", "heartbeat",
        "health-timeout", "hang-timeout", "timeout",      "shutdown-timeout",
        "output",         "label",        "fold",         "log-level"};
    size_t n = 0;
    (void)state;
    for (size_t i = 0; i < ddrun_options.n_rows; i++) {
        if (!ddrun_options.rows[i].project)
            continue;
        assert_true(n < sizeof(allowed) / sizeof(allowed[0]));
        assert_string_equal(ddrun_options.rows[i].name, allowed[n++]);
    }
    assert_int_equal(n, sizeof(allowed) / sizeof(allowed[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_sound),
        cmocka_unit_test(misspelt_variables_are_seen),
        cmocka_unit_test(a_project_file_sets_exactly_these_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
