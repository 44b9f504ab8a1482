/* node: any text as sysfs files about CPUs: the CPUs of two NUMA nodes and the hyperthread siblings
 * of two CPUs, a line each. */
#include "base/auto.h"
#include "base/buf.h"
#include "node/cpu.h"
#include "node/sysfs.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CPUS = 8 };

static const char *const files[] = {
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/node1/cpulist",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
    "sys/devices/system/cpu/cpu1/topology/thread_siblings_list",
};
enum { FILES = sizeof(files) / sizeof(files[0]) };

static char root[] = "/tmp/ddrun-fuzz-XXXXXX";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* Remove each file, then the directories above it that are empty. */
static void clean_up(void)
{
    for (size_t i = 0; i < FILES; i++) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof(path), "%s/%s", root, files[i]);
        (void)unlink(path);
        for (char *slash; strlen(path) > sizeof(root) && (slash = strrchr(path, '/')) != NULL;) {
            *slash = '\0';
            (void)rmdir(path);
        }
    }
}

static void put(const char *name, const char *text, size_t len)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *p = path + sizeof(root); (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        (void)mkdir(path, 0700);
        *p = '/';
    }
    /* Without O_TRUNC: ext4 writes a file that was truncated to disk when it is closed. */
    DD_AUTO(fd) int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    must(fd >= 0 && write(fd, text, len) == (ssize_t)len && ftruncate(fd, (off_t)len) == 0);
}

static void walk(const char *s)
{
    unsigned long from, to;
    const char *end = s + strlen(s);
    while (node_range_next(&s, &from, &to))
        must(s <= end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    if (text == NULL || (!made && mkdtemp(root) == NULL))
        return 0;
    if (!made)
        (void)atexit(clean_up);
    made = true;
    walk(text);
    const char *line = text;
    for (size_t i = 0; i < FILES; i++) {
        size_t n = strcspn(line, "\n");
        put(files[i], line, n);
        line += n + (line[n] == '\n');
    }
    cpu_set_t set, share;
    CPU_ZERO(&set);
    for (int i = 0; i < CPUS; i++)
        CPU_SET(i, &set);
    const struct node_cpus c = {.set = &set, .size = sizeof(set), .count = CPUS, .online = CPUS};
    for (int i = 0; i < 3; i++) {
        int rc = node_cpus_share(&c, root, i, 3, &share);
        cpu_set_t both;
        CPU_AND(&both, &set, &share);
        must(rc != 0 || (CPU_COUNT(&share) > 0 && CPU_EQUAL(&both, &share)));
    }
    return 0;
}
