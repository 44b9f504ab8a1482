/* --compile-cache: units, what stays, the shared directory, what a node sends, kinds of processors.
 */
#include "stage/compile_cache.h"

#include "base/auto.h"
#include "base/scratch.h"
#include "node/cpu_kind.h"
#include "stage/collect_list.h"
#include "stage/compile_dir.h"
#include "stage/compile_send.h"
#include "stage/stage_env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define COUNT(v) (sizeof(v) / sizeof((v)[0]))

/* ---- units ---- */

static void unit_is_a_file_a_kernel_or_a_snapshot(void **state)
{
    (void)state;
    static const struct {
        const char *path, *unit;
    } rows[] = {
        {"inductor/ab/x.so", "inductor/ab/x.so"},
        {"jax/x-cache", "jax/x-cache"},
        {"triton/KEY/x.cubin", "triton/KEY"},
        {"triton/KEY/deep/x", "triton/KEY"},
        {"triton/file", "triton/file"},
        {"tritonx/KEY/x", "tritonx/KEY/x"},
        {"numba/now/dir/x.nbi", "numba/now"},
        {"cuda/now/index", "cuda/now"},
        {"miopen/0017-1/db/x", "miopen/0017-1"},
        {"", ""},
        {"x", "x"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_int_equal(compile_cache_unit(rows[i].path), strlen(rows[i].unit));
}

static void locks_and_unfinished_files_are_temporary(void **state)
{
    (void)state;
    static const char *const are[] = {
        "inductor/locks/x.lock",     "jax/.lockfile",         "inductor/ab/.12.34.tmp",
        "triton/K/tmp.pid_1_2/x.so", "numba/now/x.nbi.tmp.7", "inductor/.ddrun-0123",
    };
    static const char *const are_not[] = {"inductor/ab/x.so", "triton/K/__grp__x.json",
                                          "numba/now/.ddrun-complete", "jax/lock"};
    for (size_t i = 0; i < COUNT(are); i++)
        assert_true(compile_cache_is_temporary(are[i]));
    for (size_t i = 0; i < COUNT(are_not); i++)
        assert_false(compile_cache_is_temporary(are_not[i]));
}

static void unit_ends_with_the_file_that_lists_the_others(void **state)
{
    (void)state;
    static const char *const order[] = {
        "inductor/ab/x",           "numba/1/x",
        "numba/1/.ddrun-complete", "triton/A/zz.cubin",
        "triton/A/__grp__a.json",  "triton/AB/a.cubin",
        "triton/AB/__grp__a.json",
    };
    for (size_t i = 0; i < COUNT(order); i++)
        for (size_t k = 0; k < COUNT(order); k++) {
            const int rc = compile_cache_order(order[i], order[k]);
            assert_int_equal((rc > 0) - (rc < 0), (i > k) - (i < k));
        }
}

/* ---- what stays ---- */

static void assert_fates(const struct compile_cache_file *rows, const char *fates, uint64_t most,
                         int64_t now)
{
    struct compile_cache_file v[16];
    const size_t n = strlen(fates);
    memcpy(v, rows, n * sizeof(*v));
    assert_int_equal(compile_cache_trim(v, n, most, now), 0);
    for (size_t i = 0; i < n; i++)
        if (v[i].fate != (fates[i] == 'u'   ? COMPILE_CACHE_USE
                          : fates[i] == 'l' ? COMPILE_CACHE_LEAVE
                                            : COMPILE_CACHE_REMOVE))
            fail_msg("'%s' of '%s': fate %d", v[i].path, fates, v[i].fate);
}

static void units_used_last_stay_whole(void **state)
{
    (void)state;
    static const struct compile_cache_file rows[] = {
        {.path = "inductor/a", .size = 40, .used = 100},
        {.path = "inductor/b", .size = 40, .used = 300},
        {.path = "triton/K/__grp__", .size = 1, .used = 10},
        {.path = "triton/K/code", .size = 40, .used = 200}, /* the unit was used at 200 */
    };
    assert_fates(rows, "uuuu", 121, 1000);
    assert_fates(rows, "ruuu", 120, 1000);
    assert_fates(rows, "rurr", 80, 1000);
    assert_fates(rows, "rrrr", 0, 1000);
    assert_fates(rows, "uuuu", UINT64_MAX, 1000);
    assert_int_equal(compile_cache_trim(NULL, 0, 0, 0), 0);
}

static void newest_complete_snapshot_stays(void **state)
{
    (void)state;
    static const struct compile_cache_file rows[] = {
        {.path = "cuda/9/.ddrun-complete", .used = 5},  {.path = "cuda/9/index", .used = 5},
        {.path = "numba/1/.ddrun-complete", .used = 9}, {.path = "numba/1/x", .used = 9},
        {.path = "numba/2/.ddrun-complete", .used = 7}, {.path = "numba/2/x", .used = 7},
        {.path = "numba/3/x", .used = 100000},          {.path = "numba/4/x", .used = 3},
    };
    assert_fates(rows, "uurruulr", 1000, 100100);
}

static void size_that_overflows_is_too_large(void **state)
{
    (void)state;
    static const struct compile_cache_file rows[] = {
        {.path = "jax/a", .size = UINT64_MAX, .used = 9},
        {.path = "jax/b", .size = 10, .used = 8},
    };
    assert_fates(rows, "ru", 100, 10);
}

/* ---- directories ---- */

struct place {
    struct dd_scratch s;
    char shared[300], local[300];
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    if (p == NULL || dd_scratch_new(&p->s, "/tmp", NULL) < 0)
        return -1;
    (void)snprintf(p->shared, sizeof(p->shared), "%s/shared", p->s.path);
    (void)snprintf(p->local, sizeof(p->local), "%s/local", p->s.path);
    *state = p;
    return mkdir(p->local, 0700);
}

static int teardown(void **state)
{
    struct place *p = *state;
    (void)dd_scratch_remove(&p->s);
    dd_scratch_done(&p->s);
    free(p);
    return 0;
}

static void write_file(const char *dir, const char *path, size_t size, time_t mtime)
{
    char name[600];
    (void)snprintf(name, sizeof(name), "%s/%s", dir, path);
    for (char *c = name + strlen(dir) + 1; (c = strchr(c, '/')) != NULL; *c++ = '/') {
        *c = '\0';
        (void)mkdir(name, 0700);
    }
    DD_AUTO(fd) int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = mtime}};
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    if (mtime != 0)
        assert_int_equal(futimens(fd, times), 0);
}

static bool exists(const char *dir, const char *path)
{
    char name[600];
    struct stat st;
    (void)snprintf(name, sizeof(name), "%s/%s", dir, path);
    return lstat(name, &st) == 0;
}

static void shared_directory_is_made_private(void **state)
{
    const struct place *p = *state;
    char deep[400];
    struct stat st;
    (void)snprintf(deep, sizeof(deep), "%s/a/b", p->shared);
    const struct compile_dir c = {.dir = deep, .kind = "cpu"};
    DD_AUTO(fd) int fd = compile_dir_open(&c, NULL);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_true(exists(deep, "cpu"));
}

static void shared_directory_of_others_is_refused(void **state)
{
    const struct place *p = *state;
    const struct compile_dir c = {.dir = p->shared, .kind = "cpu"};
    struct dd_err err = {0};
    assert_int_equal(mkdir(p->shared, 0700), 0);
    assert_int_equal(chmod(p->shared, 0770), 0);
    assert_int_equal(compile_dir_open(&c, &err), -EPERM);
    assert_non_null(strstr(err.text, "other users can write"));
    assert_int_equal(chmod(p->shared, 0700), 0);
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(p->shared, 2002, 2002), 0);
    assert_int_equal(compile_dir_open(&c, &err), -EPERM);
    assert_int_equal(chown(p->shared, 0, 0), 0); /* else it would not be removed */
}

static void list_has_what_stays_in_the_order_of_sending(void **state)
{
    const struct place *p = *state;
    const struct compile_dir c = {.dir = p->shared, .kind = "cpu", .most = 100};
    static const char *const expected[] = {"0",
                                           "0/inductor",
                                           "0/triton",
                                           "0/triton/K",
                                           "0/inductor/new",
                                           "0/triton/K/code",
                                           "0/triton/K/__grp__"};
    char source[COMPILE_DIR_SOURCE], warning[COMPILE_DIR_WARNING];
    struct stage_list list = {0};
    assert_int_equal(mkdir(p->shared, 0700), 0);
    write_file(p->shared, "cpu/inductor/new", 40, 3000);
    write_file(p->shared, "cpu/jax/old", 40, 1000);
    write_file(p->shared, "cpu/inductor/x.lock", 0, 3000);
    write_file(p->shared, "cpu/triton/K/__grp__", 10, 2000);
    write_file(p->shared, "cpu/triton/K/code", 40, 2000);
    write_file(p->shared, "other/jax/x", 40, 1);
    assert_int_equal(compile_dir_list(&list, &c, source, warning), 0);
    assert_string_equal(warning, "");
    assert_int_equal(list.n, COUNT(expected));
    for (size_t i = 0; i < list.n; i++)
        assert_string_equal(list.items[i].path, expected[i]);
    for (size_t i = 0; i < list.n; i++) /* another job may trim the directory */
        assert_true(list.items[i].may_vanish);
    assert_false(exists(p->shared, "cpu/jax"));
    assert_true(exists(p->shared, "other/jax/x"));
    stage_list_done(&list);
}

static void list_leaves_out_links_and_what_others_can_write(void **state)
{
    const struct place *p = *state;
    const struct compile_dir c = {.dir = p->shared, .kind = "cpu", .most = 100};
    char source[COMPILE_DIR_SOURCE], warning[COMPILE_DIR_WARNING], name[600];
    struct stage_list list = {0};
    assert_int_equal(mkdir(p->shared, 0700), 0);
    write_file(p->shared, "cpu/jax/open", 1, 0);
    (void)snprintf(name, sizeof(name), "%s/cpu/jax/open", p->shared);
    assert_int_equal(chmod(name, 0602), 0);
    (void)snprintf(name, sizeof(name), "%s/cpu/jax/link", p->shared);
    assert_int_equal(symlink("/etc/passwd", name), 0);
    assert_int_equal(compile_dir_list(&list, &c, source, warning), 0);
    assert_non_null(strstr(warning, "left out 2 entries"));
    assert_int_equal(list.n, 1);
    stage_list_done(&list);
}

/* ---- the directory of a node ---- */

static void snapshot_gets_its_name_on_the_node(void **state)
{
    const struct place *p = *state;
    DD_AUTO(fd) int at = open(p->local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    write_file(p->local, "0/numba/0017-a/x", 1, 0);
    write_file(p->local, "0/numba/0017-a/.ddrun-complete", 0, 0);
    write_file(p->local, "0/cuda/0017-a/x", 1, 0);
    assert_int_equal(compile_dir_arrange(at, NULL), 0);
    assert_true(exists(p->local, "0/numba/now/x"));
    assert_false(exists(p->local, "0/cuda/now/x")); /* not complete */
    for (const struct compile_cache_var *v = compile_cache_vars; v->name != NULL; v++) {
        if (v->dir == NULL)
            continue;
        char path[100];
        (void)snprintf(path, sizeof(path), "0/%s", v->dir);
        assert_true(exists(p->local, path));
    }
}

static void complete_copy_replaces_what_tools_have_written_before(void **state)
{
    const struct place *p = *state;
    DD_AUTO(fd) int at = open(p->local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    write_file(p->local, "made/0/numba/0017-a/x", 1, 0);
    write_file(p->local, "0/numba/now/y", 1, 0);
    assert_int_equal(compile_dir_take(at, "made"), 0);
    assert_true(exists(p->local, "0/numba/0017-a/x"));
    assert_false(exists(p->local, "0/numba/now"));
    write_file(p->local, "empty/0/x", 1, 0);
    assert_int_equal(unlinkat(at, "empty/0/x", 0), 0);
    assert_int_equal(compile_dir_take(at, "empty"), 0); /* a copy without entries */
    assert_true(exists(p->local, "0/numba/0017-a/x"));
    assert_int_equal(compile_dir_take(at, "none"), -ENOENT);
}

static bool can_exchange(int at)
{
    return mkdirat(at, "a", 0700) == 0 && mkdirat(at, "b", 0700) == 0 &&
           renameat2(at, "a", at, "b", RENAME_EXCHANGE) == 0;
}

/* Make the directory as a tool does, again and again, until the file "over" exists or the test
 * process has ended. */
static void keep_writing(int at, pid_t test)
{
    while (faccessat(at, "over", F_OK, 0) < 0 && getppid() == test) {
        (void)mkdirat(at, "0", 0700);
        (void)mkdirat(at, "0/early", 0700);
    }
    _exit(0);
}

static void complete_copy_arrives_although_a_tool_writes_at_that_moment(void **state)
{
    const struct place *p = *state;
    DD_AUTO(fd) int at = open(p->local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const pid_t test = getpid();
    if (!can_exchange(at))
        skip(); /* elsewhere only a few attempts are made */
    const pid_t tool = fork();
    if (tool == 0)
        keep_writing(at, test);
    for (int i = 0; i < 500; i++) {
        write_file(p->local, "made/0/x", 1, 0);
        assert_int_equal(compile_dir_take(at, "made"), 0);
        assert_true(exists(p->local, "0/x"));
        assert_int_equal(unlinkat(at, "0/x", 0), 0);
        (void)unlinkat(at, "made/0/early", AT_REMOVEDIR);
        (void)unlinkat(at, "0/early", AT_REMOVEDIR); /* the tool may write there again */
        (void)unlinkat(at, "0", AT_REMOVEDIR);
    }
    write_file(p->local, "over", 1, 0);
    assert_int_equal(waitpid(tool, NULL, 0), tool);
}

/* The names that would be sent, each with a blank after it. */
static void assert_sends_after(const struct place *p, int how, int64_t failed_at,
                               const char *expected)
{
    struct collect_list l = {0};
    char names[2000] = "";
    size_t at = 0;
    assert_int_equal(compile_send_list(&l, p->local, "cpu", how, failed_at), 0);
    for (size_t i = 0; i < l.n; i++) {
        char *name = l.items[i].name;
        char *dash = strchr(name, '-'); /* in the name of a snapshot */
        if (strncmp(name, "cpu/numba/", 10) == 0 && dash != NULL)
            memmove(name + 10, strchr(dash, '/'), strlen(strchr(dash, '/')) + 1);
        at += (size_t)snprintf(names + at, sizeof(names) - at, "%s ", name);
    }
    assert_string_equal(names, expected);
    collect_list_done(&l);
}

static void assert_sends(const struct place *p, int how, const char *expected)
{
    assert_sends_after(p, how, 0, expected);
}

static void new_files_are_sent_and_old_ones_not(void **state)
{
    const struct place *p = *state;
    DD_AUTO(fd) int at = open(p->local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct timespec tick = {.tv_nsec = 20000000}; /* of the clock that stamps files */
    assert_sends(p, COMPILE_SEND_FIRST, "");            /* no complete copy */
    write_file(p->local, "0/inductor/old", 1, time(NULL) - 100);
    nanosleep(&tick, NULL);
    assert_int_equal(compile_dir_arrange(at, NULL), 0);
    assert_sends(p, COMPILE_SEND_FIRST, "");
    write_file(p->local, "0/triton/K/__grp__", 1, 0);
    write_file(p->local, "0/triton/K/code", 1, 0);
    write_file(p->local, "0/inductor/x", 1, 0);
    write_file(p->local, "0/inductor/x.lock", 1, 0);
    write_file(p->local, "0/numba/now/x", 1, 0);
    assert_sends(p, 0, "cpu/inductor/x cpu/triton/K/code cpu/triton/K/__grp__ ");
    assert_sends(p, COMPILE_SEND_FIRST,
                 "cpu/inductor/x cpu/numba//x cpu/numba//.ddrun-complete cpu/triton/K/code "
                 "cpu/triton/K/__grp__ ");
}

static void late_files_are_left_out_and_removed(void **state)
{
    const struct place *p = *state;
    DD_AUTO(fd) int at = open(p->local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const time_t now = time(NULL);
    assert_int_equal(compile_dir_arrange(at, NULL), 0);
    write_file(p->local, "0/inductor/done", 1, now - 60);
    write_file(p->local, "0/inductor/half", 1, now + 3600);
    write_file(p->local, "0/numba/now/x", 1, now + 3600);
    assert_sends(p, COMPILE_SEND_FIRST | COMPILE_SEND_LATE, "cpu/inductor/done ");
    assert_sends_after(p, COMPILE_SEND_FIRST | COMPILE_SEND_LATE, now - 58, "");
    assert_true(exists(p->local, "0/inductor/half"));
    assert_sends(p, COMPILE_SEND_LATE | COMPILE_SEND_REMOVE, "cpu/inductor/done ");
    assert_false(exists(p->local, "0/inductor/half"));
    assert_true(exists(p->local, "0/numba/now/x"));
}

/* ---- variables, processors ---- */

static void variables_in_the_directory_are_removed(void **state)
{
    (void)state;
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(dd_strv_split(&env, "A=/tmp/d/x B=/tmp/dx C=/tmp/d D E=/tmp/d/0/y", " "), 0);
    stage_env_without(&env, "/tmp/d");
    assert_int_equal(env.n, 3);
    assert_string_equal(env.v[0], "B=/tmp/dx");
    assert_string_equal(env.v[2], "D");
    assert_null(env.v[3]);
}

static void kind_depends_on_features_and_not_on_frequency(void **state)
{
    (void)state;
    char a[NODE_CPU_KIND], b[NODE_CPU_KIND], c[NODE_CPU_KIND], none[NODE_CPU_KIND];
    node_cpu_kind_of(a, "x86_64",
                     "processor\t: 0\nmodel name\t: X\ncpu MHz\t\t: 1\nflags\t: a b\n\nflags\t: z");
    node_cpu_kind_of(b, "x86_64",
                     "processor\t: 1\nmodel name\t: X\ncpu MHz\t\t: 2\nflags\t: a b\n");
    node_cpu_kind_of(c, "x86_64",
                     "processor\t: 0\nmodel name\t: X\ncpu MHz\t\t: 1\nflags\t: a b c");
    node_cpu_kind_of(none, "a-machine-with-a-long-name", "");
    assert_string_equal(a, b);
    assert_string_not_equal(a, c);
    assert_int_equal(strncmp(a, "x86_64-", 7), 0);
    assert_int_equal(strlen(none), 33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unit_is_a_file_a_kernel_or_a_snapshot),
        cmocka_unit_test(locks_and_unfinished_files_are_temporary),
        cmocka_unit_test(unit_ends_with_the_file_that_lists_the_others),
        cmocka_unit_test(units_used_last_stay_whole),
        cmocka_unit_test(newest_complete_snapshot_stays),
        cmocka_unit_test(size_that_overflows_is_too_large),
        cmocka_unit_test_setup_teardown(shared_directory_is_made_private, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_directory_of_others_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(list_has_what_stays_in_the_order_of_sending, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(list_leaves_out_links_and_what_others_can_write, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(snapshot_gets_its_name_on_the_node, setup, teardown),
        cmocka_unit_test_setup_teardown(complete_copy_replaces_what_tools_have_written_before,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(complete_copy_arrives_although_a_tool_writes_at_that_moment,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(new_files_are_sent_and_old_ones_not, setup, teardown),
        cmocka_unit_test_setup_teardown(late_files_are_left_out_and_removed, setup, teardown),
        cmocka_unit_test(variables_in_the_directory_are_removed),
        cmocka_unit_test(kind_depends_on_features_and_not_on_frequency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
