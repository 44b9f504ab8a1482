/* A CLOCK_MONOTONIC that only the target advances. The definition in the program takes precedence
 * over the C library's, so libevent uses it as well. Include it in one source file of a target. */
#ifndef DD_TESTS_FAKE_CLOCK_H
#define DD_TESTS_FAKE_CLOCK_H

#include "base/io.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t fake_clock_ns = 1000 * DD_NS_PER_S;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, t);
    t->tv_sec = (time_t)(fake_clock_ns / DD_NS_PER_S);
    t->tv_nsec = (long)(fake_clock_ns % DD_NS_PER_S);
    return 0;
}

static void fake_clock_pass(uint64_t ms)
{
    fake_clock_ns += ms * DD_NS_PER_MS;
}

#endif
