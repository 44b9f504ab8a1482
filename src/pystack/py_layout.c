#include "pystack/py_layout.h"

#include <errno.h>
#include <string.h>

enum {
    OFFSET_MAX = 8 << 20,
    WORDS = 96, /* 64-bit words of _Py_DebugOffsets that are read */
    WORD_VERSION = 1,
    WORD_FREE_THREADED = 2,
    LEVEL_CANDIDATE = 0xc,
};

/* sizeof(PyCompactUnicodeObject) - sizeof(PyASCIIObject) */
enum { WIDE_MORE = 16 };

/* Offsets that several versions have in common. */
#define OBJECTS .text_length = 16, .text_state = 32, .bytes_length = 16, .bytes = 32, .type = 8
#define TEXT_UP_TO_311 .text_ascii = 48, .text_wide = 72
#define FRAME_OBJECTS                                                                              \
    .interpreters = 32, .main_thread = 72, .interpreter_next = 0, .threads = 8, .thread_next = 8,  \
    .thread_id = 176, .native_id = PY_NONE, .frame = 24, .cframe = PY_NONE, .back = 24,            \
    .code = 32, .owner = PY_NONE, .file = 104, .name = 112, .first_line = 40, .table = 120,        \
    .instructions = PY_NONE, OBJECTS, TEXT_UP_TO_311

static const struct py_layout layouts[] = {
    {.minor = 8, .lines = PY_LINES_LNOTAB, .last = 104, FRAME_OBJECTS},
    {.minor = 9, .lines = PY_LINES_LNOTAB, .last = 104, FRAME_OBJECTS},
    {.minor = 10, .lines = PY_LINES_RANGES, .last = 96, FRAME_OBJECTS},
    {.minor = 11,
     .lines = PY_LINES_LOCATIONS,
     .interpreters = 40,
     .main_thread = PY_NONE,
     .interpreter_next = 0,
     .threads = 16,
     .thread_next = 8,
     .thread_id = 152,
     .native_id = 160,
     .frame = PY_NONE,
     .cframe = 56,
     .cframe_frame = 8,
     .back = 48,
     .code = 32,
     .last = 56,
     .owner = 69,
     .owners = UINT8_MAX,
     .file = 112,
     .name = 120,
     .first_line = 72,
     .table = 136,
     .instructions = 184,
     OBJECTS,
     TEXT_UP_TO_311},
    {.minor = 12,
     .lines = PY_LINES_LOCATIONS,
     .interpreters = 40,
     .main_thread = PY_NONE,
     .interpreter_next = 0,
     .threads = 72,
     .thread_next = 8,
     .thread_id = 136,
     .native_id = 144,
     .frame = PY_NONE,
     .cframe = 56,
     .cframe_frame = 0,
     .back = 8,
     .code = 0,
     .last = 56,
     .owner = 70,
     .owners = 3,
     .file = 112,
     .name = 120,
     .first_line = 68,
     .table = 136,
     .instructions = 192,
     OBJECTS,
     .text_ascii = 40,
     .text_wide = 40 + WIDE_MORE},
};

/* Positions in _Py_DebugOffsets, in 64-bit words: those of each structure, and of native_id, which
 * differs between versions. The other fields that are used have the same order in all versions.
 * Src: pycore_debug_offsets.h and pycore_runtime.h of CPython 3.13.0, 3.14.10 and 3.15.2. */
static const struct published {
    unsigned minor;
    uint8_t thread, native_id, frame, code, object, bytes, text;
} published[] = {
    {.minor = 13,
     .thread = 19,
     .native_id = 25,
     .frame = 28,
     .code = 34,
     .object = 44,
     .bytes = 64,
     .text = 67},
    {.minor = 14,
     .thread = 22,
     .native_id = 28,
     .frame = 31,
     .code = 39,
     .object = 50,
     .bytes = 74,
     .text = 77},
    {.minor = 15,
     .thread = 22,
     .native_id = 31,
     .frame = 39,
     .code = 47,
     .object = 58,
     .bytes = 86,
     .text = 89},
};

static const struct published *published_of(unsigned minor)
{
    for (size_t i = 0; i < sizeof(published) / sizeof(published[0]); i++)
        if (published[i].minor == minor)
            return &published[i];
    return NULL;
}

static void layout_from_words(const struct published *p, const uint64_t w[WORDS],
                              struct py_layout *ret)
{
    *ret = (struct py_layout){
        .minor = p->minor,
        .lines = PY_LINES_LOCATIONS,
        .interpreters = (uint32_t)w[5],
        .main_thread = PY_NONE,
        .interpreter_next = (uint32_t)w[8],
        .threads = (uint32_t)w[9],
        .thread_next = (uint32_t)w[p->thread + 2],
        .frame = (uint32_t)w[p->thread + 4],
        .thread_id = (uint32_t)w[p->native_id - 1],
        .native_id = (uint32_t)w[p->native_id],
        .cframe = PY_NONE,
        .back = (uint32_t)w[p->frame + 1],
        .code = (uint32_t)w[p->frame + 2],
        .last = (uint32_t)w[p->frame + 3],
        .owner = (uint32_t)w[p->frame + 5],
        .owners = 3,
        .file = (uint32_t)w[p->code + 1],
        .name = (uint32_t)w[p->code + 2],
        .table = (uint32_t)w[p->code + 4],
        .first_line = (uint32_t)w[p->code + 5],
        .instructions = (uint32_t)w[p->code + 9],
        .type = (uint32_t)w[p->object + 1],
        .bytes_length = (uint32_t)w[p->bytes + 1],
        .bytes = (uint32_t)w[p->bytes + 2],
        .text_state = (uint32_t)w[p->text + 1],
        .text_length = (uint32_t)w[p->text + 2],
        .text_ascii = (uint32_t)w[p->text + 3],
        .text_wide = (uint32_t)w[p->text + 3] + WIDE_MORE,
    };
}

/* Return 1 if the interpreter publishes its offsets, 0 if not, or -errno. */
static int layout_published(struct py_memory *m, uint64_t runtime, struct py_layout *ret,
                            struct dd_err *err)
{
    uint64_t w[WORDS];
    const int rc = py_memory_get(m, runtime, w, sizeof(w));
    if (rc < 0)
        return rc;
    if (memcmp(w, "xdebugpy", 8) != 0)
        return 0;
    const unsigned version = (unsigned)(w[WORD_VERSION] >> 16 & 0xffff);
    const struct published *p = version >> 8 == 3 ? published_of(version & 0xff) : NULL;
    if (p == NULL || (w[WORD_VERSION] >> 4 & 0xf) < LEVEL_CANDIDATE)
        return dd_err_set(err, -ENOTSUP, "stacks of Python %u.%u%s are unknown", version >> 8,
                          version & 0xff, p != NULL ? " before its release candidates" : "");
    if (w[WORD_FREE_THREADED] != 0)
        return dd_err_set(err, -ENOTSUP, "stacks of free-threaded Python are unknown");
    for (size_t i = WORD_FREE_THREADED; i < WORDS; i++)
        if (w[i] > OFFSET_MAX)
            w[i] = 0; /* not an offset that is used here, or overwritten by the process */
    layout_from_words(p, w, ret);
    return 1;
}

int py_layout_read(struct py_memory *m, const struct py_version_at *at, struct py_layout *ret,
                   struct dd_err *err)
{
    unsigned version = at->is_310 ? 0x030a : at->is_39 ? 0x0309 : at->is_38 ? 0x0308 : 0;
    uint64_t value;
    int rc = layout_published(m, at->runtime, ret, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (at->version != 0) {
        rc = py_memory_u64(m, at->version, &value);
        if (rc < 0)
            return rc;
        version = (unsigned)(value >> 16 & 0xffff);
    }
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        if (version >> 8 == 3 && (version & 0xff) == layouts[i].minor) {
            *ret = layouts[i];
            return 0;
        }
    return version == 0 ? dd_err_set(err, -ENOTSUP, "stacks of Python before 3.8 are unknown")
                        : dd_err_set(err, -ENOTSUP, "stacks of Python %u.%u are unknown",
                                     version >> 8, version & 0xff);
}
