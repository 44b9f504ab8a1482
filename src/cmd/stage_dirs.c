#include "cmd/stage_dirs.h"

#include "base/auto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- paths ---- */

static int stage_check_source(const char *path, struct dd_err *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return dd_err_set(err, -errno, "--stage: cannot use '%s': %m", path);
    if (!S_ISDIR(st.st_mode))
        return dd_err_set(err, -ENOTDIR, "--stage: '%s' is not a directory", path);
    return access(path, R_OK | X_OK) == 0
               ? 0
               : dd_err_set(err, -errno, "--stage: cannot read '%s': %m", path);
}

/* Without '.', '..' and repeated slashes; symbolic links stay, since workers use that name. */
static int stage_absolute(char **ret, const char *path, struct dd_err *err)
{
    DD_AUTO(free) char *here = path[0] != '/' ? getcwd(NULL, 0) : strdup("");
    DD_AUTO(strv) struct dd_strv parts = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4096);
    int rc = here == NULL ? -errno : dd_strv_split(&parts, here, "/");
    rc = rc == 0 ? dd_strv_split(&parts, path, "/") : rc;
    for (size_t i = 0; i < parts.n && rc == 0; i++) {
        if (strcmp(parts.v[i], "..") == 0)
            return dd_err_set(err, -EINVAL, "--stage: '%s' contains '..'", path);
        if (strcmp(parts.v[i], ".") != 0)
            rc = dd_buf_printf(&out, "/%s", parts.v[i]);
    }
    if (rc == 0 && out.len == 0)
        return dd_err_set(err, -EINVAL, "--stage: cannot copy '%s'; name one directory in it",
                          path[0] != '\0' ? path : "/");
    *ret = rc == 0 ? dd_buf_steal(&out) : NULL;
    return *ret != NULL ? 0 : dd_err_set(err, -ENOMEM, "--stage: '%s' is too long", path);
}

int stage_dirs_paths(struct dd_strv *ret, const struct stage_options *o, bool reads,
                     struct dd_err *err)
{
    for (size_t i = 0; i < o->paths.n; i++) {
        DD_AUTO(free) char *path = NULL;
        int rc = stage_absolute(&path, o->paths.v[i], err);
        if (rc == 0 && reads)
            rc = stage_check_source(path, err);
        if (rc < 0)
            return rc;
        for (size_t k = 0; k < ret->n; k++)
            if (strcmp(ret->v[k], path) == 0)
                return dd_err_set(err, -EINVAL, "--stage names '%s' twice", path);
        if (dd_strv_push(ret, path) < 0)
            return dd_err_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

/* ---- directories of the node ---- */

/* Src: linux/magic.h and the sources of these file systems */
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
        0x6c6f6f70, /* OrangeFS variants */
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

static int stage_dirs_default(struct dd_scratch *ret, char *const *env, struct dd_err *err)
{
    const char *const dirs[] = {dd_env_get_nonempty(env, "SLURM_TMPDIR"),
                                dd_env_get_nonempty(env, "TMPDIR"),
                                dd_env_get_nonempty(env, "PBS_JOBDIR"),
                                "/local",
                                "/tmp",
                                "/dev/shm"};
    int rc = -ENOENT;
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]) && rc < 0; i++)
        if (dirs[i] != NULL && access(dirs[i], W_OK | X_OK) == 0 && !is_network(dirs[i]))
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
    const int rc = stage_dirs_default(ret, env, err);
    if (rc == 0 && strncmp(ret->path, "/dev/shm/", 9) != 0)
        (void)dd_scratch_new(ret_spare, "/dev/shm", NULL);
    return rc;
}
