/* --stage: the codec, the environment, reading and writing of directories. */
#include "stage/stage_codec.h"

#include "base/io.h"
#include "base/scratch.h"
#include "stage/stage_client.h"
#include "stage/stage_env.h"
#include "stage/stage_keep.h"
#include "stage/stage_msg.h"
#include "stage/stage_pack.h"
#include "stage/stage_source.h"
#include "stage/stage_unpack.h"
#include "stage/stage_venv.h"
#include "stage/stage_walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* ---- the interpreter of a virtual environment ---- */

#define UV_HOME "home = /home/u/.local/share/uv/python/cpython-3.12.7-linux-x86_64-gnu/bin\n"

static void interpreter_is_found_where_uv_has_installed_it(void **state)
{
    (void)state;
    static const struct {
        const char *text, *dir; /* NULL: none */
    } rows[] = {
        {UV_HOME "implementation = CPython\nuv = 0.13.9\nversion_info = 3.12.7\n",
         "/home/u/.local/share/uv/python/cpython-3.12.7-linux-x86_64-gnu"},
        {"uv=0.5\r\n home\t=  /p/pypy-3.10/bin \r\n", "/p/pypy-3.10"},
        {UV_HOME, NULL}, /* made by python -m venv */
        {"uv = 0.13.9\nhome = /usr/bin\n", NULL},
        {"uv = 0.13.9\nhome = /opt/miniconda3/bin\n", NULL},
        {"uv = 0.13.9\nhome = cpython-3.12/bin\n", NULL},
        {"uv = 0.13.9\nhome = /cpython-3.12/lib\n", NULL},
        {"uv = 0.13.9\nhome = /bin\n", NULL},
        {"uv = 0.13.9\nhome =\n", NULL},
        {"uv = 0.13.9\nhome", NULL},
        {"uv = 0.13.9\nhomes = /p/cpython-3.12/bin\n", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *dir = NULL;
        const int rc = stage_venv_interpreter(&dir, rows[i].text);
        if (rc != (rows[i].dir != NULL) || (dir != NULL && strcmp(dir, rows[i].dir) != 0))
            fail_msg("row %zu: %d, '%s'", i, rc, dir != NULL ? dir : "");
        free(dir);
    }
}

/* ---- progress ---- */

static void assert_received(int fd, const char *text)
{
    int fds[STAGE_CLIENT_FDS];
    DD_AUTO(stage_msg) struct stage_msg m = {0};
    assert_int_equal(stage_client_receive(fd, &m, fds), 0);
    assert_int_equal(m.type, STAGE_MSG_PROGRESS);
    assert_string_equal(m.texts.v[0], text);
}

/* A socket takes some hundred packets. */
static void progress_does_not_block_when_nobody_reads_it(void **state)
{
    (void)state;
    int pair[2];
    char text[32];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    (void)alarm(120); /* ends a test that blocks */
    for (int i = 0; i < 5000; i++) {
        (void)snprintf(text, sizeof(text), "%d 5000", i);
        stage_client_progress(pair[0], text);
    }
    assert_received(pair[1], "0 5000");
    stage_client_progress(pair[0], "5000 5000");
    assert_received(pair[1], "5000 5000");
    (void)alarm(0);
    close(pair[0]);
    close(pair[1]);
}

/* ---- codec ---- */

static void path_that_leaves_the_copy_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool ok;
    } rows[] = {
        {"0", true},     {"0/lib/a.py", true}, {"0/..a", true}, {"0/a..", true}, {"", false},
        {"/etc", false}, {"0/../1", false},    {"..", false},   {"0/.", false},  {"0//a", false},
        {"0/a/", false}, {"0/a/..", false},    {"./0", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (stage_path_ok(rows[i].path) != rows[i].ok)
            fail_msg("'%s'", rows[i].path);
}

static void deep_path_and_long_name_are_refused(void **state)
{
    (void)state;
    char deep[2 * STAGE_DEPTH_MAX + 2];
    char name[STAGE_NAME_MAX + 2];
    for (int i = 0; i < STAGE_DEPTH_MAX; i++)
        memcpy(deep + 2 * i, "a/", 2);
    deep[2 * STAGE_DEPTH_MAX - 1] = '\0';
    assert_true(stage_path_ok(deep));
    memcpy(deep + 2 * STAGE_DEPTH_MAX - 1, "/a", 3);
    assert_false(stage_path_ok(deep));
    memset(name, 'n', sizeof(name));
    name[STAGE_NAME_MAX] = '\0';
    assert_true(stage_path_ok(name));
    name[STAGE_NAME_MAX] = 'n';
    name[STAGE_NAME_MAX + 1] = '\0';
    assert_false(stage_path_ok(name));
}

static const struct stage_entry good = {.kind = STAGE_FILE,
                                        .mode = 0755,
                                        .mtime = -7,
                                        .nsec = 999999999,
                                        .data = (const unsigned char *)"abc",
                                        .len = 3,
                                        .path = "0/a"};

static void entry_is_read_as_it_was_written(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1000);
    struct stage_entry e;
    size_t at = 0;
    assert_int_equal(stage_entry_encode(&b, &good), 0);
    assert_int_equal(b.len, stage_entry_size(3, 0, 3));
    assert_int_equal(stage_entry_decode(&e, b.data, b.len, &at), 1);
    assert_int_equal(e.kind, STAGE_FILE);
    assert_int_equal(e.mode, 0755);
    assert_int_equal(e.mtime, -7);
    assert_int_equal(e.nsec, 999999999);
    assert_string_equal(e.path, "0/a");
    assert_int_equal(e.len, 3);
    assert_memory_equal(e.data, "abc", 3);
    assert_int_equal(stage_entry_decode(&e, b.data, b.len, &at), 0);
    for (size_t n = 1; n < b.len; n++) {
        at = 0;
        assert_int_equal(stage_entry_decode(&e, b.data, n, &at), -EPROTO);
    }
}

static void malformed_entry_is_refused(void **state)
{
    (void)state;
    struct stage_entry rows[8];
    for (size_t i = 0; i < 8; i++)
        rows[i] = good;
    rows[0].mode = 04755; /* setuid */
    rows[1].nsec = 1000000000;
    memcpy(rows[2].target, "x", 2);
    memcpy(rows[3].path, "0/../a", 7);
    rows[4].kind = STAGE_DIR; /* with data */
    rows[5].kind = STAGE_KINDS;
    rows[6] = (struct stage_entry){.kind = STAGE_HARDLINK, .path = "0/a", .target = "../b"};
    rows[7] = (struct stage_entry){.kind = STAGE_SYMLINK, .path = "0/a"};
    for (size_t i = 0; i < 8; i++) {
        DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1000);
        struct stage_entry e;
        size_t at = 0;
        assert_int_equal(stage_entry_encode(&b, &rows[i]), 0);
        assert_int_equal(stage_entry_decode(&e, b.data, b.len, &at), -EPROTO);
    }
}

static void frames_are_read_as_they_were_written(void **state)
{
    (void)state;
    const struct stage_frame rows[] = {
        {.type = STAGE_HEAD, .bytes = 1ULL << 40, .entries = 7, .digest = "abc"},
        {.type = STAGE_CHUNK,
         .seq = 5,
         .phase = STAGE_LINKS,
         .raw = STAGE_RAW_MAX,
         .data = (const unsigned char *)"zz",
         .len = 2},
        {.type = STAGE_END, .chunks = 6, .digest = "0123456789"},
        {.type = STAGE_ACK, .seq = UINT32_MAX},
        {.type = STAGE_TALLY, .tally = {.done = 4, .lag = STAGE_WINDOW, .slowest = 7}},
        {.type = STAGE_TALLY, .tally = STAGE_TALLY_NONE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1000);
        struct stage_frame f;
        assert_int_equal(stage_frame_encode(&b, &rows[i]), 0);
        assert_int_equal(stage_frame_decode(&f, b.data, b.len), 0);
        assert_int_equal(f.type, rows[i].type);
        assert_int_equal(f.bytes, rows[i].bytes);
        assert_int_equal(f.seq, rows[i].seq);
        assert_int_equal(f.phase, rows[i].phase);
        assert_int_equal(f.raw, rows[i].raw);
        assert_int_equal(f.len, rows[i].len);
        assert_memory_equal(f.digest, rows[i].digest, STAGE_DIGEST);
        assert_memory_equal(&f.tally, &rows[i].tally, sizeof(f.tally));
        assert_int_equal(stage_frame_decode(&f, b.data, b.len - rows[i].len - 1), -EPROTO);
    }
}

static void malformed_frame_is_refused(void **state)
{
    (void)state;
    struct stage_frame f;
    static const struct {
        const char *bytes;
        size_t n;
    } rows[] = {
        {"", 0},
        {"\x09", 1},
        {"\x02\0\0\0\0\0\0\0\0\0z", 11},           /* a chunk of 0 bytes */
        {"\x02\0\0\0\0\0\x01\0\0\x01z", 11},       /* of 16 MiB */
        {"\x02\0\0\0\0\x04\x01\0\0\0z", 11},       /* of an unknown phase */
        {"\x02\0\0\0\0\0\x01\0\0\0", 10},          /* without data */
        {"\x02\xff\xff\xff\xff\0\x01\0\0\0z", 11}, /* beyond all chunks */
        {"\x04\0\0\0\0\0", 6},                     /* a byte too many */
        {"\x05\0\0\0\0\0\0\0\0\0\0\0\0", 13},      /* a slowest node that lacks nothing */
        {"\x05\0\0\0\0\x19\0\0\0\0\0\0\0", 13},    /* that lacks more than the window */
        {"\x05\0\0\0\0\x01\0\0\0\0\0\0\x80", 13},  /* of a negative rank */
        {"\x05\0\0\0\0\x01\0\0\0\0\0\0", 12},      /* cut short */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(stage_frame_decode(&f, rows[i].bytes, rows[i].n), -EPROTO);
    assert_int_equal(stage_frame_decode(&f, "\x02\0\0\0\0\0\x01\0\0\0z", 11), 0);
}

static void message_without_its_texts_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        int rc;
    } rows[] = {
        {"P1", 3, 0},         {"P1", 2, -EPROTO}, /* no NUL */
        {"P", 1, -EPROTO},    {"", 0, -EPROTO},        {"Q1", 3, -EPROTO},        {"X", 1, 0},
        {"Ds\0\0a\0b", 8, 0}, {"Ds\0\0a", 6, -EPROTO}, {"Rk\0001\0", 5, -EPROTO},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(stage_msg) struct stage_msg m = {0};
        assert_int_equal(stage_msg_decode(&m, rows[i].bytes, rows[i].n), rows[i].rc);
    }
}

/* ---- environment ---- */

static void variables_point_to_the_copy(void **state)
{
    (void)state;
    static char s1[] = "/home/u/venv", c1[] = "/local/x/0", s2[] = "/a:b", c2[] = "/local/x/1";
    char *const pairs[] = {s1, c1, s2, c2, NULL};
    static const struct {
        const char *name, *before, *after;
    } rows[] = {
        {"PATH", "/home/u/venv/bin:/usr/bin", "/local/x/0/bin:/usr/bin"},
        {"PATH", ":/home/u/venv2/bin:/home/u/venv:", ":/home/u/venv2/bin:/local/x/0:"},
        {"PATH", "/a:b/bin", "/a:b/bin"}, /* two elements */
        {"PYTHONPATH", "/home/u/venv/lib", "/local/x/0/lib"},
        {"VIRTUAL_ENV", "/home/u/venv", "/local/x/0"},
        {"CONDA_PREFIX", "/a:b", "/local/x/1"},
        {"HOME", "/home/u/venv", "/home/u/venv"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        assert_int_equal(dd_env_set(&env, rows[i].name, rows[i].before), 0);
        assert_int_equal(stage_env_vars(&env, pairs), 0);
        assert_string_equal(dd_env_get(env.v, rows[i].name), rows[i].after);
        assert_int_equal(env.n, 1);
    }
}

static void program_and_script_point_to_the_copy(void **state)
{
    (void)state;
    static char source[] = "/v", copy[] = "/c";
    char *const pairs[] = {source, copy, NULL};
    DD_AUTO(strv) struct dd_strv argv = {0};
    static const char *const before[] = {"/v/bin/python", "-u", "/v/t.py", "/v/out"};
    static const char *const after[] = {"/c/bin/python", "-u", "/c/t.py", "/v/out"};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(dd_strv_push(&argv, before[i]), 0);
    assert_int_equal(stage_env_argv(&argv, pairs), 0);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(argv.v[i], after[i]);
}

/* ---- directories ---- */

struct place {
    struct dd_scratch top;
    char source[200], copy[200];
};

static int make_place(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    *state = p;
    p->top = DD_SCRATCH_NONE;
    if (dd_scratch_new(&p->top, "/tmp", NULL) < 0)
        return -1;
    (void)snprintf(p->source, sizeof(p->source), "%.150s/source", p->top.path);
    (void)snprintf(p->copy, sizeof(p->copy), "%.150s/copy", p->top.path);
    return mkdir(p->source, 0755) < 0 ? -1 : mkdir(p->copy, 0700);
}

static int remove_place(void **state)
{
    struct place *p = *state;
    const int rc = dd_scratch_remove(&p->top);
    dd_scratch_done(&p->top);
    free(p);
    return rc;
}

static void put_file(const char *dir, const char *name, const char *text, mode_t mode)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void unlink_in(const char *dir, const char *name)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(unlink(path), 0);
}

static struct stat look_at(const char *dir, const char *name)
{
    char path[300];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(lstat(path, &st), 0);
    return st;
}

static void make_dir(const char *dir, const char *name)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

/* Read all chunks of a list; `to` NULL: drop them. */
static int read_all(const struct stage_list *list, char *const *sources,
                    const struct stage_unpack_cfg *to, struct dd_err *err)
{
    const struct stage_pack_cfg from = {.list = list, .sources = sources};
    struct stage_pack *pack;
    struct stage_part part;
    int rc = stage_pack_new(&pack, &from, err);
    while (rc == 0 && stage_pack_next(pack, &part)) {
        DD_AUTO(buf) struct dd_buf raw = {0};
        rc = stage_pack_read(pack, &part, &raw, err);
        if (rc == 0 && to != NULL)
            rc = stage_unpack(to, part.phase, raw.data, raw.len, err);
    }
    stage_pack_free(pack);
    return rc;
}

/* mounted: workers will see the copy at the path of the source. */
static void copy_for(struct place *p, bool mounted)
{
    char *const sources[] = {p->source, NULL};
    struct stage_list list = {0};
    struct dd_err err = {0};
    struct stage_unpack_cfg to = {
        .node = "n1", .path = p->copy, .sources = mounted ? NULL : sources};
    to.root = open(p->copy, O_RDONLY | O_DIRECTORY);
    if (stage_walk(&list, p->source, 0, &err) < 0 || read_all(&list, sources, &to, &err) < 0)
        fail_msg("%s", err.text);
    close(to.root);
    stage_list_done(&list);
}

static void copy(struct place *p)
{
    copy_for(p, true);
}

static void copy_has_files_links_modes_and_times(void **state)
{
    struct place *p = *state;
    char a[300], b[300];
    put_file(p->source, "a", "hello", 04755);
    put_file(p->source, "empty", "", 0400);
    (void)snprintf(a, sizeof(a), "%s/a", p->source);
    (void)snprintf(b, sizeof(b), "%s/hard", p->source);
    assert_int_equal(link(a, b), 0);
    (void)snprintf(b, sizeof(b), "%s/soft", p->source);
    assert_int_equal(symlink("/nowhere/a", b), 0);
    (void)snprintf(b, sizeof(b), "%s/fifo", p->source);
    assert_int_equal(mkfifo(b, 0600), 0);
    copy(p);
    const struct stat was = look_at(p->source, "a");
    const struct stat is = look_at(p->copy, "0/a");
    assert_int_equal(is.st_mode & 07777, 0755); /* no setuid */
    assert_int_equal(is.st_size, 5);
    assert_int_equal(is.st_mtim.tv_sec, was.st_mtim.tv_sec);
    assert_int_equal(is.st_mtim.tv_nsec, was.st_mtim.tv_nsec);
    assert_int_equal(look_at(p->copy, "0/hard").st_ino, is.st_ino);
    assert_int_equal(look_at(p->copy, "0/empty").st_size, 0);
    assert_true(S_ISLNK(look_at(p->copy, "0/soft").st_mode));
    (void)snprintf(b, sizeof(b), "%s/0/fifo", p->copy);
    assert_int_equal(access(b, F_OK), -1);
}

static void long_file_arrives_in_pieces(void **state)
{
    struct place *p = *state;
    enum { SIZE = 3 * STAGE_RAW_MAX + 17 };
    char *text = malloc(SIZE + 1);
    char *back = malloc(SIZE + 1);
    char path[300];
    for (int i = 0; i < SIZE; i++)
        text[i] = (char)('a' + (i * 7 + i / 4096) % 26);
    text[SIZE] = '\0';
    put_file(p->source, "big", text, 0640);
    copy(p);
    (void)snprintf(path, sizeof(path), "%s/0/big", p->copy);
    const int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, back, SIZE + 1), SIZE);
    assert_memory_equal(back, text, SIZE);
    assert_int_equal(look_at(p->copy, "0/big").st_mode & 07777, 0640);
    close(fd);
    free(text);
    free(back);
}

/* Make a file, or a link, whose text names the source. */
static void put_naming(const struct place *p, const char *name, const char *before,
                       const char *after, bool link)
{
    char text[700];
    char path[300];
    (void)snprintf(text, sizeof(text), "%s%s%s", before, p->source, after);
    (void)snprintf(path, sizeof(path), "%s/%s", p->source, name);
    if (link)
        assert_int_equal(symlink(text, path), 0);
    else
        put_file(p->source, name, text, 0755);
}

static void assert_names(const struct place *p, const char *name, const char *before,
                         const char *dir, const char *after)
{
    char want[700];
    char path[300];
    DD_AUTO(buf) struct dd_buf got = DD_BUF_INIT(1000);
    (void)snprintf(want, sizeof(want), "%s%s%s%s", before, dir, dir == p->copy ? "/0" : "", after);
    (void)snprintf(path, sizeof(path), "%s/0/%s", p->copy, name);
    if (S_ISLNK(look_at(p->copy, path + strlen(p->copy) + 1).st_mode)) {
        assert_int_equal(dd_buf_reserve(&got, 900), 0);
        got.len = (size_t)readlink(path, (char *)got.data, 900);
    } else {
        assert_int_equal(dd_read_file(path, &got, NULL), 0);
    }
    assert_string_equal(dd_buf_str(&got), want);
}

static void copy_that_is_not_mounted_leads_to_itself(void **state)
{
    struct place *p = *state;
    static const struct {
        const char *name, *before, *after;
        bool link, changes;
    } rows[] = {
        {"script", "#!", "/bin/python\nbody\n", false, true},
        {"spaced", "#! ", "/bin/sh -e\n", false, true},
        {"pyvenv.cfg", "uv = 0.13.9\nhome = ", "/bin\nversion_info = 3.12\n", false, true},
        {"link", "", "/bin/tool", true, true},
        {"whole", "", "", true, true},
        {"text", "see ", "/bin/python\n", false, false},
        {"sibling", "#!", "-2/bin/python\n", false, false},
        {"unended", "#!", "/bin/python", false, false},
        {"other.cfg", "home = ", "/bin\n", false, false},
        {"other-link", "", "-2/bin", true, false},
        {"within", "/mnt", "/bin", true, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        put_naming(p, rows[i].name, rows[i].before, rows[i].after, rows[i].link);
    copy_for(p, false);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_names(p, rows[i].name, rows[i].before, rows[i].changes ? p->copy : p->source,
                     rows[i].after);
}

static void links_of_uv_to_its_cache_become_files(void **state)
{
    struct place *p = *state;
    char target[300], path[300];
    make_dir(p->copy, "archive-v0");
    put_file(p->copy, "archive-v0/module.py", "x = 1\n", 0644);
    (void)snprintf(target, sizeof(target), "%s/archive-v0/module.py", p->copy);
    make_dir(p->source, "site-packages");
    (void)snprintf(path, sizeof(path), "%s/site-packages/module.py", p->source);
    assert_int_equal(symlink(target, path), 0);
    (void)snprintf(path, sizeof(path), "%s/module.py", p->source);
    assert_int_equal(symlink(target, path), 0);
    copy(p);
    const struct stat is = look_at(p->copy, "0/site-packages/module.py");
    assert_true(S_ISREG(is.st_mode) && is.st_size == 6);
    assert_true(S_ISLNK(look_at(p->copy, "0/module.py").st_mode));
}

static void file_that_changes_is_not_copied(void **state)
{
    struct place *p = *state;
    char *const sources[] = {p->source, NULL};
    struct stage_list list = {0};
    struct dd_err err = {0};
    put_file(p->source, "log", "one line", 0600);
    assert_int_equal(stage_walk(&list, p->source, 0, &err), 0);
    put_file(p->source, "log", "another, longer line", 0600);
    assert_true(read_all(&list, sources, NULL, &err) < 0);
    assert_non_null(strstr(err.text, "log"));
    assert_non_null(strstr(err.text, "changed"));
    stage_list_done(&list);
}

static void directories_are_listed_in_the_order_of_their_names(void **state)
{
    struct place *p = *state;
    static const char *const expected[] = {"0", "0/a", "0/a/1", "0/b", "0/b/c", "0/b/c/2", "0/d"};
    struct stage_list list = {0};
    struct dd_err err = {0};
    make_dir(p->source, "b");
    make_dir(p->source, "b/c");
    make_dir(p->source, "a");
    put_file(p->source, "d", "", 0600);
    put_file(p->source, "b/c/2", "", 0600);
    put_file(p->source, "a/1", "", 0600);
    assert_int_equal(stage_walk(&list, p->source, 0, &err), 0);
    assert_int_equal(list.n, sizeof(expected) / sizeof(expected[0]));
    for (size_t i = 0; i < list.n; i++)
        assert_string_equal(list.items[i].path, expected[i]);
    stage_list_done(&list);
}

static void part_whose_files_have_vanished_is_empty(void **state)
{
    struct place *p = *state;
    char *const sources[] = {p->source, NULL};
    struct stage_list list = {0};
    struct dd_err err = {0};
    struct stage_pack *pack;
    struct stage_part part;
    DD_AUTO(buf) struct dd_buf raw = {0};
    put_file(p->source, "tmp", "text", 0600);
    assert_int_equal(stage_walk(&list, p->source, 0, &err), 0);
    unlink_in(p->source, "tmp");
    assert_int_equal(
        stage_pack_new(&pack, &(struct stage_pack_cfg){.list = &list, .sources = sources}, &err),
        0);
    do
        assert_true(stage_pack_next(pack, &part));
    while (part.phase != STAGE_FILES);
    assert_int_equal(stage_pack_read(pack, &part, &raw, &err), 0);
    assert_int_equal(raw.len, 0);
    stage_pack_free(pack);
    stage_list_done(&list);
}

static void long_file_that_has_vanished_is_left_out(void **state)
{
    struct place *p = *state;
    enum { SIZE = 2 * STAGE_RAW_MAX + 17 };
    char *const sources[] = {p->source, NULL};
    char path[300];
    struct stage_list list = {0};
    struct dd_err err = {0};
    const struct stage_unpack_cfg to = {
        .root = open(p->copy, O_RDONLY | O_DIRECTORY), .node = "n1", .path = p->copy};
    DD_AUTO(free) char *text = calloc(1, SIZE + 1);
    memset(text, 'x', SIZE);
    put_file(p->source, "long", text, 0600);
    put_file(p->source, "next", text, 0600);
    assert_int_equal(stage_walk(&list, p->source, 0, &err), 0);
    unlink_in(p->source, "long");
    if (read_all(&list, sources, &to, &err) < 0)
        fail_msg("%s", err.text);
    (void)snprintf(path, sizeof(path), "%s/0/long", p->copy);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(look_at(p->copy, "0/next").st_size, SIZE);
    close(to.root);
    stage_list_done(&list);
}

/* The rest of a new file of the same name would have no beginning. */
static void long_file_that_vanishes_stays_out(void **state)
{
    struct place *p = *state;
    enum { SIZE = 2 * STAGE_RAW_MAX + 17 };
    char *const sources[] = {p->source, NULL};
    struct stage_list list = {.cache = true};
    struct dd_err err = {0};
    struct stage_pack *pack;
    struct stage_part part;
    const struct stage_pack_cfg cfg = {.list = &list, .sources = sources};
    DD_AUTO(free) char *text = calloc(1, SIZE + 1);
    memset(text, 'x', SIZE);
    put_file(p->source, "long", text, 0600);
    assert_int_equal(stage_walk(&list, p->source, 0, &err), 0);
    assert_int_equal(stage_pack_new(&pack, &cfg, &err), 0);
    unlink_in(p->source, "long");
    for (int pieces = 0; stage_pack_next(pack, &part);) {
        DD_AUTO(buf) struct dd_buf raw = {0};
        assert_int_equal(stage_pack_read(pack, &part, &raw, &err), 0);
        if (part.phase != STAGE_FILES)
            continue;
        assert_int_equal(raw.len, 0);
        if (pieces++ == 0)
            put_file(p->source, "long", text, 0600);
    }
    stage_pack_free(pack);
    stage_list_done(&list);
}

static void source_that_is_no_directory_is_refused(void **state)
{
    struct place *p = *state;
    struct stage_list list = {0};
    struct dd_err err = {0};
    char path[300];
    put_file(p->source, "file", "", 0600);
    (void)snprintf(path, sizeof(path), "%s/file", p->source);
    assert_int_equal(stage_walk(&list, path, 0, &err), -ENOTDIR);
    stage_list_done(&list);
}

static int unpack_one(struct place *p, const struct stage_entry *e, enum stage_phase phase)
{
    DD_AUTO(buf) struct dd_buf raw = DD_BUF_INIT(STAGE_RAW_MAX);
    struct dd_err err = {0};
    const struct stage_unpack_cfg to = {
        .root = open(p->copy, O_RDONLY | O_DIRECTORY), .node = "n1", .path = p->copy};
    assert_int_equal(stage_entry_encode(&raw, e), 0);
    const int rc = stage_unpack(&to, phase, raw.data, raw.len, &err);
    close(to.root);
    return rc;
}

static void nothing_is_written_through_a_symbolic_link(void **state)
{
    struct place *p = *state;
    char path[300];
    struct stage_entry e = good;
    (void)snprintf(path, sizeof(path), "%s/0", p->copy);
    assert_int_equal(symlink(p->source, path), 0); /* "0" is a directory elsewhere */
    assert_true(unpack_one(p, &e, STAGE_FILES) < 0);
    e.kind = STAGE_PIECE;
    assert_true(unpack_one(p, &e, STAGE_FILES) < 0);
    e = (struct stage_entry){.kind = STAGE_DIR, .mode = 0700, .path = "0/d"};
    assert_true(unpack_one(p, &e, STAGE_DIRECTORIES) < 0);
    e = (struct stage_entry){.kind = STAGE_META, .mode = 0777, .path = "0"};
    assert_true(unpack_one(p, &e, STAGE_TIMES) < 0);
    assert_int_equal(rmdir(p->source), 0); /* it is still empty */
    assert_int_equal(mkdir(p->source, 0700), 0);
}

static void directory_of_mode_0_can_be_entered_and_removed(void **state)
{
    struct place *p = *state;
    struct stage_entry e = {.kind = STAGE_DIR, .mode = 0700, .path = "0"};
    assert_int_equal(unpack_one(p, &e, STAGE_DIRECTORIES), 0);
    e.kind = STAGE_META;
    e.mode = 0;
    assert_int_equal(unpack_one(p, &e, STAGE_TIMES), 0);
    assert_int_equal(look_at(p->copy, "0").st_mode & 07777, 0700);
}

static void name_cannot_control_the_terminal(void **state)
{
    struct place *p = *state;
    struct stage_list list = {0};
    struct dd_err err = {0};
    char *const sources[] = {p->source, NULL};
    static const char *const names[] = {"a\x1b[2J", "b\ntip: delete all", "c\x7f", "d\xc2\x9bm"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        put_file(p->source, names[i], "short", 0600);
        assert_int_equal(stage_walk(&list, p->source, 0, &err), 0);
        put_file(p->source, names[i], "not so short", 0600);
        assert_true(read_all(&list, sources, NULL, &err) < 0);
        for (const char *c = err.text; *c != '\0'; c++)
            assert_true((unsigned char)*c >= ' ' && *c != 127 && (unsigned char)*c != 0x9b);
        assert_non_null(strchr(err.text, "abcd"[i]));
        stage_list_done(&list);
        unlink_in(p->source, names[i]);
    }
}

/* ---- sources ---- */

static void archive_is_known_by_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *path, *name;
        bool archive;
        bool image;
    } rows[] = {
        {"/a/env", "/a/env", "/a/env", false, false},
        {"/a/env.tar", "/a/env.tar", "/a/env", true, false},
        {"/a/env.tar.gz", "/a/env.tar.gz", "/a/env", true, false},
        {"/a/env-1.2.tzst", "/a/env-1.2.tzst", "/a/env-1.2", true, false},
        {"/a/env.zip:/opt/b", "/a/env.zip", "/opt/b", true, false},
        {"/a/env.squashfs", "/a/env.squashfs", "/a/env", false, true},
        {"/a/env.sqfs:/opt/b", "/a/env.sqfs", "/opt/b", false, true},
        {"/a/.sqsh", "/a/.sqsh", "/a/.sqsh", false, false},
        {"/a:/b.zip", "/a:/b.zip", "/a:/b", true, false},
        {"/a/env:/opt/b", "/a/env:/opt/b", "/a/env:/opt/b", false, false},
        {"/a/x.zip:b", "/a/x.zip:b", "/a/x.zip:b", false, false},
        {"/a/.tar", "/a/.tar", "/a/.tar", false, false},
        {".zip", ".zip", ".zip", false, false},
        {"", "", "", false, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(stage_source) struct stage_source s = {0};
        assert_int_equal(stage_source_parse(&s, rows[i].text), 0);
        assert_string_equal(s.path, rows[i].path);
        assert_string_equal(s.name, rows[i].name);
        assert_true(s.archive == rows[i].archive);
        assert_true(s.image == rows[i].image);
    }
    assert_true(stage_source_is_foreign("/a/env.sif"));
    assert_false(stage_source_is_foreign("/a/env.squashfs"));
}

static void file_makes_the_directories_that_it_needs(void **state)
{
    struct place *p = *state;
    struct stage_entry e = {.kind = STAGE_FILE, .mode = 0600, .path = "0/a/b/c"};
    assert_int_equal(unpack_one(p, &e, STAGE_FILES), 0);
    assert_true(S_ISREG(look_at(p->copy, "0/a/b/c").st_mode));
    e = (struct stage_entry){.kind = STAGE_DIR, .mode = 0700, .path = "0/a/b"};
    assert_int_equal(unpack_one(p, &e, STAGE_DIRECTORIES), 0);
    e = (struct stage_entry){.kind = STAGE_DIR, .mode = 0700, .path = "0/a/b/c"};
    assert_int_equal(unpack_one(p, &e, STAGE_DIRECTORIES), -EEXIST);
}

/* ---- kept copies ---- */

static void kept_name(char name[STAGE_KEEP_NAME], int i)
{
    unsigned char digest[STAGE_DIGEST] = {0};
    digest[0] = (unsigned char)i;
    stage_keep_name(name, digest);
}

/* Keep a copy that has one file. */
static int keep_copy(const struct place *p, const struct dd_scratch *kept, int i)
{
    char name[STAGE_KEEP_NAME];
    char dir[300];
    kept_name(name, i);
    (void)snprintf(dir, sizeof(dir), "%s/new", p->top.path);
    if (mkdir(dir, 0700) == 0)
        put_file(dir, "file", "text", 0600);
    return stage_keep_store(kept, &p->top, "new", name);
}

static bool is_kept(const struct dd_scratch *kept, int i)
{
    char name[STAGE_KEEP_NAME];
    DD_AUTO(scratch) struct dd_scratch s = DD_SCRATCH_NONE;
    kept_name(name, i);
    const int rc = stage_keep_take(&s, kept, name);
    assert_true(rc == 0 || rc == -ENOENT);
    return rc == 0;
}

static void copies_used_last_and_those_in_use_stay(void **state)
{
    struct place *p = *state;
    char name[STAGE_KEEP_NAME];
    DD_AUTO(scratch) struct dd_scratch kept = DD_SCRATCH_NONE;
    DD_AUTO(scratch) struct dd_scratch used = DD_SCRATCH_NONE;
    assert_int_equal(stage_keep_open(&kept, p->copy, false, NULL), -ENOENT);
    assert_int_equal(stage_keep_open(&kept, p->copy, true, NULL), 0);
    assert_false(is_kept(&kept, 0));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(keep_copy(p, &kept, i), 0);
        const struct timespec times[2] = {{.tv_sec = 100 + i}, {.tv_sec = 100 + i}};
        kept_name(name, i);
        assert_int_equal(utimensat(kept.fd, name, times, 0), 0);
    }
    assert_int_equal(keep_copy(p, &kept, 3), -EEXIST);
    kept_name(name, 0);
    assert_int_equal(stage_keep_take(&used, &kept, name), 0); /* now the last used */
    stage_keep_prune(&kept, 3);
    const bool stay[] = {true, false, false, true, true};
    for (int i = 0; i < 5; i++)
        assert_int_equal(is_kept(&kept, i), stay[i]);
    stage_keep_prune(&kept, 0);
    assert_true(is_kept(&kept, 0));
    assert_false(is_kept(&kept, 4));
    dd_scratch_done(&used);
    stage_keep_prune(&kept, 0);
    assert_false(is_kept(&kept, 0));
    assert_int_equal(rmdir(kept.path), 0);
}

static void copy_that_others_could_have_made_is_not_used(void **state)
{
    struct place *p = *state;
    char name[STAGE_KEEP_NAME];
    DD_AUTO(scratch) struct dd_scratch kept = DD_SCRATCH_NONE;
    assert_int_equal(stage_keep_open(&kept, p->copy, true, NULL), 0);
    assert_int_equal(keep_copy(p, &kept, 1), 0);
    kept_name(name, 1);
    assert_int_equal(fchmodat(kept.fd, name, 0770, 0), 0);
    assert_false(is_kept(&kept, 1));
    kept_name(name, 2);
    assert_int_equal(symlinkat(p->source, kept.fd, name), 0);
    assert_false(is_kept(&kept, 2));
    assert_int_equal(fchmod(kept.fd, 0755), 0);
    DD_AUTO(scratch) struct dd_scratch again = DD_SCRATCH_NONE;
    assert_int_equal(stage_keep_open(&again, p->copy, true, NULL), -EPERM);
}

static void digest_of_listing_changes_with_any_entry(void **state)
{
    struct place *p = *state;
    unsigned char before[STAGE_DIGEST], after[STAGE_DIGEST];
    static const char *const names[] = {"a", "a", "b"};
    static const char *const texts[] = {"1", "2", ""};
    put_file(p->source, "a", "0", 0600);
    for (size_t i = 0; i <= 3; i++) {
        struct stage_list list = {0};
        struct dd_err err = {0};
        if (i > 0) {
            unlink_in(p->source, "a");
            put_file(p->source, names[i - 1], texts[i - 1], 0600);
            if (i == 3)
                put_file(p->source, "a", "2", 0600);
        }
        assert_int_equal(stage_walk(&list, p->source, 0, &err), 0);
        assert_int_equal(stage_list_digest(&list, after), 0);
        assert_true(i == 0 || memcmp(before, after, STAGE_DIGEST) != 0);
        assert_int_equal(stage_list_digest(&list, before), 0);
        assert_memory_equal(before, after, STAGE_DIGEST);
        stage_list_done(&list);
    }
}

/* ---- memory ---- */

static int mallocs_left = -1; /* -1: without end */

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
    if (mallocs_left == 0)
        return NULL;
    mallocs_left -= mallocs_left > 0;
    return __real_malloc(n);
}

static void listing_without_memory_returns_an_error(void **state)
{
    struct place *p = *state;
    char a[300], b[300];
    int rc = -ENOMEM;
    put_file(p->source, "a", "", 0600);
    (void)snprintf(a, sizeof(a), "%s/a", p->source);
    (void)snprintf(b, sizeof(b), "%s/b", p->source);
    assert_int_equal(link(a, b), 0);
    for (int left = 0; rc != 0; left++) {
        struct stage_list list = {0};
        struct dd_err err = {0};
        mallocs_left = left;
        rc = stage_walk(&list, p->source, 0, &err);
        mallocs_left = -1;
        if (rc != 0) {
            assert_int_equal(rc, -ENOMEM);
            assert_non_null(strstr(err.text, "Cannot allocate memory"));
        }
        stage_list_done(&list);
        assert_in_range(left, 0, 50);
    }
}

static void entry_of_another_phase_is_refused(void **state)
{
    assert_int_equal(unpack_one(*state, &good, STAGE_LINKS), -EPROTO);
}

int main(void)
{
#define IN_PLACE(name) cmocka_unit_test_setup_teardown(name, make_place, remove_place)
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(interpreter_is_found_where_uv_has_installed_it),
        cmocka_unit_test(path_that_leaves_the_copy_is_refused),
        cmocka_unit_test(deep_path_and_long_name_are_refused),
        cmocka_unit_test(entry_is_read_as_it_was_written),
        cmocka_unit_test(malformed_entry_is_refused),
        cmocka_unit_test(frames_are_read_as_they_were_written),
        cmocka_unit_test(malformed_frame_is_refused),
        cmocka_unit_test(message_without_its_texts_is_refused),
        cmocka_unit_test(progress_does_not_block_when_nobody_reads_it),
        cmocka_unit_test(variables_point_to_the_copy),
        cmocka_unit_test(program_and_script_point_to_the_copy),
        IN_PLACE(copy_has_files_links_modes_and_times),
        IN_PLACE(long_file_arrives_in_pieces),
        IN_PLACE(copy_that_is_not_mounted_leads_to_itself),
        IN_PLACE(links_of_uv_to_its_cache_become_files),
        IN_PLACE(file_that_changes_is_not_copied),
        IN_PLACE(directories_are_listed_in_the_order_of_their_names),
        IN_PLACE(part_whose_files_have_vanished_is_empty),
        IN_PLACE(long_file_that_has_vanished_is_left_out),
        IN_PLACE(long_file_that_vanishes_stays_out),
        IN_PLACE(source_that_is_no_directory_is_refused),
        IN_PLACE(nothing_is_written_through_a_symbolic_link),
        IN_PLACE(entry_of_another_phase_is_refused),
        IN_PLACE(directory_of_mode_0_can_be_entered_and_removed),
        IN_PLACE(name_cannot_control_the_terminal),
        IN_PLACE(listing_without_memory_returns_an_error),
        cmocka_unit_test(archive_is_known_by_its_name),
        IN_PLACE(file_makes_the_directories_that_it_needs),
        IN_PLACE(copies_used_last_and_those_in_use_stay),
        IN_PLACE(copy_that_others_could_have_made_is_not_used),
        IN_PLACE(digest_of_listing_changes_with_any_entry),
    };
    (void)umask(0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
