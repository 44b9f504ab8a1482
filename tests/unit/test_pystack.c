/* pystack: the frames of a process are read from its memory, recorded with several versions of
 * Python; memory that makes no sense yields an error. */
#include "pystack/elf_symbols.h"
#include "pystack/py_lines.h"
#include "python_image.h"
#include "report/stacks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

#define FILE_NAME "/tmp/app/program.py"
#define FRAMES                                                                                     \
    "<lambda>\t" FILE_NAME "\t18\n<lambda>\t" FILE_NAME "\t15\nouter\t" FILE_NAME                  \
    "\t15\nnumbers\t" FILE_NAME "\t9\nouter\t" FILE_NAME "\t14\n名前\t" FILE_NAME                  \
    "\t23\n<module>\t" FILE_NAME "\t33\n"

static const char *const versions[] = {"3.8",  "3.9",  "3.10", "3.11",
                                       "3.12", "3.13", "3.14", "3.15"};
enum { VERSIONS = sizeof(versions) / sizeof(versions[0]), IMAGE_MAX = 1 << 20 };

/* ---- images ---- */

struct loaded {
    unsigned char *data;
    struct image img;
};

static void load(struct loaded *ret, const char *version)
{
    char path[600];
    const char *top = getenv("srcdir");
    (void)snprintf(path, sizeof(path), "%s/tests/data/python/%s.image", top != NULL ? top : ".",
                   version);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    ret->data = malloc(IMAGE_MAX);
    assert_non_null(ret->data);
    const size_t n = fread(ret->data, 1, IMAGE_MAX, f);
    assert_int_equal(fclose(f), 0);
    assert_true(n > 0);
    image_of(&ret->img, ret->data, n);
}

static unsigned char *byte_at(struct image *img, uint64_t addr)
{
    for (size_t i = 0; i < img->n; i++)
        if (image_address(img, i) <= addr && addr - image_address(img, i) < IMAGE_BLOCK)
            return img->data + i * IMAGE_RECORD + 8 + (addr - image_address(img, i));
    return NULL;
}

static uint64_t word_at(struct image *img, uint64_t addr)
{
    uint64_t word = 0;
    const unsigned char *at = byte_at(img, addr);
    if (at != NULL)
        memcpy(&word, at, sizeof(word));
    return word;
}

/* The recording lacks blocks of zeros. */
static void add_block(struct image *img, uint64_t addr)
{
    const uint64_t at = addr / IMAGE_BLOCK * IMAGE_BLOCK;
    unsigned char *record = img->data + img->n * IMAGE_RECORD;
    assert_true((img->n + 1) * IMAGE_RECORD <= IMAGE_MAX);
    memset(record, 0, IMAGE_RECORD);
    memcpy(record, &at, sizeof(at));
    img->n++;
}

static void set_word(struct image *img, uint64_t addr, uint64_t word)
{
    if (byte_at(img, addr) == NULL)
        add_block(img, addr);
    unsigned char *at = byte_at(img, addr);
    assert_non_null(at);
    if (at != NULL)
        memcpy(at, &word, sizeof(word));
}

static uint64_t symbol(struct image *img, const char *name)
{
    struct elf_symbol v = {.name = name};
    struct py_memory *m = py_memory_new(image_read, img);
    assert_non_null(m);
    assert_int_equal(elf_symbols_find(m, img->auxv, img->auxv_size, &v, 1), 0);
    py_memory_free(m);
    return v.addr;
}

/* Offsets of CPython 3.11. */
enum {
    HEAD = 40,
    THREADS = 16,
    NEXT = 8,
    CFRAME = 56,
    CURRENT = 8,
    BACK = 48,
    CODE = 32,
    TABLE = 136,
    LENGTH = 16
};

/* That of the oldest thread. */
static uint64_t frame_of_311(struct image *img)
{
    uint64_t thread = word_at(img, word_at(img, symbol(img, "_PyRuntime") + HEAD) + THREADS);
    while (word_at(img, thread + NEXT) != 0)
        thread = word_at(img, thread + NEXT);
    return word_at(img, word_at(img, thread + CFRAME) + CURRENT);
}

static void has_stack(struct image *img, const char *expected)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(2 * STACKS_TEXT);
    struct dd_err err = {0};
    assert_int_equal(image_stack(img, &out, &err), 0);
    assert_string_equal(dd_buf_str(&out), expected);
}

static void fails(struct image *img, int rc, const char *why)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(2 * STACKS_TEXT);
    struct dd_err err = {0};
    assert_int_equal(image_stack(img, &out, &err), rc);
    assert_string_equal(err.text, why);
}

/* ---- tests ---- */

static void frames_of_each_version_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < VERSIONS; i++) {
        struct loaded l;
        load(&l, versions[i]);
        has_stack(&l.img, FRAMES);
        free(l.data);
    }
}

static void the_oldest_thread_is_read_in_another_pid_namespace(void **state)
{
    (void)state;
    for (size_t i = 0; i < VERSIONS; i++) {
        struct loaded l;
        load(&l, versions[i]);
        l.img.pid = 1;
        has_stack(&l.img, FRAMES);
        free(l.data);
    }
}

static void unknown_versions_are_named(void **state)
{
    struct loaded l;
    (void)state;
    load(&l, "3.11");
    set_word(&l.img, symbol(&l.img, "Py_Version"), 0x031001f0);
    fails(&l.img, -ENOTSUP, "stacks of Python 3.16 are unknown");
    free(l.data);
    load(&l, "3.13");
    const uint64_t runtime = symbol(&l.img, "_PyRuntime");
    set_word(&l.img, runtime + 16, 1);
    fails(&l.img, -ENOTSUP, "stacks of free-threaded Python are unknown");
    set_word(&l.img, runtime + 8, 0x030e00a1);
    fails(&l.img, -ENOTSUP,
          "stacks of Python 3.14 before its release candidates are unknown"); /* an alpha release */
    set_word(&l.img, runtime + 8, 0x040000f0);
    fails(&l.img, -ENOTSUP, "stacks of Python 4.0 are unknown");
    l.img.auxv_size = 0;
    fails(&l.img, -ENOTSUP, "found no CPython in the process");
    free(l.data);
}

static void a_thread_without_frames_is_reported(void **state)
{
    struct loaded l;
    (void)state;
    load(&l, "3.11");
    set_word(&l.img, symbol(&l.img, "_PyRuntime") + HEAD, 0);
    fails(&l.img, -ENODATA, "no Python frame");
    free(l.data);
}

static void frames_in_a_circle_end(void **state)
{
    struct loaded l;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(2 * STACKS_TEXT);
    size_t lines = 0;
    (void)state;
    load(&l, "3.11");
    const uint64_t frame = frame_of_311(&l.img);
    set_word(&l.img, frame + BACK, frame);
    assert_int_equal(image_stack(&l.img, &out, NULL), 0);
    for (const char *at = dd_buf_str(&out); *at != '\0'; at++)
        lines += *at == '\n';
    assert_int_equal(lines, STACKS_FRAMES);
    free(l.data);
}

static void huge_lengths_and_wrong_types_are_refused(void **state)
{
    static const char why[] = "its stack changed while it was read, or is damaged";
    struct loaded l;
    (void)state;
    load(&l, "3.11");
    const uint64_t frame = frame_of_311(&l.img);
    const uint64_t code = word_at(&l.img, frame + CODE);
    const uint64_t table = word_at(&l.img, code + TABLE);
    const uint64_t length = word_at(&l.img, table + LENGTH);
    set_word(&l.img, table + LENGTH, UINT64_MAX);
    fails(&l.img, -EAGAIN, why);
    set_word(&l.img, table + LENGTH, length);
    has_stack(&l.img, FRAMES);
    set_word(&l.img, frame + CODE, table);
    fails(&l.img, -EAGAIN, why);
    set_word(&l.img, frame + CODE, UINT64_MAX - 7);
    fails(&l.img, -EAGAIN, why);
    free(l.data);
}

/* Without a block, the frames are other ones, or none. */
static void any_part_may_be_missing(void **state)
{
    (void)state;
    for (size_t i = 0; i < VERSIONS; i++) {
        struct loaded l;
        load(&l, versions[i]);
        for (size_t k = 0; k < l.img.n; k++) {
            DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(2 * STACKS_TEXT);
            struct dd_err err = {0};
            unsigned char *record = l.data + k * IMAGE_RECORD;
            unsigned char saved[8];
            memcpy(saved, record, sizeof(saved));
            memset(record, 0xff, sizeof(saved));
            const int rc = image_stack(&l.img, &out, &err);
            assert_true(rc <= 0 && (rc < 0) == (err.text[0] != '\0'));
            memcpy(record, saved, sizeof(saved));
        }
        free(l.data);
    }
}

/* ---- memory that changes ---- */

struct moving {
    struct image *img;
    int reads;
    int end;        /* the process ends with this read; 0: never */
    uint64_t wrong; /* this address has another value when it is read first */
};

static int moving_read(void *arg, uint64_t addr, void *to, size_t n)
{
    struct moving *m = arg;
    m->reads++;
    if (m->end > 0 && m->reads >= m->end)
        return -ESRCH;
    const int rc = image_read(m->img, addr, to, n);
    if (rc == 0 && m->wrong >= addr && m->wrong - addr < n) {
        ((unsigned char *)to)[m->wrong - addr] ^= 0x40;
        m->wrong = 0;
    }
    return rc;
}

static int moving_stack(struct moving *from, struct dd_buf *out, struct dd_err *err)
{
    struct py_memory *m = py_memory_new(moving_read, from);
    assert_non_null(m);
    const struct py_process p = {
        .auxv = from->img->auxv, .auxv_size = from->img->auxv_size, .pid = from->img->pid};
    const int rc = py_stack_read(m, &p, out, err);
    py_memory_free(m);
    return rc;
}

static void a_stack_that_changes_is_read_again(void **state)
{
    struct loaded l;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(2 * STACKS_TEXT);
    (void)state;
    load(&l, "3.11");
    const uint64_t frame = frame_of_311(&l.img);
    struct moving moving = {.img = &l.img, .wrong = frame + CODE};
    assert_int_equal(moving_stack(&moving, &out, NULL), 0);
    assert_int_equal(moving.wrong, 0);
    assert_string_equal(dd_buf_str(&out), FRAMES);
    free(l.data);
}

static void a_process_may_end_at_any_time(void **state)
{
    struct loaded l;
    int rc = -1;
    (void)state;
    load(&l, "3.12");
    for (int end = 1; rc < 0; end++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(2 * STACKS_TEXT);
        struct moving moving = {.img = &l.img, .end = end};
        struct dd_err err = {0};
        rc = moving_stack(&moving, &out, &err);
        if (rc < 0 && rc != -ENOTSUP) { /* while symbols are looked up, one is not there */
            assert_int_equal(rc, -ESRCH);
            assert_string_equal(err.text, "the process has ended");
        }
        assert_true(end < 1000);
    }
    free(l.data);
}

/* ---- line tables ---- */

static void line_tables_are_decoded(void **state)
{
    static const struct {
        enum py_lines_kind kind;
        const char *table;
        size_t size;
        int64_t offset;
        int line;
    } rows[] = {
        {PY_LINES_LNOTAB, "", 0, 0, 10},
        {PY_LINES_LNOTAB, "\x04\x01\x06\xff", 4, -1, 10},
        {PY_LINES_LNOTAB, "\x04\x01\x06\xff", 4, 3, 10},
        {PY_LINES_LNOTAB, "\x04\x01\x06\xff", 4, 4, 11},
        {PY_LINES_LNOTAB, "\x04\x01\x06\xff", 4, 10, 10},
        {PY_LINES_LNOTAB, "\x04\x80\x06", 3, 10, 0},
        {PY_LINES_RANGES, "\x04\x01\x02\x80\x06\xfe", 6, 0, 11},
        {PY_LINES_RANGES, "\x04\x01\x02\x80\x06\xfe", 6, 4, 11},
        {PY_LINES_RANGES, "\x04\x01\x02\x80\x06\xfe", 6, 6, 9},
        {PY_LINES_RANGES, "\x04\x01\x02\x80\x06\xfe", 6, 12, 0},
        {PY_LINES_RANGES, "", 0, 0, 0},
        /* short form, 2 units; one line + 2; no columns - 3; long + 64; no location */
        {PY_LINES_LOCATIONS, "\x81\x00", 2, 2, 10},
        {PY_LINES_LOCATIONS, "\x81\x00", 2, 4, 0},
        {PY_LINES_LOCATIONS, "\x81\x00\xe0\x00\x00", 5, 4, 12},
        {PY_LINES_LOCATIONS, "\xe8\x07\xe8\x04", 4, 0, 7},
        {PY_LINES_LOCATIONS, "\xe8\x07\xe8\x04", 4, 2, 9},
        {PY_LINES_LOCATIONS, "\xf0\x40\x02\x00\x00\x00", 6, 0, 74},
        {PY_LINES_LOCATIONS, "\xd8\x00\x00\xf8", 4, 2, 11},
        {PY_LINES_LOCATIONS, "\xe8", 1, 0, 10},
        {PY_LINES_LOCATIONS, "\xe8\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f", 10, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(py_lines_find(rows[i].kind, (const unsigned char *)rows[i].table,
                                       rows[i].size, 10, rows[i].offset),
                         rows[i].line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_each_version_are_read),
        cmocka_unit_test(the_oldest_thread_is_read_in_another_pid_namespace),
        cmocka_unit_test(unknown_versions_are_named),
        cmocka_unit_test(a_thread_without_frames_is_reported),
        cmocka_unit_test(frames_in_a_circle_end),
        cmocka_unit_test(huge_lengths_and_wrong_types_are_refused),
        cmocka_unit_test(any_part_may_be_missing),
        cmocka_unit_test(a_stack_that_changes_is_read_again),
        cmocka_unit_test(a_process_may_end_at_any_time),
        cmocka_unit_test(line_tables_are_decoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
