#include "stage/stage_view.h"

#include "base/auto.h"
#include "stage/stage_image.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_FAILED = 1, MAP_MAX = 64, FUSE_MAGIC = 0x65735546 };

/* The result of the child. error: 0, or the errno of the failed step. */
struct view_report {
    int error;
    int namespaces; /* 1: mount namespace; 2: also a user namespace */
    char step[300];
    char why[900];
};

/* ---- the child: makes the namespaces ---- */

static int write_map(const char *path, const char *text)
{
    DD_AUTO(fd) int fd = open(path, O_WRONLY | O_CLOEXEC);
    const size_t n = strlen(text);
    return fd >= 0 && write(fd, text, n) == (ssize_t)n ? 0 : -1;
}

/* Root needs no user namespace, and would lose its capabilities in one. */
static int view_unshare(struct view_report *r)
{
    char users[MAP_MAX];
    char groups[MAP_MAX];
    (void)snprintf(users, sizeof(users), "%u %u 1", geteuid(), geteuid());
    (void)snprintf(groups, sizeof(groups), "%u %u 1", getegid(), getegid());
    r->namespaces = 1;
    (void)snprintf(r->step, sizeof(r->step), "unshare");
    if (unshare(CLONE_NEWNS) == 0)
        return 0;
    r->namespaces = 2;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return -1;
    (void)snprintf(r->step, sizeof(r->step), "uid_map");
    if (write_map("/proc/self/setgroups", "deny") < 0 && errno != ENOENT)
        return -1;
    return write_map("/proc/self/uid_map", users) < 0 || write_map("/proc/self/gid_map", groups) < 0
               ? -1
               : 0;
}

static unsigned long kept_flags(const char *path)
{
    static const unsigned long flags[][2] = {{ST_NOEXEC, MS_NOEXEC},
                                             {ST_NOATIME, MS_NOATIME},
                                             {ST_NODIRATIME, MS_NODIRATIME},
                                             {ST_RELATIME, MS_RELATIME}};
    struct statvfs st;
    unsigned long ret = MS_NOSUID | MS_NODEV;
    if (statvfs(path, &st) < 0)
        return ret;
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if ((st.f_flag & flags[i][0]) != 0)
            ret |= flags[i][1];
    return ret;
}

static int view_mount_image(const char *at, char *image, const char *server, struct view_report *r)
{
    struct dd_err err = {0};
    const int rc = stage_image_mount(at, image, server, &err);
    (void)snprintf(r->why, sizeof(r->why), "%s", err.text);
    errno = -rc;
    return rc;
}

/* Mount read-only: files that a worker wrote there would be lost at the end of the job. */
static int view_mount(char *const *pairs, const char *server, struct view_report *r)
{
    (void)snprintf(r->step, sizeof(r->step), "mount");
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return -1;
    for (; pairs[0] != NULL; pairs += 2) {
        const unsigned long flags = kept_flags(pairs[1]);
        (void)snprintf(r->step, sizeof(r->step), "mount at '%.250s'", pairs[0]);
        if (stage_image_is_copy(pairs[1])) {
            if (view_mount_image(pairs[0], pairs[1], server, r) < 0)
                return -1;
            continue;
        }
        if (mount(pairs[1], pairs[0], NULL, MS_BIND, NULL) < 0 ||
            mount(NULL, pairs[0], NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | flags, NULL) < 0)
            return -1;
    }
    return 0;
}

/* Report, and keep the namespaces until the other end of `hold` is closed. */
static _Noreturn void view_child(char *const *pairs, const char *server, int report, int hold)
{
    struct view_report r = {0};
    char byte;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (view_unshare(&r) < 0 || view_mount(pairs, server, &r) < 0)
        r.error = errno;
    ssize_t n = write(report, &r, sizeof(r));
    n = n < 0 ? n : read(hold, &byte, 1);
    _exit(n < 0 ? CHILD_FAILED : 0);
}

/* ---- the parent ---- */

static int open_namespaces(int fds[2], pid_t pid, int n, struct dd_err *err)
{
    static const char *const names[] = {"user", "mnt"};
    char path[64];
    for (int i = 0; i < n; i++) {
        (void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, names[2 - n + i]);
        fds[i] = open(path, O_RDONLY | O_CLOEXEC);
        if (fds[i] < 0)
            return dd_err_set(err, -errno, "cannot open '%s': %m", path);
    }
    return n;
}

static int wait_for(pid_t pid)
{
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

/* Read the report of the child `pid`, which has exited if there is none. */
static int read_report(struct view_report *r, int fd, pid_t pid, struct dd_err *err)
{
    ssize_t n;
    do
        n = read(fd, r, sizeof(*r));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return dd_err_set(err, -errno, "cannot read from the process that mounts the copy: %m");
    if (n != (ssize_t)sizeof(*r)) {
        const int status = wait_for(pid);
        return dd_err_set(err, -EIO,
                          "the process that mounts the copy ended without a result (%s %d)",
                          WIFSIGNALED(status) ? "signal" : "exit status",
                          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    r->step[sizeof(r->step) - 1] = '\0';
    r->why[sizeof(r->why) - 1] = '\0';
    if (r->error != 0 && r->why[0] != '\0')
        return dd_err_set(err, -r->error, "%s", r->why);
    return r->error == 0 ? 0 : dd_err_set(err, -r->error, "%s: %s", r->step, strerror(r->error));
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool shows(const char *source, const char *copy)
{
    struct stat there, st;
    struct statfs fs;
    if (stage_image_is_copy(copy))
        return statfs(source, &fs) == 0 && fs.f_type == FUSE_MAGIC;
    return stat(source, &there) == 0 && stat(copy, &st) == 0 && is_same(&there, &st);
}

/* Check the view in another child, since entering a user namespace cannot be undone. */
static _Noreturn void check_child(const int *fds, int n, char *const *pairs)
{
    struct stat root, root_there;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (stat("/", &root) < 0 || stage_view_enter(fds, n, NULL) < 0 || stat("/", &root_there) < 0 ||
        !is_same(&root, &root_there))
        _exit(CHILD_FAILED);
    for (; pairs[0] != NULL; pairs += 2)
        if (!shows(pairs[0], pairs[1]))
            _exit(CHILD_FAILED);
    _exit(0);
}

static int check_view(const int *fds, int n, char *const *pairs, struct dd_err *err)
{
    const pid_t pid = fork();
    if (pid == 0)
        check_child(fds, n, pairs);
    if (pid < 0)
        return dd_err_set(err, -errno, "cannot create a process: %m");
    return wait_for(pid) == 0
               ? n
               : dd_err_set(err, -EIO,
                            "cannot verify that the copy is visible at its original path");
}

/* Start the child. report: pipe to which the child writes its report. *ret_hold: the child exits
 * when this descriptor is closed. */
static pid_t view_start(char *const *pairs, const char *server, int report[2], int *ret_hold,
                        struct dd_err *err)
{
    int hold[2];
    if (pipe2(report, O_CLOEXEC) < 0)
        return dd_err_set(err, -errno, "cannot create a pipe: %m");
    if (pipe2(hold, O_CLOEXEC) < 0) {
        const int rc = dd_err_set(err, -errno, "cannot create a pipe: %m");
        close(report[0]);
        close(report[1]);
        return rc;
    }
    const pid_t pid = fork();
    const int error = errno;
    if (pid == 0) {
        close(hold[1]);
        view_child(pairs, server, report[1], hold[0]);
    }
    close(report[1]);
    close(hold[0]);
    *ret_hold = hold[1];
    if (pid > 0)
        return pid;
    close(hold[1]);
    close(report[0]);
    return dd_err_set(err, -error, "cannot create a process: %s", strerror(error));
}

int stage_view_make(int fds[2], char *const *pairs, int *ret_servers, struct dd_err *err)
{
    DD_AUTO(free) char *server = NULL;
    struct view_report r;
    int report[2];
    int hold = -1;
    fds[0] = fds[1] = -1;
    int rc = ret_servers != NULL ? stage_image_server(&server, err) : 0;
    const pid_t pid = rc < 0 ? rc : view_start(pairs, server, report, &hold, err);
    if (pid < 0)
        return pid;
    rc = read_report(&r, report[0], pid, err);
    close(report[0]);
    if (rc == 0)
        rc = open_namespaces(fds, pid, r.namespaces, err);
    if (rc > 0)
        rc = check_view(fds, rc, pairs, err);
    if (rc > 0 && ret_servers != NULL) {
        *ret_servers = hold;
        return rc;
    }
    close(hold);
    (void)wait_for(pid);
    for (int i = 0; i < 2 && rc < 0; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return rc;
}

int stage_view_enter(const int *fds, int n, struct dd_err *err)
{
    char here[PATH_MAX];
    if (getcwd(here, sizeof(here)) == NULL)
        return dd_err_set(err, -errno, "cannot determine the working directory: %m");
    if (here[0] != '/') /* "(unreachable)…" */
        return dd_err_set(err, -ENOENT, "the working directory is outside of the root directory");
    for (int i = 0; i < n; i++)
        if (setns(fds[i], i == n - 1 ? CLONE_NEWNS : CLONE_NEWUSER) < 0)
            return dd_err_set(err, -errno, "cannot enter the namespace that shows the copy: %m");
    /* setns() changes to the root directory */
    if (chdir(here) < 0)
        return dd_err_set(err, -errno, "cannot return to the working directory '%s': %m", here);
    return 0;
}
