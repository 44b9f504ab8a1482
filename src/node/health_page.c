#include "node/health_page.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct health_page *health_page_new(void)
{
    void *p = mmap(NULL, sizeof(struct health_page), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void health_page_free(struct health_page *p)
{
    if (p != NULL)
        (void)munmap(p, sizeof(*p));
}

void health_page_begin(struct health_page *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(p->doing, HEALTH_SENTENCE_MAX, fmt, ap);
    va_end(ap);
}

void health_page_note(struct health_page *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(p->note, HEALTH_SENTENCE_MAX, fmt, ap);
    va_end(ap);
}

void health_page_warn(struct health_page *p, const char *fmt, ...)
{
    char line[HEALTH_SENTENCE_MAX];
    const size_t have = strnlen(p->warnings, HEALTH_WARNINGS_MAX);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (have + strlen(line) + 2 > HEALTH_WARNINGS_MAX)
        return;
    (void)snprintf(p->warnings + have, HEALTH_WARNINGS_MAX - have, "%s\n", line);
}
