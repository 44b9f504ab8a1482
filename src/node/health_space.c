/* Memory and file systems: check that enough is free, and that files can be written and read. */
#include "node/health_inner.h"

#include "base/auto.h"
#include "base/buf.h"
#include "base/io.h"
#include "node/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { SHM_LEAST = 16 << 20, PROBE = 65536 };

enum { SIZE_TEXT = 32 };

/* Format a size, "4 KiB", "512.0 MiB" or "64.0 GiB". Return out. */
static const char *size_text(char out[SIZE_TEXT], double bytes)
{
    const double mib = 1 << 20;
    const bool big = bytes >= 1024 * mib;
    if (bytes < mib)
        (void)snprintf(out, SIZE_TEXT, "%.0f KiB", bytes / 1024);
    else
        (void)snprintf(out, SIZE_TEXT, "%.1f %s", bytes / mib / (big ? 1024 : 1),
                       big ? "GiB" : "MiB");
    return out;
}

int health_shm_check(const struct node_health *h, const struct node_health_target *t,
                     struct dd_err *why)
{
    (void)t;
    DD_AUTO(free) char *path = NULL;
    struct statvfs s;
    health_page_begin(h->page, "/dev/shm");
    if (asprintf(&path, "%s/dev/shm", h->cfg.root) < 0 || statvfs(path, &s) < 0)
        return 0; /* without /dev/shm, no program relies on it */
    const double left = (double)s.f_bavail * (double)s.f_frsize;
    char has[SIZE_TEXT], needs[SIZE_TEXT];
    return left >= SHM_LEAST ? 0
                             : dd_err_set(why, 1, "/dev/shm has only %s left, less than %s",
                                          size_text(has, left), size_text(needs, SHM_LEAST));
}

/* ---- files ---- */

/* Open a file without a name, which is gone however this process ends. */
static int open_nameless(const char *dir)
{
    DD_AUTO(free) char *name = NULL;
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd < 0 ? -errno : fd;
    if (asprintf(&name, "%s/ddrun.XXXXXX", dir) < 0)
        return -ENOMEM;
    fd = mkostemp(name, O_CLOEXEC); /* the file system does not support O_TMPFILE */
    if (fd < 0)
        return -errno;
    (void)unlink(name);
    return fd;
}

static int cannot_write(const char *dir, int rc, struct dd_err *why)
{
    return dd_err_set(why, 1, "cannot write a temporary file in %.300s: %s", dir, strerror(-rc));
}

int health_tmpdir_check(const struct node_health *h, const struct node_health_target *t,
                        struct dd_err *why)
{
    (void)t;
    static const char zeros[PROBE];
    health_page_begin(h->page, "a temporary file in %.300s", h->cfg.tmpdir);
    DD_AUTO(fd) int fd = open_nameless(h->cfg.tmpdir);
    const int rc = fd < 0 ? fd : dd_write_full(fd, zeros, sizeof(zeros));
    return rc == 0 ? 0 : cannot_write(h->cfg.tmpdir, rc, why);
}

/* Read the file back, from the disk if the kernel can drop its pages. Return NULL if it contains
 * what was written, otherwise the reason. */
static const char *read_back(int fd, const unsigned char *wrote)
{
    unsigned char got[PROBE];
    size_t n = 0;
    ssize_t k = 1;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    while (n < sizeof(got) && (k = pread(fd, got + n, sizeof(got) - n, (off_t)n)) > 0)
        n += (size_t)k;
    if (k < 0)
        return strerror(errno);
    return n == sizeof(got) && memcmp(got, wrote, n) == 0 ? NULL
                                                          : "its content is not what was written";
}

int health_storage_check(const struct node_health *h, const struct node_health_target *t,
                         struct dd_err *why)
{
    unsigned char wrote[PROBE];
    health_page_begin(h->page, "a file in %.300s (storage)", t->path);
    for (size_t i = 0; i < sizeof(wrote); i++)
        wrote[i] = (unsigned char)(i * 31 + (i >> 8));
    DD_AUTO(fd) int fd = open_nameless(t->path);
    int rc = fd < 0 ? fd : dd_write_full(fd, wrote, sizeof(wrote));
    if (rc == 0 && fsync(fd) < 0)
        rc = -errno;
    if (rc < 0)
        return cannot_write(t->path, rc, why);
    const char *reason = read_back(fd, wrote);
    return reason == NULL
               ? 0
               : dd_err_set(why, 1, "cannot read back a file in %.300s: %s", t->path, reason);
}

int health_disk_check(const struct node_health *h, const struct node_health_target *t,
                      struct dd_err *why)
{
    struct statvfs s;
    health_page_begin(h->page, "the file system of %.300s", t->path);
    if (statvfs(t->path, &s) < 0)
        return dd_err_set(why, 1, "cannot read the free space of %.300s: %m", t->path);
    const double left = (double)s.f_bavail * (double)s.f_frsize;
    char has[SIZE_TEXT], needs[SIZE_TEXT];
    return left >= (double)t->bytes
               ? 0
               : dd_err_set(why, 1,
                            "the file system of %.300s has only %s left, less than %s (--health)",
                            t->path, size_text(has, left), size_text(needs, (double)t->bytes));
}

/* ---- memory ---- */

/* Return the bytes of MemAvailable; 0: unknown. Src: proc(5). */
static uint64_t available(const struct node_health *h)
{
    DD_AUTO(free) char *path = NULL;
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(65536);
    unsigned long long kib = 0;
    if (asprintf(&path, "%s/proc/meminfo", h->cfg.root) < 0 || dd_read_file(path, &text, NULL) < 0)
        return 0;
    const char *all = dd_buf_str(&text);
    const char *line = all != NULL ? strstr(all, "MemAvailable:") : NULL;
    if (line == NULL || sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
        return 0;
    return (uint64_t)kib << 10;
}

int health_memory_check(const struct node_health *h, const struct node_health_target *t,
                        struct dd_err *why)
{
    health_page_begin(h->page, "the memory of the node");
    const uint64_t limit = node_memory_limit(h->cfg.root);
    const uint64_t free_bytes = available(h);
    const uint64_t left = limit > 0 && limit < free_bytes ? limit : free_bytes;
    if (left == 0 || left >= t->bytes) /* 0: unknown */
        return 0;
    char has[SIZE_TEXT], needs[SIZE_TEXT];
    return dd_err_set(why, 1, "only %s of memory is available, less than %s (--health)",
                      size_text(has, (double)left), size_text(needs, (double)t->bytes));
}
