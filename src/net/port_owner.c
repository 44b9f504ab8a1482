#include "net/port_owner_inner.h"

#include "base/auto.h"
#include "base/log.h"
#include "net/listen.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct listener {
    unsigned port;
    unsigned uid;
    unsigned long inode;
};

static bool listener_is_wanted(const struct listener *l, const uint16_t *ports, size_t n,
                               const uid_t *but)
{
    size_t i = 0;
    while (i < n && l->port != ports[i])
        i++;
    return i < n && (but == NULL || l->uid != *but);
}

/* Find a listener on one of the ports. Columns: sl local_address rem_address st tx:rx tr:when
 * retrnsmt uid timeout inode; state 0A is LISTEN. Src: proc(5),
 * Documentation/networking/proc_net_tcp.txt. but: uid whose listeners are ignored; NULL: none. */
static bool find_listener(const char *path, const uint16_t *ports, size_t n, const uid_t *but,
                          struct listener *ret)
{
    char line[512];
    DD_AUTO(file) FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    while (fgets(line, sizeof(line), f) != NULL) {
        unsigned state;
        struct listener l;
        if (sscanf(line, " %*u: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*x:%*x %*x:%*x %*x %u %*d %lu",
                   &l.port, &state, &l.uid, &l.inode) != 4)
            continue;
        if (state != 0x0a || !listener_is_wanted(&l, ports, n, but))
            continue;
        *ret = l;
        return true;
    }
    return false;
}

static bool has_socket(const char *pid, const char *socket)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "/proc/%s/fd", pid);
    DIR *d = opendir(path);
    bool found = false;
    const struct dirent *e;
    if (d == NULL)
        return false;
    while (!found && (e = readdir(d)) != NULL) {
        char to[64];
        ssize_t n = readlinkat(dirfd(d), e->d_name, to, sizeof(to) - 1);
        to[n > 0 ? n : 0] = '\0';
        found = strcmp(to, socket) == 0;
    }
    (void)closedir(d);
    return found;
}

static bool program_of(unsigned long inode, char *out, size_t size)
{
    char socket[64];
    char path[PATH_MAX];
    char comm[16];      /* TASK_COMM_LEN */
    char name[80] = ""; /* each byte of comm may become four here */
    const struct dirent *e;
    (void)snprintf(socket, sizeof(socket), "socket:[%lu]", inode);
    DIR *d = opendir("/proc");
    if (d == NULL)
        return false;
    while ((e = readdir(d)) != NULL)
        if (isdigit((unsigned char)e->d_name[0]) && has_socket(e->d_name, socket))
            break;
    if (e != NULL) {
        (void)snprintf(path, sizeof(path), "/proc/%s/comm", e->d_name);
        DD_AUTO(file) FILE *f = fopen(path, "re");
        const size_t n = f != NULL ? fread(comm, 1, sizeof(comm), f) : 0;
        if (n > 1) /* the name ends with a newline, and may contain others */
            (void)dd_log_escape(name, sizeof(name), comm, n - 1);
        (void)snprintf(out, size, "%s (pid %s)", name[0] != '\0' ? name : "a program", e->d_name);
    }
    bool found = e != NULL;
    (void)closedir(d);
    return found;
}

void net_port_holder(uint16_t port, char *out, size_t size)
{
    struct listener l;
    out[0] = '\0';
    if (!find_listener("/proc/net/tcp", &port, 1, NULL, &l) &&
        !find_listener("/proc/net/tcp6", &port, 1, NULL, &l))
        return;
    if (!program_of(l.inode, out, size))
        (void)snprintf(out, size, "a program of uid %u", l.uid);
}

bool net_ports_taken(const uint16_t *ports, size_t n, uint16_t *ret_port, uid_t *ret_uid)
{
    struct listener l;
    const uid_t own = geteuid();
    if (!find_listener("/proc/net/tcp", ports, n, &own, &l) &&
        !find_listener("/proc/net/tcp6", ports, n, &own, &l))
        return false;
    *ret_port = (uint16_t)l.port;
    *ret_uid = (uid_t)l.uid;
    return true;
}
