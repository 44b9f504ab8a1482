/* ddrun-archive: reads an archive and writes its entries to standard output, in the order in which
 * ddrun-stage sends them: files first. The receiver makes the directories of a file when it unpacks
 * the file. This is the only program that loads libarchive, which parses untrusted data: if it
 * crashes, only this process ends.
 *
 *   ddrun-archive PATH NUMBER NAME
 *
 * All paths in the output begin with NUMBER. If the first entry lies in a directory NAME, that name
 * is left out. stage_archive.h describes the output. */
#include "base/auto.h"
#include "base/cursor.h"
#include "base/io.h"
#include "base/library.h"
#include "config.h"
#include "stage/stage_archive.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#pragma GCC diagnostic ignored "-Wimplicit-fallthrough" /* clang: in uthash's HASH_JEN */

enum { USAGE = 2, BLOCK = 1 << 20, LATER_MAX = 1 << 30 };

/* Src: the manual pages archive_read(3) and archive_entry(3), version 3 */
enum { ARCHIVE_EOF = 1, ARCHIVE_OK = 0, ARCHIVE_WARN = -20 };
struct archive;
struct archive_entry;

struct archive *archive_read_new(void);
int archive_read_support_filter_all(struct archive *a);
int archive_read_support_format_all(struct archive *a);
int archive_read_open_filename(struct archive *a, const char *name, size_t block);
int archive_read_next_header(struct archive *a, struct archive_entry **e);
ssize_t archive_read_data(struct archive *a, void *p, size_t n);
const char *archive_error_string(struct archive *a);
const char *archive_entry_pathname(struct archive_entry *e);
const char *archive_entry_pathname_utf8(struct archive_entry *e);
const char *archive_entry_hardlink(struct archive_entry *e);
const char *archive_entry_symlink(struct archive_entry *e);
mode_t archive_entry_filetype(struct archive_entry *e);
mode_t archive_entry_perm(struct archive_entry *e);
time_t archive_entry_mtime(struct archive_entry *e);
long archive_entry_mtime_nsec(struct archive_entry *e);

#define LIBARCHIVE(X)                                                                              \
    X(archive_read_new)                                                                            \
    X(archive_read_support_filter_all)                                                             \
    X(archive_read_support_format_all)                                                             \
    X(archive_read_open_filename)                                                                  \
    X(archive_read_next_header)                                                                    \
    X(archive_read_data)                                                                           \
    X(archive_error_string)                                                                        \
    X(archive_entry_pathname)                                                                      \
    X(archive_entry_pathname_utf8)                                                                 \
    X(archive_entry_hardlink)                                                                      \
    X(archive_entry_symlink)                                                                       \
    X(archive_entry_filetype)                                                                      \
    X(archive_entry_perm)                                                                          \
    X(archive_entry_mtime)                                                                         \
    X(archive_entry_mtime_nsec)

struct library {
    LIBARCHIVE(DD_LIBRARY_FIELD)
};

/* A path that the archive has listed. */
struct seen {
    UT_hash_handle hh;
    enum stage_kind kind; /* STAGE_FILE, STAGE_DIR or STAGE_SYMLINK */
    char *target;         /* target of a symbolic link; NULL: no link */
    char path[];
};

struct reading {
    struct library lib;
    struct archive *archive;
    const char *path, *number, *name;
    size_t strip; /* bytes of NAME and '/' that each path begins with; 0: none */
    bool begun;
    struct seen *seen;
    struct stage_entry entry;
    struct dd_buf files;               /* the chunk that is being filled */
    struct dd_buf later[STAGE_PHASES]; /* entries of the other phases, after all files: length of an
                                          entry | entry */
    unsigned skipped;
};

/* ---- output ---- */

static void write_all(const void *p, size_t n)
{
    if (dd_write_full(STDOUT_FILENO, p, n) < 0)
        _exit(1); /* ddrun-stage has exited */
}

static void write_head(uint32_t n, enum stage_phase phase)
{
    unsigned char head[STAGE_ARCHIVE_HEAD] = {[STAGE_ARCHIVE_HEAD - 1] = (unsigned char)phase};
    for (size_t i = 0; i < 4; i++)
        head[i] = (unsigned char)(n >> (8 * i));
    write_all(head, sizeof(head));
}

static void write_chunk(struct dd_buf *out, enum stage_phase phase)
{
    if (out->len == 0)
        return;
    write_head((uint32_t)out->len, phase);
    write_all(out->data, out->len);
    dd_buf_clear(out);
}

static _Noreturn void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void fail(const char *fmt, ...)
{
    char text[500];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    stage_printable(text);
    write_head(UINT32_MAX, 0);
    write_all(text, strlen(text));
    exit(1);
}

static _Noreturn void fail_archive(struct reading *r)
{
    const char *why = r->lib.archive_error_string(r->archive);
    fail("--stage: cannot read the archive '%s': %s", r->path,
         why != NULL ? why : "libarchive gives no reason");
}

static void put_later(struct reading *r, enum stage_kind kind)
{
    struct stage_entry *e = &r->entry;
    struct dd_buf *out = &r->later[stage_phase_of(kind)];
    e->kind = kind;
    e->offset = 0;
    e->len = 0;
    int rc = dd_wr_le(out, stage_entry_size(strlen(e->path), strlen(e->target), 0), 4);
    rc = rc == 0 ? stage_entry_encode(out, e) : rc;
    if (rc == -EMSGSIZE)
        fail("--stage: '%s' contains too many directories and links", r->path);
    if (rc < 0)
        fail("--stage: out of memory");
}

static void write_later(struct reading *r, enum stage_phase phase)
{
    struct dd_rd from = dd_rd_of(r->later[phase].data, r->later[phase].len);
    struct dd_buf *chunk = &r->files; /* all files are written */
    while (dd_rd_left(&from) > 0) {
        const uint32_t n = dd_rd_u32(&from);
        if (chunk->len + n > STAGE_RAW_MAX)
            write_chunk(chunk, phase);
        if (dd_buf_append(chunk, dd_rd_bytes(&from, n), n) < 0)
            fail("--stage: out of memory");
    }
    write_chunk(chunk, phase);
}

/* ---- names ---- */

/* Copy the name without leading "./" and trailing '/'. */
static void clean(struct reading *r, char out[STAGE_PATH_MAX + 1], const char *name)
{
    while (name[0] == '.' && name[1] == '/')
        for (name += 2; *name == '/';)
            name++;
    size_t len = strlen(name);
    if (len > STAGE_PATH_MAX)
        fail("--stage: '%s' contains '%.200s…', a name of more than %d bytes", r->path, name,
             STAGE_PATH_MAX);
    memcpy(out, name, len + 1);
    while (len > 0 && out[len - 1] == '/')
        out[--len] = '\0';
    if (strcmp(out, ".") == 0)
        out[0] = '\0';
}

/* below: the part of the path below the top directory */
static _Noreturn void fail_place(const struct reading *r, const char *path, const char *below)
{
    char why[160];
    if (below[0] == '\0')
        (void)snprintf(why, sizeof(why), "it would replace the top directory");
    else if (path[0] == '/')
        (void)snprintf(why, sizeof(why), "its path is absolute");
    else
        (void)snprintf(
            why, sizeof(why),
            "expected at most %d components of at most %d bytes, %d bytes in all, and no "
            "component '.' or '..'",
            STAGE_DEPTH_MAX - 1, STAGE_NAME_MAX, (int)(STAGE_PATH_MAX - strlen(r->number) - 1));
    fail("--stage: '%s' contains '%.200s', which has no place in the copy: %s", r->path, path, why);
}

/* Set out to the path in the copy of an entry of the archive. */
static void place(struct reading *r, char out[STAGE_PATH_MAX + 1], const char *name, bool directory)
{
    char path[STAGE_PATH_MAX + 1];
    const size_t len = strlen(r->name);
    clean(r, path, name);
    if (!r->begun && path[0] != '\0') {
        r->begun = true;
        if (strncmp(path, r->name, len) == 0 &&
            (path[len] == '/' || (path[len] == '\0' && directory)))
            r->strip = len + 1;
    }
    const char *below = path;
    if (r->strip > 0 && path[0] != '\0') {
        if (strncmp(path, r->name, len) != 0 || (path[len] != '/' && path[len] != '\0'))
            fail("--stage: '%s' contains '%.200s', which lies outside of its directory '%s'",
                 r->path, path, r->name);
        below = path[len] == '/' ? path + r->strip : "";
    }
    const int n = snprintf(out, STAGE_PATH_MAX + 1, "%s%s%s", r->number,
                           below[0] != '\0' ? "/" : "", below);
    if (n < 0 || n > STAGE_PATH_MAX || !stage_path_ok(out) || (below[0] == '\0' && !directory))
        fail_place(r, path, below);
}

/* Return the path without the number at its start. */
static const char *inside(const struct reading *r, const char *path)
{
    path += strlen(r->number);
    return *path == '/' ? path + 1 : path;
}

static struct seen *find(const struct reading *r, const char *path)
{
    struct seen *s = NULL;
    const size_t n = strlen(path);
    HASH_FIND(hh, r->seen, path, n, s);
    return s;
}

/* Record a path. An archive may list a directory several times. */
static struct seen *see(struct reading *r, const char *path, bool directory)
{
    const size_t n = strlen(path);
    struct seen *s = find(r, path);
    if (s != NULL && !directory)
        fail("--stage: '%s' contains '%.200s' twice", r->path, inside(r, path));
    if (s != NULL)
        return s;
    s = malloc(sizeof(*s) + n + 1);
    if (s == NULL)
        fail("--stage: out of memory");
    s->kind = directory ? STAGE_DIR : STAGE_FILE;
    s->target = NULL;
    memcpy(s->path, path, n + 1);
    HASH_ADD_KEYPTR(hh, r->seen, s->path, n, s);
    if (s->hh.tbl == NULL)
        fail("--stage: out of memory");
    return s;
}

/* ---- entries ---- */

/* Read data of the file to where put_data() will expect it, until the chunk is full. False: the
 * file may have more. */
static bool read_data(struct reading *r)
{
    struct stage_entry *e = &r->entry;
    unsigned char *to = r->files.data + r->files.len + stage_entry_size(strlen(e->path), 0, 0);
    const size_t room = (size_t)(r->files.data + STAGE_RAW_MAX - to);
    e->len = 0;
    while (e->len < room) {
        const ssize_t n = r->lib.archive_read_data(r->archive, to + e->len, room - e->len);
        if (n < 0) /* ARCHIVE_WARN, too: a wrong checksum or size */
            fail_archive(r);
        if (n == 0)
            return true;
        e->len += (size_t)n;
    }
    return false;
}

static void put_data(struct reading *r, enum stage_kind kind)
{
    r->entry.kind = kind;
    if (stage_entry_encode_head(&r->files, &r->entry) < 0)
        fail("--stage: out of memory");
    r->files.len += r->entry.len;
}

static void take_file(struct reading *r)
{
    struct stage_entry *e = &r->entry;
    e->offset = 0;
    if (r->files.len + stage_entry_size(strlen(e->path), 0, STAGE_WHOLE_MAX) >= STAGE_RAW_MAX)
        write_chunk(&r->files, STAGE_FILES);
    bool all = read_data(r);
    if (all && e->len <= STAGE_WHOLE_MAX) {
        put_data(r, STAGE_FILE);
        return;
    }
    put_data(r, STAGE_PIECE);
    while (!all) {
        write_chunk(&r->files, STAGE_FILES);
        e->offset += e->len;
        all = read_data(r);
        if (e->len > 0)
            put_data(r, STAGE_PIECE);
    }
    put_later(r, STAGE_META);
}

static void take_symlink(struct reading *r, struct seen *s, const char *target)
{
    const int n = snprintf(r->entry.target, sizeof(r->entry.target), "%s", target);
    if (n <= 0)
        fail("--stage: '%s' contains '%.200s', a link without a target", r->path,
             inside(r, s->path));
    if (n > STAGE_PATH_MAX)
        fail("--stage: '%s' contains '%.200s', a link with a target of more than %d bytes", r->path,
             inside(r, s->path), STAGE_PATH_MAX);
    s->kind = STAGE_SYMLINK;
    s->target = strdup(target);
    if (s->target == NULL)
        fail("--stage: out of memory");
    put_later(r, STAGE_SYMLINK);
}

/* A hard link to a symbolic link becomes another symbolic link. */
static void take_hardlink(struct reading *r, struct seen *s, const char *to)
{
    place(r, r->entry.target, to, false);
    const struct seen *first = find(r, r->entry.target);
    if (first == NULL || first == s || first->kind == STAGE_DIR)
        fail(
            "--stage: '%s' contains '%.200s', a hard link to '%.200s', which is no earlier file of "
            "the archive",
            r->path, inside(r, s->path), inside(r, r->entry.target));
    if (first->kind == STAGE_SYMLINK)
        take_symlink(r, s, first->target);
    else
        put_later(r, STAGE_HARDLINK);
}

static void set_mode(struct stage_entry *e, mode_t perm, bool directory)
{
    const uint32_t m = perm & 0777;
    const uint32_t any = (m >> 6 | m >> 3 | m) & 05; /* the user owns the copy */
    e->mode = m | any << 6 | (directory ? 0700 : 0);
}

static void take_entry(struct reading *r, struct archive_entry *a)
{
    const struct library *l = &r->lib;
    struct stage_entry *e = &r->entry;
    const char *name = l->archive_entry_pathname(a);
    name = name != NULL ? name : l->archive_entry_pathname_utf8(a);
    const char *hard = l->archive_entry_hardlink(a);
    const mode_t type = l->archive_entry_filetype(a);
    const bool directory = hard == NULL && type == S_IFDIR;
    if (name == NULL)
        fail("--stage: '%s' contains a name that cannot be converted to UTF-8", r->path);
    if (hard == NULL && type != S_IFREG && type != S_IFDIR && type != S_IFLNK) {
        r->skipped++;
        return;
    }
    place(r, e->path, name, directory);
    e->target[0] = '\0';
    set_mode(e, l->archive_entry_perm(a), directory);
    e->mtime = l->archive_entry_mtime(a);
    e->nsec = (uint32_t)l->archive_entry_mtime_nsec(a) % 1000000000;
    struct seen *s = see(r, e->path, directory);
    if (hard != NULL) {
        take_hardlink(r, s, hard);
    } else if (directory) {
        put_later(r, STAGE_DIR);
        put_later(r, STAGE_META);
    } else if (type == S_IFLNK) {
        const char *target = l->archive_entry_symlink(a);
        take_symlink(r, s, target != NULL ? target : "");
    } else {
        take_file(r);
    }
}

static void read_archive(struct reading *r)
{
    const struct library *l = &r->lib;
    struct archive_entry *e;
    int rc;
    r->archive = l->archive_read_new();
    if (r->archive == NULL || l->archive_read_support_filter_all(r->archive) < ARCHIVE_WARN ||
        l->archive_read_support_format_all(r->archive) < ARCHIVE_WARN)
        fail("--stage: out of memory");
    if (l->archive_read_open_filename(r->archive, r->path, BLOCK) != ARCHIVE_OK)
        fail_archive(r);
    while ((rc = l->archive_read_next_header(r->archive, &e)) != ARCHIVE_EOF)
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            fail_archive(r);
        else
            take_entry(r, e);
    write_chunk(&r->files, STAGE_FILES);
    for (int phase = 0; phase < STAGE_PHASES; phase++)
        write_later(r, (enum stage_phase)phase);
    write_head(0, 0);
}

/* ---- the library ---- */

static int load(struct library *l, struct dd_err *err)
{
#define ROW(function) DD_LIBRARY_ROW(struct library, function),
    static const struct dd_library_row rows[] = {LIBARCHIVE(ROW)};
    return dd_library_load(l, "libarchive.so.13", rows, sizeof(rows) / sizeof(rows[0]), err);
}

static struct reading *reading_new(char **argv)
{
    struct reading *r = calloc(1, sizeof(*r));
    if (r == NULL)
        exit(1);
    r->path = argv[1];
    r->number = argv[2];
    r->name = argv[3];
    r->files = DD_BUF_INIT(STAGE_RAW_MAX);
    if (dd_buf_reserve(&r->files, STAGE_RAW_MAX) < 0)
        exit(1);
    for (int i = 0; i < STAGE_PHASES; i++)
        r->later[i] = DD_BUF_INIT(LATER_MAX);
    return r;
}

int main(int argc, char **argv)
{
    struct library l;
    struct dd_err err = {0};
    const pid_t parent = getppid();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        return 1;
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("ddrun-archive %s\n", PACKAGE_VERSION);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--check") == 0) {
        if (load(&l, &err) == 0)
            return 0;
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (argc != 4) {
        (void)fprintf(stderr, "ddrun-archive is a part of ddrun --stage and started by it\n");
        return USAGE;
    }
    struct reading *r = reading_new(argv);
    if (load(&r->lib, &err) < 0)
        fail("--stage: '%s': %s", r->path, err.text);
    read_archive(r);
    return 0;
}
