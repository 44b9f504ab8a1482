/* A read-only FUSE file system that shows a directory as a slow shared file system does: each stat
 * and each open takes 1 ms longer, and is counted. The kernel caches attributes and names, as a
 * client of NFS does.
 *
 *     slowfs DIRECTORY COUNTS MOUNTPOINT
 *
 * COUNTS: a file of two numbers of 64 bits, stats and opens, which other processes read.
 * bench_stage_shared.py builds it: cc slowfs.c $(pkg-config --cflags --libs fuse3) */
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DELAY_NS = 1000000, CACHE_S = 3600 };

static struct {
    int root;
    struct {
        _Atomic uint64_t stats, opens;
    } *counts;
} slow; /* the callbacks of FUSE have one argument for all */

static const char *below(const char *path)
{
    return path[1] != '\0' ? path + 1 : ".";
}

static void delay(_Atomic uint64_t *count)
{
    const struct timespec time = {.tv_nsec = DELAY_NS};
    atomic_fetch_add(count, 1);
    (void)nanosleep(&time, NULL);
}

static void *slow_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
    (void)conn;
    cfg->kernel_cache = 1;
    cfg->entry_timeout = cfg->attr_timeout = cfg->negative_timeout = CACHE_S;
    return NULL;
}

static int slow_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    (void)fi;
    delay(&slow.counts->stats);
    return fstatat(slow.root, below(path), st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int slow_readlink(const char *path, char *out, size_t size)
{
    const ssize_t n = readlinkat(slow.root, below(path), out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return n < 0 ? -errno : 0;
}

static int slow_open(const char *path, struct fuse_file_info *fi)
{
    delay(&slow.counts->opens);
    const int fd = openat(slow.root, below(path), O_RDONLY | O_CLOEXEC);
    fi->fh = (uint64_t)fd;
    fi->keep_cache = 1;
    return fd < 0 ? -errno : 0;
}

static int slow_read(const char *path, char *out, size_t size, off_t at, struct fuse_file_info *fi)
{
    (void)path;
    const ssize_t n = pread((int)fi->fh, out, size, at);
    return n < 0 ? -errno : (int)n;
}

static int slow_release(const char *path, struct fuse_file_info *fi)
{
    (void)path;
    close((int)fi->fh);
    return 0;
}

static int slow_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t at,
                        struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
    (void)at;
    (void)fi;
    (void)flags;
    delay(&slow.counts->opens);
    const int fd = openat(slow.root, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *e;
    if (d == NULL)
        return -errno;
    while ((e = readdir(d)) != NULL) {
        const struct stat st = {.st_mode = (mode_t)e->d_type << 12, .st_ino = e->d_ino};
        (void)fill(buf, e->d_name, &st, 0, 0);
    }
    (void)closedir(d);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct fuse_operations ops = {.init = slow_init,
                                               .getattr = slow_getattr,
                                               .readlink = slow_readlink,
                                               .open = slow_open,
                                               .read = slow_read,
                                               .release = slow_release,
                                               .readdir = slow_readdir};
    if (argc != 4) {
        (void)fprintf(stderr, "usage: slowfs DIRECTORY COUNTS MOUNTPOINT\n");
        return 2;
    }
    const int fd = open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    slow.root = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || slow.root < 0 || ftruncate(fd, sizeof(*slow.counts)) < 0)
        return 1;
    slow.counts = mmap(NULL, sizeof(*slow.counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (slow.counts == MAP_FAILED)
        return 1;
    char foreground[] = "-f";
    char *args[] = {argv[0], foreground, argv[3], NULL};
    return fuse_main(3, args, &ops, NULL);
}
