/* report: the traceback in the last lines of a worker shows in which collective it waited. */
#include "report/stacks.h"
#include "report/traceback.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define HEAD "Traceback (most recent call last):\n"
#define MAIN "  File \"/u/train.py\", line 119, in <module>\n    main()\n"
#define REDUCE                                                                                     \
    "  File \"/u/train.py\", line 81, in main\n    dist.all_reduce(t)\n"                           \
    "  File \"/v/torch/distributed/distributed_c10d.py\", line 7, in all_reduce\n    work.wait()\n"
#define GATHER                                                                                     \
    "  File \"/u/train.py\", line 90, in gather\n    dist.all_gather(v, t)\n"                      \
    "  File \"/v/torch/distributed/distributed_c10d.py\", line 9, in all_gather\n"
#define TIMEOUT                                                                                    \
    "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 10000ms for recv\n"
#define LOST "RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:5\n"
#define IN_REDUCE "all_reduce\t/v/torch/distributed/distributed_c10d.py\t7\nmain\t/u/train.py\t81\n"
#define IN_GATHER                                                                                  \
    "all_gather\t/v/torch/distributed/distributed_c10d.py\t9\ngather\t/u/train.py\t90\n"
#define MODULE "<module>\t/u/train.py\t119\n"

static const struct {
    const char *text, *frames; /* frames NULL: none */
} texts[] = {
    {HEAD MAIN REDUCE TIMEOUT, IN_REDUCE MODULE},
    {"step 3\n" HEAD MAIN REDUCE LOST "[W1 socket.cpp:764] retrying\n", IN_REDUCE MODULE},
    /* with a process group, PyTorch labels the lines */
    {"[rank3]: Traceback (most recent call last):\n"
     "[rank3]:   File \"/u/train.py\", line 119, in <module>\n[rank3]:     main()\n"
     "[rank3]:            ^^^^^^\n[rank3]: " TIMEOUT,
     MODULE},
    /* outer frames have been cut off */
    {"    main()\n" REDUCE TIMEOUT, IN_REDUCE},
    /* one that the program had caught and printed before */
    {HEAD MAIN GATHER LOST "retrying\n" HEAD MAIN REDUCE TIMEOUT, IN_REDUCE MODULE},
    /* raised while another one was handled: the program had waited elsewhere before */
    {HEAD MAIN REDUCE TIMEOUT
     "\nDuring handling of the above exception, another exception occurred:\n\n" HEAD MAIN GATHER
         LOST,
     NULL},
    {HEAD MAIN REDUCE TIMEOUT
     "\nThe above exception was the direct cause of the following exception:\n\n" HEAD MAIN GATHER
         LOST,
     NULL},
    {"", NULL},
    {TIMEOUT, NULL},
    {HEAD "  File \"/u/train.py\n  File \"/u/a.py\", line x\n  File \"/u/a.py\", line 3, in \n",
     NULL},
    {HEAD "  File \"/u/a.py\", line 99999999999999999999, in f\n", "f\t/u/a.py\t999999999\n"},
};

static void the_last_traceback_has_the_frames(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(STACKS_TEXT);
        const int rc = traceback_frames(texts[i].text, &out);
        assert_int_equal(rc, texts[i].frames != NULL ? 0 : -ENODATA);
        assert_string_equal(rc == 0 ? dd_buf_str(&out) : "",
                            texts[i].frames != NULL ? texts[i].frames : "");
    }
}

static void of_many_frames_the_innermost_ones_are_kept(void **state)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 20);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(STACKS_TEXT);
    const char *at;
    int n = 0;
    (void)state;
    for (int i = 0; i < 3 * STACKS_FRAMES; i++)
        assert_int_equal(dd_buf_printf(&text, "  File \"/a.py\", line %d, in f\n", i), 0);
    assert_int_equal(traceback_frames(dd_buf_str(&text), &out), 0);
    assert_memory_equal(dd_buf_str(&out), "f\t/a.py\t299\nf\t/a.py\t298\n", 24);
    for (at = dd_buf_str(&out); (at = strchr(at, '\n')) != NULL; at++)
        n++;
    assert_int_equal(n, STACKS_FRAMES);
}

static void only_a_worker_that_missed_another_one_was_waiting(void **state)
{
    static const struct {
        const char *tail;
        int rc;
    } tails[] = {
        {HEAD MAIN REDUCE TIMEOUT, 0},
        {HEAD MAIN REDUCE LOST, 0},
        {HEAD MAIN REDUCE "ValueError: boom\n", -ENODATA},
        {"step 3\n", -ENODATA},
        {"", -ENODATA},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(STACKS_TEXT);
        assert_int_equal(traceback_of_waiting(tails[i].tail, &out), tails[i].rc);
    }
}

static void python_prints_a_traceback_outside_of_the_program(void **state)
{
    (void)state;
    assert_true(
        traceback_is_printed("_distributed_excepthook\t/v/torch/distributed/__init__.py\t90\n"));
    assert_true(traceback_is_printed("print\t/p/traceback.py\t9\n"
                                     "_print_exception_bltin\t/p/traceback.py\t125\n"));
    assert_false(traceback_is_printed("print_exception\t/p/traceback.py\t9\n" MODULE));
    assert_false(traceback_is_printed(IN_REDUCE MODULE));
    assert_false(traceback_is_printed(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_traceback_has_the_frames),
        cmocka_unit_test(of_many_frames_the_innermost_ones_are_kept),
        cmocka_unit_test(only_a_worker_that_missed_another_one_was_waiting),
        cmocka_unit_test(python_prints_a_traceback_outside_of_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
