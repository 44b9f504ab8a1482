#include "cmd/stage_dirs.h"

#include "base/auto.h"
#include "base/io.h"
#include "stage/stage_containing.h"
#include "stage/stage_interpreters.h"
#include "stage/stage_source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- paths ---- */

static int stage_refuse_file(const char *path, struct dd_err *err)
{
    if (stage_source_is_foreign(path))
        return dd_err_tip(
            err,
            dd_err_set(err, -ENOTDIR, "--stage: '%s' is an image, which ddrun cannot mount", path),
            "ddrun mounts squashfs images: .squashfs, .sqsh, .sqfs");
    return dd_err_tip(
        err,
        dd_err_set(err, -ENOTDIR, "--stage: '%s' is not a directory, an archive or an image", path),
        "archives end with .tar, .tar.gz, .tar.bz2, .tar.xz, .tar.zst, .tgz, .tbz2, "
        ".txz, .tzst or .zip, images with .squashfs, .sqsh or .sqfs");
}

/* Src: Linux, Documentation/filesystems/squashfs.rst */
static int stage_check_image(const char *path, struct dd_err *err)
{
    char magic[4] = "";
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || read(fd, magic, sizeof(magic)) < 0)
        return dd_err_set(err, -errno, "--stage: cannot read '%s': %m", path);
    return memcmp(magic, "hsqs", sizeof(magic)) == 0
               ? 0
               : dd_err_set(err, -EINVAL, "--stage: '%s' is not a squashfs image", path);
}

static int stage_check_source(const struct stage_source *s, struct dd_err *err)
{
    const char *path = s->path;
    const bool file = s->archive || s->image;
    struct stat st;
    if (stat(path, &st) < 0)
        return dd_err_set(err, -errno, "--stage: cannot use '%s': %m", path);
    if (file && !S_ISREG(st.st_mode))
        return dd_err_set(err, -EINVAL,
                          "--stage: '%s' has the suffix of an %s, but is not a regular file", path,
                          s->image ? "image" : "archive");
    if (!file && !S_ISDIR(st.st_mode))
        return stage_refuse_file(path, err);
    if (s->image)
        return stage_check_image(path, err);
    return access(path, file ? R_OK : R_OK | X_OK) == 0
               ? 0
               : dd_err_set(err, -errno, "--stage: cannot read '%s': %m", path);
}

/* Remove '.', '..' and repeated slashes. Keep symbolic links: workers use the path as given. */
static int stage_absolute(char **ret, const char *path, struct dd_err *err)
{
    DD_AUTO(free) char *here = path[0] != '/' ? getcwd(NULL, 0) : strdup("");
    DD_AUTO(strv) struct dd_strv parts = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(PATH_MAX);
    if (here == NULL)
        return dd_err_set(err, -errno, "--stage: cannot determine the current directory: %m");
    int rc = dd_strv_split(&parts, here, "/");
    rc = rc == 0 ? dd_strv_split(&parts, path, "/") : rc;
    for (size_t i = 0; i < parts.n && rc == 0; i++) {
        if (strcmp(parts.v[i], "..") == 0)
            return dd_err_set(err, -EINVAL, "--stage: '%s' contains '..'", path);
        if (strcmp(parts.v[i], ".") != 0)
            rc = dd_buf_printf(&out, "/%s", parts.v[i]);
    }
    if (rc == 0 && out.len == 0)
        return dd_err_set(err, -EINVAL,
                          "--stage: '%s' is the root directory"
                          "\n  tip: name a directory in it",
                          path[0] != '\0' ? path : "/");
    if (rc == -EMSGSIZE)
        return dd_err_set(err, -EINVAL, "--stage: the absolute path of '%.60s…' exceeds %d bytes",
                          path, PATH_MAX);
    *ret = rc == 0 ? dd_buf_steal(&out) : NULL;
    return *ret != NULL ? 0 : dd_err_set(err, -ENOMEM, "--stage: out of memory");
}

/* Reject a --stage-dir inside a source: the copy would contain itself. */
static int stage_check_dir(const char *dir, const struct dd_strv *paths, struct dd_err *err)
{
    const char *holder = dir != NULL ? stage_containing(dir, paths->v) : NULL;
    return holder == NULL ? 0
                          : dd_err_set(err, -EINVAL,
                                       "--stage-dir: '%s' is part of '%s', which --stage copies"
                                       "\n  tip: name a directory outside of it",
                                       dir, holder);
}

/* Convert a value of --stage to "PATH", or to "FILE:NAME" with the name that workers see. */
static int stage_absolute_source(char **ret, const char *text, bool reads, struct dd_err *err)
{
    DD_AUTO(stage_source) struct stage_source s = {0};
    DD_AUTO(free) char *path = NULL;
    DD_AUTO(free) char *name = NULL;
    if (stage_source_parse(&s, text) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = stage_absolute(&path, s.path, err);
    rc = rc == 0 ? stage_absolute(&name, s.name, err) : rc;
    if (rc < 0)
        return rc;
    const struct stage_source absolute = {
        .path = path, .name = name, .archive = s.archive, .image = s.image};
    const bool named = s.archive || s.image;
    rc = reads ? stage_check_source(&absolute, err) : 0;
    if (rc == 0 && asprintf(ret, "%s%s%s", path, named ? ":" : "", named ? name : "") < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    return rc;
}

/* Reject a name at or below that of another source: only one of them could be mounted. */
static int stage_check_pair(const char *text, const char *other, struct dd_err *err)
{
    DD_AUTO(stage_source) struct stage_source a = {0};
    DD_AUTO(stage_source) struct stage_source b = {0};
    if (stage_source_parse(&a, text) < 0 || stage_source_parse(&b, other) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (strcmp(a.name, b.name) == 0)
        return dd_err_set(err, -EINVAL, "--stage names '%s' twice", a.name);
    const bool a_inside = dd_path_lies_in(a.name, strlen(a.name), b.name);
    if (!a_inside && !dd_path_lies_in(b.name, strlen(b.name), a.name))
        return 0;
    const struct stage_source *inner = a_inside ? &a : &b;
    return dd_err_tip(err,
                      dd_err_set(err, -EINVAL, "--stage names both '%s' and '%s', which is in it",
                                 a_inside ? b.name : a.name, inner->name),
                      inner->archive || inner->image
                          ? "name a directory outside of it: --stage=FILE:DIR"
                          : "omit the inner directory: it is copied with the other");
}

int stage_dirs_arriving(struct dd_strv *ret, const struct dd_strv *paths, bool reads)
{
    int rc = 0;
    for (size_t i = 0; i < paths->n && rc == 0; i++) {
        DD_AUTO(stage_source) struct stage_source s = {0};
        rc = stage_source_parse(&s, paths->v[i]);
        if (rc == 0 && (!reads || s.archive || s.image))
            rc = dd_strv_push(ret, s.name);
    }
    return rc;
}

bool stage_dirs_have_archive(const struct stage_options *o)
{
    bool any = false;
    for (size_t i = 0; i < o->paths.n && !any; i++) {
        DD_AUTO(stage_source) struct stage_source s = {0};
        any = stage_source_parse(&s, o->paths.v[i]) == 0 && s.archive;
    }
    return any;
}

int stage_dirs_paths(struct dd_strv *ret, const struct stage_options *o, bool reads,
                     struct dd_err *err)
{
    for (size_t i = 0; i < o->paths.n; i++) {
        DD_AUTO(free) char *path = NULL;
        int rc = stage_absolute_source(&path, o->paths.v[i], reads, err);
        for (size_t k = 0; k < ret->n && rc == 0; k++)
            rc = stage_check_pair(path, ret->v[k], err);
        if (rc < 0)
            return rc;
        if (dd_strv_push(ret, path) < 0)
            return dd_err_set(err, -ENOMEM, "out of memory");
    }
    return stage_check_dir(o->dir, ret, err);
}

/* ---- directories of the node ---- */

/* True for a network file system, and if statfs() fails. Src: linux/magic.h, or the sources of the
 * file system (OrangeFS: fs/orangefs of Linux). */
static bool is_network(const char *path)
{
    static const unsigned long types[] = {
        0x6969,     /* NFS */
        0xff534d42, /* CIFS */
        0xfe534d42, /* SMB2 */
        0x0bd00bd0, /* Lustre */
        0x47504653, /* GPFS */
        0x19830326, /* BeeGFS */
        0x00c36400, /* Ceph */
        0x65735546, /* FUSE: sshfs, CVMFS, GlusterFS … */
        0x5346414f, /* AFS */
        0x20030528, /* OrangeFS */
        0x01021997, /* 9P */
        0x6b414653, /* kAFS */
        0xaad7aaea, /* PanFS */
        0x7461636f, /* OCFS2 */
        0x01161970, /* GFS2 */
    };
    struct statfs st;
    if (statfs(path, &st) < 0)
        return true;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (((unsigned long)st.f_type & 0xffffffff) == types[i])
            return true;
    return false;
}

enum { STAGE_DEFAULTS = 6 };

/* Set dirs to the default directories in order of preference; NULL: the directory cannot be
 * used. */
static void stage_defaults(const char *dirs[STAGE_DEFAULTS], const struct dd_strv *paths,
                           char *const *env)
{
    dirs[0] = dd_env_get_nonempty(env, "SLURM_TMPDIR");
    dirs[1] = dd_env_get_nonempty(env, "TMPDIR");
    dirs[2] = dd_env_get_nonempty(env, "PBS_JOBDIR");
    dirs[3] = "/local";
    dirs[4] = "/tmp";
    dirs[5] = "/dev/shm";
    for (size_t i = 0; i < STAGE_DEFAULTS; i++)
        if (dirs[i] != NULL && (access(dirs[i], W_OK | X_OK) < 0 || is_network(dirs[i]) ||
                                stage_containing(dirs[i], paths->v) != NULL))
            dirs[i] = NULL;
}

static int stage_dirs_default(struct dd_scratch *ret, const struct dd_strv *paths, char *const *env,
                              struct dd_err *err)
{
    const char *dirs[STAGE_DEFAULTS];
    int rc = -ENOENT;
    stage_defaults(dirs, paths, env);
    for (size_t i = 0; i < STAGE_DEFAULTS && rc < 0; i++)
        if (dirs[i] != NULL)
            rc = dd_scratch_new(ret, dirs[i], NULL);
    return rc == 0 ? 0
                   : dd_err_tip(err,
                                dd_err_set(err, rc,
                                           "--stage: no local directory for the copies: tried "
                                           "SLURM_TMPDIR, TMPDIR, PBS_JOBDIR, /local, /tmp and "
                                           "/dev/shm"),
                                "name one that is local to the node with --stage-dir");
}

int stage_dirs_make(struct dd_scratch *ret, struct dd_scratch *ret_spare,
                    const struct stage_options *o, char *const *env, struct dd_err *err)
{
    if (o->dir != NULL) {
        const int rc = dd_scratch_new(ret, o->dir, err);
        return rc < 0 ? dd_err_where(err, rc, "--stage-dir") : 0;
    }
    const int rc = stage_dirs_default(ret, &o->paths, env, err);
    if (rc == 0 && strncmp(ret->path, "/dev/shm/", 9) != 0 &&
        stage_containing("/dev/shm", o->paths.v) == NULL)
        (void)dd_scratch_new(ret_spare, "/dev/shm", NULL);
    return rc;
}

/* ---- directories for code ---- */

static bool is_noexec(const char *dir)
{
    struct statvfs st;
    return statvfs(dir, &st) == 0 && (st.f_flag & ST_NOEXEC) != 0;
}

static const char *stage_code_default(const char *dirs[STAGE_DEFAULTS], size_t *at)
{
    while (*at < STAGE_DEFAULTS) {
        const char *dir = dirs[(*at)++];
        if (dir != NULL && !is_noexec(dir))
            return dir;
    }
    return NULL;
}

const char *stage_dirs_choose_for_code(char *const *env)
{
    const char *dirs[STAGE_DEFAULTS];
    const struct dd_strv none = {0};
    size_t at = 0;
    stage_defaults(dirs, &none, env);
    return stage_code_default(dirs, &at);
}

int stage_dirs_make_for_code(struct dd_scratch *ret, const char *dir, char *const *env,
                             struct dd_err *err)
{
    const char *dirs[STAGE_DEFAULTS];
    const struct dd_strv none = {0};
    size_t at = 0;
    if (dir != NULL && is_noexec(dir))
        return dd_err_set(err, -EACCES, "the file system of '%s' is mounted with noexec", dir);
    if (dir != NULL)
        return dd_scratch_new(ret, dir, err);
    stage_defaults(dirs, &none, env);
    while ((dir = stage_code_default(dirs, &at)) != NULL)
        if (dd_scratch_new(ret, dir, NULL) == 0)
            return 0;
    return dd_err_set(
        err, -ENOENT,
        "no local directory in which files can be executed: tried SLURM_TMPDIR, TMPDIR, "
        "PBS_JOBDIR, /local, /tmp and /dev/shm");
}

int stage_dirs_describe(char **ret, const struct stage_options *o, const struct dd_strv *paths,
                        char *const *env)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1 << 20);
    const char *dirs[STAGE_DEFAULTS];
    const char *to = o->dir;
    stage_defaults(dirs, paths, env);
    for (size_t i = 0; i < STAGE_DEFAULTS && to == NULL; i++)
        to = dirs[i];
    DD_AUTO(strv) struct dd_strv all = {0};
    DD_AUTO(strv) struct dd_strv also = {0};
    int rc = stage_interpreters_find(&also, paths->v, to);
    rc = rc == 0 ? dd_strv_copy(&all, paths->v) : rc;
    rc = rc == 0 ? dd_strv_copy(&all, also.v) : rc;
    rc = rc == 0 ? dd_buf_puts(&b, "--stage copies ") : rc;
    for (size_t i = 0; i < all.n && rc == 0; i++)
        rc = dd_buf_printf(&b, "%s'%s'", i > 0 ? ", " : "", all.v[i]);
    if (rc == 0 && to != NULL)
        rc = dd_buf_printf(&b, " to a private directory in '%s'%s", to,
                           o->keep ? ", or uses a kept copy there" : "");
    *ret = rc == 0 ? dd_buf_steal(&b) : NULL;
    return *ret != NULL ? 0 : -ENOMEM;
}
