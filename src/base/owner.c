#include "base/owner.h"

#include "base/auto.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct owner {
    char boot[40];  /* boot id: differs between machines and between boots */
    char space[40]; /* PID namespace: process ids are unique within one */
    long pid;
    unsigned long long start;
};

static void owner_read_line(const char *path, char *out, size_t size)
{
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

static unsigned long long start_of(long pid, char *ret_state)
{
    char path[40];
    char text[1024];
    unsigned long long start = 0;
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    owner_read_line(path, text, sizeof(text));
    const char *c = strrchr(text, ')');
    *ret_state = c != NULL && c[1] == ' ' ? c[2] : '\0';
    for (int field = 2; c != NULL && field < 22; field++)
        c = strchr(c + 1, ' ');
    if (c != NULL)
        start = strtoull(c + 1, NULL, 10);
    return start;
}

unsigned long long dd_process_start(long pid)
{
    char state;
    return start_of(pid, &state);
}

/* A zombie has ended, even if its parent has not reaped it. */
static bool has_ended(const struct owner *o)
{
    char state;
    return start_of(o->pid, &state) != o->start || state == 'Z' || state == 'X';
}

static void owner_self(struct owner *o)
{
    memset(o, 0, sizeof(*o));
    owner_read_line("/proc/sys/kernel/random/boot_id", o->boot, sizeof(o->boot));
    if (readlink("/proc/self/ns/pid", o->space, sizeof(o->space) - 1) < 0)
        o->space[0] = '\0';
    o->pid = (long)getpid();
    o->start = dd_process_start(o->pid);
}

void dd_owner_text(char out[DD_OWNER_MAX])
{
    struct owner o;
    owner_self(&o);
    (void)snprintf(out, DD_OWNER_MAX, "%s %s %ld %llu\n", o.boot[0] != '\0' ? o.boot : "-",
                   o.space[0] != '\0' ? o.space : "-", o.pid, o.start);
}

static bool owner_parse(struct owner *o, const char *text)
{
    memset(o, 0, sizeof(*o));
    return sscanf(text, "%39s %39s %ld %llu", o->boot, o->space, &o->pid, &o->start) == 4 &&
           o->pid > 0;
}

bool dd_owner_is(const char *text)
{
    struct owner o;
    return owner_parse(&o, text);
}

bool dd_owner_is_gone(const char *text)
{
    struct owner o;
    struct owner self;
    owner_self(&self);
    return owner_parse(&o, text) && self.boot[0] != '\0' && self.space[0] != '\0' &&
           self.start != 0 && strcmp(o.boot, self.boot) == 0 && strcmp(o.space, self.space) == 0 &&
           has_ended(&o);
}
