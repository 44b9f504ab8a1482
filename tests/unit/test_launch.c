#include "launch/emulate.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES = 3, HANG_S = 60 };

struct plot {
    int index, code; /* the node that exits, and its exit code; the others never exit */
};

static int act(void *arg, int index)
{
    const struct plot *p = arg;
    if (index == p->index)
        return p->code;
    for (;;)
        (void)pause();
}

/* Restore the signal mask, which the nodes of the next run inherit. */
static int run(const struct emulate *e, int (*node)(void *arg, int index), void *arg)
{
    sigset_t before;
    sigset_t after;
    (void)sigprocmask(SIG_SETMASK, NULL, &before);
    const int code = emulate_run(e, node, arg, NULL);
    (void)sigprocmask(SIG_SETMASK, &before, &after);
    /* else a signal that comes when all nodes have ended would replace the exit code of the job */
    assert_int_equal(sigismember(&after, SIGTERM), 1);
    return code;
}

static void nodes_end_when_one_has_failed_or_the_host_is_gone(void **state)
{
    (void)state;
    static const struct plot rows[] = {{2, 7}, {1, 1}, {0, 2}};
    const struct emulate e = {.nnodes = NODES};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct plot p = rows[i];
        (void)alarm(HANG_S); /* only ends a hang */
        assert_int_equal(run(&e, act, &p), p.code);
        (void)alarm(0);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    }
}

static int leave(void *arg, int index)
{
    return ((const int *)arg)[index];
}

static void a_job_that_went_on_and_ended_well_has_ended_well(void **state)
{
    (void)state;
    static const struct {
        int codes[NODES], code;
    } rows[] = {{{0, 137, 0}, 0}, {{137, 0, 0}, 0}, {{0, 0, 137}, 0}, {{3, 3, 3}, 3}};
    const struct emulate e = {.nnodes = NODES, .go_on = true};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int codes[NODES];
        memcpy(codes, rows[i].codes, sizeof(codes));
        (void)alarm(HANG_S);
        assert_int_equal(run(&e, leave, codes), rows[i].code);
        (void)alarm(0);
    }
}

static void the_host_may_leave_with_0_before_the_others(void **state)
{
    (void)state;
    const struct emulate e = {.nnodes = NODES};
    struct plot p = {0, 0};
    (void)alarm(HANG_S);
    assert_int_equal(run(&e, act, &p), 128 + SIGTERM);
    (void)alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_end_when_one_has_failed_or_the_host_is_gone),
        cmocka_unit_test(a_job_that_went_on_and_ended_well_has_ended_well),
        cmocka_unit_test(the_host_may_leave_with_0_before_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
