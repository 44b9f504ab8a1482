#include "report/native_stack.h"

#include "report/stack_frames.h"
#include "report/stacks.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096, REASON_BYTES = 100 };

/* A frame in the output of eu-stack or gdb. */
struct native_frame {
    char function[STACKS_NAME + 1];
    char file[2 * STACKS_NAME];
    int line;
};

static void copy_part(char *to, size_t size, const char *begin, const char *end)
{
    const size_t n = (size_t)(end - begin) < size ? (size_t)(end - begin) : size - 1;
    memcpy(to, begin, n);
    to[n] = '\0';
}

/* Copy a path; of a path that is too long, copy the end. */
static void copy_path(struct native_frame *f, const char *begin, const char *end)
{
    const size_t most = sizeof(f->file) - 1;
    if ((size_t)(end - begin) > most)
        begin = end - most;
    copy_part(f->file, sizeof(f->file), begin, end);
}

static const char *find_last(const char *text, const char *part)
{
    const char *found = NULL;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part))
        found = at;
    return found;
}

/* Parse "FILE:LINE" or "FILE:LINE:COLUMN". False if the text is neither. */
static bool take_source(struct native_frame *f, const char *text)
{
    for (const char *colon = strchr(text, ':'); colon != NULL; colon = strchr(colon + 1, ':')) {
        char *end;
        const long line = strtol(colon + 1, &end, 10);
        if (end == colon + 1 || (*end != '\0' && *end != ':') || line < 0 || line > INT32_MAX)
            continue;
        copy_path(f, text, colon);
        f->line = (int)line;
        return true;
    }
    return false;
}

/* Parse "NAME - MODULE". False if the text is something else. */
static bool take_eu_stack(struct native_frame *f, const char *text)
{
    const char *module = text[0] == '-' && text[1] == ' ' ? text : find_last(text, " - ");
    if (module == NULL)
        return false;
    copy_part(f->function, sizeof(f->function), text, module);
    const char *path = strchr(module, '-') + 2;
    copy_path(f, path, path + strlen(path));
    return true;
}

/* Parse "NAME (...) at FILE:LINE", "NAME (...) from MODULE" or "NAME (...)". */
static void take_gdb(struct native_frame *f, const char *text)
{
    const char *arguments = strstr(text, " (");
    const char *at = find_last(text, ") at ");
    const char *from = find_last(text, ") from ");
    copy_part(f->function, sizeof(f->function), text,
              arguments != NULL ? arguments : text + strlen(text));
    if ((at == NULL || !take_source(f, at + 5)) && from != NULL)
        copy_path(f, from + 7, from + strlen(from));
}

/* Parse "#1  0x00007f… TEXT", or of gdb also "#1  0x00007f… in TEXT" and "#1  TEXT". */
static void take_frame(struct native_frame *f, const char *line)
{
    const char *at = line + 1 + strspn(line + 1, "0123456789");
    at += strspn(at, " ");
    if (strncmp(at, "0x", 2) == 0) {
        at += 2 + strspn(at + 2, "0123456789abcdefABCDEF");
        at += strspn(at, " ");
    }
    if (strncmp(at, "in ", 3) == 0)
        at += 3;
    *f = (struct native_frame){.function = ""};
    if (!take_eu_stack(f, at))
        take_gdb(f, at);
    if (f->function[0] == '\0')
        (void)snprintf(f->function, sizeof(f->function), "??");
}

static bool is_library(const char *path)
{
    const char *so = find_last(path, ".so");
    return so != NULL && (so[3] == '\0' || so[3] == '.');
}

static int put(const struct native_frame *f, struct dd_buf *frames)
{
    return f->function[0] == '\0' ? 0 : stack_put_frame(frames, f->function, f->file, f->line);
}

/* Copy the line at text, and return what follows it. */
static const char *next_line(const char *text, char line[LINE_BYTES])
{
    const size_t n = strcspn(text, "\n");
    copy_part(line, LINE_BYTES, text, text + n);
    return text + n + (text[n] == '\n');
}

int native_stack_parse(const char *text, struct dd_buf *frames)
{
    const size_t begin = frames->len;
    struct native_frame f = {.function = ""};
    char line[LINE_BYTES];
    int n = 0;
    int rc = 0;
    while (*text != '\0' && rc == 0 && n < STACKS_FRAMES && frames->len - begin < STACKS_TEXT) {
        text = next_line(text, line);
        if (line[0] == '#') {
            rc = put(&f, frames);
            take_frame(&f, line);
            n++;
        } else if (n > 0 && strncmp(line, "    ", 4) == 0) {
            if (!is_library(f.file))
                (void)take_source(&f, line + 4);
        } else if (n > 0)
            break; /* the next thread, or the end */
    }
    if (rc == 0)
        rc = put(&f, frames);
    return rc < 0 ? rc : frames->len == begin ? -ENODATA : 0;
}

/* ---- with Python frames ---- */

static bool is_evaluation(const struct stack_frame *f)
{
    static const char name[] = "_PyEval_EvalFrame";
    return (size_t)f->nfunction >= sizeof(name) - 1 &&
           memcmp(f->function, name, sizeof(name) - 1) == 0;
}

int native_stack_merge(const char *native, const char *python, struct dd_buf *frames)
{
    struct stack_frame f;
    const char *end = native;
    const char *at = native;
    int rc = 0;
    while (stack_frame_next(&at, &f) && !is_evaluation(&f))
        end = at;
    const bool whole = *end == '\0'; /* no frame of the interpreter */
    for (at = native; !whole && at < end && rc == 0 && stack_frame_next(&at, &f);)
        rc = dd_buf_printf(frames, "%.*s\t" STACK_FRAME_NATIVE "%.*s\t%.*s\n", f.nfunction,
                           f.function, f.nfile, f.file, f.nline, f.line);
    return rc < 0 ? rc : dd_buf_puts(frames, python);
}

int native_stack_reason(const char *tool, const char *text, struct dd_buf *reason)
{
    if (strcasestr(text, "not permitted") != NULL || strcasestr(text, "permission denied") != NULL)
        return dd_buf_printf(reason, "%s: ptrace is not permitted", tool);
    const size_t n = strcspn(text, "\n");
    int rc = dd_buf_printf(reason, "%s: %s", tool, n == 0 ? "no output" : "");
    for (size_t i = 0; i < n && i < REASON_BYTES && rc == 0; i++)
        rc = dd_buf_append(reason, (unsigned char)text[i] < ' ' ? "?" : &text[i], 1);
    return rc;
}
