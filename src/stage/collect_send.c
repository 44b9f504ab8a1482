/* The sending side of --collect: the files of this node, one after the other. */
#include "base/auto.h"
#include "base/io.h"
#include "base/num.h"
#include "base/strv.h"
#include "stage/collect_inner.h"
#include "stage/collect_list.h"
#include "stage/collect_rules.h"
#include "stage/compile_cache.h"
#include "stage/compile_send.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

enum { LIMIT_MAX_S = 3600, LEVEL = 1, AGAIN_MS = 5000 };

struct send {
    struct collect *c;
    struct collect_list list;
    struct link_find *find;
    struct event *limit_event; /* time limit of find, or delay of the next connection */
    struct link *link;
    size_t at;    /* number of files that have been offered */
    bool open;    /* the last offer has no final answer yet */
    bool greeted; /* HELLO has been answered */
    bool bye;     /* BYE has been sent */
    int fd;       /* -1: none */
    struct stat st;
    uint64_t offset, sent, taken; /* bytes read; pieces sent, and confirmed */
    uint64_t bytes;
    size_t came, had, missing;
    uint64_t unmatched;              /* set of the rules that match nothing */
    char missed[STAGE_PATH_MAX + 1]; /* the last unit of the cache that lacked a file */
    unsigned char *raw, *packed;
    size_t packed_max;
    ZSTD_CCtx *pack;
};

static void send_missing(struct send *s, const char *path, const char *why)
{
    char text[STAGE_PATH_MAX + COLLECT_REASON_MAX + 20];
    (void)snprintf(text, sizeof(text), "'%.*s': %.*s", STAGE_PATH_MAX, path, COLLECT_REASON_MAX,
                   why);
    s->missing++;
    collect_tell(s->c, STAGE_MSG_MISSING, text);
}

static void send_miss_item(struct send *s, const struct collect_item *i, const char *why)
{
    if (i->rule != COLLECT_CACHE) {
        send_missing(s, i->path, why);
        return;
    }
    s->missing++; /* no message: the job does not need the cache */
    (void)snprintf(s->missed, sizeof(s->missed), "%.*s",
                   (int)compile_cache_unit(i->path + i->prefix), i->path + i->prefix);
}

/* True for the last file of a cache unit that lacks a file: it would mark the unit complete. */
static bool send_is_useless(const struct send *s, const struct collect_item *i)
{
    const char *path = i->path + i->prefix;
    return i->rule == COLLECT_CACHE && compile_cache_is_last(path) && s->missed[0] != '\0' &&
           strncmp(path, s->missed, compile_cache_unit(path)) == 0 &&
           s->missed[compile_cache_unit(path)] == '\0';
}

static void send_unreadable(void *arg, const char *path, int error)
{
    send_missing(arg, path, strerror(error));
}

static void send_alive(void *arg)
{
    const struct send *s = arg;
    collect_tell(s->c, STAGE_MSG_ALIVE, NULL);
}

static void send_finish(const struct send *s)
{
    char text[200];
    char size[40];
    if (s->bytes >= 1000000)
        (void)snprintf(size, sizeof(size), "%.1f MB", (double)s->bytes / 1e6);
    else
        (void)snprintf(size, sizeof(size), "%.1f KB", (double)s->bytes / 1e3);
    if (s->came > 0)
        (void)snprintf(text, sizeof(text),
                       "%zu file%s with %s sent, %zu unchanged, %zu not collected", s->came,
                       s->came == 1 ? "" : "s", s->bytes < 100 ? "less than 0.1 KB" : size, s->had,
                       s->missing);
    else
        (void)snprintf(text, sizeof(text), "no file sent, %zu unchanged, %zu not collected", s->had,
                       s->missing);
    collect_tell(s->c, STAGE_MSG_COLLECTED, text);
}

/* Report each file that was not collected, and exit. */
static _Noreturn void send_give_up(struct send *s, const char *why)
{
    for (size_t i = s->open && s->at > 0 ? s->at - 1 : s->at; i < s->list.n; i++)
        send_miss_item(s, &s->list.items[i], why);
    send_finish(s);
    _exit(0);
}

/* ---- one file ---- */

static struct collect_item *send_item(const struct send *s)
{
    return &s->list.items[s->at - 1];
}

static void send_plain(struct send *s, enum collect_type type)
{
    const struct collect_frame f = {.type = type, .number = (uint32_t)s->at};
    if (!collect_send_frame(s->link, &f))
        link_fail(s->link, "a frame", -ENOBUFS);
}

static void send_bye(struct send *s)
{
    const struct collect_frame f = {
        .type = COLLECT_BYE, .number = (uint32_t)s->at, .size = s->unmatched};
    s->bye = true;
    if (!collect_send_frame(s->link, &f))
        link_fail(s->link, "BYE", -ENOBUFS);
}

static bool send_unchanged(const struct send *s)
{
    struct stat st;
    return fstat(s->fd, &st) == 0 && st.st_size == s->st.st_size &&
           st.st_mtim.tv_sec == s->st.st_mtim.tv_sec && st.st_mtim.tv_nsec == s->st.st_mtim.tv_nsec;
}

static void send_close(struct send *s)
{
    if (s->fd >= 0)
        close(DD_TAKE_FD(s->fd));
    s->open = false;
}

/* Check the name of a file in DIR. False: the file has been reported as missing. */
static bool send_name_ok(struct send *s, const struct collect_item *i, const char *name)
{
    char why[160];
    if (stage_path_ok(name))
        return true;
    (void)snprintf(
        why, sizeof(why),
        "expected a path in DIR of at most %d bytes and at most %d components, none of them "
        "empty or '.'",
        STAGE_PATH_MAX, STAGE_DEPTH_MAX);
    send_miss_item(s, i, why);
    return false;
}

/* Open the next file and offer it. False: it cannot be read, or is useless. */
static bool send_offer(struct send *s)
{
    const struct collect_item *i = &s->list.items[s->at++];
    struct collect_frame f = {.type = COLLECT_OFFER, .number = (uint32_t)s->at};
    s->offset = s->sent = s->taken = 0;
    if (send_is_useless(s, i))
        return false;
    s->fd = open(i->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (s->fd < 0 || fstat(s->fd, &s->st) < 0 || !S_ISREG(s->st.st_mode)) {
        send_miss_item(s, i, s->fd < 0 ? strerror(errno) : "it is not a file any more");
        return false;
    }
    if (s->st.st_uid != geteuid() && s->st.st_uid != 0) {
        send_miss_item(s, i, "it belongs to another user");
        return false;
    }
    const char *name = i->name != NULL ? i->name : i->path + i->prefix;
    (void)snprintf(f.text, sizeof(f.text), "%s", name);
    if (!send_name_ok(s, i, name))
        return false;
    f.verdict = i->rule;
    f.mode = (uint32_t)s->st.st_mode & 0777;
    f.mtime = s->st.st_mtim.tv_sec;
    f.nsec = (uint32_t)s->st.st_mtim.tv_nsec;
    f.size = (uint64_t)s->st.st_size;
    s->open = true;
    if (!collect_send_frame(s->link, &f))
        link_fail(s->link, "OFFER", -ENOBUFS);
    return true;
}

static void send_next(struct send *s)
{
    send_close(s);
    while (s->at < s->list.n) {
        if (send_offer(s))
            return;
        send_close(s);
    }
    send_bye(s);
}

static void send_drop(struct send *s, const char *why)
{
    send_plain(s, COLLECT_DROP);
    send_miss_item(s, send_item(s), why);
    send_next(s);
}

/* Send one piece. False: the file was dropped. */
static bool send_piece(struct send *s)
{
    const uint64_t left = (uint64_t)s->st.st_size - s->offset;
    const size_t n = left < COLLECT_PIECE_MAX ? (size_t)left : COLLECT_PIECE_MAX;
    const ssize_t got = pread(s->fd, s->raw, n, (off_t)s->offset);
    if (got <= 0) {
        send_drop(s, got < 0 ? strerror(errno) : "it changed while it was read");
        return false;
    }
    const size_t packed = ZSTD_compressCCtx(s->pack, s->packed, s->packed_max, s->raw, (size_t)got,
                                            LEVEL);
    const struct collect_frame f = {.type = COLLECT_PIECE,
                                    .number = (uint32_t)s->at,
                                    .size = (uint64_t)got,
                                    .data = s->packed,
                                    .len = packed};
    if (ZSTD_isError(packed) || !collect_send_frame(s->link, &f)) {
        link_fail(s->link, "PIECE", ZSTD_isError(packed) ? -ENOMEM : -ENOBUFS);
        return false;
    }
    s->offset += (uint64_t)got;
    s->sent++;
    return true;
}

static void send_pump(struct send *s)
{
    const uint64_t size = (uint64_t)s->st.st_size;
    while (s->fd >= 0 && s->offset < size && s->sent - s->taken < COLLECT_WINDOW)
        if (!send_piece(s))
            return;
    if (s->fd < 0 || s->offset < size)
        return;
    if (!send_unchanged(s)) {
        send_drop(s, "it changed while it was read");
        return;
    }
    close(DD_TAKE_FD(s->fd));
    send_plain(s, COLLECT_COMMIT);
}

/* ---- the link ---- */

static void send_connect_later(struct send *s);

static void send_take_answer(struct send *s, const struct collect_frame *f)
{
    if (f->verdict == COLLECT_WANT) {
        send_pump(s);
        return;
    }
    if (f->verdict == COLLECT_REFUSED) {
        send_miss_item(s, send_item(s), f->text);
    } else if (s->fd >= 0) { /* the receiver already had the file */
        s->had++;
    } else {
        s->came++;
        s->bytes += (uint64_t)s->st.st_size;
    }
    send_next(s);
}

static void send_on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct send *s = arg;
    struct collect_frame cf;
    (void)l;
    if (f->type != FRAME_STAGE || collect_frame_decode(&cf, f->data, f->len) < 0)
        return;
    if (cf.type == COLLECT_ANSWER && !s->greeted) {
        s->greeted = cf.verdict != COLLECT_BUSY;
        if (cf.verdict == COLLECT_BUSY)
            send_connect_later(s);
        else
            send_next(s);
    } else if (cf.type == COLLECT_ANSWER && s->bye) {
        send_finish(s);
        link_bye(DD_TAKE(s->link));
    } else if (cf.type == COLLECT_ANSWER && s->open && cf.number == s->at) {
        send_take_answer(s, &cf);
    } else if (cf.type == COLLECT_TAKEN && s->open && cf.number == s->at && cf.size <= s->sent) {
        s->taken = cf.size;
        send_pump(s);
    }
}

static void send_on_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct send *s = arg;
    char text[LINK_WHY_MAX + 300];
    (void)l;
    (void)clean;
    (void)snprintf(text, sizeof(text), "the connection to %.200s was lost: %s",
                   s->c->setup.texts.v[STAGE_COLLECT_PEER], why);
    send_give_up(s, text);
}

static void send_on_found(void *arg, struct link *l)
{
    struct send *s = arg;
    struct collect_frame f = {.type = COLLECT_HELLO};
    (void)evtimer_del(s->limit_event);
    link_find_free(DD_TAKE(s->find));
    s->link = l;
    link_set_cb(l,
                &(struct link_cb){.on_frame = send_on_frame, .on_close = send_on_close, .arg = s});
    (void)link_set_heartbeat(l, COLLECT_SILENCE_MS);
    (void)snprintf(f.text, sizeof(f.text), "%s", s->c->setup.texts.v[STAGE_COLLECT_FOLDER]);
    if (!collect_send_frame(l, &f))
        link_fail(l, "HELLO", -ENOBUFS);
}

static int send_connect(struct send *s, struct dd_err *err)
{
    char *const *t = s->c->setup.texts.v;
    char *addrs[] = {t[STAGE_COLLECT_ADDR], NULL};
    int port, limit_s;
    if (dd_num_int(t[STAGE_COLLECT_PORT], 1, 65535, &port) < 0)
        return dd_err_set(err, -EINVAL, "malformed message from the agent: invalid port '%s'",
                          t[STAGE_COLLECT_PORT]);
    if (dd_num_int(t[STAGE_COLLECT_LIMIT], 1, LIMIT_MAX_S, &limit_s) < 0)
        return dd_err_set(err, -EINVAL, "malformed message from the agent: invalid limit '%s'",
                          t[STAGE_COLLECT_LIMIT]);
    const uint16_t ports[] = {(uint16_t)port};
    const struct link_find_cfg cfg = {
        .job_id = t[STAGE_COLLECT_JOB],
        .node = t[STAGE_COLLECT_NODE],
        .host = t[STAGE_COLLECT_ADDR],
        .addrs = addrs,
        .host_is_me = true,
        .ports = ports,
        .nports = 1,
        .bind_addr = t[STAGE_COLLECT_BIND][0] != '\0' ? t[STAGE_COLLECT_BIND] : NULL,
        .key_in = &s->c->key_in,
        .attempt_ms = COLLECT_HELLO_MS};
    const struct timeval limit = {.tv_sec = limit_s};
    if (evtimer_add(s->limit_event, &limit) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    return link_find_start(&s->find, s->c->base, &cfg, send_on_found, s, err);
}

static void send_on_limit(evutil_socket_t fd, short what, void *arg)
{
    struct send *s = arg;
    struct dd_err err = {0};
    char why[600];
    (void)fd;
    (void)what;
    if (s->find == NULL) { /* the receiver was busy */
        if (send_connect(s, &err) < 0)
            send_give_up(s, err.text);
        return;
    }
    (void)snprintf(why, sizeof(why), "cannot connect to %.200s: %.300s",
                   s->c->setup.texts.v[STAGE_COLLECT_PEER], link_find_status(s->find));
    send_give_up(s, why);
}

/* The random delay spreads the retries of nodes that the receiver refused at the same time. */
static void send_connect_later(struct send *s)
{
    uint16_t more = 0;
    if (getrandom(&more, sizeof(more), GRND_NONBLOCK) < 0)
        more = (uint16_t)getpid();
    const struct timeval tv = dd_timeval((AGAIN_MS + more % (2U * AGAIN_MS)) * DD_NS_PER_MS);
    link_free(DD_TAKE(s->link));
    (void)evtimer_add(s->limit_event, &tv);
}

static int send_list_cache(struct send *s, struct dd_err *err)
{
    char *const *t = s->c->setup.texts.v;
    int how;
    uint64_t failed_at;
    if (dd_num_int(t[STAGE_COLLECT_CACHE_HOW], 0, INT32_MAX, &how) < 0 ||
        dd_num_u64(t[STAGE_COLLECT_CACHE_FAILED], 0, INT64_MAX, &failed_at) < 0)
        return dd_err_set(err, -EPROTO, "malformed message from the agent");
    const int rc = compile_send_list(&s->list, t[STAGE_COLLECT_CACHE], t[STAGE_COLLECT_KIND], how,
                                     (int64_t)failed_at);
    return rc == 0
               ? 0
               : dd_err_set(err, rc, "cannot list the caches in '%s': %s", t[STAGE_COLLECT_CACHE],
                            rc == -E2BIG ? "too many files" : "out of memory");
}

/* List the files of one rule, or report why its pattern cannot be read. 0 or -ENOMEM. */
static int send_list_rule(struct send *s, unsigned rule, struct dd_err *err)
{
    char *const *t = s->c->setup.texts.v;
    const char *pattern = t[STAGE_COLLECT_RULES + rule];
    const size_t before = s->list.matched;
    DD_AUTO(free) char *full = NULL;
    int rc = collect_rule_expand(&full, pattern, t[STAGE_COLLECT_DIRECTORY], environ, err);
    if (rc == 0)
        rc = collect_list_add(&s->list, rule, full, err);
    if (rc == -ENOMEM)
        return rc;
    if (rc < 0)
        send_missing(s, pattern, err->text);
    else if (s->list.matched == before)
        s->unmatched |= UINT64_C(1) << rule;
    return 0;
}

static int send_list(struct send *s, struct dd_err *err)
{
    const struct dd_strv *t = &s->c->setup.texts;
    if (setenv("DDRUN_NODE", t->v[STAGE_COLLECT_NODE], 1) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = STAGE_COLLECT_RULES; i < t->n; i++)
        if (send_list_rule(s, (unsigned)(i - STAGE_COLLECT_RULES), err) < 0)
            return err->rc;
    if (t->v[STAGE_COLLECT_CACHE][0] != '\0' && send_list_cache(s, err) < 0)
        return err->rc;
    if (s->list.skipped > 0) {
        char why[160];
        (void)snprintf(
            why, sizeof(why),
            "left out, with %zu more: symbolic links, pipes, sockets, devices and files of other users",
            s->list.skipped - 1);
        send_missing(
            s, s->list.first_skipped,
            s->list.skipped == 1
                ? "it is a symbolic link, pipe, socket or device, or belongs to another user"
                : why);
    }
    return 0;
}

int collect_send(struct collect *c, struct dd_err *err)
{
    static struct send s;
    s = (struct send){.c = c,
                      .fd = -1,
                      .raw = malloc(COLLECT_PIECE_MAX),
                      .packed_max = ZSTD_compressBound(COLLECT_PIECE_MAX),
                      .pack = ZSTD_createCCtx()};
    s.packed = malloc(s.packed_max);
    s.limit_event = evtimer_new(c->base, send_on_limit, &s);
    if (s.raw == NULL || s.packed == NULL || s.pack == NULL || s.limit_event == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    s.list.unreadable = send_unreadable;
    s.list.alive = send_alive;
    s.list.arg = &s;
    const int rc = send_list(&s, err);
    return rc == 0 ? send_connect(&s, err) : rc;
}
