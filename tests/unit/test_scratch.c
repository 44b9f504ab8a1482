/* base/scratch: private directories below a directory that other users can write to as well. */
#include "base/owner.h"
#include "base/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { OTHER_UID = 20002 };

struct bed {
    char tmp[64];
    char path[512];
    struct dd_scratch s;
};

static int setup(void **state)
{
    struct bed *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    b->s = DD_SCRATCH_NONE;
    memcpy(b->tmp, "/tmp/test_scratchXXXXXX", 24);
    assert_non_null(mkdtemp(b->tmp));
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bed *b = *state;
    (void)chmod(b->tmp, 0700);
    assert_int_equal(dd_scratch_remove(&b->s), 0);
    dd_scratch_done(&b->s);
    assert_int_equal(rmdir(b->tmp), 0); /* nothing else is left in it */
    free(b);
    return 0;
}

static const char *at(struct bed *b, const char *dir, const char *name)
{
    (void)snprintf(b->path, sizeof(b->path), "%s/%s", dir, name);
    return b->path;
}

static void put_file(struct bed *b, const char *dir, const char *name)
{
    int fd = open(at(b, dir, name), O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
}

static bool there(struct bed *b, const char *dir, const char *name)
{
    return access(at(b, dir, name), F_OK) == 0;
}

static void a_directory_is_private_and_goes_with_all_that_is_in_it(void **state)
{
    struct bed *b = *state;
    struct stat st;
    assert_int_equal(dd_scratch_new(&b->s, b->tmp, NULL), 0);
    assert_int_equal(stat(b->s.path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    put_file(b, b->tmp, "outside");
    assert_int_equal(dd_scratch_mkdir(&b->s, "a", NULL), 0);
    assert_int_equal(dd_scratch_mkdir(&b->s, "a", NULL), -EEXIST);
    put_file(b, b->s.path, "a/file");
    assert_int_equal(symlink(b->tmp, at(b, b->s.path, "a/up")), 0);
    assert_int_equal(mkfifo(at(b, b->s.path, "fifo"), 0600), 0);
    assert_int_equal(dd_scratch_clear(&b->s, "a"), 0);
    assert_false(there(b, b->s.path, "a"));
    assert_true(there(b, b->s.path, "fifo"));
    assert_int_equal(dd_scratch_clear(&b->s, "a"), 0);
    assert_int_equal(symlink(b->tmp, at(b, b->s.path, "up")), 0);
    assert_int_equal(dd_scratch_remove(&b->s), 0);
    assert_int_equal(access(b->s.path, F_OK), -1);
    assert_true(there(b, b->tmp, "outside"));
    assert_int_equal(unlink(at(b, b->tmp, "outside")), 0);
}

static void what_has_taken_a_freed_name_is_left_alone(void **state)
{
    struct bed *b = *state;
    assert_int_equal(dd_scratch_new(&b->s, b->tmp, NULL), 0);
    assert_int_equal(dd_scratch_remove(&b->s), 0);
    assert_int_equal(mkdir(b->s.path, 0700), 0);
    put_file(b, b->s.path, "theirs");
    assert_int_equal(dd_scratch_remove(&b->s), 0);
    assert_true(there(b, b->s.path, "theirs"));
    assert_int_equal(unlink(at(b, b->s.path, "theirs")), 0);
    assert_int_equal(rmdir(b->s.path), 0);
}

/* The directory was renamed by another process: its files are removed through its descriptor, and
 * the directory that now has its name stays. */
static void a_directory_under_another_name_is_emptied_and_its_name_not_followed(void **state)
{
    struct bed *b = *state;
    char moved[128];
    (void)snprintf(moved, sizeof(moved), "%s/moved", b->tmp);
    assert_int_equal(dd_scratch_new(&b->s, b->tmp, NULL), 0);
    put_file(b, b->s.path, "ours");
    assert_int_equal(rename(b->s.path, moved), 0);
    assert_int_equal(mkdir(b->s.path, 0700), 0);
    put_file(b, b->s.path, "theirs");
    assert_int_equal(dd_scratch_remove(&b->s), 0);
    assert_false(there(b, moved, "ours"));
    assert_true(there(b, b->s.path, "theirs"));
    assert_int_equal(unlink(at(b, b->s.path, "theirs")), 0);
    assert_int_equal(rmdir(b->s.path), 0);
    assert_int_equal(rmdir(moved), 0);
}

static void a_parent_in_which_others_can_rename_is_refused(void **state)
{
    struct bed *b = *state;
    static const struct {
        mode_t mode;
        int rc;
    } rows[] = {{0700, 0},      {0755, 0},      {01777, 0},    {01770, 0},
                {0777, -EPERM}, {0770, -EPERM}, {0707, -EPERM}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct dd_err err = {0};
        struct dd_scratch s = DD_SCRATCH_NONE;
        assert_int_equal(chmod(b->tmp, rows[i].mode), 0);
        assert_int_equal(dd_scratch_new(&s, b->tmp, &err), rows[i].rc);
        if (rows[i].rc < 0)
            assert_non_null(strstr(err.text, "sticky bit"));
        assert_int_equal(dd_scratch_remove(&s), 0);
        dd_scratch_done(&s);
    }
    if (geteuid() == 0) {
        assert_int_equal(chmod(b->tmp, 01777), 0);
        assert_int_equal(chown(b->tmp, OTHER_UID, OTHER_UID), 0);
        assert_int_equal(dd_scratch_new(&b->s, b->tmp, NULL), -EPERM);
        assert_int_equal(chown(b->tmp, 0, 0), 0);
    }
}

static void another_users_directory_is_not_entered(void **state)
{
    struct bed *b = *state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(dd_scratch_new(&b->s, b->tmp, NULL), 0);
    assert_int_equal(dd_scratch_mkdir(&b->s, "theirs", NULL), 0);
    put_file(b, b->s.path, "theirs/file");
    assert_int_equal(chown(at(b, b->s.path, "theirs"), OTHER_UID, OTHER_UID), 0);
    assert_int_equal(dd_scratch_remove(&b->s), -ENOTEMPTY);
    assert_true(there(b, b->s.path, "theirs/file"));
    assert_int_equal(chown(at(b, b->s.path, "theirs"), 0, 0), 0);
}

static void only_a_private_directory_of_this_user_can_be_opened(void **state)
{
    struct bed *b = *state;
    struct dd_scratch again = DD_SCRATCH_NONE;
    char link[128];
    (void)snprintf(link, sizeof(link), "%s/link", b->tmp);
    assert_int_equal(dd_scratch_new(&b->s, b->tmp, NULL), 0);
    assert_int_equal(dd_scratch_open(&again, b->s.path, NULL), 0);
    assert_string_equal(again.path, b->s.path);
    dd_scratch_done(&again);
    assert_int_equal(symlink(b->s.path, link), 0);
    assert_true(dd_scratch_open(&again, link, NULL) < 0);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(chmod(b->s.path, 0755), 0);
    assert_int_equal(dd_scratch_open(&again, b->s.path, NULL), -EPERM);
    assert_null(again.path);
}

/* Create a directory that is owned by a process that has exited. */
static void leave_one(struct bed *b, char path[128])
{
    int status;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        struct dd_scratch s = DD_SCRATCH_NONE;
        if (dd_scratch_new(&s, b->tmp, NULL) < 0 || dd_scratch_mkdir(&s, "in", NULL) < 0)
            _exit(1);
        dd_scratch_own(&s);
        _exit(write(fds[1], s.path, strlen(s.path)) < 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ssize_t n = read(fds[0], path, 127);
    assert_true(n > 0);
    path[n] = '\0';
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static void discard(struct bed *b, const char *path)
{
    (void)rmdir(at(b, path, "in"));
    (void)unlink(at(b, path, ".ddrun-owner"));
    assert_int_equal(rmdir(path), 0);
}

static void what_dead_jobs_have_left_is_swept(void **state)
{
    struct bed *b = *state;
    char dead[128];
    char open_to_all[128];
    struct dd_scratch live = DD_SCRATCH_NONE;
    leave_one(b, dead);
    leave_one(b, open_to_all);
    assert_int_equal(chmod(open_to_all, 0755),
                     0); /* another user's directory may have such a name */
    assert_int_equal(dd_scratch_new(&live, b->tmp, NULL), 0);
    dd_scratch_own(&live);
    assert_int_equal(dd_scratch_new(&b->s, b->tmp, NULL), 0); /* without an owner yet */
    dd_scratch_sweep(&b->s);
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(access(open_to_all, F_OK), 0);
    assert_int_equal(access(live.path, F_OK), 0);
    assert_int_equal(access(b->s.path, F_OK), 0);
    assert_int_equal(dd_scratch_remove(&live), 0);
    dd_scratch_done(&live);
    discard(b, open_to_all);
}

static void a_process_that_nobody_has_waited_for_has_ended_too(void **state)
{
    struct bed *b = *state;
    siginfo_t si;
    assert_int_equal(dd_scratch_new(&b->s, b->tmp, NULL), 0);
    pid_t child = fork();
    if (child == 0) {
        dd_scratch_own(&b->s);
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)child, &si, WEXITED | WNOWAIT), 0);
    dd_scratch_sweep(&b->s);
    assert_int_equal(access(b->s.path, F_OK), -1);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void nothing_of_another_user_is_swept(void **state)
{
    struct bed *b = *state;
    char theirs[128];
    char noted[128]; /* this user's directory with an owner file of another user */
    if (geteuid() != 0)
        skip();
    leave_one(b, theirs);
    leave_one(b, noted);
    assert_int_equal(chown(theirs, OTHER_UID, OTHER_UID), 0);
    assert_int_equal(chown(at(b, noted, ".ddrun-owner"), OTHER_UID, OTHER_UID), 0);
    assert_int_equal(dd_scratch_new(&b->s, b->tmp, NULL), 0);
    dd_scratch_sweep(&b->s);
    assert_true(there(b, theirs, "in"));
    assert_true(there(b, noted, "in"));
    discard(b, theirs);
    discard(b, noted);
}

static int forks;

static void on_fork(void)
{
    forks++;
}

/* Only a file system that may hang is tried by a process, which takes a tenth of a start. */
static void a_local_file_system_is_not_tried(void **state)
{
    static const struct {
        const char *path;
        int forks;
    } rows[] = {{"/", 0}, {"/dev/shm", 0}, {"/proc", 1}};
    (void)state;
    assert_int_equal(pthread_atfork(on_fork, NULL, NULL), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *parent = NULL;
        forks = 0;
        (void)dd_scratch_parent(&parent, rows[i].path, NULL);
        assert_int_equal(forks, rows[i].forks);
        free(parent);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    static const struct CMUnitTest tests[] = {
        TEST(a_directory_is_private_and_goes_with_all_that_is_in_it),
        TEST(what_has_taken_a_freed_name_is_left_alone),
        TEST(a_directory_under_another_name_is_emptied_and_its_name_not_followed),
        TEST(a_parent_in_which_others_can_rename_is_refused),
        TEST(another_users_directory_is_not_entered),
        TEST(only_a_private_directory_of_this_user_can_be_opened),
        TEST(what_dead_jobs_have_left_is_swept),
        TEST(a_process_that_nobody_has_waited_for_has_ended_too),
        TEST(nothing_of_another_user_is_swept),
        TEST(a_local_file_system_is_not_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
