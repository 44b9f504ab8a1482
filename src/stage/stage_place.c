/* The location of the copy on this node, and how workers find it. */
#include "base/auto.h"
#include "base/io.h"
#include "stage/compile_dir.h"
#include "stage/stage_client.h"
#include "stage/stage_image.h"
#include "stage/stage_inner.h"
#include "stage/stage_view.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum { PERCENT_SPARE = 2, MIB = 1 << 20 };

static char *const *place_sources(const struct serve *s)
{
    return s->sources.names;
}

static bool place_is_cache(const struct serve *s)
{
    return s->setup.texts.v[STAGE_SETUP_CACHE][0] != '\0';
}

/* Append pairs: source, copy, source, copy … */
static int place_pairs(const struct serve *s, const char *dir, struct dd_strv *ret)
{
    char *const *sources = place_sources(s);
    int rc = 0;
    for (int i = 0; sources[i] != NULL && rc == 0; i++) {
        rc = dd_strv_push(ret, sources[i]);
        rc = rc == 0 ? dd_strv_pushf(ret, "%s/%d%s", dir, i,
                                     s->sources.v[i].image ? "/" STAGE_IMAGE : "")
                     : rc;
    }
    return rc;
}

bool serve_has_image(const struct serve *s)
{
    bool any = false;
    for (int i = 0; i < s->sources.n && !any; i++)
        any = s->sources.v[i].image;
    return any;
}

/* Test with a mount of the directory for copies in place of each source. */
bool serve_can_mount(const struct serve *s, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv pairs = {0};
    char *const *sources = place_sources(s);
    int fds[2];
    for (int i = 0; sources[i] != NULL; i++)
        if (dd_strv_push(&pairs, sources[i]) < 0 ||
            dd_strv_push(&pairs, s->setup.texts.v[STAGE_SETUP_DIR]) < 0) {
            (void)dd_err_set(err, -ENOMEM, "out of memory");
            return false;
        }
    const int n = stage_view_make(fds, pairs.v, NULL, err);
    for (int i = 0; i < n; i++)
        close(fds[i]);
    return n > 0;
}

static int place_has_space(const struct serve *s, const struct dd_scratch *dir, uint64_t bytes,
                           uint64_t entries, struct dd_err *err)
{
    struct statvfs st;
    const uint64_t need = bytes + bytes / 100 * PERCENT_SPARE;
    const char *node = s->setup.texts.v[STAGE_SETUP_NODE];
    if (fstatvfs(dir->fd, &st) < 0)
        return dd_err_set(err, -errno, "--stage: cannot examine '%s' on %s: %m", dir->path, node);
    const uint64_t room = (uint64_t)st.f_bavail * st.f_frsize;
    if (room < need) {
        const int rc = dd_err_set(err, -ENOSPC,
                                  "--stage: not enough space on %s: '%s' has %" PRIu64
                                  " MiB, the copy needs %" PRIu64,
                                  node, dir->path, room / MIB, need / MIB + 1);
        return dd_err_tip(err, rc, "choose another directory with --stage-dir");
    }
    if (st.f_files > 0 && st.f_favail < entries) {
        const int rc = dd_err_set(err, -ENOSPC,
                                  "--stage: not enough inodes on %s: '%s' has %" PRIu64
                                  ", the copy needs %" PRIu64,
                                  node, dir->path, (uint64_t)st.f_favail, entries);
        return dd_err_tip(err, rc, "choose another directory with --stage-dir");
    }
    return 0;
}

/* ---- kept copies ---- */

#define MADE "copy" /* name in the private directory, until the copy is complete */

bool serve_can_keep(const struct serve *s)
{
    return s->mounts && strcmp(s->setup.texts.v[STAGE_SETUP_KEEP], "1") == 0;
}

bool serve_find_kept(struct serve *s, const unsigned char digest[STAGE_DIGEST])
{
    static const int dirs[] = {STAGE_SETUP_DIR, STAGE_SETUP_SPARE};
    stage_keep_name(s->keep_name, digest);
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]) && s->kept.path == NULL; i++) {
        DD_AUTO(scratch) struct dd_scratch root = DD_SCRATCH_NONE;
        const char *path = s->setup.texts.v[dirs[i]];
        if (path[0] != '\0' && stage_keep_open(&root, path, false, NULL) == 0)
            (void)stage_keep_take(&s->kept, &root, s->keep_name);
    }
    return s->kept.path != NULL;
}

/* Lock the copy before moving it: a job that frees space removes unlocked copies. */
static int place_store(struct serve *s, const struct dd_scratch *root)
{
    DD_AUTO(scratch) struct dd_scratch copy = DD_SCRATCH_NONE;
    char *path = NULL;
    int rc = stage_keep_take(&copy, &s->dir, MADE);
    if (rc == 0 && asprintf(&path, "%s/%s", root->path, s->keep_name) < 0)
        return -ENOMEM;
    rc = rc == 0 ? stage_keep_store(root, &s->dir, MADE, s->keep_name) : rc;
    if (rc < 0) {
        free(path);
        return rc == -EEXIST ? stage_keep_take(&s->kept, root, s->keep_name) : rc;
    }
    s->kept = (struct dd_scratch){.path = path, .fd = DD_TAKE_FD(copy.fd)};
    return 0;
}

/* Keep the complete copy for later jobs. If this fails, the job uses the copy where it is. */
static void place_keep(struct serve *s)
{
    DD_AUTO(scratch) struct dd_scratch root = DD_SCRATCH_NONE;
    struct dd_err err = {0};
    char text[600];
    if (s->keep_name[0] == '\0' || s->dir.path == NULL)
        return;
    int rc = stage_keep_open(&root, s->dir.path, true, &err);
    if (rc == 0) {
        rc = place_store(s, &root);
        (void)dd_err_set(&err, rc, "%s", strerror(-rc));
    }
    if (rc == 0)
        return;
    (void)snprintf(text, sizeof(text), "--stage-keep: cannot keep the copy on %.100s: %.400s",
                   s->setup.texts.v[STAGE_SETUP_NODE], err.text);
    serve_send(s, STAGE_MSG_WARNING, text);
}

void serve_prune_kept(const struct serve *s)
{
    DD_AUTO(scratch) struct dd_scratch root = DD_SCRATCH_NONE;
    if (s->kept.path != NULL && s->dir.path != NULL &&
        stage_keep_open(&root, s->dir.path, false, NULL) == 0)
        stage_keep_prune(&root, STAGE_KEEP_COPIES);
}

/* ---- the directory ---- */

/* Without a mount, the directory is added to PATH, whose separator it must not contain. */
static int place_fits_path(const struct serve *s, const char *dir, struct dd_err *err)
{
    return s->mounts || strchr(dir, ':') == NULL
               ? 0
               : dd_err_set(
                     err, -EINVAL,
                     "--stage: the directory '%s' contains ':', which separates the entries of "
                     "PATH, and %s cannot mount the copy at its original path",
                     dir, s->setup.texts.v[STAGE_SETUP_NODE]);
}

static int place_use(struct serve *s, const char *path, uint64_t bytes, uint64_t entries,
                     struct dd_err *err)
{
    char name[16];
    dd_scratch_done(&s->dir);
    int rc = place_fits_path(s, path, err);
    if (rc == 0)
        rc = dd_scratch_open(&s->dir, path, err);
    /* remove copies that an interrupted round has left */
    for (int i = 0; rc == 0 && !place_is_cache(s) && place_sources(s)[i] != NULL; i++) {
        (void)snprintf(name, sizeof(name), "%d", i);
        (void)dd_scratch_clear(&s->dir, name);
    }
    (void)dd_scratch_clear(&s->dir, MADE);
    if (rc == 0 && place_has_space(s, &s->dir, bytes, entries, NULL) < 0) {
        DD_AUTO(scratch) struct dd_scratch root = DD_SCRATCH_NONE;
        if (stage_keep_open(&root, path, false, NULL) == 0)
            stage_keep_prune(&root, 0);
        rc = place_has_space(s, &s->dir, bytes, entries, err);
    }
    return rc;
}

/* A copy that will be kept is made in a directory of its own, which is moved when it is complete;
 * so are caches, since tools may already write to the final directory. */
static int place_root(struct serve *s, struct dd_err *err)
{
    if (s->keep_name[0] == '\0' && !place_is_cache(s))
        return s->dir.fd;
    int rc = dd_scratch_mkdir(&s->dir, MADE, err);
    if (rc < 0)
        return rc;
    const int fd = openat(s->dir.fd, MADE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : dd_err_set(err, -errno, "cannot open '%s/" MADE "': %m", s->dir.path);
}

int serve_choose_dir(struct serve *s, uint64_t bytes, uint64_t entries, struct dd_err *err)
{
    char *const *setup = s->setup.texts.v;
    if (setup[STAGE_SETUP_DIR][0] == '\0') /* this node has a copy, which it reads for the others */
        return 0;
    int rc = place_use(s, setup[STAGE_SETUP_DIR], bytes, entries, err);
    if (rc == -ENOSPC && setup[STAGE_SETUP_SPARE][0] != '\0' &&
        place_use(s, setup[STAGE_SETUP_SPARE], bytes, entries, NULL) == 0)
        rc = 0;
    const int root = rc == 0 ? place_root(s, err) : rc;
    if (root < 0)
        return root;
    s->unpack = (struct stage_unpack_cfg){
        .root = root,
        .node = setup[STAGE_SETUP_NODE],
        .path = s->dir.path,
        .sources = s->mounts || place_is_cache(s) ? NULL : place_sources(s)};
    stage_pool_unpack_to(s->pool, &s->unpack);
    return 0;
}

/* Return the path of the complete copy, which the caller frees. */
static int place_of_copy(char **ret, const struct serve *s)
{
    const bool made = s->kept.path == NULL && s->keep_name[0] != '\0';
    return asprintf(ret, "%s%s", s->kept.path != NULL ? s->kept.path : s->dir.path,
                    made ? "/" MADE : "") < 0
               ? -ENOMEM
               : 0;
}

static int place_texts(const struct serve *s, const char *dir, struct dd_strv *texts)
{
    const double seconds = (double)(dd_now_ns() - s->begun_ns) / (double)DD_NS_PER_S;
    const double exact = (double)s->bytes / MIB;
    const char *below = exact < 0.05 ? "less than " : "";
    const double mib = exact < 0.05 ? 0.1 : exact;
    int rc = s->dir.path == NULL
                 ? dd_strv_pushf(texts, "%s%.1f MiB: used the kept copy '%s'", below, mib, dir)
                 : dd_strv_pushf(texts, "%s%.1f MiB in %.2f s to '%s'%s", below, mib, seconds, dir,
                                 s->mounts || place_is_cache(s)
                                     ? ""
                                     : "; PATH and other variables point there");
    rc = rc == 0 ? dd_strv_push(texts, s->kept.path != NULL ? "1" : "") : rc;
    return rc == 0 ? place_pairs(s, dir, texts) : rc;
}

static int place_arrange_cache(const struct serve *s, struct dd_err *err)
{
    const int rc = compile_dir_take(s->dir.fd, MADE);
    (void)dd_scratch_clear(&s->dir, MADE);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot move the caches to '%s': %s", s->dir.path,
                          strerror(-rc));
    const int made = compile_dir_arrange(s->dir.fd, err);
    return made == 0 ? 0 : dd_err_where(err, made, "'%s'", s->dir.path);
}

int serve_show(struct serve *s, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv texts = {0};
    DD_AUTO(free) char *dir = NULL;
    int fds[STAGE_CLIENT_FDS];
    int n = 0;
    place_keep(s);
    if (s->dir.path == NULL && s->kept.path == NULL)
        return 0;
    int rc = place_is_cache(s) ? place_arrange_cache(s, err) : 0;
    if (rc < 0)
        return rc;
    rc = place_of_copy(&dir, s);
    rc = rc == 0 ? place_texts(s, dir, &texts) : rc;
    if (rc == 0 && s->mounts && !serve_has_image(s))
        n = stage_view_make(fds, texts.v + STAGE_READY_PAIRS, NULL, err);
    if (n < 0)
        return dd_err_where(err, n, "--stage: cannot mount the copy on %s",
                            s->setup.texts.v[STAGE_SETUP_NODE]);
    if (s->kept.path != NULL) /* the agent takes over the lock */
        fds[n++] = DD_TAKE_FD(s->kept.fd);
    if (rc == 0)
        rc = stage_client_send(s->control, STAGE_MSG_READY, texts.v, fds, n);
    for (int i = 0; i < n; i++)
        close(fds[i]);
    return rc == 0 ? 0 : dd_err_set(err, rc, "--stage: cannot report to ddrun: %s", strerror(-rc));
}
