/* One stream of one worker on its way through the agent: pipe -> file and console. When either of
 * them takes nothing, the worker waits. */
#ifndef DD_WORKER_OUTPUT_STREAM_H
#define DD_WORKER_OUTPUT_STREAM_H

#include "base/strv.h"
#include "worker/console.h"
#include "worker/lines.h"

struct event_base;

enum output_mode {
    OUTPUT_INHERIT, /* the agent's own stdout or stderr */
    OUTPUT_NULL,    /* nowhere */
    OUTPUT_FILE,    /* the worker writes the file itself */
    OUTPUT_PIPE,    /* through the agent */
    OUTPUT_JOIN,    /* with the worker's stdout through the same pipe, in the order of writing */
};

struct output_stream {
    enum output_mode mode;
    bool tty;                /* a pseudo-terminal takes the pipe's place */
    bool bare;               /* goes on as it comes, not in whole lines */
    bool plain;              /* nothing is asked of it: it may be inherited if need be */
    char *path;              /* of the file, NULL: none */
    char *prefix;            /* in front of each line on the console */
    int child_fd;            /* what the worker gets; -1: the agent's own, or closed already */
    int fd;                  /* reading end; -1: closed */
    int file_fd;             /* what leads to the file; -1: nothing */
    struct console *file;    /* its queue; NULL: none */
    struct console *console; /* borrowed; NULL: none */
    const struct dd_strv *filters; /* borrowed; lines with one of them are written once more, */
    struct console *filter;        /* here, borrowed; NULL: not */
    const struct dd_log *log;
    struct event *on_read;
    struct dd_buf in; /* read, not yet on the console */
    struct lines lines;
    struct tail tail;
    uint64_t taken; /* bytes from the worker */
    bool eof;       /* nothing more will be read */
    bool draining;  /* end of file is also when nothing is there to read */
};

void output_stream_init(struct output_stream *s);
/* All that comes goes to fd (taken, even if it fails) too. */
int output_stream_keep(struct output_stream *s, struct event_base *base, int fd,
                       const struct console_cb *cb, struct dd_err *err);
/* Makes the pipe, or a pseudo-terminal like the one on fd `like`. -EMFILE also while some are left,
 * which the agent needs for itself. */
int output_stream_open(struct output_stream *s, struct event_base *base, int like,
                       struct dd_err *err);
/* Reads as much as the console takes (all: as fits into memory) and passes it on. */
void output_stream_pump(struct output_stream *s, bool all);
/* The console is gone. */
void output_stream_lose_console(struct output_stream *s);
/* Closes all, forgets what is on its way; the tail and the names stay. */
void output_stream_close(struct output_stream *s);
bool output_stream_closed(const struct output_stream *s);
void output_stream_done(struct output_stream *s);

#endif
