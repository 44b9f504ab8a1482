#include "cmd/ddctl_top_view.h"

#include "base/columns.h"
#include "cmd/ddctl_job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAD = 4, /* lines above the rows: job, workers, failure, titles */
    FOOT = 1,
    LINE_MAX_BYTES = 16 << 10,
    NODE_MOST = 24,  /* columns */
    TEXT_LEAST = 12, /* columns left for LAST LINE; with fewer, the column of GPUs is omitted */
};

#define ESC '\033'

/* ---- keys ---- */

static const struct {
    const char *bytes;
    enum top_key key;
} key_table[] = {
    {"k", TOP_KEY_UP},
    {"j", TOP_KEY_DOWN},
    {"b", TOP_KEY_PAGE_UP},
    {" ", TOP_KEY_PAGE_DOWN},
    {"g", TOP_KEY_HOME},
    {"G", TOP_KEY_END},
    {"q", TOP_KEY_QUIT},
    {"s", TOP_KEY_STACKS},
    {"f", TOP_KEY_FAILURE},
    {"l", TOP_KEY_LOG},
    {"\r", TOP_KEY_LOG},
    {"\f", TOP_KEY_REDRAW},
    {"\033[A", TOP_KEY_UP},
    {"\033[B", TOP_KEY_DOWN},
    {"\033OA", TOP_KEY_UP},
    {"\033OB", TOP_KEY_DOWN},
    {"\033[5~", TOP_KEY_PAGE_UP},
    {"\033[H", TOP_KEY_HOME},
    {"\033[6~", TOP_KEY_PAGE_DOWN},
    {"\033[F", TOP_KEY_END},
    {"\033OH", TOP_KEY_HOME},
    {"\033OF", TOP_KEY_END},
    {"\033[1~", TOP_KEY_HOME},
    {"\033[4~", TOP_KEY_END},
    {"\033[7~", TOP_KEY_HOME},
    {"\033[8~", TOP_KEY_END},
};

static enum top_key key_of(const char *bytes)
{
    for (size_t i = 0; i < sizeof(key_table) / sizeof(key_table[0]); i++)
        if (strcmp(key_table[i].bytes, bytes) == 0)
            return key_table[i].key;
    return TOP_KEY_NONE;
}

/* True if the sequence, which begins with ESC, is complete. */
static bool is_complete(const struct top_keys *k)
{
    const char last = k->sequence[k->n - 1];
    if (k->n == 2)
        return last != '[' && last != 'O';
    return k->n > 2 && last >= '@' && last <= '~';
}

bool top_keys_take(struct top_keys *k, unsigned char byte, enum top_key *ret)
{
    if (byte == ESC)
        k->n = 0; /* an unfinished sequence is dropped */
    if (k->n == 0 && byte != ESC) {
        const char one[] = {(char)byte, '\0'};
        *ret = key_of(one);
        return true;
    }
    k->sequence[k->n++] = (char)byte;
    k->sequence[k->n] = '\0';
    if (k->n < (int)sizeof(k->sequence) - 1 && !is_complete(k))
        return false;
    *ret = key_of(k->sequence);
    k->n = 0;
    return true;
}

bool top_keys_flush(struct top_keys *k, enum top_key *ret)
{
    const bool waits = k->n > 0;
    *ret = k->n == 1 ? TOP_KEY_BACK : TOP_KEY_NONE;
    k->n = 0;
    return waits;
}

/* ---- columns ---- */

static void put_rank(char *out, size_t size, const struct top_row *r)
{
    (void)(r->rank < 0 ? snprintf(out, size, "-") : snprintf(out, size, "%d", r->rank));
}

static void put_node(char *out, size_t size, const struct top_row *r)
{
    (void)snprintf(out, size, "%s", r->node);
}

static void put_state(char *out, size_t size, const struct top_row *r)
{
    (void)snprintf(out, size, "%s", r->state);
}

static void put_blame(char *out, size_t size, const struct top_row *r)
{
    (void)snprintf(out, size, "%d", r->charges);
}

static void put_cpu(char *out, size_t size, const struct top_row *r)
{
    (void)(r->cpu_percent < 0 ? snprintf(out, size, "-")
                              : snprintf(out, size, "%d", r->cpu_percent));
}

/* Write bytes as 512K, 37M, 1.4G, 12G. */
static void put_bytes(char *out, size_t size, int64_t bytes)
{
    static const char units[] = "KMGTPE";
    double v = (double)bytes / 1024;
    size_t unit = 0;
    for (; v >= 1000 && unit < sizeof(units) - 2; unit++)
        v /= 1024;
    (void)snprintf(out, size, v < 9.95 && unit > 0 ? "%.1f%c" : "%.0f%c", v, units[unit]);
}

static void put_memory(char *out, size_t size, const struct top_row *r)
{
    if (r->memory < 0)
        (void)snprintf(out, size, "-");
    else
        put_bytes(out, size, r->memory);
}

/* Write " 97%   61G 1410/1980". */
static void put_gpu(char *out, size_t size, const struct top_row *r)
{
    char percent[16] = "-";
    char memory[16] = "-";
    char clock[32] = "";
    if (r->gpu.percent >= 0)
        (void)snprintf(percent, sizeof(percent), "%d%%", r->gpu.percent);
    if (r->gpu.memory >= 0)
        put_bytes(memory, sizeof(memory), r->gpu.memory);
    if (r->gpu.clock_mhz >= 0)
        (void)snprintf(clock, sizeof(clock), "%4d/%d", (int)r->gpu.clock_mhz,
                       (int)r->gpu.clock_max_mhz);
    (void)snprintf(out, size, r->gpu.n > 0 ? "%4s %5s %s" : "   -", percent, memory, clock);
}

static void put_step(char *out, size_t size, const struct top_row *r)
{
    (void)(r->step < 0 ? snprintf(out, size, "-") : snprintf(out, size, "%" PRId64, r->step));
}

/* Write a time as 850us, 8.5ms, 512ms, 1.25s, 640s, 25m. */
static void put_step_time(char *out, size_t size, const struct top_row *r)
{
    const double ms = (double)r->step_us / 1000;
    if (r->step_us < 0)
        (void)snprintf(out, size, "-");
    else if (r->step_us < 1000)
        (void)snprintf(out, size, "%dus", (int)r->step_us);
    else if (ms < 999.5)
        (void)snprintf(out, size, ms < 9.95 ? "%.1fms" : "%.0fms", ms);
    else if (ms < 999.5e3)
        (void)snprintf(out, size, ms < 99.995e3 ? "%.2fs" : "%.0fs", ms / 1e3);
    else
        (void)snprintf(out, size, "%.0fm", ms / 60e3);
}

static void put_last(char *out, size_t size, const struct top_row *r)
{
    (void)snprintf(out, size, "%s", r->failure[0] != '\0' ? r->failure : r->line);
}

static bool always(const struct top_job *j)
{
    (void)j;
    return true;
}

static bool has_cpu(const struct top_job *j)
{
    return j->has_cpu;
}

static bool has_memory(const struct top_job *j)
{
    return j->has_memory;
}

static bool has_gpus(const struct top_job *j)
{
    return j->has_gpus;
}

static bool has_steps(const struct top_job *j)
{
    return j->has_steps;
}

static bool has_charges(const struct top_job *j)
{
    return j->has_charges;
}

/* The columns of a row, from the left. The last column gets the rest of the line. */
static const struct {
    const char *title;
    int width; /* 0: as needed */
    bool right;
    bool (*shown)(const struct top_job *j);
    void (*put)(char *out, size_t size, const struct top_row *r);
} columns[] = {
    {"RANK", 6, true, always, put_rank},
    {"NODE", 0, false, always, put_node},
    {"STATE", 8, false, always, put_state},
    {"CPU%", 5, true, has_cpu, put_cpu},
    {"MEM", 5, true, has_memory, put_memory},
    {" GPU  GMEM  SM MHZ", 20, false, has_gpus, put_gpu},
    {"BLAME", 5, true, has_charges, put_blame},
    {"STEP", 7, true, has_steps, put_step},
    {"T/STEP", 6, true, has_steps, put_step_time},
    {"LAST LINE", 0, false, always, put_last},
};

enum { COLUMNS = sizeof(columns) / sizeof(columns[0]), LAST = COLUMNS - 1 };

/* Return the width of the longest name of a node, at most NODE_MOST. */
static int node_width(const struct top_job *j)
{
    size_t widest = strlen("NODE");
    for (size_t i = 0; i < j->n; i++) {
        const size_t n = strnlen(j->rows[i].node, NODE_MOST);
        widest = n > widest ? n : widest;
    }
    return (int)widest;
}

/* True if the column is shown. If the line is too narrow, only the column of GPUs is omitted. */
static bool is_shown(size_t column, const struct top_job *j, int node, int width)
{
    int fixed = 0;
    if (!columns[column].shown(j))
        return false;
    for (size_t i = 0; i < LAST; i++)
        if (columns[i].shown(j))
            fixed += (columns[i].width > 0 ? columns[i].width : node) + 2;
    return columns[column].put != put_gpu || fixed + TEXT_LEAST <= width;
}

/* A line that is being written. */
struct line {
    struct dd_buf text;
    int used, columns;
    bool utf8;
};

static int put(struct line *l, const char *text)
{
    const int n = dd_columns_put(&l->text, &text, l->columns - l->used, l->utf8);
    l->used += n > 0 ? n : 0;
    return n < 0 ? n : 0;
}

/* Write one column of `width`, and two blanks behind it. */
static int put_column(struct line *l, const char *text, int width, bool right)
{
    char blanks[64];
    const int n = (int)strlen(text); /* numbers are ASCII; dd_columns_pad() pads all other texts */
    int rc = 0;
    if (right && n < width) {
        (void)snprintf(blanks, sizeof(blanks), "%*s", width - n, "");
        rc = put(l, blanks);
    }
    const int rest = l->columns - l->used;
    const int take = right && n < width ? n : width;
    if (rc == 0 && rest > 0) {
        rc = dd_columns_pad(&l->text, text, take < rest ? take : rest, l->utf8);
        l->used += take < rest ? take : rest;
    }
    return rc < 0 ? rc : put(l, "  ");
}

/* Write a row; NULL: the titles. */
static int put_row(struct line *l, const struct top_job *j, const struct top_row *row, int node)
{
    char text[LINE_MAX_BYTES];
    int rc = 0;
    for (size_t i = 0; i < COLUMNS && rc == 0; i++) {
        if (!is_shown(i, j, node, l->columns))
            continue;
        (void)snprintf(text, sizeof(text), "%s", columns[i].title);
        if (row != NULL)
            columns[i].put(text, sizeof(text), row);
        rc = i == LAST ? put(l, text)
                       : put_column(l, text, columns[i].width > 0 ? columns[i].width : node,
                                    columns[i].right);
    }
    return rc;
}

/* ---- lines above the rows ---- */

static int put_job(struct line *l, const struct top_job *j)
{
    char text[LINE_MAX_BYTES];
    char restarts[64] = "--max-restarts=0";
    if (j->max_restarts > 0)
        (void)snprintf(restarts, sizeof(restarts), "%d of %d restart%s used", j->restarts,
                       j->max_restarts, j->max_restarts == 1 ? "" : "s");
    (void)snprintf(text, sizeof(text), "job %s %s, round %d, %s", j->id, j->state, j->round,
                   restarts);
    return put(l, text);
}

static int put_workers(struct line *l, const struct top_job *j)
{
    char text[LINE_MAX_BYTES];
    char step[40] = "";
    char since[40] = "";
    char cpu[40] = "";
    char bytes[40] = "";
    if (j->step >= 0)
        (void)snprintf(step, sizeof(step), ", step %lld", (long long)j->step);
    if (j->seconds >= 0)
        (void)snprintf(since, sizeof(since), ", up %lld:%02d:%02d", (long long)(j->seconds / 3600),
                       (int)(j->seconds / 60 % 60), (int)(j->seconds % 60));
    if (j->has_memory)
        put_bytes(bytes, sizeof(bytes), j->memory);
    if (j->has_cpu)
        (void)snprintf(cpu, sizeof(cpu), ", CPU %d%%", j->cpu_percent);
    (void)snprintf(text, sizeof(text),
                   "%d node%s, %d worker%s: %d running, %d failed%s%s%s%s%s%s%s", j->nodes,
                   j->nodes == 1 ? "" : "s", j->workers, j->workers == 1 ? "" : "s", j->running,
                   j->failed, step, cpu, j->has_memory ? ", memory " : "", bytes, since,
                   j->missing[0] != '\0' ? "; missing: " : "", j->missing);
    return put(l, text);
}

/* Write the first straggler, and the number of the others. */
static int put_straggler(struct line *l, const struct top_job *j)
{
    char text[LINE_MAX_BYTES];
    char more[40] = "";
    const json_t *list = top_job_stragglers(j);
    const size_t n = json_array_size(list);
    if (n == 0)
        return 0;
    if (n > 1)
        (void)snprintf(more, sizeof(more), " (and %zu more)", n - 1);
    (void)snprintf(text, sizeof(text), "straggler%s: %s", more,
                   json_text(json_array_get(list, 0), "text"));
    return put(l, text);
}

/* Write the problem of the last request, the first failure of the round, or the first straggler. */
static int put_problem(struct line *l, const struct top_view *v, const struct top_job *j,
                       enum dd_line_style *style)
{
    char text[LINE_MAX_BYTES];
    const json_t *failed = json_object_get(json_object_get(j->sample, "status"), "failed");
    const json_t *f = json_array_get(failed, 0);
    *style = v->notice[0] != '\0' || f != NULL ? DD_LINE_BAD : DD_LINE_PLAIN;
    if (v->notice[0] != '\0')
        return put(l, v->notice);
    if (f == NULL)
        return put_straggler(l, j);
    const char *why = json_text(f, "text");
    (void)snprintf(text, sizeof(text), "first failure: rank %d on %s%s%s",
                   json_number(f, "rank", 0), json_text(f, "node"), why[0] != '\0' ? ": " : "",
                   why);
    return put(l, text);
}

/* ---- pages ---- */

static int body_lines(const struct top_view *v)
{
    return v->lines - (v->page == TOP_PAGE_JOB ? HEAD : 1) - FOOT;
}

static struct line line_new(const struct top_view *v)
{
    return (struct line){
        .text = DD_BUF_INIT(LINE_MAX_BYTES), .columns = v->columns, .utf8 = v->utf8};
}

/* Move the text of the line to *ret. Fill the line with blanks if the style has a background. */
static int take_line(struct line *l, struct dd_line *ret, enum dd_line_style style)
{
    int rc = 0;
    const bool fills = style == DD_LINE_REVERSE || style == DD_LINE_BAD_REVERSE;
    for (; fills && l->used < l->columns && rc == 0; l->used++)
        rc = dd_buf_puts(&l->text, " ");
    ret->style = style;
    ret->text = rc == 0 ? dd_buf_steal(&l->text) : NULL;
    dd_buf_done(&l->text);
    return ret->text == NULL ? -ENOMEM : 0;
}

/* Keep the selected row on the screen. */
static void top_view_scroll(struct top_view *v, const struct top_job *j)
{
    const size_t n = (size_t)body_lines(v);
    if (v->selected >= j->n)
        v->selected = j->n > 0 ? j->n - 1 : 0;
    if (v->first + n > j->n)
        v->first = j->n > n ? j->n - n : 0;
    if (v->selected < v->first)
        v->first = v->selected;
    if (v->selected >= v->first + n)
        v->first = v->selected - n + 1;
}

static int draw_head(const struct top_view *v, const struct top_job *j, struct dd_line *ret)
{
    enum dd_line_style style;
    struct line l = line_new(v);
    int rc = put_job(&l, j);
    if (rc == 0)
        rc = take_line(&l, &ret[0], DD_LINE_BOLD);
    l = rc == 0 ? line_new(v) : l;
    if (rc == 0)
        rc = put_workers(&l, j);
    if (rc == 0)
        rc = take_line(&l, &ret[1], DD_LINE_PLAIN);
    l = rc == 0 ? line_new(v) : l;
    if (rc == 0)
        rc = put_problem(&l, v, j, &style);
    if (rc == 0)
        rc = take_line(&l, &ret[2], style);
    l = rc == 0 ? line_new(v) : l;
    if (rc == 0)
        rc = put_row(&l, j, NULL, node_width(j));
    if (rc == 0)
        rc = take_line(&l, &ret[3], DD_LINE_REVERSE);
    dd_buf_done(&l.text);
    return rc;
}

static int draw_foot(const struct top_view *v, const char *keys, const char *place,
                     struct dd_line *ret)
{
    struct line l = line_new(v);
    const int gap = v->columns - (int)strlen(keys) - (int)strlen(place);
    int rc = put(&l, keys);
    for (int i = 0; i < gap && rc == 0; i++)
        rc = put(&l, " ");
    if (rc == 0 && gap > 0)
        rc = put(&l, place);
    if (rc == 0)
        rc = take_line(&l, ret, DD_LINE_REVERSE);
    dd_buf_done(&l.text);
    return rc;
}

static int draw_job(struct top_view *v, const struct top_job *j, struct dd_line *ret)
{
    char place[64] = "";
    const int node = node_width(j);
    const int n = body_lines(v);
    top_view_scroll(v, j);
    int rc = draw_head(v, j, ret);
    for (int i = 0; i < n && rc == 0; i++) {
        const size_t at = v->first + (size_t)i;
        if (at >= j->n)
            break;
        const bool bad = j->rows[at].failure[0] != '\0';
        struct line l = line_new(v);
        rc = put_row(&l, j, &j->rows[at], node);
        if (rc == 0)
            rc = take_line(&l, &ret[HEAD + i],
                           at == v->selected ? (bad ? DD_LINE_BAD_REVERSE : DD_LINE_REVERSE)
                           : bad             ? DD_LINE_BAD
                                             : DD_LINE_PLAIN);
        dd_buf_done(&l.text);
    }
    const size_t last = v->first + (size_t)n < j->n ? v->first + (size_t)n : j->n;
    if (j->n > 0)
        (void)snprintf(place, sizeof(place), "%zu-%zu of %zu", v->first + 1, last, j->n);
    return rc < 0 ? rc
                  : draw_foot(v, "q quit  s stacks  l log  f first failure  Up Down PgUp PgDn",
                              place, &ret[v->lines - 1]);
}

/* Wrap the text. Draw the lines from v->first_line on; ret NULL: only count. Return the number of
 * lines, or -errno. */
static int wrap_text(struct top_view *v, struct dd_line *ret)
{
    const char *text = dd_buf_str(&v->text);
    size_t at = 0;
    int rc = text != NULL ? 0 : -ENOMEM;
    while (rc >= 0 && *text != '\0') {
        struct line l = line_new(v);
        rc = dd_columns_put(&l.text, &text, v->columns, v->utf8);
        const bool shown = ret != NULL && at >= v->first_line &&
                           at - v->first_line < (size_t)body_lines(v);
        if (rc >= 0 && shown)
            rc = take_line(&l, &ret[1 + at - v->first_line], DD_LINE_PLAIN);
        dd_buf_done(&l.text);
        text += *text == '\n';
        at++;
    }
    return rc < 0 ? rc : (int)at;
}

static int draw_text(struct top_view *v, struct dd_line *ret)
{
    char place[64] = "";
    const size_t n = (size_t)body_lines(v);
    const int all = wrap_text(v, NULL);
    if (all < 0)
        return all;
    if (v->first_line + n > (size_t)all)
        v->first_line = (size_t)all > n ? (size_t)all - n : 0;
    v->at_end = v->first_line + n >= (size_t)all;
    struct line l = line_new(v);
    int rc = put(&l, v->title);
    if (rc == 0)
        rc = take_line(&l, &ret[0], DD_LINE_REVERSE);
    dd_buf_done(&l.text);
    if (rc == 0)
        rc = wrap_text(v, ret);
    const size_t last = v->first_line + n < (size_t)all ? v->first_line + n : (size_t)all;
    if (all > 0)
        (void)snprintf(place, sizeof(place), "%zu-%zu of %d", v->first_line + 1, last, all);
    return rc < 0 ? rc : draw_foot(v, "q back  Up Down PgUp PgDn", place, &ret[v->lines - 1]);
}

int top_view_draw(struct top_view *v, const struct top_job *j, struct dd_line *ret)
{
    memset(ret, 0, (size_t)v->lines * sizeof(*ret));
    if (v->lines < TOP_LEAST_LINES || v->columns < TOP_LEAST_COLUMNS) {
        struct line l = line_new(v);
        int rc = put(&l, "terminal too small");
        if (rc == 0)
            rc = take_line(&l, &ret[0], DD_LINE_PLAIN);
        dd_buf_done(&l.text);
        return rc;
    }
    return v->page == TOP_PAGE_JOB ? draw_job(v, j, ret) : draw_text(v, ret);
}

static int append_line(struct dd_buf *out, struct line *l)
{
    const char *text = dd_buf_str(&l->text);
    size_t n = text != NULL ? strlen(text) : 0;
    while (n > 0 && text[n - 1] == ' ')
        n--;
    int rc = text == NULL ? -ENOMEM : dd_buf_append(out, text, n);
    dd_buf_done(&l->text);
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
}

int top_view_plain(const struct top_view *v, const struct top_job *j, struct dd_buf *out)
{
    enum dd_line_style style;
    const int node = node_width(j);
    struct line l = line_new(v);
    int rc = put_job(&l, j);
    if (rc == 0)
        rc = append_line(out, &l);
    if (rc == 0)
        rc = put_workers(&l, j);
    l.used = 0;
    if (rc == 0)
        rc = append_line(out, &l);
    l.used = 0;
    if (rc == 0)
        rc = put_problem(&l, v, j, &style);
    if (rc == 0 && l.used > 0)
        rc = append_line(out, &l);
    for (size_t i = 0; i <= j->n && rc == 0; i++) {
        l.used = 0;
        rc = put_row(&l, j, i > 0 ? &j->rows[i - 1] : NULL, node);
        if (rc == 0)
            rc = append_line(out, &l);
    }
    dd_buf_done(&l.text);
    return rc;
}

/* ---- what keys do ---- */

void top_view_done(struct top_view *v)
{
    dd_buf_done(&v->text);
}

void top_view_text(struct top_view *v, const char *title, const char *text)
{
    v->title = title;
    dd_buf_clear(&v->text);
    (void)dd_buf_append(&v->text, text, strnlen(text, TOP_TEXT_MAX - 1));
    v->page = TOP_PAGE_TEXT;
    v->first_line = 0;
}

void top_view_more(struct top_view *v, const char *text)
{
    const size_t first = v->at_end ? SIZE_MAX / 2 : v->first_line; /* draw_text() limits it */
    top_view_text(v, v->title, text);
    v->first_line = first;
}

static size_t moved(size_t at, enum top_key key, size_t page, size_t last)
{
    const size_t most = at < last ? last : at;
    if (key == TOP_KEY_UP)
        return at > 0 ? at - 1 : 0;
    if (key == TOP_KEY_DOWN)
        return at < most ? at + 1 : most;
    if (key == TOP_KEY_PAGE_UP)
        return at > page ? at - page : 0;
    if (key == TOP_KEY_PAGE_DOWN)
        return most - at > page ? at + page : most;
    return key == TOP_KEY_HOME ? 0 : key == TOP_KEY_END ? most : at;
}

bool top_view_key(struct top_view *v, const struct top_job *j, enum top_key key)
{
    const size_t page = body_lines(v) > 0 ? (size_t)body_lines(v) : 1;
    if (v->page == TOP_PAGE_JOB) {
        v->selected = moved(v->selected, key, page, j->n > 0 ? j->n - 1 : 0);
        return key >= TOP_KEY_QUIT;
    }
    if (key == TOP_KEY_QUIT || key == TOP_KEY_BACK) {
        v->page = TOP_PAGE_JOB;
        return false;
    }
    v->first_line = moved(v->first_line, key, page, v->text.len); /* draw_text() limits it */
    return key == TOP_KEY_REDRAW;
}
