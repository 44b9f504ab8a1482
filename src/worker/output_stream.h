/* One output stream of one worker on its way through the agent: from a pipe to a file and the
 * console. If either of them blocks, the worker waits. */
#ifndef DD_WORKER_OUTPUT_STREAM_H
#define DD_WORKER_OUTPUT_STREAM_H

#include "base/strv.h"
#include "worker/console.h"
#include "worker/lines.h"
#include "worker/step_lines.h"

struct event_base;
struct output_fold;

enum output_mode {
    OUTPUT_INHERIT, /* the agent's own stdout or stderr */
    OUTPUT_NULL,    /* /dev/null */
    OUTPUT_FILE,    /* the worker writes the file itself */
    OUTPUT_PIPE,    /* through the agent */
    OUTPUT_JOIN,    /* shares the pipe of the worker's stdout, in the order of writes */
};

struct output_stream {
    enum output_mode mode;
    bool tty;     /* the stream is a pseudo-terminal instead of a pipe */
    bool bare;    /* passed on unchanged, not in whole lines */
    bool plain;   /* no labels and no --tee: may be inherited if few descriptors are left */
    char *path;   /* path of the file; NULL: none */
    char *prefix; /* prefix of each line on the console */
    int child_fd; /* for the worker: end of the pipe, file or /dev/null; -1: the agent's own stream,
                     or closed already */
    int fd;       /* the agent's end of the pipe; -1: closed */
    int file_fd;  /* socket to the writer of the file; -1: none */
    struct console *file;    /* queue of the file; NULL: none */
    struct console *console; /* borrowed; NULL: none */
    const struct dd_strv
        *filters; /* borrowed; lines that contain one of these texts also go to `filter` */
    struct console *filter;   /* borrowed; NULL: none */
    struct output_fold *fold; /* borrowed; takes the lines for the console; NULL: none */
    int local_rank;           /* local rank of the worker */
    const struct dd_log *log;
    struct event *on_read;
    struct dd_buf in; /* input that has not gone to the console yet */
    struct lines lines;
    struct tail tail;
    struct step_lines *steps; /* borrowed; NULL: none */
    int number;               /* 0 stdout, 1 stderr */
    uint64_t taken;           /* bytes read from the worker */
    uint64_t first_ns;        /* when the first byte was read; 0: none */
    uint64_t last_ns;         /* when the last byte was read; 0: none */
    bool eof;                 /* no more input is read */
    bool draining;            /* treat an empty pipe as end of file */
};

void output_stream_init(struct output_stream *s);
/* Copy all further output to fd, too. Takes ownership of fd, even on failure. */
int output_stream_keep(struct output_stream *s, struct event_base *base, int fd,
                       const struct console_cb *cb, struct dd_err *err);
/* Make the pipe, or a pseudo-terminal like the one on fd `like`. For a plain stream, return -EMFILE
 * already when few descriptors are left, since the agent needs some itself. */
int output_stream_open(struct output_stream *s, struct event_base *base, int like,
                       struct dd_err *err);
/* Read as much as the console has room for, and pass it on. all: read until `in` is full, even if
 * the console has no room. */
void output_stream_pump(struct output_stream *s, bool all);
/* Drop the console, whose reader is gone. The worker gets EPIPE unless a file takes its output,
 * too. */
void output_stream_lose_console(struct output_stream *s);
/* Close everything and discard pending output; the tail and the names remain. */
void output_stream_close(struct output_stream *s);
bool output_stream_closed(const struct output_stream *s);
void output_stream_done(struct output_stream *s);

#endif
