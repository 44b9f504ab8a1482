#include "stage/collect_list.h"

#include "base/auto.h"
#include "stage/collect_rules.h"
#include "stage/stage_codec.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ITEMS_MAX = 1 << 20, TELL_EACH = 1024 };

struct visit {
    struct collect_list *list;
    unsigned rule;
    size_t prefix;
    struct dd_err *err;
};

int collect_list_append(struct collect_list *l, const struct collect_item *item)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap > 0 ? l->cap * 2 : 64;
        struct collect_item *more = realloc(l->items, cap * sizeof(*more));
        if (more == NULL) {
            free(item->path);
            free(item->name);
            return -ENOMEM;
        }
        l->items = more;
        l->cap = cap;
    }
    l->items[l->n++] = *item;
    return 0;
}

static int visit_add(const struct visit *v, const char *path)
{
    struct collect_list *l = v->list;
    if (l->n >= ITEMS_MAX)
        return dd_err_set(v->err, -E2BIG, "more than %d files match", ITEMS_MAX);
    const struct collect_item item = {.rule = v->rule, .prefix = v->prefix, .path = strdup(path)};
    if (item.path == NULL || collect_list_append(l, &item) < 0)
        return dd_err_set(v->err, -ENOMEM, "out of memory");
    return 0;
}

static int visit_entry(const struct visit *v, int at, const char *name, const char *path,
                       int depth);

/* Visit the entries of a directory. Takes fd_taken. */
static int visit_directory(const struct visit *v, int fd_taken, const char *path, int depth)
{
    DIR *d = fdopendir(fd_taken);
    const struct dirent *e;
    int rc = 0;
    if (d == NULL) {
        v->list->unreadable(v->list->arg, path, errno);
        close(fd_taken);
        return 0;
    }
    while (rc == 0 && (e = readdir(d)) != NULL) {
        DD_AUTO(free) char *below = NULL;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (asprintf(&below, "%s/%s", path, e->d_name) < 0) {
            below = NULL;
            rc = dd_err_set(v->err, -ENOMEM, "out of memory");
        } else {
            rc = visit_entry(v, dirfd(d), e->d_name, below, depth + 1);
        }
    }
    closedir(d);
    return rc;
}

static int visit_entry(const struct visit *v, int at, const char *name, const char *path, int depth)
{
    struct collect_list *l = v->list;
    struct stat st;
    if (l->alive != NULL && l->seen++ % TELL_EACH == 0)
        l->alive(l->arg);
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT) /* ENOENT: removed meanwhile */
            l->unreadable(l->arg, path, errno);
        return 0;
    }
    /* other users can create files in directories of a pattern, such as /tmp */
    const bool ours = st.st_uid == geteuid() || st.st_uid == 0;
    if (ours && S_ISREG(st.st_mode))
        return visit_add(v, path);
    if (!ours || !S_ISDIR(st.st_mode)) {
        if (l->skipped++ == 0)
            (void)snprintf(l->first_skipped, sizeof(l->first_skipped), "%s", path);
        return 0;
    }
    const int fd = depth < STAGE_DEPTH_MAX
                       ? openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                       : -1;
    if (fd >= 0)
        return visit_directory(v, fd, path, depth);
    l->unreadable(l->arg, path, depth < STAGE_DEPTH_MAX ? errno : ELOOP);
    return 0;
}

int collect_list_add(struct collect_list *l, unsigned rule, const char *pattern, struct dd_err *err)
{
    glob_t found = {0};
    const struct visit v = {
        .list = l, .rule = rule, .prefix = collect_rule_prefix(pattern), .err = err};
    int rc = glob(pattern, 0, NULL, &found);
    if (rc == GLOB_NOMATCH)
        rc = 0;
    else if (rc != 0)
        rc = dd_err_set(err, -EIO,
                        rc == GLOB_NOSPACE ? "out of memory" : "cannot read a directory");
    l->matched += found.gl_pathc;
    for (size_t i = 0; i < found.gl_pathc && rc == 0; i++)
        rc = visit_entry(&v, AT_FDCWD, found.gl_pathv[i], found.gl_pathv[i], 0);
    globfree(&found);
    return rc;
}

int collect_list_tree(struct collect_list *l, unsigned rule, const char *dir, struct dd_err *err)
{
    const struct visit v = {.list = l, .rule = rule, .prefix = strlen(dir) + 1, .err = err};
    return visit_entry(&v, AT_FDCWD, dir, dir, 0);
}

void collect_list_done(struct collect_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->items[i].path);
        free(l->items[i].name);
    }
    free(l->items);
    l->items = NULL;
    l->n = l->cap = 0;
}
