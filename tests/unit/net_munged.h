/* A munged of the test, with its own key and socket, in a temporary directory. */
#ifndef DD_TESTS_NET_MUNGED_H
#define DD_TESTS_NET_MUNGED_H

#include "base/io.h"
#include "net/key.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct munged {
    char dir[64];
    char socket[96];
    pid_t pid;
};

/* Start it. Return "", or why it cannot be started. munged daemonizes once it accepts requests. */
static inline const char *munged_start(struct munged *m)
{
    unsigned char key[NET_KEY_LEN];
    char args[5][160];
    char path[96];
    int status = -1;
    *m = (struct munged){.dir = "/tmp/ddrun-munged-XXXXXX"};
    if (mkdtemp(m->dir) == NULL || chmod(m->dir, 0711) < 0)
        return "no temporary folder";
    (void)snprintf(path, sizeof(path), "%s/key", m->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    (void)net_key_random(key);
    if (fd < 0 || dd_write_full(fd, key, sizeof(key)) < 0)
        return "no key";
    (void)close(fd);
    (void)snprintf(m->socket, sizeof(m->socket), "%s/socket", m->dir);
    (void)snprintf(args[0], sizeof(args[0]), "--key-file=%s/key", m->dir);
    (void)snprintf(args[1], sizeof(args[1]), "--socket=%s", m->socket);
    (void)snprintf(args[2], sizeof(args[2]), "--pid-file=%s/pid", m->dir);
    (void)snprintf(args[3], sizeof(args[3]), "--log-file=%s/log", m->dir);
    (void)snprintf(args[4], sizeof(args[4]), "--seed-file=%s/seed", m->dir);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* the test reaps the daemonized munged */
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDWR);
        (void)dup2(null, 1);
        (void)dup2(null, 2);
        (void)execlp("munged", "munged", "--force", "--num-threads=1", args[0], args[1], args[2],
                     args[3], args[4], (char *)NULL);
        (void)execl("/usr/sbin/munged", "munged", "--force", "--num-threads=1", args[0], args[1],
                    args[2], args[3], args[4], (char *)NULL);
        _exit(127);
    }
    (void)waitpid(child, &status, 0);
    (void)snprintf(path, sizeof(path), "%s/pid", m->dir);
    FILE *f = fopen(path, "re");
    if (f != NULL) {
        if (fscanf(f, "%d", &m->pid) != 1)
            m->pid = 0;
        (void)fclose(f);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return "munged is not installed";
    return status == 0 && m->pid > 1 ? "" : "munged does not start";
}

static inline void munged_stop(struct munged *m)
{
    static const char *const files[] = {"key", "socket", "socket.lock", "pid", "log", "seed"};
    char path[128];
    if (m->pid > 1) {
        (void)kill(m->pid, SIGKILL); /* SIGTERM takes munged a second or more */
        (void)waitpid(m->pid, NULL, 0);
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", m->dir, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(m->dir);
}

/* Listen as a munged that does not answer. */
static inline int munged_silent(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 8) < 0)
        abort();
    return fd;
}

#endif
