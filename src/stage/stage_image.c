#include "stage/stage_image.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { FUSE_FD = 3 };

bool stage_image_is_copy(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && strcmp(slash + 1, STAGE_IMAGE) == 0;
}

int stage_image_server(char **ret, struct dd_err *err)
{
    const int rc = spawn_lookup(ret, "squashfuse", environ);
    return rc == 0
               ? 0
               : dd_err_tip(
                     err,
                     dd_err_set(
                         err, rc,
                         "--stage with a squashfs image needs the program squashfuse, which %s%s",
                         rc == -ENOENT ? "is not in PATH" : "cannot be executed: ",
                         rc == -ENOENT ? "" : strerror(-rc)),
                     "install squashfuse (Debian: squashfuse), or unpack the image and "
                     "give --stage the directory");
}

/* Run the server. "/dev/fd/N" makes libfuse use a connection that is already mounted. */
static _Noreturn void image_serve(int fuse, char *image, const char *server, pid_t parent)
{
    char name[] = "squashfuse";
    char foreground[] = "-f";
    char at[] = "/dev/fd/3";
    char *const argv[] = {name, foreground, image, at, NULL};
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || null < 0)
        _exit(127);
    for (int i = 0; i < 3; i++)
        (void)dup2(null, i);
    if ((fuse == FUSE_FD ? dd_fd_keep(fuse) : dup2(fuse, FUSE_FD)) < 0)
        _exit(127);
    spawn_close_from(FUSE_FD + 1);
    execv(server, argv);
    _exit(127);
}

int stage_image_mount(const char *at, char *image, const char *server, struct dd_err *err)
{
    char options[128];
    struct stat st;
    const pid_t self = getpid();
    DD_AUTO(fd) int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse < 0)
        return dd_err_set(err, -errno, "cannot open '/dev/fuse': %m");
    (void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fuse,
                   geteuid(), getegid());
    if (mount("squashfuse", at, "fuse", MS_RDONLY | MS_NOSUID | MS_NODEV, options) < 0)
        return dd_err_set(err, -errno, "cannot mount at '%s': %m", at);
    const pid_t pid = fork();
    if (pid == 0)
        image_serve(fuse, image, server, self);
    if (pid < 0)
        return dd_err_set(err, -errno, "cannot create a process for squashfuse: %m");
    close(DD_TAKE_FD(fuse)); /* if the server exits, the kernel ends the connection */
    if (stat(at, &st) == 0)  /* waits for the server */
        return 0;
    const int rc = dd_err_set(
        err, -errno, "cannot use the image mounted at '%s': %m; the image may be damaged", at);
    return dd_err_tip(err, rc, "run 'squashfuse IMAGE DIRECTORY' to see why");
}
