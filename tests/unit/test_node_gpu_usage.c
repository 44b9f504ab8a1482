/* node: the text of the child that asks NVML, and which GPUs belong to a worker. */
#include "node/gpu_facts.h"
#include "node/gpu_usage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void what_is_written_is_read_again(void **state)
{
    static const struct gpu_usage known = {.index = 3,
                                           .uuid = "GPU-3a",
                                           .percent = 97,
                                           .memory_used = INT64_C(61) << 30,
                                           .memory_total = INT64_C(80) << 30,
                                           .clock_mhz = 1410,
                                           .clock_max_mhz = 1980};
    static const struct gpu_usage unknown = {.index = 4,
                                             .percent = -1,
                                             .memory_used = -1,
                                             .memory_total = -1,
                                             .clock_mhz = -1,
                                             .clock_max_mhz = -1};
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(4096);
    struct gpu_usage v[GPU_USAGE_MAX] = {{0}};
    (void)state;
    assert_int_equal(dd_buf_puts(&text, "NVML: a message of the driver\n"), 0);
    assert_int_equal(gpu_usage_write(&known, &text), 0);
    assert_int_equal(gpu_usage_write(&unknown, &text), 0);
    assert_int_equal(gpu_usage_read(dd_buf_str(&text), v), 2);
    assert_int_equal(v[0].index, known.index);
    assert_string_equal(v[0].uuid, known.uuid);
    assert_int_equal(v[0].percent, known.percent);
    assert_int_equal(v[0].memory_used, known.memory_used);
    assert_int_equal(v[0].memory_total, known.memory_total);
    assert_int_equal(v[0].clock_mhz, known.clock_mhz);
    assert_int_equal(v[0].clock_max_mhz, known.clock_max_mhz);
    assert_int_equal(v[1].index, 4);
    assert_string_equal(v[1].uuid, "");
    assert_true(v[1].percent == -1 && v[1].memory_used == -1 && v[1].memory_total == -1);
    assert_true(v[1].clock_mhz == -1 && v[1].clock_max_mhz == -1);
}

static void malformed_lines_are_skipped_and_their_number_is_bounded(void **state)
{
    static const char long_uuid[] = "gpu 0 1 2 3 4 5 GPU-"
                                    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                                    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    static const char *const bad[] = {
        "",
        "\n\n",
        "gpu",
        "gpu 0 1 2 3 4 5",
        "gpu 0 1 2 3 4 5 ",
        "gpu 0 1 2 3 4\n5 GPU-a",
        long_uuid,
        "gpu -1 1 2 3 4 5 GPU-a",
        "gpu 0 101 2 3 4 5 GPU-a",
        "gpu 0 1 99999999999999999999999 3 4 5 GPU-a",
        "gpu 99999999999 1 2 3 4 5 GPU-a",
    };
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 16);
    struct gpu_usage v[GPU_USAGE_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(gpu_usage_read(bad[i], v), 0);
    for (int i = 0; i < 2 * GPU_USAGE_MAX; i++)
        assert_int_equal(dd_buf_printf(&text, "gpu %d 1 2 3 4 5 GPU-%d\n", i, i), 0);
    assert_int_equal(gpu_usage_read(dd_buf_str(&text), v), GPU_USAGE_MAX);
}

static void a_worker_has_the_gpus_that_cuda_shows_it(void **state)
{
    static const struct {
        const char *visible;
        bool shared;
        int local_rank;
        const char *wanted; /* indices */
    } rows[] = {
        {NULL, false, 0, "0 1 2 3 "},
        {NULL, true, 2, "2 "},
        {NULL, true, 5, "1 "}, /* more workers than GPUs */
        {"", false, 0, ""},
        {"", true, 1, ""},
        {"2", false, 0, "2 "},
        {"3,1", false, 0, "3 1 "},
        {"3, 1", true, 1, "1 "},
        {"0,9,1", false, 0, "0 "}, /* the list ends at an invalid entry */
        {"-1", false, 0, ""},
        {"GPU-2c,GPU-1b00", false, 0, "2 1 "},
        {"GPU-", false, 0, ""},
        {"MIG-2c", false, 0, ""},
        {"NoDevFiles", true, 0, ""},
    };
    const struct gpu_usage v[] = {{.index = 0, .uuid = "GPU-0a00-1"},
                                  {.index = 1, .uuid = "GPU-1b00-1"},
                                  {.index = 2, .uuid = "GPU-2c00-1"},
                                  {.index = 3}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gpu_usage *used[GPU_USAGE_MAX];
        char got[64] = "";
        const int n = gpu_usage_of_worker(v, 4, rows[i].visible, rows[i].shared, rows[i].local_rank,
                                          used);
        for (int k = 0; k < n; k++)
            (void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%d ", used[k]->index);
        assert_string_equal(got, rows[i].wanted);
    }
}

static void a_list_that_names_a_gpu_too_often_is_bounded(void **state)
{
    const struct gpu_usage v[] = {{.index = 0}};
    const struct gpu_usage *used[GPU_USAGE_MAX];
    char visible[1000] = "";
    (void)state;
    for (size_t i = 0; i + 2 < sizeof(visible); i += 2)
        memcpy(visible + i, "0,", 3);
    assert_int_equal(gpu_usage_of_worker(v, 1, visible, false, 0, used), GPU_USAGE_MAX);
}

static void the_slowest_gpu_is_one_that_has_work(void **state)
{
    static const struct {
        struct gpu_usage v[3];
        int slowest; /* -1: none */
    } rows[] = {
        {{{.percent = 97, .clock_mhz = 1980, .clock_max_mhz = 1980},
          {.percent = 97, .clock_mhz = 600, .clock_max_mhz = 1980},
          {.percent = 97, .clock_mhz = 1400, .clock_max_mhz = 1980}},
         1},
        {{{.percent = 97, .clock_mhz = 1400, .clock_max_mhz = 1980},
          {.percent = 97, .clock_mhz = 1200, .clock_max_mhz = 1400}},
         0}, /* two models */
        {{{.percent = 50, .clock_mhz = 1900, .clock_max_mhz = 1980},
          {.percent = 49, .clock_mhz = 345, .clock_max_mhz = 1980},
          {.percent = 97, .clock_mhz = 345, .clock_max_mhz = 1980, .throttle = NVML_CLOCKS_IDLE}},
         0},
        {{{.percent = 97, .clock_mhz = -1, .clock_max_mhz = 1980},
          {.percent = 97, .clock_mhz = 345, .clock_max_mhz = -1},
          {.percent = -1, .clock_mhz = 345, .clock_max_mhz = 1980}},
         -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gpu_usage *v[] = {&rows[i].v[0], &rows[i].v[1], &rows[i].v[2]};
        const struct gpu_usage *found = gpu_usage_slowest(v, 3);
        assert_ptr_equal(found, rows[i].slowest >= 0 ? v[rows[i].slowest] : NULL);
    }
    assert_null(gpu_usage_slowest(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(malformed_lines_are_skipped_and_their_number_is_bounded),
        cmocka_unit_test(a_worker_has_the_gpus_that_cuda_shows_it),
        cmocka_unit_test(a_list_that_names_a_gpu_too_often_is_bounded),
        cmocka_unit_test(the_slowest_gpu_is_one_that_has_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
