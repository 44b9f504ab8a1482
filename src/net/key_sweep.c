/* Remove stale files of ~/.ddrun: keys, left behind when a daemon and its agent were killed
 * together, charges, and temporary files. Many machines share a home directory, so a key file is
 * certainly stale only if its owner ran on this machine during this boot, or if it is old. */
#include "net/key_inner.h"

#include "base/auto.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LOOK_AT = 64,           /* files per sweep; a sweep runs when a key or charges are written */
    OLD_S = 30 * 24 * 3600, /* age limit of charges, and of keys whose owner may still run */
    PART_OLD_S = 24 * 3600, /* age limit of temporary files */
};

/* Return false if the file has no owner line: ddrun did not write it. */
static bool read_owner(char owner[DD_OWNER_MAX], int dirfd, const char *name)
{
    const struct key_path path = {
        .dirfd = dirfd, .name = name, .what = "", .shown = "", .flags = O_NOFOLLOW};
    char text[KEY_HOME_MAX + 1];
    int n = key_file_read(&path, (unsigned char *)text, sizeof(text), NULL);
    if (n <= KEY_HEX || text[KEY_HEX] != '\n')
        return false;
    text[n] = '\0';
    (void)snprintf(owner, DD_OWNER_MAX, "%.*s", DD_OWNER_MAX - 1, text + KEY_HEX + 1);
    explicit_bzero(text, sizeof(text));
    return dd_owner_is(owner);
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

/* JOB.charges, as rdzv/charges.h describes it */
static bool is_charges_file(int dirfd, const char *name)
{
    static const char suffix[] = ".charges", mark[] = "ddrun-charges ";
    char text[sizeof(mark)] = "";
    const size_t n = strlen(name);
    if (n < sizeof(suffix) || strcmp(name + n - (sizeof(suffix) - 1), suffix) != 0)
        return false;
    DD_AUTO(fd) int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    return fd >= 0 && read(fd, text, sizeof(mark) - 1) == (ssize_t)sizeof(mark) - 1 &&
           strcmp(text, mark) == 0;
}

static bool is_stale(int dirfd, const char *name, time_t now)
{
    struct stat st;
    char owner[DD_OWNER_MAX];
    const bool part = strncmp(name, ".new-", 5) == 0;
    const bool charges = is_charges_file(dirfd, name);
    if ((!part && !charges && !is_key_name(name)) ||
        fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
        st.st_uid != geteuid())
        return false;
    if (part)
        return now - st.st_mtime > PART_OLD_S;
    if (charges)
        return now - st.st_mtime > OLD_S;
    return read_owner(owner, dirfd, name) && (dd_owner_is_gone(owner) || now - st.st_mtime > OLD_S);
}

void key_sweep(int dirfd, time_t now)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    const struct dirent *e;
    for (int n = 0; n < LOOK_AT && (e = readdir(d)) != NULL; n++)
        if (is_stale(dirfd, e->d_name, now))
            (void)unlinkat(dirfd, e->d_name, 0);
    (void)closedir(d);
}
