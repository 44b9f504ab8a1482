/* ddctl top: two bytes for the size of the terminal, a line of keys, and the daemon's answer. No
 * line of the screen is wider than the terminal, and none has a control character; the JSON is
 * valid. */
#include "base/columns.h"
#include "cmd/ddctl_top_json.h"
#include "cmd/ddctl_top_view.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_LINES = 60 };

static void check_line(const char *text, int columns)
{
    DD_AUTO(buf) struct dd_buf again = DD_BUF_INIT(1 << 20);
    const char *rest = text;
    if (dd_columns_put(&again, &rest, columns, true) < 0 || *rest != '\0' ||
        again.len != strlen(text) || (again.len > 0 && memcmp(again.data, text, again.len) != 0))
        abort();
}

static void draw(struct top_view *v, const struct top_job *j)
{
    struct dd_line lines[MOST_LINES];
    if (top_view_draw(v, j, lines) < 0)
        abort();
    for (int i = 0; i < v->lines; i++) {
        if (lines[i].text != NULL)
            check_line(lines[i].text, v->columns);
        free(lines[i].text);
    }
}

static void check_json(const struct top_job *j)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64 << 20);
    if (top_job_json(j, &out) < 0)
        abort();
    json_t *o = json_loadb((const char *)out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    if (o == NULL)
        abort();
    json_decref(o);
}

static void show(struct top_view *v, const struct top_job *j, const uint8_t *keys, size_t n)
{
    DD_AUTO(buf) struct dd_buf failure = DD_BUF_INIT(TOP_TEXT_MAX);
    DD_AUTO(buf) struct dd_buf plain = DD_BUF_INIT(64 << 20);
    struct top_keys k = {0};
    enum top_key key;
    if (top_view_plain(v, j, &plain) < 0 || top_job_first_failure(j, &failure) < 0)
        abort();
    check_json(j);
    draw(v, j);
    for (size_t i = 0; i < n && i < 40; i++) {
        if (!top_keys_take(&k, keys[i], &key))
            continue;
        if (top_view_key(v, j, key) && key == TOP_KEY_FAILURE)
            top_view_text(v, "first failure", dd_buf_str(&failure));
        draw(v, j);
    }
    if (top_keys_flush(&k, &key))
        (void)top_view_key(v, j, key);
    draw(v, j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(top_job) struct top_job j = {0};
    struct top_view v = TOP_VIEW_INIT;
    struct dd_err err;
    if (size < 3)
        return 0;
    v.lines = 1 + data[0] % (MOST_LINES - 1);
    v.columns = 1 + data[1];
    v.utf8 = data[0] < 128;
    const uint8_t *keys = data + 2;
    const uint8_t *end = memchr(keys, '\n', size - 2);
    if (end == NULL)
        return 0;
    struct top_job before = {0};
    const size_t rest = size - (size_t)(end + 1 - data);
    if (top_job_read(&before, (const char *)end + 1, rest, &err) == 0 &&
        top_job_read(&j, (const char *)end + 1, rest, &err) == 0 && j.n < 20000) {
        for (size_t i = 0; i < before.n; i++) /* some time and work earlier */
            before.rows[i].at_ms /= 1 + (int64_t)data[0], before.rows[i].cpu_ms /= 2;
        top_job_compare(&j, &before);
        show(&v, &j, keys, (size_t)(end - keys));
    }
    top_job_done(&before);
    top_view_done(&v);
    return 0;
}
