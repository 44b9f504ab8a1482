/* --collect: rules, frames, the list of files, and the files in DIR. */
#include "stage/collect_codec.h"

#include "base/auto.h"
#include "base/scratch.h"
#include "stage/collect_list.h"
#include "stage/collect_rules.h"
#include "stage/collect_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* ---- rules ---- */

static void rule_is_split_at_the_last_colon(void **state)
{
    (void)state;
    static const struct {
        const char *rule, *pattern, *dir;
    } rows[] = {
        {"/tmp/*.pt:out", "/tmp/*.pt", "out"},
        {"a:b:c", "a:b", "c"},
        {"/tmp/ckpt/:/shared/x", "/tmp/ckpt", "/shared/x"},
        {"/tmp/out", NULL, NULL},
        {":out", NULL, NULL},
        {"/tmp/out:", NULL, NULL},
        {"/:out", NULL, NULL},
        {"//:out", NULL, NULL},
        {"/tmp/../etc/*:out", NULL, NULL},
        {"..:out", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(free) char *pattern = NULL;
        DD_AUTO(free) char *dir = NULL;
        const int rc = collect_rule_split(rows[i].rule, &pattern, &dir, NULL);
        if (rows[i].pattern == NULL && rc != -EINVAL)
            fail_msg("'%s' is accepted", rows[i].rule);
        if (rows[i].pattern == NULL)
            continue;
        assert_int_equal(rc, 0);
        assert_string_equal(pattern, rows[i].pattern);
        assert_string_equal(dir, rows[i].dir);
    }
}

static void pattern_takes_variables_of_the_node(void **state)
{
    (void)state;
    char tmp[] = "TMPDIR=/local/7";
    char up[] = "UP=../../etc";
    char *env[] = {tmp, up, NULL};
    static const struct {
        const char *pattern, *full;
        size_t prefix;
    } rows[] = {
        {"$TMPDIR/run-*/a?.pt", "/local/7/run-*/a?.pt", 9},
        {"${TMPDIR}/out/model.pt", "/local/7/out/model.pt", 13},
        {"logs/x[12]", "/here/logs/x[12]", 11},
        {"/a$/b$1", "/a$/b$1", 4},
        {"*", "/here/*", 6},
        {"/x", "/x", 1},
        {"$NONE/x", NULL, 0},
        {"/tmp/$UP/x", NULL, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(free) char *full = NULL;
        struct dd_err err = {0};
        const int rc = collect_rule_expand(&full, rows[i].pattern, "/here", env, &err);
        if (rows[i].full == NULL) {
            assert_int_equal(rc, -EINVAL);
            continue;
        }
        assert_int_equal(rc, 0);
        assert_string_equal(full, rows[i].full);
        assert_int_equal(collect_rule_prefix(full), rows[i].prefix);
    }
}

/* ---- frames ---- */

static const struct collect_frame offer = {.type = COLLECT_OFFER,
                                           .number = 1,
                                           .mode = 0640,
                                           .mtime = 1700000000,
                                           .nsec = 5,
                                           .size = 5,
                                           .text = "a/b.pt"};

static int recode(struct collect_frame *ret, const struct collect_frame *f)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    assert_int_equal(collect_frame_encode(&out, f), 0);
    return collect_frame_decode(ret, out.data, out.len);
}

static void frame_survives_the_way(void **state)
{
    (void)state;
    struct collect_frame f;
    assert_int_equal(recode(&f, &offer), 0);
    assert_string_equal(f.text, "a/b.pt");
    assert_int_equal(f.mode, 0640);
    assert_int_equal(f.mtime, 1700000000);
    assert_int_equal(f.size, 5);
    assert_int_equal(recode(&f, &(struct collect_frame){.type = COLLECT_TAKEN, .size = 9}), 0);
    assert_int_equal(f.size, 9);
}

static void frame_with_a_name_outside_of_dir_is_refused(void **state)
{
    (void)state;
    static const char *const paths[] = {"", "/etc/x", "../x", "a/../x", "a//x", ".", "a/."};
    static const char *const folders[] = {"", "..", "a/b", "/", "a\nb", "\x1b[2J"};
    struct collect_frame f;
    struct collect_frame bad = offer;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        (void)snprintf(bad.text, sizeof(bad.text), "%s", paths[i]);
        assert_int_equal(recode(&f, &bad), -EPROTO);
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        struct collect_frame hello = {.type = COLLECT_HELLO};
        (void)snprintf(hello.text, sizeof(hello.text), "%s", folders[i]);
        assert_int_equal(recode(&f, &hello), -EPROTO);
    }
    bad = offer;
    bad.mode = 04755;
    assert_int_equal(recode(&f, &bad), -EPROTO);
    bad = offer;
    bad.verdict = COLLECT_CACHE + 1;
    assert_int_equal(recode(&f, &bad), -EPROTO);
}

/* ---- files ---- */

struct place {
    struct dd_scratch top;
    char dir[4096];
};

static int place_setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    if (p == NULL || dd_scratch_new(&p->top, "/tmp", NULL) < 0)
        return -1;
    (void)snprintf(p->dir, sizeof(p->dir), "%s/new/results", p->top.path);
    *state = p;
    return 0;
}

static int place_teardown(void **state)
{
    struct place *p = *state;
    const int rc = dd_scratch_remove(&p->top);
    dd_scratch_done(&p->top);
    free(p);
    return rc;
}

static void read_back(const struct place *p, const char *name, char out[64])
{
    char path[5000];
    (void)snprintf(path, sizeof(path), "%s/%s", p->dir, name);
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, out, 63) : -1;
    out[n > 0 ? n : 0] = '\0';
}

static int entries(const struct place *p, const char *below)
{
    char path[5000];
    int n = -2;
    (void)snprintf(path, sizeof(path), "%s/%s", p->dir, below);
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

static int put(const struct collect_target *t, const struct collect_frame *f, const char *data)
{
    struct collect_file file = COLLECT_FILE_NONE;
    if (collect_file_begin(&file, t, f, NULL) != COLLECT_WANT)
        return -EEXIST;
    int rc = collect_file_write(&file, data, strlen(data), NULL);
    rc = rc == 0 ? collect_file_commit(&file, NULL) : rc;
    collect_file_drop(&file);
    return rc;
}

static void file_is_complete_or_not_there(void **state)
{
    struct place *p = *state;
    char text[64];
    for (int named = 0; named < 2; named++) {
        const struct collect_target t = {
            .dir = p->dir, .folder = named ? "n1" : "n0", .named = named};
        char name[20];
        struct collect_file file = COLLECT_FILE_NONE;
        (void)snprintf(name, sizeof(name), "%s/a", t.folder);
        assert_int_equal(collect_file_begin(&file, &t, &offer, NULL), COLLECT_WANT);
        assert_int_equal(collect_file_write(&file, "hel", 3, NULL), 0);
        assert_true(collect_file_commit(&file, NULL) < 0);
        collect_file_drop(&file);
        assert_int_equal(entries(p, name), 0);
        assert_int_equal(put(&t, &offer, "hello!"), -EPROTO);
        assert_int_equal(entries(p, name), 0);
        assert_int_equal(put(&t, &offer, "hello"), 0);
        assert_int_equal(entries(p, name), 1);
        (void)snprintf(name, sizeof(name), "%s/a/b.pt", t.folder);
        read_back(p, name, text);
        assert_string_equal(text, "hello");
    }
}

static void newer_file_is_never_replaced(void **state)
{
    struct place *p = *state;
    char text[64];
    for (int named = 0; named < 2; named++) {
        const struct collect_target t = {
            .dir = p->dir, .folder = named ? "n1" : "n0", .named = named};
        struct collect_frame f = offer;
        struct collect_file file = COLLECT_FILE_NONE;
        assert_int_equal(put(&t, &f, "first"), 0);
        assert_int_equal(collect_file_begin(&file, &t, &f, NULL), COLLECT_HAVE);
        f.mtime--;
        assert_int_equal(collect_file_begin(&file, &t, &f, NULL), COLLECT_REFUSED);
        f.mtime += 2;
        assert_int_equal(put(&t, &f, "later"), 0);
        read_back(p, named ? "n1/a/b.pt" : "n0/a/b.pt", text);
        assert_string_equal(text, "later");
        assert_int_equal(entries(p, named ? "n1/a" : "n0/a"), 1);
    }
}

static void file_that_became_newer_meanwhile_stays(void **state)
{
    struct place *p = *state;
    const struct collect_target t = {.dir = p->dir, .folder = "n0"};
    struct collect_file file = COLLECT_FILE_NONE;
    struct collect_frame later = offer;
    char text[64];
    later.nsec++;
    assert_int_equal(collect_file_begin(&file, &t, &offer, NULL), COLLECT_WANT);
    assert_int_equal(collect_file_write(&file, "first", 5, NULL), 0);
    assert_int_equal(put(&t, &later, "later"), 0);
    assert_true(collect_file_commit(&file, NULL) < 0);
    collect_file_drop(&file);
    read_back(p, "n0/a/b.pt", text);
    assert_string_equal(text, "later");
    assert_int_equal(entries(p, "n0/a"), 1);
}

static void symbolic_link_in_dir_is_not_followed(void **state)
{
    struct place *p = *state;
    const struct collect_target t = {.dir = p->dir, .folder = "n0"};
    char path[5000];
    struct stat st;
    struct collect_file file = COLLECT_FILE_NONE;
    assert_int_equal(put(&t, &offer, "first"), 0);
    (void)snprintf(path, sizeof(path), "%s/n0/link", p->dir);
    assert_int_equal(symlink(p->top.path, path), 0);
    struct collect_frame f = offer;
    (void)snprintf(f.text, sizeof(f.text), "link/x");
    assert_int_equal(collect_file_begin(&file, &t, &f, NULL), COLLECT_REFUSED);
    (void)snprintf(f.text, sizeof(f.text), "link");
    assert_int_equal(collect_file_begin(&file, &t, &f, NULL), COLLECT_REFUSED);
    (void)snprintf(path, sizeof(path), "%s/x", p->top.path);
    assert_int_equal(lstat(path, &st), -1);
    const struct collect_target through = {.dir = p->dir, .folder = "other"};
    (void)snprintf(path, sizeof(path), "%s/other", p->dir);
    assert_int_equal(symlink(p->top.path, path), 0);
    assert_int_equal(collect_file_begin(&file, &through, &offer, NULL), COLLECT_REFUSED);
}

static void file_larger_than_the_file_system_is_refused(void **state)
{
    struct place *p = *state;
    const struct collect_target t = {.dir = p->dir, .folder = "n0"};
    struct collect_file file = COLLECT_FILE_NONE;
    struct collect_frame f = offer;
    struct dd_err err = {0};
    f.size = UINT64_C(1) << 60;
    assert_int_equal(collect_file_begin(&file, &t, &f, &err), COLLECT_REFUSED);
    assert_non_null(strstr(err.text, "not enough space"));
}

/* ---- the list ---- */

static void count_unreadable(void *arg, const char *path, int error)
{
    (void)path;
    (void)error;
    ++*(int *)arg;
}

static void touch_below(const struct place *p, const char *name)
{
    DD_AUTO(fd) int fd = openat(p->top.fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
}

static void pattern_finds_files_and_whole_directories(void **state)
{
    struct place *p = *state;
    char pattern[5000];
    int unreadable = 0;
    struct collect_list l = {.unreadable = count_unreadable, .arg = &unreadable};
    assert_int_equal(mkdirat(p->top.fd, "run-1", 0700), 0);
    assert_int_equal(mkdirat(p->top.fd, "run-1/deep", 0700), 0);
    touch_below(p, "run-1/a.pt");
    touch_below(p, "run-1/deep/b.pt");
    touch_below(p, "c.pt");
    assert_int_equal(symlinkat("a.pt", p->top.fd, "run-1/latest"), 0);
    assert_int_equal(mkfifoat(p->top.fd, "run-1/fifo", 0600), 0);
    (void)snprintf(pattern, sizeof(pattern), "%s/run-*", p->top.path);
    assert_int_equal(collect_list_add(&l, 3, pattern, NULL), 0);
    assert_int_equal(l.n, 2);
    assert_int_equal(l.skipped, 2);
    for (size_t i = 0; i < l.n; i++) {
        const char *name = l.items[i].path + l.items[i].prefix;
        assert_true(strcmp(name, "run-1/a.pt") == 0 || strcmp(name, "run-1/deep/b.pt") == 0);
        assert_int_equal(l.items[i].rule, 3);
    }
    (void)snprintf(pattern, sizeof(pattern), "%s/none-*", p->top.path);
    assert_int_equal(collect_list_add(&l, 0, pattern, NULL), 0);
    assert_int_equal(l.n, 2);
    assert_int_equal(unreadable, 0);
    collect_list_done(&l);
}

int main(void)
{
#define WITH_PLACE(f) cmocka_unit_test_setup_teardown(f, place_setup, place_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule_is_split_at_the_last_colon),
        cmocka_unit_test(pattern_takes_variables_of_the_node),
        cmocka_unit_test(frame_survives_the_way),
        cmocka_unit_test(frame_with_a_name_outside_of_dir_is_refused),
        WITH_PLACE(file_is_complete_or_not_there),
        WITH_PLACE(newer_file_is_never_replaced),
        WITH_PLACE(file_that_became_newer_meanwhile_stays),
        WITH_PLACE(symbolic_link_in_dir_is_not_followed),
        WITH_PLACE(file_larger_than_the_file_system_is_refused),
        WITH_PLACE(pattern_finds_files_and_whole_directories),
    };
    return cmocka_run_group_tests_name("stage_collect", tests, NULL, NULL);
}
