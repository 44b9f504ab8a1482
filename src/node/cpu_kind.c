#include "node/cpu_kind.h"

#include "base/auto.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { TEXT_MAX = 1 << 16 };

/* True if the line with this name is equal on all processors of a kind, unlike the current
 * frequency, for example. Src: arch/{x86,arm64,powerpc,riscv}/kernel in Linux (show_cpuinfo). */
static bool names_the_kind(const char *line, size_t n)
{
    static const char *const names[] = {
        "vendor_id",        "cpu family",  "model",    "model name", "flags", "Features",
        "CPU implementer",  "CPU variant", "CPU part", "cpu",        "isa",   "uarch",
        "CPU architecture",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == n && strncmp(line, names[i], n) == 0)
            return true;
    return false;
}

void node_cpu_kind_of(char ret[NODE_CPU_KIND], const char *machine, const char *cpuinfo)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (const char *line = cpuinfo; *line != '\0' && *line != '\n';) {
        const size_t n = strcspn(line, "\n");
        size_t name = strcspn(line, ":\n");
        while (name > 0 && (line[name - 1] == ' ' || line[name - 1] == '\t'))
            name--;
        for (size_t i = 0; i < n && names_the_kind(line, name); i++)
            hash = (hash ^ (unsigned char)line[i]) * UINT64_C(0x100000001b3);
        line += n + (line[n] == '\n');
    }
    (void)snprintf(ret, NODE_CPU_KIND, "%.16s-%016" PRIx64, machine, hash);
}

void node_cpu_kind(char ret[NODE_CPU_KIND])
{
    struct utsname u;
    DD_AUTO(free) char *text = calloc(1, TEXT_MAX);
    DD_AUTO(fd) int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    size_t at = 0;
    ssize_t n;
    while (text != NULL && fd >= 0 && at < TEXT_MAX - 1 &&
           (n = read(fd, text + at, TEXT_MAX - 1 - at)) > 0)
        at += (size_t)n;
    node_cpu_kind_of(ret, uname(&u) == 0 ? u.machine : "unknown", text != NULL ? text : "");
}
