/* report: any bytes as the last lines of a worker; the frames of a traceback are bounded, have
 * three fields each and no control characters. */
#include "report/stacks.h"
#include "report/traceback.h"
#include "tests/fuzz/input_text.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_frames(const char *s)
{
    int lines = 0, tabs = 0;
    for (; *s != '\0'; s++) {
        tabs += *s == '\t';
        if (*s == '\n' && tabs != 2)
            abort();
        if (*s == '\n')
            tabs = 0;
        lines += *s == '\n';
        if (((unsigned char)*s < ' ' && *s != '\n' && *s != '\t') || lines > STACKS_FRAMES)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(buf) struct dd_buf frames = DD_BUF_INIT(1 << 20);
    DD_AUTO(buf) struct dd_buf again = DD_BUF_INIT(STACKS_TEXT);
    char *text = input_text(data, size);
    if (text != NULL && traceback_frames(text, &frames) == 0) {
        check_frames(dd_buf_str(&frames));
        (void)traceback_is_printed(dd_buf_str(&frames));
    }
    if (text != NULL)
        (void)traceback_of_waiting(text, &again);
    free(text);
    return 0;
}
