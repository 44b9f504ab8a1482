#include "cmd/site_files.h"

#include "base/installed.h"
#include "base/uid.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { SITE, USER, PROJECT };

/* A file has at most 64 KiB, and each of its bytes becomes at most 60 bytes of the answer. */
enum { ANSWER_MAX = 4 << 20 };

/* ---- which files ---- */

static int name_files(char *names[SITE_FILES])
{
    const char *home = dd_env_get_nonempty(environ, "HOME");
    const char *xdg = dd_env_get_nonempty(environ, "XDG_CONFIG_HOME");
    int rc = 0;
    names[SITE] = strdup(SYSCONFDIR "/ddrun/ddrun.toml");
    names[PROJECT] = strdup("./ddrun.toml");
    if (xdg != NULL && xdg[0] == '/')
        rc = asprintf(&names[USER], "%s/ddrun.toml", xdg);
    else if (home != NULL && home[0] == '/')
        rc = asprintf(&names[USER], "%s/.config/ddrun.toml", home);
    return rc < 0 || names[SITE] == NULL || names[PROJECT] == NULL ? -ENOMEM : 0;
}

/* ---- whether to trust them ---- */

static bool is_trusted(uid_t owner)
{
    struct dd_uid own;
    dd_uid_read(&own);
    return owner == 0 || dd_uid_is_own(&own, owner);
}

/* The site's file may also belong to the user who installed ddrun. */
static bool is_installer(uid_t owner)
{
    struct stat self;
    return stat("/proc/self/exe", &self) == 0 && self.st_uid == owner;
}

/* True for a user private group: the owner's primary group, with the owner's name and no other
 * member. With such a group a umask of 002 is usual. Src: pam_umask(8), "usergroups", has the same
 * condition; Debian's sshd accepts such files, too. With a directory service, users whose primary
 * group it is cannot be listed; the equal name is taken as proof that there are none. */
static bool is_private_group(gid_t gid, uid_t owner)
{
    const struct passwd *user = owner != 0 ? getpwuid(owner) : NULL;
    DD_AUTO(free) char *name = user != NULL && user->pw_gid == gid ? strdup(user->pw_name) : NULL;
    const struct group *group = name != NULL ? getgrgid(gid) : NULL;
    if (group == NULL || strcmp(group->gr_name, name) != 0)
        return false;
    for (char *const *member = group->gr_mem; *member != NULL; member++)
        if (strcmp(*member, name) != 0)
            return false;
    return true;
}

/* Return 0 if only the owner may write to the file. With an access control list, the group bits of
 * the mode are the mask of the list, and do not describe the permissions of a group. */
static int check_writers(int fd, const char *name, const struct stat *st, struct dd_err *err)
{
    const bool group = (st->st_mode & S_IWGRP) != 0;
    int rc = 0;
    if ((st->st_mode & S_IWOTH) != 0)
        rc = dd_err_set(err, -EPERM, "all users may write to it");
    else if (group && fgetxattr(fd, "system.posix_acl_access", NULL, 0) > 0)
        rc = dd_err_set(err, -EPERM,
                        "its access control list may permit other users to write to it");
    else if (group && !is_private_group(st->st_gid, st->st_uid))
        rc = dd_err_set(err, -EPERM, "the members of group %u may write to it",
                        (unsigned)st->st_gid);
    return rc < 0 ? dd_err_tip(err, rc, "chmod go-w '%s'", name) : 0;
}

/* Return 0 if the file may set options; otherwise the message is a clause about the file. */
static int check_file(int fd, const char *name, bool by_installer, struct stat *st,
                      struct dd_err *err)
{
    if (fstat(fd, st) < 0)
        return dd_err_set(err, -errno, "it cannot be examined: %m");
    if (!S_ISREG(st->st_mode))
        return dd_err_set(err, -EINVAL, "it is not a regular file");
    if (!is_trusted(st->st_uid) && !(by_installer && is_installer(st->st_uid)))
        return dd_err_set(err, -EPERM, "it belongs to uid %u", (unsigned)st->st_uid);
    return check_writers(fd, name, st, err);
}

static int check(const struct site_files *f, int kind, struct dd_err *err)
{
    struct stat st;
    struct stat here;
    int rc = check_file(f->fds[kind], f->names[kind], kind == SITE, &st, err);
    if (rc < 0 || kind != PROJECT)
        return rc;
    if (st.st_nlink != 1) /* another user may have linked the file into this directory */
        return dd_err_set(err, -EPERM, "it has more than one name (hard links)");
    if (stat(".", &here) < 0)
        return dd_err_set(err, -errno, "its directory cannot be examined: %m");
    return is_trusted(here.st_uid)
               ? 0
               : dd_err_set(err, -EPERM, "its directory belongs to uid %u", (unsigned)here.st_uid);
}

/* True if there is no such file. For the files of user and project, also if that cannot be
 * determined: a home directory that is inaccessible, or on a file server that is down, must not
 * prevent the start of a job. */
static bool is_absent(int kind, const char *name, int error)
{
    struct stat st;
    if (error == ENOENT || error == ENOTDIR)
        return true;
    return kind != SITE &&
           (error == EACCES || error == ESTALE || error == EIO || error == ENOKEY) &&
           fstatat(AT_FDCWD, name, &st, AT_SYMLINK_NOFOLLOW) < 0;
}

int site_files_open(struct site_files *ret, struct dd_err *err)
{
    *ret = (struct site_files){.fds = {-1, -1, -1}};
    if (name_files(ret->names) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (int kind = 0; kind < SITE_FILES; kind++) {
        const int follow = kind == PROJECT ? O_NOFOLLOW : 0;
        if (ret->names[kind] == NULL)
            continue;
        ret->fds[kind] = open(ret->names[kind],
                              O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | follow);
        const int error = errno;
        if (ret->fds[kind] < 0 && !is_absent(kind, ret->names[kind], error))
            ret->errors[kind] = -error;
        ret->any = ret->any || ret->fds[kind] >= 0 || ret->errors[kind] < 0;
    }
    return 0;
}

/* Check a file, and close it if it must not be used. This is an error unless the file is that of
 * the project. */
static int check_one(struct site_files *f, int kind, struct dd_err *left_out, struct dd_err *err)
{
    struct dd_err why = {0};
    int rc = 0;
    if (f->errors[kind] == -ELOOP && kind == PROJECT) /* opened with O_NOFOLLOW */
        rc = dd_err_set(&why, -ELOOP, "it is a symbolic link");
    else if (f->errors[kind] < 0)
        rc = dd_err_set(&why, f->errors[kind], "%s", strerror(-f->errors[kind]));
    else if (f->fds[kind] >= 0)
        rc = check(f, kind, &why);
    if (rc == 0)
        return 0;
    if (f->fds[kind] >= 0)
        close(DD_TAKE_FD(f->fds[kind]));
    if (kind != PROJECT)
        return dd_err_set(err, rc, "cannot use %s: %s", f->names[kind], why.text);
    (void)dd_err_set(left_out, rc, "ignoring %s: %s", f->names[kind], why.text);
    return 0;
}

void site_files_close(struct site_files *f)
{
    for (int kind = 0; kind < SITE_FILES; kind++) {
        if (f->fds[kind] >= 0)
            close(DD_TAKE_FD(f->fds[kind]));
        free(DD_TAKE(f->names[kind]));
    }
}

/* ---- the helper ---- */

static int start_helper(const char *program, int in, int out, pid_t *ret)
{
    char name[] = "ddrun-toml";
    char *const argv[] = {name, NULL};
    posix_spawn_file_actions_t to;
    int rc = posix_spawn_file_actions_init(&to);
    if (rc != 0)
        return -rc;
    rc = posix_spawn_file_actions_adddup2(&to, in, STDIN_FILENO);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&to, out, STDOUT_FILENO);
    if (rc == 0)
        rc = posix_spawn(ret, program, &to, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&to);
    return -rc;
}

/* Append all that can be read from fd, then reap the process and set *status to its wait status.
 * Return 0 or -errno. */
static int finish_helper(int fd, pid_t pid, struct dd_buf *answer, int *status)
{
    char chunk[4096];
    int rc = 0;
    for (ssize_t n;
         rc == 0 && ((n = read(fd, chunk, sizeof(chunk))) > 0 || (n < 0 && errno == EINTR));)
        rc = n > 0 ? dd_buf_append(answer, chunk, (size_t)n) : 0;
    if (rc < 0)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
    return rc;
}

static int refuse_status(const char *name, const char *program, int status, struct dd_err *err)
{
    if (WIFSIGNALED(status))
        return dd_err_set(err, -EPROTO, "cannot read %s: %s was killed by signal %d (%s)", name,
                          program, WTERMSIG(status), strsignal(WTERMSIG(status)));
    return dd_err_set(err, -EPROTO, "cannot read %s: %s exited with status %d", name, program,
                      WEXITSTATUS(status));
}

static int run_helper(const char *name, int file, struct dd_buf *answer, struct dd_err *err)
{
    char program[PATH_MAX];
    int ends[2];
    pid_t pid = 0;
    int status = 0;
    if (!dd_installed_find(program, "ddrun-toml", PKGLIBEXECDIR))
        return dd_err_tip(err,
                          dd_err_set(err, -ENOENT,
                                     "cannot read %s: cannot find ddrun-toml, which needs a "
                                     "build with toml++",
                                     name),
                          "use --no-config to ignore the file");
    if (pipe2(ends, O_CLOEXEC) < 0)
        return dd_err_set(err, -errno, "cannot read %s: cannot create a pipe: %m", name);
    int rc = start_helper(program, file, ends[1], &pid);
    close(ends[1]);
    if (rc < 0)
        rc = dd_err_set(err, rc, "cannot read %s: cannot run %s: %s", name, program, strerror(-rc));
    else if ((rc = finish_helper(ends[0], pid, answer, &status)) < 0)
        rc = dd_err_set(err, rc, "cannot read %s: cannot store the answer of %s: %s", name, program,
                        strerror(-rc));
    else if (status != 0)
        rc = refuse_status(name, program, status, err);
    close(ends[0]);
    return rc;
}

/* ---- their values ---- */

/* Where to add the values of files, and for which job. */
struct site_target {
    struct site_settings *settings;
    const struct opt_table *table;
    struct site_job job;
    struct dd_err *err;
};

static int read_included(const struct site_target *to, const char *by, const char *path)
{
    DD_AUTO(buf) struct dd_buf answer = DD_BUF_INIT(ANSWER_MAX);
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const struct site_file file = {.name = path, .included = true};
    struct dd_err why = {0};
    struct stat st;
    int rc = fd < 0 ? dd_err_set(&why, -errno, "%m") : check_file(fd, path, true, &st, &why);
    if (rc < 0)
        return dd_err_set(to->err, rc, "%s: cannot include %s: %s", by, path, why.text);
    rc = run_helper(path, fd, &answer, to->err);
    return rc < 0 ? rc
                  : site_settings_add(to->settings, to->table, &file, &to->job, &answer, to->err);
}

/* Add the values of a file over those of the files that it includes. */
static int read_file(const struct site_target *to, const struct site_file *file, int fd)
{
    DD_AUTO(buf) struct dd_buf answer = DD_BUF_INIT(ANSWER_MAX);
    DD_AUTO(strv) struct dd_strv includes = {0};
    int rc = run_helper(file->name, fd, &answer, to->err);
    if (rc == 0)
        rc = site_settings_includes(&includes, to->table, file, &to->job, &answer, to->err);
    for (size_t i = 0; rc == 0 && i < includes.n; i++)
        rc = read_included(to, file->name, includes.v[i]);
    return rc < 0 ? rc
                  : site_settings_add(to->settings, to->table, file, &to->job, &answer, to->err);
}

int site_files_read(struct site_settings *ret, struct site_files *f, const struct opt_table *t,
                    struct dd_err *left_out, struct dd_err *err)
{
    struct site_target to = {.settings = ret, .table = t, .err = err};
    char hostname[256] = "";
    int rc = 0;
    (void)gethostname(hostname, sizeof(hostname) - 1);
    site_job_read(&to.job, environ, hostname);
    for (int kind = 0; rc == 0 && kind < SITE_FILES; kind++) {
        const struct site_file file = {.name = f->names[kind], .project = kind == PROJECT};
        rc = check_one(f, kind, left_out, err);
        if (rc == 0 && f->fds[kind] >= 0)
            rc = read_file(&to, &file, f->fds[kind]);
    }
    return rc;
}
