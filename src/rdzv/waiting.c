#include "rdzv/waiting.h"

#include "base/num.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_SHOWN = 3, PART_MAX = 512 };

__attribute__((format(printf, 3, 4))) static void waiting_append(char *out, size_t size,
                                                                 const char *fmt, ...)
{
    const size_t n = strlen(out);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(out + n, size - n, fmt, ap);
    va_end(ap);
}

static const char *const waiting_kinds[WAITING_KINDS] = {
    [WAITING_FOR_DAEMON] = "", [WAITING_FOR_NODES] = "nodes", [WAITING_FOR_STOP] = "stop"};

const char *waiting_kind_name(enum waiting_for what)
{
    return waiting_kinds[what];
}

enum waiting_for waiting_kind(const char *name)
{
    int what = WAITING_KINDS - 1;
    while (what > WAITING_FOR_DAEMON && strcmp(waiting_kinds[what], name) != 0)
        what--;
    return (enum waiting_for)what;
}

void waiting_add_name(char list[WAITING_NAMES], int n, const char *name)
{
    if (n < NAMES_SHOWN)
        waiting_append(list, WAITING_NAMES, "%s%.64s", n > 0 ? ", " : "", name);
}

void waiting_end_names(char list[WAITING_NAMES], int n)
{
    if (n > NAMES_SHOWN)
        waiting_append(list, WAITING_NAMES, " and %d more", n - NAMES_SHOWN);
}

static int waiting_left(const struct rdzv_wait *w)
{
    return w->limit_s > w->waited_s ? w->limit_s - w->waited_s : 0;
}

void waiting_notice(char *out, size_t size, const struct rdzv_wait *w, const char *names)
{
    char time[DD_DURATION_TEXT];
    const bool named = names != NULL && names[0] != '\0';
    if (w->ready < w->wanted)
        (void)snprintf(out, size, "waiting for %d of %d node%s%s%.800s", w->wanted - w->ready,
                       w->wanted, w->wanted == 1 ? "" : "s", named ? ": " : "", named ? names : "");
    else
        (void)snprintf(out, size, "waiting for %.800s (%d of %d node%s ready)",
                       named ? names : "other nodes", w->ready, w->wanted,
                       w->wanted == 1 ? "" : "s");
    dd_num_duration_text(time, (uint64_t)(w->starts_s >= 0 ? w->starts_s : waiting_left(w)));
    waiting_append(out, size, w->starts_s >= 0 ? "; starts without them in %s" : "; gives up in %s",
                   time);
}

/* ---- the status line ---- */

static void waiting_times(char *out, const struct rdzv_wait *w)
{
    char waited[DD_DURATION_TEXT];
    char limit[DD_DURATION_TEXT];
    dd_num_duration_text(waited, (uint64_t)(w->waited_s > 0 ? w->waited_s : 0));
    dd_num_duration_text(limit, (uint64_t)(w->starts_s >= 0 ? w->starts_s : w->limit_s));
    waiting_append(out, PART_MAX, w->starts_s >= 0 ? " (%s; starts in %s)" : " (%s of %s)", waited,
                   limit);
}

static void waiting_head(char *out, const struct rdzv_wait *w)
{
    const char *s = w->wanted == 1 ? "" : "s";
    out[0] = '\0';
    switch (w->what) {
    case WAITING_FOR_NODES:
        waiting_append(out, PART_MAX, "ddrun: %d of %d node%s joined", w->ready, w->wanted, s);
        break;
    case WAITING_FOR_STOP:
        waiting_append(out, PART_MAX, "ddrun: restarting, %d of %d node%s stopped", w->ready,
                       w->wanted, s);
        break;
    case WAITING_FOR_DAEMON:
    case WAITING_KINDS:
        waiting_append(out, PART_MAX, "ddrun: looking for the job's daemon");
        break;
    }
    waiting_times(out, w);
}

/* Append the part if all of it fits. */
static void waiting_put(char *out, size_t room, const char *part)
{
    const size_t n = strlen(out);
    if (part[0] != '\0' && n + strlen(part) + 2 < room)
        (void)snprintf(out + n, room - n, "; %s", part);
}

void waiting_line(char *out, size_t size, size_t columns, const struct rdzv_wait *w)
{
    char part[PART_MAX];
    const size_t room = columns < size ? columns : size;
    waiting_head(part, w);
    (void)snprintf(out, room, "%s", part);
    (void)snprintf(part, sizeof(part), w->names[0] != '\0' ? "waiting for %s" : "%s", w->names);
    waiting_put(out, room, part);
    (void)snprintf(part, sizeof(part),
                   w->attempt <= w->attempts ? "attempt %d of %d" : "attempt %d", w->attempt,
                   w->attempts);
    waiting_put(out, room, w->attempts > 1 ? part : "");
    (void)snprintf(part, sizeof(part), "%d worker%s", w->workers, w->workers == 1 ? "" : "s");
    waiting_put(out, room, w->workers > 0 ? part : "");
}
