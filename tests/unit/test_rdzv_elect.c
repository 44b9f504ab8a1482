/* rdzv: the ports that all nodes of a job compute. */
#include "rdzv/elect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void elect_gives_different_safe_ports_that_depend_on_the_job(void **state)
{
    (void)state;
    uint16_t a[ELECT_PORTS];
    uint16_t again[ELECT_PORTS];
    uint16_t b[ELECT_PORTS];
    elect_ports("slurm.17.0.r0", 0, a, ELECT_PORTS);
    elect_ports("slurm.17.0.r0", 0, again, ELECT_PORTS);
    elect_ports("slurm.17.0.r1", 0, b, ELECT_PORTS);
    assert_memory_equal(a, again, sizeof(a));
    assert_memory_not_equal(a, b, sizeof(a));
    for (int i = 0; i < ELECT_PORTS; i++) {
        assert_in_range(a[i], 30000, 32767);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(a[i], a[k]);
    }
}

static void elect_spreads_neighbouring_jobs(void **state)
{
    (void)state;
    int same = 0;
    for (int job = 0; job < 200; job++) {
        char x[32];
        char y[32];
        uint16_t a[ELECT_PORTS];
        uint16_t b[ELECT_PORTS];
        (void)snprintf(x, sizeof(x), "slurm.%d.0.r0", job);
        (void)snprintf(y, sizeof(y), "slurm.%d.0.r0", job + 1);
        elect_ports(x, 0, a, ELECT_PORTS);
        elect_ports(y, 0, b, ELECT_PORTS);
        same += a[0] == b[0];
    }
    assert_in_range(same, 0, 2);
}

/* Nodes with different seeds (their keys differ) have the first ports in common. */
static void elected_ports_behind_the_public_ones_follow_from_the_seed(void **state)
{
    (void)state;
    uint16_t open[ELECT_WALK];
    uint16_t secret[ELECT_WALK];
    uint16_t near[ELECT_PORTS];
    int same = 0;
    elect_ports("slurm.17.0.r0", 0, open, ELECT_WALK);
    elect_ports("slurm.17.0.r0", 0x1234567890abcdef, secret, ELECT_WALK);
    elect_ports("slurm.17.0.r0", 0x1234567890abcdef, near, ELECT_PORTS);
    assert_memory_equal(near, secret, sizeof(near));
    assert_memory_equal(open, secret, ELECT_PUBLIC * sizeof(open[0]));
    for (int i = ELECT_PUBLIC; i < ELECT_PORTS; i++)
        same += open[i] == secret[i];
    assert_in_range(same, 0, 2);
    for (int i = 0; i < ELECT_WALK; i++) {
        assert_in_range(secret[i], 30000, 32767);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(secret[i], secret[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elect_gives_different_safe_ports_that_depend_on_the_job),
        cmocka_unit_test(elect_spreads_neighbouring_jobs),
        cmocka_unit_test(elected_ports_behind_the_public_ones_follow_from_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
