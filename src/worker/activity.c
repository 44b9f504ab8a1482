#include "worker/activity.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/children.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PROCESSES_MAX = 4096, /* per worker: from this number on, children are not looked for */
    ACTIVITY_FILE_MAX = 1 << 16,
};

/* Src: proc(5): fields 14 to 17 of stat; field 2, the command name, may contain any byte. */
static uint64_t activity_cpu_ns(pid_t pid)
{
    char path[40];
    uint64_t user, system, user_waited, system_waited;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(ACTIVITY_FILE_MAX);
    const char *text = dd_read_file(path, &b, NULL) < 0 ? NULL : dd_buf_str(&b);
    const char *rest = text == NULL ? NULL : strrchr(text, ')');
    if (rest == NULL || sscanf(rest,
                               ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64
                               " %" SCNu64 " %" SCNu64,
                               &user, &system, &user_waited, &system_waited) != 4)
        return 0;
    return (user + system + user_waited + system_waited) *
           (DD_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

/* Times of the main thread of a process. Src: Documentation/scheduler/sched-stats.rst. */
struct activity_sched {
    uint64_t ran_ns, waited_ns;
};

/* Return zeros where the kernel keeps no such statistics. */
static struct activity_sched activity_read_sched(const char *path)
{
    struct activity_sched s;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(ACTIVITY_FILE_MAX);
    const char *text = dd_read_file(path, &b, NULL) < 0 ? NULL : dd_buf_str(&b);
    if (text == NULL || sscanf(text, "%" SCNu64 " %" SCNu64, &s.ran_ns, &s.waited_ns) != 2)
        return (struct activity_sched){0};
    return s;
}

uint64_t activity_delay_ns(pid_t pid)
{
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
    return activity_read_sched(path).waited_ns;
}

uint64_t activity_own_ns(void)
{
    const struct activity_sched s = activity_read_sched("/proc/self/schedstat");
    return s.ran_ns + s.waited_ns;
}

/* Src: proc(5): rchar and wchar count what read(2) and write(2) return, read_bytes and write_bytes
 * what is read from and written to storage. */
static uint64_t activity_io_bytes(pid_t pid)
{
    static const char *const names[] = {
        "rchar: ", "\nwchar: ", "\nread_bytes: ", "\nwrite_bytes: "};
    char path[40];
    uint64_t sum = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/io", (int)pid);
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(ACTIVITY_FILE_MAX);
    const char *text = dd_read_file(path, &b, NULL) < 0 ? NULL : dd_buf_str(&b);
    for (size_t i = 0; text != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        const char *at = strstr(text, names[i]);
        sum += at != NULL ? strtoull(at + strlen(names[i]), NULL, 10) : 0;
    }
    return sum;
}

static uint64_t activity_net_bytes(pid_t pid, const struct socket_bytes *sockets)
{
    char path[40];
    uint64_t sum = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    if (d == NULL)
        return 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char target[64] = "";
        uint64_t inode, bytes;
        const ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);
        if (n > 0 && sscanf(target, "socket:[%" SCNu64 "]", &inode) == 1 &&
            socket_bytes_find(sockets, inode, &bytes))
            sum += bytes;
    }
    closedir(d);
    return sum;
}

int activity_read(pid_t pid, const struct socket_bytes *sockets, struct hang_counters *ret)
{
    DD_AUTO(pid_list) struct pid_list all = {0};
    *ret = (struct hang_counters){0};
    int rc = pid_list_add(&all, pid);
    for (size_t i = 0; i < all.n && rc == 0; i++) {
        ret->cpu_ns += activity_cpu_ns(all.v[i]) + activity_delay_ns(all.v[i]);
        ret->io_bytes += activity_io_bytes(all.v[i]);
        ret->net_bytes += sockets != NULL ? activity_net_bytes(all.v[i], sockets) : 0;
        if (all.n < PROCESSES_MAX)
            rc = children_of_threads(all.v[i], &all);
    }
    return rc;
}
