/* The screen of 'ddctl top': the lines that show a job, and what keys do. Pure. */
#ifndef DD_CMD_DDCTL_TOP_VIEW_H
#define DD_CMD_DDCTL_TOP_VIEW_H

#include "base/full_screen.h"
#include "cmd/ddctl_top_model.h"

enum { TOP_TEXT_MAX = 4 << 20, TOP_LEAST_LINES = 6, TOP_LEAST_COLUMNS = 20 };

enum top_key {
    TOP_KEY_NONE, /* unknown */
    TOP_KEY_UP,
    TOP_KEY_DOWN,
    TOP_KEY_PAGE_UP,
    TOP_KEY_PAGE_DOWN,
    TOP_KEY_HOME,
    TOP_KEY_END,
    TOP_KEY_BACK, /* Esc */
    TOP_KEY_QUIT,
    TOP_KEY_STACKS,
    TOP_KEY_FAILURE,
    TOP_KEY_LOG,
    TOP_KEY_REDRAW,
};

/* Turns the bytes of a terminal into keys. */
struct top_keys {
    char sequence[16]; /* bytes of an incomplete sequence, ESC included */
    int n;
};

/* Take a byte. False: no key is complete. */
bool top_keys_take(struct top_keys *k, unsigned char byte, enum top_key *ret);
/* End an incomplete sequence after which no byte has arrived for some time: an ESC alone is a key.
 * False: no sequence was incomplete. */
bool top_keys_flush(struct top_keys *k, enum top_key *ret);

enum top_page {
    TOP_PAGE_JOB,
    TOP_PAGE_TEXT, /* stacks, the first failure, or the last lines of a rank */
};

struct top_view {
    int lines, columns; /* of the terminal */
    bool utf8;
    enum top_page page;
    size_t selected;  /* row */
    size_t first;     /* row at the top */
    char notice[300]; /* problem of the last request; "": none */
    /* TOP_PAGE_TEXT */
    const char *title; /* lent */
    struct dd_buf text;
    size_t first_line;
    bool at_end; /* the last line is shown */
};

#define TOP_VIEW_INIT                                                                              \
    (struct top_view)                                                                              \
    {                                                                                              \
        .lines = 24, .columns = 80, .text = DD_BUF_INIT(TOP_TEXT_MAX)                              \
    }

void top_view_done(struct top_view *v);
/* Show a page of text with a title, which is lent. Text beyond TOP_TEXT_MAX is omitted. */
void top_view_text(struct top_view *v, const char *title, const char *text);
/* Replace the text of the page; a page that shows its end continues to show it. */
void top_view_more(struct top_view *v, const char *text);
/* Apply a key. Return true if the caller must act on it: QUIT, STACKS, FAILURE, LOG or REDRAW. */
bool top_view_key(struct top_view *v, const struct top_job *j, enum top_key key);
/* Write the lines of the screen to ret[0 .. v->lines). The caller frees the texts, also on failure.
 * Return 0 or -errno. */
int top_view_draw(struct top_view *v, const struct top_job *j, struct dd_line *ret);
/* Append the job as plain text with all its rows. */
int top_view_plain(const struct top_view *v, const struct top_job *j, struct dd_buf *out);

#endif
