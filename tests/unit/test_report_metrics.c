/* report: the metrics of a job as text. */
#include "report/metrics_json.h"
#include "report/metrics_text.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct metrics some(void)
{
    static const struct metrics_count states[] = {{"running", 1}, {"finished", 0}};
    static const struct metrics_count operations[] = {{"set", 7}};
    struct metrics m = {.job_id = "slurm.1", .version = "0.1.0", .node = "n1"};
    m.states = m.nodes = m.workers = (struct metrics_counts){states, 2};
    m.operations = (struct metrics_counts){operations, 1};
    return m;
}

static const char *text_of(const struct metrics *m, struct dd_buf *out)
{
    assert_int_equal(metrics_text(m, out), 0);
    return dd_buf_str(out);
}

static void unknown_values_are_left_out(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    const struct metrics m = some();
    const char *text = text_of(&m, &out);
    assert_null(strstr(text, "ddrun_rounds"));
    assert_non_null(strstr(text, "# TYPE ddrun_store_operations counter\n"
                                 "ddrun_store_operations_total{operation=\"set\"} 7\n"));
    assert_string_equal(text + strlen(text) - 6, "# EOF\n");
}

static void counters_end_with_total_and_times_are_in_seconds(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    struct metrics m = some();
    metrics_set(&m, METRIC_ROUNDS, 2);
    metrics_set(&m, METRIC_RUNNING, UINT64_C(61000000005));
    metrics_set(&m, METRIC_STORE_MEMORY, UINT64_MAX);
    const char *text = text_of(&m, &out);
    assert_non_null(strstr(text, "# TYPE ddrun_rounds counter\nddrun_rounds_total 2\n"));
    assert_non_null(strstr(text, "# TYPE ddrun_running_seconds counter\n"
                                 "# UNIT ddrun_running_seconds seconds\n"
                                 "ddrun_running_seconds_total 61.000000005\n"));
    assert_non_null(strstr(text, "\nddrun_store_memory_bytes 18446744073709551615\n"));
}

static void label_values_are_escaped(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    struct metrics m = some();
    m.job_id = "a\"b\\c\nd";
    assert_non_null(
        strstr(text_of(&m, &out), "ddrun_job_info{job_id=\"a\\\"b\\\\c\\nd\",version="));
}

static void every_metric_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < METRICS_MAX; i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
        DD_AUTO(buf) struct dd_buf none = DD_BUF_INIT(1 << 16);
        struct metrics m = some();
        const size_t before = strlen(text_of(&m, &none));
        metrics_set(&m, (enum metric)i, 1);
        assert_true(strlen(text_of(&m, &out)) > before);
        assert_null(strstr(dd_buf_str(&out), "(null)"));
    }
}

static void too_little_room_is_an_error(void **state)
{
    (void)state;
    const struct metrics m = some();
    for (size_t max = 0; max < 700; max += 7) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(max);
        assert_int_equal(metrics_text(&m, &out), -EMSGSIZE);
    }
}

static void json_has_the_numbers_of_the_text(void **state)
{
    static const char *const wrong[] = {"x 1\n",
                                        "# HELP a b\nx\n",
                                        "# HELP a b\nx{a=\"b 1\n",
                                        "# HELP a b\nx{a=\"b\" 1\n",
                                        "# HELP a b\nx nan\n",
                                        "# HELP a b\nx 1 2\n",
                                        "# TYPE a b\n",
                                        "# other\n"};
    (void)state;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    DD_AUTO(buf) struct dd_buf json = DD_BUF_INIT(1 << 16);
    struct metrics m = some();
    m.job_id = "a\"b\\c\nd";
    metrics_set(&m, METRIC_RUNNING, UINT64_C(61500000000));
    assert_int_equal(metrics_json(text_of(&m, &out), &json), 0);
    json_t *o = json_loadb((char *)json.data, json.len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *list = json_object_get(o, "metrics");
    const char *id = NULL;
    const char *unit = NULL;
    json_int_t sets = 0;
    double running = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *family = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(family, "name"));
        json_t *sample = json_array_get(json_object_get(family, "samples"), 0);
        if (strcmp(name, "ddrun_job_info") == 0)
            assert_int_equal(json_unpack(sample, "{s:{s:s}}", "labels", "job_id", &id), 0);
        if (strcmp(name, "ddrun_store_operations") == 0)
            assert_int_equal(json_unpack(sample, "{s:I}", "value", &sets), 0);
        if (strcmp(name, "ddrun_running_seconds") == 0) {
            assert_int_equal(json_unpack(sample, "{s:F}", "value", &running), 0);
            unit = json_string_value(json_object_get(family, "unit"));
        }
    }
    assert_string_equal(id, m.job_id);
    assert_string_equal(unit, "seconds");
    assert_int_equal(sets, 7);
    assert_true(running == 61.5);
    json_decref(o);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(metrics_json(wrong[i], &json), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_values_are_left_out),
        cmocka_unit_test(counters_end_with_total_and_times_are_in_seconds),
        cmocka_unit_test(label_values_are_escaped),
        cmocka_unit_test(every_metric_has_a_name_of_its_own),
        cmocka_unit_test(json_has_the_numbers_of_the_text),
        cmocka_unit_test(too_little_room_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
