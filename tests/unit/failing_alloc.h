/* Failing allocations, for programs linked with --wrap=malloc,--wrap=calloc,--wrap=realloc. */
#ifndef DD_TESTS_FAILING_ALLOC_H
#define DD_TESTS_FAILING_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

static size_t fail_at; /* the nth allocation from now on fails; 0: none */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static bool failing(void)
{
    return fail_at > 0 && --fail_at == 0;
}

void *__wrap_malloc(size_t n)
{
    return failing() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return failing() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return failing() ? NULL : __real_realloc(p, n);
}

#endif
