#include "pystack/py_stack.h"

#include "pystack/elf_symbols.h"
#include "pystack/py_layout.h"
#include "pystack/py_lines.h"
#include "pystack/py_text.h"
#include "report/stacks.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum {
    TRIES = 3,
    INTERPRETERS_MAX = 64,
    THREADS_MAX = 4096,
    SKIPPED_MAX = 1000, /* frames without code */
};

enum { RUNTIME, CODE, UNICODE, BYTES, VERSION, ADDED_38, ADDED_39, ADDED_310, SYMBOLS };

/* An interpreter of a known version, in a process. */
struct python {
    struct py_memory *m;
    struct py_layout at;
    struct py_types types;
    uint64_t runtime, code_type;
    int pid;
};

/* ---- the interpreter ---- */

static int python_find(struct py_memory *m, const struct py_process *p, struct python *ret,
                       struct dd_err *err)
{
    struct elf_symbol v[SYMBOLS] = {
        [RUNTIME] = {.name = "_PyRuntime"},
        [CODE] = {.name = "PyCode_Type"},
        [UNICODE] = {.name = "PyUnicode_Type"},
        [BYTES] = {.name = "PyBytes_Type"},
        [VERSION] = {.name = "Py_Version"},
        [ADDED_38] = {.name = "PyCode_NewWithPosOnlyArgs"},
        [ADDED_39] = {.name = "PyObject_CallNoArgs"},
        [ADDED_310] = {.name = "Py_IsTrue"},
    };
    int rc = elf_symbols_find(m, p->auxv, p->auxv_size, v, SYMBOLS);
    if (rc == -ENOENT || rc == -ENOEXEC ||
        (rc == 0 && (v[CODE].addr == 0 || v[UNICODE].addr == 0 || v[BYTES].addr == 0)))
        return dd_err_set(err, -ENOTSUP, "found no CPython in the process");
    const struct py_version_at at = {.runtime = v[RUNTIME].addr,
                                     .version = v[VERSION].addr,
                                     .is_38 = v[ADDED_38].addr != 0,
                                     .is_39 = v[ADDED_39].addr != 0,
                                     .is_310 = v[ADDED_310].addr != 0};
    *ret = (struct python){.m = m,
                           .runtime = at.runtime,
                           .code_type = v[CODE].addr,
                           .types = {.text = v[UNICODE].addr, .bytes = v[BYTES].addr},
                           .pid = p->pid};
    return rc == 0 ? py_layout_read(m, &at, &ret->at, err) : rc;
}

/* ---- the thread ---- */

static bool is_main(const struct python *py, uint64_t thread, uint64_t main_thread)
{
    const struct py_layout *at = &py->at;
    const uint32_t field = main_thread != 0 ? at->thread_id : at->native_id;
    uint64_t id;
    return field != PY_NONE && py_memory_u64(py->m, thread + field, &id) == 0 &&
           id == (main_thread != 0 ? main_thread : (uint64_t)py->pid);
}

/* Find the main thread among those of an interpreter, else the oldest thread, which is the last of
 * the list. Return 1 if *ret is the main thread, else 0 or -errno. */
static int thread_in(const struct python *py, uint64_t interpreter, uint64_t main_thread,
                     uint64_t *ret)
{
    uint64_t thread;
    int rc = py_memory_u64(py->m, interpreter + py->at.threads, &thread);
    for (int i = 0; rc == 0 && thread != 0; i++) {
        *ret = thread;
        if (is_main(py, thread, main_thread))
            return 1;
        rc = i < THREADS_MAX ? py_memory_u64(py->m, thread + py->at.thread_next, &thread) : -EAGAIN;
    }
    return rc;
}

/* Find the main thread. If no thread has its id, use the oldest thread of the main interpreter,
 * which is the last of the list. *ret is 0 if there is no thread. */
static int main_thread_of(const struct python *py, uint64_t *ret)
{
    uint64_t main_thread = 0;
    uint64_t interpreter = 0;
    int rc = py->at.main_thread == PY_NONE
                 ? 0
                 : py_memory_u64(py->m, py->runtime + py->at.main_thread, &main_thread);
    *ret = 0;
    if (rc == 0)
        rc = py_memory_u64(py->m, py->runtime + py->at.interpreters, &interpreter);
    for (int i = 0; rc == 0 && interpreter != 0; i++) {
        rc = thread_in(py, interpreter, main_thread, ret);
        if (rc == 0)
            rc = i < INTERPRETERS_MAX
                     ? py_memory_u64(py->m, interpreter + py->at.interpreter_next, &interpreter)
                     : -EAGAIN;
    }
    return rc < 0 ? rc : 0;
}

/* Find the innermost frame. *ret is 0 if the thread runs no Python code. */
static int innermost_frame(const struct python *py, uint64_t thread, uint64_t *ret)
{
    const struct py_layout *at = &py->at;
    uint64_t cframe;
    if (at->cframe == PY_NONE)
        return py_memory_u64(py->m, thread + at->frame, ret);
    int rc = py_memory_u64(py->m, thread + at->cframe, &cframe);
    *ret = 0;
    return rc < 0 || cframe == 0 ? rc : py_memory_u64(py->m, cframe + at->cframe_frame, ret);
}

/* ---- frames ---- */

/* Find the offset of the current instruction, in bytes from the first one. */
static int frame_offset(const struct python *py, uint64_t frame, uint64_t code, int64_t *ret)
{
    const struct py_layout *at = &py->at;
    uint64_t instruction;
    uint32_t index;
    int rc;
    if (at->instructions != PY_NONE) {
        rc = py_memory_u64(py->m, frame + at->last, &instruction);
        *ret = rc < 0 ? 0 : (int64_t)(instruction - (code + at->instructions));
        return rc;
    }
    rc = py_memory_u32(py->m, frame + at->last, &index);
    *ret = rc < 0 ? 0 : (int64_t)(int32_t)index * (at->lines == PY_LINES_RANGES ? 2 : 1);
    return rc;
}

static int frame_line(const struct python *py, uint64_t frame, uint64_t code, int *ret)
{
    DD_AUTO(buf) struct dd_buf table = DD_BUF_INIT(PY_BYTES_MAX);
    int64_t offset;
    uint64_t address;
    uint32_t first;
    int rc = frame_offset(py, frame, code, &offset);
    if (rc == 0)
        rc = py_memory_u32(py->m, code + py->at.first_line, &first);
    if (rc == 0)
        rc = py_memory_u64(py->m, code + py->at.table, &address);
    if (rc == 0)
        rc = py_bytes_read(py->m, &py->at, &py->types, address, &table);
    if (rc == 0)
        *ret = py_lines_find(py->at.lines, table.data, table.len, (int)(first & INT32_MAX), offset);
    return rc;
}

static int put_text(const struct python *py, uint64_t field, struct dd_buf *text)
{
    uint64_t address;
    const int rc = py_memory_u64(py->m, field, &address);
    return rc == 0 ? py_text_read(py->m, &py->at, &py->types, address, text) : rc;
}

/* Append a frame with this code. */
static int put_frame(const struct python *py, uint64_t frame, uint64_t code, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf name = DD_BUF_INIT(PY_TEXT_MAX);
    DD_AUTO(buf) struct dd_buf file = DD_BUF_INIT(PY_TEXT_MAX);
    uint64_t type;
    int line = 0;
    int rc = py_memory_u64(py->m, code + py->at.type, &type);
    if (rc == 0 && type != py->code_type)
        rc = -EAGAIN;
    if (rc == 0)
        rc = put_text(py, code + py->at.name, &name);
    if (rc == 0)
        rc = put_text(py, code + py->at.file, &file);
    if (rc == 0)
        rc = frame_line(py, frame, code, &line);
    if (rc < 0)
        return rc;
    const char *const texts[] = {dd_buf_str(&name), dd_buf_str(&file)};
    return texts[0] != NULL && texts[1] != NULL ? stack_put_frame(out, texts[0], texts[1], line)
                                                : -ENOMEM;
}

/* Return 0 for a frame that the interpreter has inserted: it has no code of the program. Else 1, or
 * -errno. */
static int frame_has_code(const struct python *py, uint64_t frame)
{
    uint8_t owner;
    if (py->at.owner == PY_NONE)
        return 1;
    const int rc = py_memory_get(py->m, frame + py->at.owner, &owner, sizeof(owner));
    return rc < 0 ? rc : owner < py->at.owners;
}

static int put_frames(const struct python *py, uint64_t frame, struct dd_buf *out)
{
    const size_t begin = out->len;
    int frames = 0;
    int rc = 0;
    for (int i = 0; frame != 0 && frames < STACKS_FRAMES && out->len - begin < STACKS_TEXT; i++) {
        uint64_t code = 0;
        rc = i < STACKS_FRAMES + SKIPPED_MAX ? frame_has_code(py, frame) : -EAGAIN;
        if (rc > 0) {
            rc = py_memory_u64(py->m, frame + py->at.code, &code);
            if (rc == 0)
                rc = put_frame(py, frame, code & ~(uint64_t)7, out); /* 3.14 tags the pointer */
            frames++;
        }
        if (rc == 0)
            rc = py_memory_u64(py->m, frame + py->at.back, &frame);
        if (rc < 0)
            return rc;
    }
    return frames == 0 ? -ENODATA : 0;
}

/* Return 1 if the innermost frame has changed since the stack was read. */
static int read_once(const struct python *py, struct dd_buf *out)
{
    uint64_t thread;
    uint64_t frame;
    uint64_t now;
    int rc = main_thread_of(py, &thread);
    if (rc == 0)
        rc = thread == 0 ? -ENODATA : innermost_frame(py, thread, &frame);
    if (rc == 0)
        rc = frame == 0 ? -ENODATA : put_frames(py, frame, out);
    if (rc < 0)
        return rc;
    py_memory_forget(py->m);
    rc = innermost_frame(py, thread, &now);
    return rc < 0 ? rc : now != frame;
}

static int explain(int rc, struct dd_err *err)
{
    switch (rc) {
    case -ENOTSUP:
        return rc;
    case -ENODATA:
        return dd_err_set(err, rc, "no Python frame");
    case -ESRCH:
        return dd_err_set(err, rc, "the process has ended");
    case -ENOMEM:
        return dd_err_set(err, rc, "out of memory");
    case -EPERM:
    case -EACCES:
        return dd_err_set(err, rc, "reading its memory is not permitted");
    default:
        return dd_err_set(err, -EAGAIN, "its stack changed while it was read, or is damaged");
    }
}

int py_stack_read(struct py_memory *m, const struct py_process *p, struct dd_buf *out,
                  struct dd_err *err)
{
    const size_t begin = out->len;
    struct python py;
    int rc = python_find(m, p, &py, err);
    if (rc < 0)
        return explain(rc, err);
    for (int i = 0; i < TRIES && (i == 0 || rc == 1 || rc == -EAGAIN || rc == -EFAULT); i++) {
        py_memory_forget(m);
        out->len = begin;
        rc = read_once(&py, out);
    }
    return rc < 0 ? explain(rc, err) : 0; /* after the last try, frames may be of several stacks */
}
