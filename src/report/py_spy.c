#include "report/py_spy.h"

#include "report/stacks.h"

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <string.h>

/* Return the main thread, which has the id of the process. In another PID namespace, that id
 * differs: return the thread named MainThread, otherwise the last one, since py-spy lists the
 * newest thread first. NULL: no thread. */
static const json_t *main_thread(const json_t *threads, int pid)
{
    const json_t *named = NULL;
    const size_t n = json_array_size(threads);
    for (size_t i = 0; i < n; i++) {
        const json_t *t = json_array_get(threads, i);
        const char *name = json_string_value(json_object_get(t, "thread_name"));
        if (json_integer_value(json_object_get(t, "os_thread_id")) == pid)
            return t;
        if (name != NULL && strcmp(name, "MainThread") == 0)
            named = t;
    }
    return named != NULL ? named : n > 0 ? json_array_get(threads, n - 1) : NULL;
}

static int put_frame(struct dd_buf *out, const json_t *f)
{
    const char *name = json_string_value(json_object_get(f, "name"));
    const char *file = json_string_value(json_object_get(f, "filename"));
    const json_int_t line = json_integer_value(json_object_get(f, "line"));
    return name == NULL || file == NULL
               ? -EPROTO
               : stack_put_frame(out, name, file, line > 0 && line < INT32_MAX ? (int)line : 0);
}

int py_spy_parse(const char *text, size_t len, int pid, struct dd_buf *frames)
{
    json_t *o = json_loadb(text, len, JSON_DISABLE_EOF_CHECK, NULL);
    const json_t *list = json_object_get(main_thread(o, pid), "frames");
    const size_t n = json_array_size(list);
    const size_t begin = frames->len;
    int rc = !json_is_array(o) ? -EPROTO : n == 0 ? -ENODATA : 0;
    for (size_t i = 0; i < n && i < STACKS_FRAMES && rc == 0 && frames->len - begin < STACKS_TEXT;
         i++)
        rc = put_frame(frames, json_array_get(list, i));
    json_decref(o);
    return rc;
}

/* Use the first line: py-spy prints "Error: …", and then each cause as "Reason: …". */
int py_spy_reason(const char *text, struct dd_buf *reason)
{
    const char *use = text;
    if (strcasestr(text, "permission denied") != NULL ||
        strcasestr(text, "operation not permitted") != NULL)
        return dd_buf_puts(reason, "py-spy: ptrace is not permitted");
    if (strncmp(use, "Error: ", 7) == 0)
        use += 7;
    const size_t n = strcspn(use, "\n");
    int rc = dd_buf_puts(reason, "py-spy: ");
    for (size_t i = 0; i < n && i < STACKS_NAME - 10 && rc == 0; i++)
        rc = dd_buf_append(reason, (unsigned char)use[i] < ' ' ? "?" : &use[i], 1);
    return n == 0 && rc == 0 ? dd_buf_puts(reason, "no output") : rc;
}
