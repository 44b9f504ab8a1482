/* Colours of messages. Pure. */
#ifndef DD_BASE_COLOUR_H
#define DD_BASE_COLOUR_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Input for dd_colour_is_wanted(): environment variables (NULL: not set), and whether the messages
 * go to a terminal. */
struct colour_env {
    const char *no_color, *clicolor_force, *clicolor, *term;
    bool terminal;
};

/* True if messages are to have colours. NO_COLOR (not empty) precedes CLICOLOR_FORCE (neither empty
 * nor 0), which precedes CLICOLOR=0; else only a terminal with a TERM other than "" and "dumb" has
 * colours. */
bool dd_colour_is_wanted(const struct colour_env *e);

/* Append the message with the word "error:", "warning:" or "tip:" at the beginning of a line in
 * colour. The indentation of a line is skipped, and `prefix` bytes of the first line. Return 0 or
 * -errno. */
int dd_colour_message(struct dd_buf *out, const char *text, size_t n, size_t prefix);

#endif
