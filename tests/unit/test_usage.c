/* What workers use: the kernel's numbers of a process group, and the answers of nodes. */
#include "base/buf.h"
#include "report/usage.h"
#include "worker/group_usage.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { MEMORY = 48 << 20, CPU_MS = 60 };

/* A process with memory that has used the processor, and a child in its group. */
static void be_a_worker(int ready)
{
    static volatile char memory[MEMORY]; /* or the compiler drops what nobody reads */
    const struct timespec tick = {.tv_nsec = 1000000};
    (void)setpgid(0, 0);
    for (size_t i = 0; i < sizeof(memory); i += 512)
        memory[i] = 1;
    while (clock() < CPU_MS * (CLOCKS_PER_SEC / 1000))
        ;
    if (fork() == 0)
        while (getppid() != 1)
            (void)nanosleep(&tick, NULL);
    (void)!write(ready, "x", 1);
    for (;;)
        pause();
}

static void a_process_group_has_memory_and_processor_time(void **state)
{
    int ends[2];
    char byte;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0)
        be_a_worker(ends[1]);
    (void)setpgid(pid, pid);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    struct worker_usage v[] = {{.pid = 0}, {.pid = pid}, {.pid = INT32_MAX}};
    assert_int_equal(worker_usage_read(v, 3), 0);
    assert_true(v[1].memory >= MEMORY);
    assert_true(v[1].cpu_ms >= CPU_MS / 2);
    assert_non_null(strchr("RSD", v[1].state));
    assert_int_equal(v[0].state, '-');
    assert_int_equal(v[2].state, '-');
    assert_int_equal(v[2].memory, 0);
    assert_int_equal(kill(-pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ends[0]);
    close(ends[1]);
}

#define ANSWER(workers) "{\"at_ms\":7000,\"workers\":[" workers "]}"
#define WORKER(rank) "[" rank ",12,\"S\",340,5678,\"step 1\"]"
#define GPUS(rank, gpus) "[" rank ",12,\"S\",340,5678,\"step 1\",[" gpus "]]"

static void answers_of_a_node_become_workers(void **state)
{
    (void)state;
    json_t *list = json_array();
    assert_int_equal(usage_take(list, ANSWER(WORKER("4") "," WORKER("6")), 4, 4), 0);
    assert_int_equal(usage_take(list, USAGE_NONE, 0, 4), 0);
    assert_int_equal(json_array_size(list), 2);
    const json_t *w = json_array_get(list, 1);
    assert_int_equal(json_integer_value(json_object_get(w, "rank")), 6);
    assert_int_equal(json_integer_value(json_object_get(w, "pid")), 12);
    assert_int_equal(json_integer_value(json_object_get(w, "cpu_ms")), 340);
    assert_int_equal(json_integer_value(json_object_get(w, "memory_bytes")), 5678);
    assert_int_equal(json_integer_value(json_object_get(w, "at_ms")), 7000);
    assert_string_equal(json_string_value(json_object_get(w, "text")), "step 1");
    json_decref(list);
}

static void gpus_of_a_worker_are_optional(void **state)
{
    (void)state;
    json_t *list = json_array();
    assert_int_equal(usage_take(list,
                                ANSWER(WORKER("4") "," GPUS("5", "[0,97,1000,2000,1410,1980],"
                                                                 "[1,null,null,null,null,null]")),
                                4, 4),
                     0);
    assert_null(json_object_get(json_array_get(list, 0), "gpus"));
    DD_AUTO(free) char *text = json_dumps(json_object_get(json_array_get(list, 1), "gpus"),
                                          JSON_COMPACT);
    assert_string_equal(text,
                        "[{\"index\":0,\"percent\":97,\"memory_bytes\":1000,"
                        "\"memory_total_bytes\":2000,\"clock_mhz\":1410,\"clock_max_mhz\":1980},"
                        "{\"index\":1,\"percent\":null,\"memory_bytes\":null,"
                        "\"memory_total_bytes\":null,\"clock_mhz\":null,"
                        "\"clock_max_mhz\":null}]");
    json_decref(list);
}

static void more_gpus_than_a_node_has_are_refused(void **state)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 16);
    (void)state;
    json_t *list = json_array();
    assert_int_equal(dd_buf_puts(&text, "{\"at_ms\":1,\"workers\":[[4,12,\"S\",3,5,\"\",["), 0);
    for (int i = 0; i <= USAGE_GPUS; i++)
        assert_int_equal(dd_buf_printf(&text, "%s[%d,1,2,3,4,5]", i > 0 ? "," : "", i), 0);
    assert_int_equal(dd_buf_puts(&text, "]]]}"), 0);
    assert_int_equal(usage_take(list, dd_buf_str(&text), 4, 4), -EPROTO);
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
}

static void answers_about_other_ranks_or_of_other_forms_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"workers\":[]}",
        "{\"at_ms\":-1,\"workers\":[]}",
        "{\"at_ms\":1,\"workers\":{}}",
        ANSWER(WORKER("3")),
        ANSWER(WORKER("8")),
        ANSWER(WORKER("5") "," WORKER("5")),
        ANSWER(WORKER("5") "," WORKER("4")),
        ANSWER(WORKER("4294967300")),
        ANSWER("7"),
        ANSWER("[4,12,\"S\",340,5678]"),
        ANSWER("[4,12,\"SS\",340,5678,\"\"]"),
        ANSWER("[4,12,\"S\",-340,5678,\"\"]"),
        ANSWER("[4,12,\"S\",340,5678.5,\"\"]"),
        ANSWER("[4,12,\"S\",340,5678,\"\",7]"),
        ANSWER("[4,12,\"S\",340,5678,\"\",null]"),
        ANSWER(WORKER("4") "," GPUS("5", "7")),
        ANSWER(GPUS("4", "[0,1,2,3,4]")),
        ANSWER(GPUS("4", "[0,1,2,3,4,5,6]")),
        ANSWER(GPUS("4", "[null,1,2,3,4,5]")),
        ANSWER(GPUS("4", "[0,101,2,3,4,5]")),
        ANSWER(GPUS("4", "[0,1,-2,3,4,5]")),
        ANSWER(GPUS("4", "[0,1,2,3,\"4\",5]")),
        ANSWER("[4,4294967296,\"S\",340,5678,\"\"]"),
    };
    (void)state;
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(usage_take(list, bad[i], 4, 4), -EPROTO);
        assert_int_equal(json_array_size(list), 0);
    }
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_group_has_memory_and_processor_time),
        cmocka_unit_test(answers_of_a_node_become_workers),
        cmocka_unit_test(gpus_of_a_worker_are_optional),
        cmocka_unit_test(more_gpus_than_a_node_has_are_refused),
        cmocka_unit_test(answers_about_other_ranks_or_of_other_forms_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
