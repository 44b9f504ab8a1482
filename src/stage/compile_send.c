#include "stage/compile_send.h"

#include "base/auto.h"
#include "stage/collect_codec.h"
#include "stage/compile_cache.h"
#include "stage/compile_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    LATE_S = 5,      /* longest time for which a tool writes one file */
    AGAIN_S = 86400, /* a file that is used every day is marked as used once a day */
};

struct choice {
    const char *kind;
    int how;
    struct timespec mark; /* when the copy was complete */
    time_t now;
    int64_t late_from; /* time of the oldest file that may be incomplete */
    char snapshot[40];
};

static bool is_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

static bool is_new(const struct choice *c, const struct stat *st)
{
    return !is_before(&st->st_ctim, &c->mark);
}

/* Src: also with "relatime", the first read of a new or changed file sets its access time
 * (relatime_need_update in Linux' fs/inode.c). */
static bool is_used(const struct choice *c, const struct stat *st)
{
    return is_new(c, st) ||
           (is_before(&c->mark, &st->st_atim) && c->now - st->st_mtim.tv_sec > AGAIN_S);
}

static bool is_late(const struct choice *c, const struct stat *st)
{
    return (c->how & COMPILE_SEND_LATE) != 0 && st->st_mtim.tv_sec >= c->late_from;
}

static const char *in_cache(const struct collect_item *i)
{
    return i->path + i->prefix;
}

static int by_order(const void *a, const void *b)
{
    return compile_cache_order(in_cache(a), in_cache(b));
}

/* ---- snapshots ---- */

/* True if the snapshot that contains item `at` is to be sent: is_used() holds for one of its
 * files, and is_late() for none. */
static bool snapshot_is_due(const struct choice *c, const struct collect_list *all, size_t at)
{
    const char *path = in_cache(&all->items[at]);
    const size_t n = compile_cache_unit(path);
    struct stat st;
    bool due = false;
    for (size_t i = 0; i < all->n; i++) {
        const char *other = in_cache(&all->items[i]);
        if (compile_cache_unit(other) != n || strncmp(other, path, n) != 0 ||
            compile_cache_is_temporary(other) || lstat(all->items[i].path, &st) < 0)
            continue;
        if (is_late(c, &st))
            return false;
        due |= !compile_cache_is_last(other) && is_used(c, &st);
    }
    return due;
}

/* Create the file that marks a snapshot as complete, and append it. */
static int snapshot_complete(struct collect_list *all, const char *tool)
{
    const struct collect_item *some = &all->items[0];
    struct collect_item done = {.rule = some->rule, .prefix = some->prefix};
    if (asprintf(&done.path, "%.*s%s/" COMPILE_CACHE_NOW "/" COMPILE_CACHE_COMPLETE,
                 (int)some->prefix, some->path, tool) < 0)
        return -ENOMEM;
    (void)unlink(done.path);
    DD_AUTO(fd) int fd = open(done.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        free(done.path);
        return 0;
    }
    return collect_list_append(all, &done);
}

/* ---- all files ---- */

/* Set i->name to "KIND/PATH", with the name of the new snapshot in place of "now". */
static int put_name(const struct choice *c, struct collect_item *i)
{
    const char *path = in_cache(i);
    const char *slash = strchr(path, '/');
    const char *rest = slash != NULL ? strchr(slash + 1, '/') : NULL;
    const int n = rest != NULL && compile_cache_in_snapshot(path)
                      ? asprintf(&i->name, "%s/%.*s/%s%s", c->kind, (int)(slash - path), path,
                                 c->snapshot, rest)
                      : asprintf(&i->name, "%s/%s", c->kind, path);
    if (n < 0)
        i->name = NULL;
    return n < 0 ? -ENOMEM : 0;
}

static bool is_chosen(const struct choice *c, const struct collect_item *i)
{
    struct stat st;
    const char *path = in_cache(i);
    if (compile_cache_is_temporary(path) || lstat(i->path, &st) < 0)
        return false;
    if (compile_cache_in_snapshot(
            path)) /* choose_snapshots() has removed the snapshots that are not due */
        return true;
    if (is_late(c, &st)) {
        if ((c->how & COMPILE_SEND_REMOVE) != 0)
            (void)unlink(i->path);
        return false;
    }
    return is_new(c, &st) || ((c->how & COMPILE_SEND_FIRST) != 0 && is_used(c, &st));
}

/* Remove the snapshots that are not due from the list, and complete the others. */
static int choose_snapshots(const struct choice *c, struct collect_list *all)
{
    int rc = 0;
    for (size_t t = 0; compile_cache_snapshots[t] != NULL && rc == 0; t++) {
        const char *tool = compile_cache_snapshots[t];
        const size_t n = strlen(tool);
        size_t kept = 0;
        size_t at = 0;
        while (at < all->n && (strncmp(in_cache(&all->items[at]), tool, n) != 0 ||
                               in_cache(&all->items[at])[n] != '/'))
            at++;
        const bool some = at < all->n;
        const bool due = some && (c->how & COMPILE_SEND_FIRST) != 0 && snapshot_is_due(c, all, at);
        for (size_t i = 0; i < all->n; i++) {
            struct collect_item *item = &all->items[i];
            const bool its = strncmp(in_cache(item), tool, n) == 0 && in_cache(item)[n] == '/';
            if (its && (!due || compile_cache_is_last(in_cache(item))))
                free(item->path);
            else
                all->items[kept++] = *item;
        }
        all->n = kept;
        if (due)
            rc = snapshot_complete(all, tool);
    }
    return rc;
}

static int choose(const struct choice *c, struct collect_list *all, struct collect_list *ret)
{
    int rc = choose_snapshots(c, all);
    if (rc < 0)
        return rc;
    if (all->n > 0)
        qsort(all->items, all->n, sizeof(*all->items), by_order);
    for (size_t i = 0; i < all->n && rc == 0; i++) {
        struct collect_item *item = &all->items[i];
        if (!is_chosen(c, item) || (rc = put_name(c, item)) < 0)
            continue;
        rc = collect_list_append(ret, item);
        item->path = item->name = NULL;
    }
    return rc;
}

static void ignore_unreadable(void *arg, const char *path, int error)
{
    (void)arg;
    (void)path;
    (void)error;
}

static int name_new_snapshot(struct choice *c)
{
    uint32_t more;
    struct timespec now;
    if (getrandom(&more, sizeof(more), 0) != (ssize_t)sizeof(more) ||
        clock_gettime(CLOCK_REALTIME, &now) < 0)
        return -EIO;
    c->now = now.tv_sec;
    (void)snprintf(c->snapshot, sizeof(c->snapshot), "%016llx-%08" PRIx32,
                   (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec,
                   more);
    return 0;
}

int compile_send_list(struct collect_list *l, const char *dir, const char *kind, int how,
                      int64_t failed_at)
{
    struct choice c = {.kind = kind, .how = how};
    struct collect_list all = {.unreadable = ignore_unreadable, .alive = l->alive, .arg = l->arg};
    struct stat st;
    DD_AUTO(free) char *mark = NULL;
    DD_AUTO(free) char *cache = NULL;
    if (asprintf(&mark, "%s/" COMPILE_DIR_MARK, dir) < 0)
        return -ENOMEM;
    if (asprintf(&cache, "%s/" COMPILE_DIR_CACHE, dir) < 0)
        return -ENOMEM;
    if (lstat(mark, &st) < 0 || name_new_snapshot(&c) < 0)
        return 0;
    c.mark = st.st_ctim;
    c.late_from = (failed_at > 0 && failed_at < c.now ? failed_at : c.now) - LATE_S;
    int rc = collect_list_tree(&all, COLLECT_CACHE, cache, NULL);
    rc = rc == 0 ? choose(&c, &all, l) : rc;
    collect_list_done(&all);
    return rc;
}
