/* The file in which a worker of PyTorch (its decorator `record`) leaves its exception. Pure. */
#ifndef DD_REPORT_ERROR_FILE_H
#define DD_REPORT_ERROR_FILE_H

#include <stddef.h>

enum {
    ERROR_FILE_MAX = 1 << 20, /* bytes that are looked at */
    ERROR_MESSAGE_MAX = 1000, /* bytes of what is kept */
    ERROR_TRACE_MAX = 3000,
    ERROR_TRACE_LINES = 12,
};

struct report_error {
    char *message; /* "ValueError: boom" */
    char *trace;   /* the last lines of the traceback, without the message; "" when there is none */
};

/* Both forms (Src: torch 2.13.0):
 *   {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": "SECONDS"}}}
 *   {"message": TEXT, "timestamp": SECONDS}
 * Gives the content of *ret. -EPROTO: it is something else; -ENOMEM. */
int report_error_parse(struct report_error *ret, const void *p, size_t n);
void report_error_done(struct report_error *e);

/* The line without the "[rank3]: " that PyTorch puts before each line of a traceback once the
 * process group is there (Src: torch 2.13.0); *len is then less. */
const char *report_skip_rank(const char *line, size_t *len);

/* Whether a line of output looks like the message of a Python exception ("ValueError: boom",
 * "torch.OutOfMemoryError: …"). */
int report_is_exception(const char *line, size_t len);

#endif
