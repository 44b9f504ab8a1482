/* Key files that nobody removed: their daemon and their agent were killed at once. A home directory is
 * shared by many machines, so only a file of this very machine and boot is known to be nobody's. */
#include "net/key_inner.h"

#include "base/auto.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LOOK_AT = 64,                /* files, each time a key is written */
    OLD_S = 30 * 24 * 3600,      /* of a machine that is not this one */
    PART_OLD_S = 24 * 3600,      /* a file that was never finished */
};

struct owner {
    char boot[40]; /* of the kernel: no two machines, no two boots have the same */
    char space[40]; /* of the process ids: a container's are its own */
    long pid;
    unsigned long long start;
};

static void read_line(const char *path, char *out, size_t size)
{
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* When the process began, in ticks since the boot; 0: there is none. Src: proc(5), stat, field 22. */
static unsigned long long start_of(long pid)
{
    char path[40];
    char text[1024];
    unsigned long long start = 0;
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    read_line(path, text, sizeof(text));
    const char *c = strrchr(text, ')');
    for (int field = 2; c != NULL && field < 22; field++)
        c = strchr(c + 1, ' ');
    if (c != NULL)
        start = strtoull(c + 1, NULL, 10);
    return start;
}

static void owner_self(struct owner *o)
{
    memset(o, 0, sizeof(*o));
    read_line("/proc/sys/kernel/random/boot_id", o->boot, sizeof(o->boot));
    if (readlink("/proc/self/ns/pid", o->space, sizeof(o->space) - 1) < 0)
        o->space[0] = '\0';
    o->pid = (long)getpid();
    o->start = start_of(o->pid);
}

void key_owner(char out[KEY_OWNER_MAX])
{
    struct owner o;
    owner_self(&o);
    (void)snprintf(out, KEY_OWNER_MAX, "%s %s %ld %llu\n", o.boot[0] != '\0' ? o.boot : "-",
                   o.space[0] != '\0' ? o.space : "-", o.pid, o.start);
}

/* false: it has no such line, so it is no file of ours. */
static bool read_owner(struct owner *o, int dirfd, const char *name)
{
    const struct key_path path = {
        .dirfd = dirfd, .name = name, .what = "", .shown = "", .flags = O_NOFOLLOW};
    char text[KEY_HOME_MAX + 1];
    memset(o, 0, sizeof(*o));
    int n = key_file_read(&path, (unsigned char *)text, sizeof(text), NULL);
    if (n <= KEY_HEX || text[KEY_HEX] != '\n')
        return false;
    text[n] = '\0';
    int got = sscanf(text + KEY_HEX + 1, "%39s %39s %ld %llu", o->boot, o->space, &o->pid, &o->start);
    explicit_bzero(text, sizeof(text));
    return got == 4 && o->pid > 0;
}

static bool is_gone(const struct owner *o, const struct owner *self)
{
    return self->boot[0] != '\0' && self->space[0] != '\0' && self->start != 0 &&
           strcmp(o->boot, self->boot) == 0 && strcmp(o->space, self->space) == 0 &&
           start_of(o->pid) != o->start;
}

bool key_is_tag(const char *text)
{
    return strspn(text, "0123456789abcdef") >= KEY_TAG;
}

/* JOB.TAG.key */
static bool is_key_name(const char *name)
{
    size_t n = strlen(name);
    return n > KEY_TAG + 5 && strcmp(name + n - 4, ".key") == 0 && name[n - KEY_TAG - 5] == '.' &&
           key_is_tag(name + n - KEY_TAG - 4);
}

static bool is_stale(int dirfd, const char *name, const struct owner *self, time_t now)
{
    struct stat st;
    struct owner o;
    bool part = strncmp(name, ".new-", 5) == 0;
    if ((!part && !is_key_name(name)) || fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return false;
    if (part)
        return now - st.st_mtime > PART_OLD_S;
    return read_owner(&o, dirfd, name) && (is_gone(&o, self) || now - st.st_mtime > OLD_S);
}

void key_sweep(int dirfd, time_t now)
{
    struct owner self;
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    owner_self(&self);
    const struct dirent *e;
    for (int n = 0; n < LOOK_AT && (e = readdir(d)) != NULL; n++)
        if (is_stale(dirfd, e->d_name, &self, now))
            (void)unlinkat(dirfd, e->d_name, 0);
    (void)closedir(d);
}
