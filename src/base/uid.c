#include "base/uid.h"

#include "base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { OVERFLOW_UID = 65534, MAP_TEXT = 128 };

/* Return 0, or -errno and an empty out. */
static int uid_read_text(const char *path, char *out, size_t size)
{
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    int rc = n < 0 ? -errno : 0;
    out[n > 0 ? n : 0] = '\0';
    return rc;
}

bool dd_uid_map_is_full(const char *text)
{
    unsigned long first;
    unsigned long to;
    unsigned long count;
    return sscanf(text, "%lu %lu %lu", &first, &to, &count) == 3 && first == 0 && to == 0 &&
           count == 4294967295UL;
}

static uid_t overflow_uid(void)
{
    char text[32];
    char *end = text;
    unsigned long uid = 0;
    if (uid_read_text("/proc/sys/kernel/overflowuid", text, sizeof(text)) == 0)
        uid = strtoul(text, &end, 10);
    return end != text ? (uid_t)uid : OVERFLOW_UID;
}

/* A kernel without user namespaces has no uid_map and no unmapped uids. If /proc is missing, assume
 * that this process's uid is ambiguous. */
void dd_uid_read(struct dd_uid *ret)
{
    char map[MAP_TEXT];
    *ret = (struct dd_uid){.own = geteuid()};
    if (ret->own != overflow_uid())
        return;
    const bool no_namespaces = access("/proc/self/stat", F_OK) == 0 &&
                               access("/proc/self/ns/user", F_OK) < 0;
    ret->ambiguous = !no_namespaces && (uid_read_text("/proc/self/uid_map", map, sizeof(map)) < 0 ||
                                        !dd_uid_map_is_full(map));
}

bool dd_uid_is_own(const struct dd_uid *u, uid_t reported)
{
    return !u->ambiguous && reported == u->own;
}

int dd_uid_check(struct dd_err *err)
{
    struct dd_uid u;
    dd_uid_read(&u);
    if (!u.ambiguous)
        return 0;
    return dd_err_set(
        err, -EPERM,
        "cannot distinguish this user's processes from others: uid %u is the overflow uid of "
        "this user namespace"
        "\n  tip: map another uid, for example with unshare --map-current-user",
        (unsigned)u.own);
}
