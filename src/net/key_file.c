/* Random keys, and key files that only this uid can read. */
#include "net/key_inner.h"

#include "base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

int net_key_random(unsigned char out[NET_KEY_LEN])
{
    ssize_t n;
    do
        n = getrandom(out, NET_KEY_LEN, 0);
    while (n < 0 && errno == EINTR);
    return n == NET_KEY_LEN ? 0 : n < 0 ? -errno : -EIO;
}

static int check_owner(int fd, const struct key_path *path, struct dd_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return dd_err_set(err, -errno, "cannot read %s '%s': %m", path->what, path->shown);
    if (!S_ISREG(st.st_mode))
        return dd_err_set(err, -EINVAL, "%s '%s' is not a regular file", path->what, path->shown);
    if (st.st_uid != geteuid())
        return dd_err_set(err, -EINVAL, "%s '%s' belongs to uid %u, not to you (uid %u)",
                          path->what, path->shown, (unsigned)st.st_uid, (unsigned)geteuid());
    if ((st.st_mode & 077) != 0)
        return dd_err_set(err, -EINVAL,
                          "%s '%s' is accessible to other users (mode %04o)"
                          "\n  tip: chmod 600 '%s'",
                          path->what, path->shown, (unsigned)st.st_mode & 07777, path->shown);
    return 0;
}

int key_file_read(const struct key_path *path, unsigned char *out, size_t size, struct dd_err *err)
{
    /* O_NONBLOCK: opening a FIFO must not block */
    DD_AUTO(fd) int fd = openat(path->dirfd, path->name,
                                O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | path->flags);
    if (fd < 0)
        return dd_err_set(err, -errno, "cannot open %s '%s': %m", path->what, path->shown);
    int rc = check_owner(fd, path, err);
    if (rc < 0)
        return rc;
    size_t len = 0;
    while (len < size) {
        ssize_t n = read(fd, out + len, size - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return dd_err_set(err, -errno, "cannot read %s '%s': %m", path->what, path->shown);
        if (n == 0)
            return (int)len;
        len += (size_t)n;
    }
    return dd_err_set(err, -EINVAL, "%s '%s' is larger than %zu bytes", path->what, path->shown,
                      size - 1);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int key_from_hex(unsigned char out[NET_KEY_LEN], const char *hex)
{
    unsigned char key[NET_KEY_LEN];
    if (strnlen(hex, KEY_HEX + 1) != KEY_HEX)
        return -EINVAL;
    for (size_t i = 0; i < NET_KEY_LEN; i++) {
        int high = hex_digit(hex[2 * i]);
        int low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return -EINVAL;
        key[i] = (unsigned char)(high << 4 | low);
    }
    memcpy(out, key, NET_KEY_LEN);
    explicit_bzero(key, sizeof(key));
    return 0;
}

void key_to_hex(char out[KEY_HEX + 1], const unsigned char key[NET_KEY_LEN])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < NET_KEY_LEN; i++) {
        out[2 * i] = digits[key[i] >> 4];
        out[2 * i + 1] = digits[key[i] & 15];
    }
    out[KEY_HEX] = '\0';
}
