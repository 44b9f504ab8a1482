/* node: which facts of NVML make a GPU unusable, which are warnings, and which are nothing. */
#include "node/gpu_faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define KNOWN (GPU_KNOWS_ECC | GPU_KNOWS_ROWS | GPU_KNOWS_LINKS | GPU_KNOWS_MEMORY)
#define NAMED .index = 3, .bus = "00000000:17:00.0", .links = 15
#define UP .links_up = 15
#define OLD_DRIVER NAMED, UP, .known = KNOWN
#define DRIVER NAMED, UP, .known = KNOWN | GPU_KNOWS_RECOVERY

static const struct health_gpu first = {
    .seen = true, .links_up = 15, .link_errors = 7, .ecc_corrected = 2, .memory_used = 1 << 29};

static const struct {
    struct gpu_facts now;
    const struct health_gpu *before;
    uint64_t xid;
    int most;
    const char *fails, *warns; /* part of the sentence; NULL: none */
} rows[] = {
    {.now = {DRIVER}},
    {.now = {OLD_DRIVER}},
    {.now = {DRIVER, .recovery = 1}, .fails = "needs a reset"},
    {.now = {DRIVER, .recovery = 2}, .fails = "reboot of the node"},
    {.now = {DRIVER, .recovery = 3}, .fails = "must not be used with other GPUs"},
    {.now = {DRIVER, .recovery = 7}, .fails = "reboot of the system"},
    {.now = {DRIVER, .recovery = 50}, .fails = "needs recovery action 50"},
    {.now = {OLD_DRIVER, .recovery = 1}}, /* unknown */
    {.now = {NAMED, .lost = NVML_GPU_IS_LOST}, .fails = "does not respond"},
    {.now = {NAMED, .lost = NVML_RESET_REQUIRED}, .fails = "needs a reset"},
    {.now = {OLD_DRIVER, .ecc_uncorrected = 4}, .fails = "4 uncorrectable memory errors"},
    {.now = {DRIVER, .ecc_uncorrected = 4}, .warns = "4 uncorrectable memory errors"},
    {.now = {DRIVER, .ecc_corrected = 9}}, /* from before the job */
    {.now = {DRIVER, .ecc_corrected = 9, .link_errors = 7},
     .before = &first,
     .warns = "has corrected 7 memory errors"},
    {.now = {DRIVER, .rows_failed = 1}, .fails = "replace the GPU"},
    {.now = {DRIVER, .rows_pending = 1}, .warns = "will remap"},
    {.now = {DRIVER, .pages_pending = 1}, .warns = "will retire"},
    {.now = {DRIVER, .nprocesses = 1, .processes = {{.pid = 77, .bytes = 3 << 29}}},
     .fails = "1.5 GiB of memory held by process 77, which has ended"},
    {.now = {DRIVER, .nprocesses = 1,
             .processes = {{.pid = 77, .bytes = 3ULL << 30, .alive = true}}},
     .warns = "3.0 GiB of memory held by process 77, which is not"},
    {.now = {DRIVER, .nprocesses = 1, .processes = {{.pid = 77, .bytes = 1, .alive = true}}}},
    {.now = {DRIVER, .memory_used = 1 << 29, .memory_total = 80ULL << 30}},
    {.now = {DRIVER, .memory_used = 5ULL << 30}}, /* from before the job */
    {.now = {DRIVER, .link_errors = 7, .memory_used = 5ULL << 30, .memory_total = 80ULL << 30},
     .before = &first,
     .warns = "5.0 of 80.0 GiB of memory in use, 4.5 GiB more"},
    {.now = {NAMED, .known = KNOWN, .links_up = 11},
     .most = 4,
     .warns = "has 3 active NVLinks, but"},
    {.now = {NAMED, .known = KNOWN, .links_up = 11}, .most = 3}, /* as the others of this machine */
    {.now = {NAMED, .known = KNOWN, .links_up = 0}},             /* not connected in this machine */
    {.now = {NAMED, .known = KNOWN, .links_up = 11, .link_errors = 7},
     .before = &first,
     .fails = "has lost NVLink 2"},
    {.now = {DRIVER, .link_errors = 99}}, /* from before the job */
    {.now = {DRIVER, .link_errors = 9}, .before = &first, .warns = "2 errors on its NVLinks"},
    {.now = {DRIVER, .throttle = 0x1 | 0x2 | 0x4}}, /* idle, settings, power cap: normal */
    {.now = {DRIVER, .throttle = 0x48}, .warns = "too hot"},
    {.now = {DRIVER, .throttle = 0x88}, .warns = "power brake"},
    {.now = {DRIVER, .throttle = 0x20}, .warns = "too hot"},
    {.now = {DRIVER, .throttle = 0x8}, .warns = "slowed it down"},
    {.now = {DRIVER}, .xid = 79, .fails = "XID 79 (it has fallen off the bus)"},
    {.now = {DRIVER}, .xid = 48, .warns = "XID 48"}, /* its driver asks for no action */
    {.now = {OLD_DRIVER}, .xid = 48, .fails = "XID 48 (an uncorrectable memory error)"},
    {.now = {OLD_DRIVER}, .xid = 31, .warns = "XID 31 (an invalid memory access by a program)"},
    {.now = {OLD_DRIVER}, .xid = 999, .warns = "XID 999 (see the kernel log)"},
    {.now = {OLD_DRIVER}, .xid = 45}, /* the end of a program that was killed */
};

static void facts_are_judged(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char why[GPU_SENTENCE + 1] = "";
        struct health_page page = {0};
        const struct health_xid x = {.xid = rows[i].xid, .n = 1};
        const struct gpu_case c = {
            .now = &rows[i].now, .before = rows[i].before, .xid = &x, .most_links = rows[i].most};
        const bool fails = gpu_faults_judge(&c, &page, why);
        const char *want[] = {rows[i].fails, rows[i].warns};
        const char *got[] = {why, page.warnings};
        if (fails != (rows[i].fails != NULL))
            fail_msg("row %zu: '%s', '%s'", i, why, page.warnings);
        for (int k = 0; k < 2; k++)
            if (want[k] == NULL ? got[k][0] != '\0'
                                : strstr(got[k], want[k]) == NULL ||
                                      strncmp(got[k], "GPU 3 (00000000:17:00.0) ", 25) != 0)
                fail_msg("row %zu: '%s'", i, got[k]);
    }
}

static void first_fault_and_all_warnings_are_reported(void **state)
{
    (void)state;
    char why[GPU_SENTENCE + 1] = "";
    struct health_page page = {0};
    const struct gpu_facts f = {DRIVER, .recovery = 2, .rows_failed = 1, .rows_pending = 1,
                                .throttle = 0x40};
    assert_true(gpu_faults_judge(&(struct gpu_case){.now = &f}, &page, why));
    assert_non_null(strstr(why, "reboot of the node"));
    assert_non_null(strstr(page.warnings, "will remap"));
    assert_non_null(strstr(page.warnings, "too hot"));
}

static void links_are_compared_with_the_start(void **state)
{
    (void)state;
    struct health_gpu g = {0};
    const struct gpu_facts up = {DRIVER, .link_errors = 1, .ecc_corrected = 5};
    const struct gpu_facts down = {NAMED, .links_up = 3, .link_errors = 4};
    gpu_faults_note(&g, &up);
    gpu_faults_note(&g, &down);
    assert_int_equal(g.links_up, 15);
    assert_int_equal(g.link_errors, 4);
    assert_int_equal(g.ecc_corrected, 0);
    assert_string_equal(g.bus, "00000000:17:00.0");
}

static void visible_devices_are_selected(void **state)
{
    (void)state;
    const struct gpu_facts f = {NAMED, .uuid = "GPU-0000000a-aaaa"};
    static const struct {
        const char *visible;
        bool is;
    } lists[] = {
        {NULL, true},       {"", false},
        {"3", true},        {"0,1,3", true},
        {"0,1,2", false},   {"33", false},
        {"-1", false},      {"GPU-0000000a-aaaa", true},
        {"GPU-0000", true}, {"GPU-b", false},
        {"GPU-", false},    {"MIG-0000000a", true},
        {",,", false},      {"0,GPU-0000000a", true},
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        assert_int_equal(gpu_is_visible(lists[i].visible, &f), lists[i].is);
}

static void warnings_are_bounded(void **state)
{
    (void)state;
    struct health_page page = {0};
    for (int i = 0; i < 1000; i++)
        health_page_warn(&page, "warning %d of a long list of warnings", i);
    const size_t n = strlen(page.warnings);
    assert_in_range(n, HEALTH_WARNINGS_MAX - 50, HEALTH_WARNINGS_MAX - 1);
    assert_int_equal(page.warnings[n - 1], '\n');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_are_judged),
        cmocka_unit_test(first_fault_and_all_warnings_are_reported),
        cmocka_unit_test(links_are_compared_with_the_start),
        cmocka_unit_test(visible_devices_are_selected),
        cmocka_unit_test(warnings_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
