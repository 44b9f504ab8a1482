/* Parses the file in which a PyTorch worker with the `record` decorator stores its exception, and
 * recognizes exceptions in output. Pure. */
#ifndef DD_REPORT_ERROR_FILE_H
#define DD_REPORT_ERROR_FILE_H

#include <stddef.h>

enum {
    ERROR_FILE_MAX = 1 << 20, /* bytes of the file */
    ERROR_MESSAGE_MAX = 1000, /* bytes of the message that are kept */
    ERROR_TRACE_MAX = 3000,   /* bytes of the traceback that are kept */
    ERROR_TRACE_LINES = 12,   /* lines of the traceback that are kept */
};

struct report_error {
    char *message; /* "ValueError: boom" */
    char *trace;   /* last lines of the traceback, without the message; "" if there is none */
};

/* Parse either format (Src: torch 2.13.0):
 *   {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": "SECONDS"}}}
 *   {"message": TEXT, "timestamp": SECONDS}
 * report_error_done() frees *ret. -EPROTO: another format; -ENOMEM. */
int report_error_parse(struct report_error *ret, const void *p, size_t n);
void report_error_done(struct report_error *e);

/* Skip the prefix "[rank3]: ", which PyTorch adds to each line of a traceback once the process
 * group exists, and reduce *len. Src: torch 2.13.0. */
const char *report_skip_rank(const char *line, size_t *len);

/* True if the line looks like the message of a Python exception ("ValueError: boom",
 * "torch.OutOfMemoryError: …"). */
int report_is_exception(const char *line, size_t len);

#endif
