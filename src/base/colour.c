#include "base/colour.h"

#include <string.h>

static const struct {
    const char *word, *colour; /* bold red, yellow and green, as in cargo */
} colours[] = {{"error:", "\033[1;31m"}, {"warning:", "\033[1;33m"}, {"tip:", "\033[1;32m"}};

static bool is_set(const char *value)
{
    return value != NULL && value[0] != '\0';
}

bool dd_colour_is_wanted(const struct colour_env *e)
{
    if (is_set(e->no_color))
        return false;
    if (is_set(e->clicolor_force) && strcmp(e->clicolor_force, "0") != 0)
        return true;
    if (is_set(e->clicolor) && strcmp(e->clicolor, "0") == 0)
        return false;
    return e->terminal && is_set(e->term) && strcmp(e->term, "dumb") != 0;
}

/* Append one line, whose first `skip` bytes have no colour. */
static int colour_line(struct dd_buf *out, const char *line, size_t n, size_t skip)
{
    int rc = dd_buf_append(out, line, skip);
    for (size_t i = 0; rc == 0 && i < sizeof(colours) / sizeof(colours[0]); i++) {
        const size_t len = strlen(colours[i].word);
        if (n - skip < len || memcmp(line + skip, colours[i].word, len) != 0)
            continue;
        rc = dd_buf_printf(out, "%s%s\033[0m", colours[i].colour, colours[i].word);
        skip += len;
        break;
    }
    return rc < 0 ? rc : dd_buf_append(out, line + skip, n - skip);
}

int dd_colour_message(struct dd_buf *out, const char *text, size_t n, size_t prefix)
{
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t len = end != NULL ? (size_t)(end - (text + at)) + 1 : n - at;
        size_t skip = at == 0 && prefix < len ? prefix : 0;
        while (skip < len && text[at + skip] == ' ')
            skip++;
        rc = colour_line(out, text + at, len, skip);
        at += len;
    }
    return rc;
}
