/* pystack: any memory of a process; what is read are frames in bounds, in valid UTF-8. */
#include "../unit/python_image.h"
#include "base/utf8.h"
#include "pystack/py_lines.h"
#include "report/stacks.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORDS = 2000 };

static void check(const char *frames)
{
    size_t n = 0;
    if (!dd_utf8_is(frames) || strlen(frames) > 2 * (size_t)STACKS_TEXT)
        abort();
    for (const char *at = frames; *at != '\0'; n++) {
        const size_t length = strcspn(at, "\n");
        const char *tab = memchr(at, '\t', length);
        if (at[length] != '\n' || tab == NULL ||
            memchr(tab + 1, '\t', length - (size_t)(tab + 1 - at)) == NULL)
            abort();
        at += length + 1;
    }
    if (n == 0 || n > STACKS_FRAMES)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4 * STACKS_TEXT);
    struct image img;
    struct dd_err err = {0};
    unsigned char *copy = malloc(size + 1);
    if (copy == NULL)
        return 0;
    memcpy(copy, data, size);
    image_of(&img, copy, size);
    if (img.n > RECORDS)
        img.n = RECORDS;
    const int rc = image_stack(&img, &out, &err);
    if (rc == 0)
        check(dd_buf_str(&out));
    else if (err.text[0] == '\0')
        abort();
    for (int kind = PY_LINES_LNOTAB; kind <= PY_LINES_LOCATIONS; kind++)
        for (int64_t at = -1; at < 64; at++)
            if (py_lines_find((enum py_lines_kind)kind, data, size, 1, at) < 0)
                abort();
    free(copy);
    return 0;
}
