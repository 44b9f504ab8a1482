#include "launch/tm.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

enum { BY_SIGNAL = 256, SIGNALS = 64, OUR_FAULT = 255, SIGNALLED = 128 };

const char *tm_words(int error)
{
    static const struct {
        int number;
        const char *words;
    } rows[] = {
        {17000, "pbs_mom on this machine does not respond"},
        {17001, "unexpected answer"},
        {17002, "lost the connection to pbs_mom"},
        {17003, "pbs_mom does not support the request"},
        {17004, "pbs_mom refused the request"},
        {17005, "the environment is not that of a task of a job"},
        {17006, "no such job, node or task"},
        {17007, "the library was initialized twice or not at all"},
        {17012, "refused by a hook of the site"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].number == error)
            return rows[i].words;
    return "unknown error";
}

/* True if `word` is the name of this host; whole: including the domains, otherwise up to the first
 * dot of both. */
static bool is_host(const char *word, size_t len, const char *host, bool whole)
{
    size_t n = strlen(host);
    if (!whole) {
        const char *dot = memchr(word, '.', len);
        len = dot != NULL ? (size_t)(dot - word) : len;
        n = strcspn(host, ".");
    }
    return len == n && n > 0 && strncasecmp(word, host, n) == 0;
}

int tm_line_of(const char *text, size_t len, const char *host, int *lines)
{
    const char *end = text + len;
    int by_short = -1;
    int by_name = -1;
    int no = 0;
    while (text < end && no < TM_NODES_MAX) {
        const char *nl = memchr(text, '\n', (size_t)(end - text));
        const char *stop = nl != NULL ? nl : end;
        while (text < stop && strchr(" \t\r", *text) != NULL && *text != '\0')
            text++;
        const char *word = text;
        while (text < stop && *text != '\0' && strchr(" \t\r", *text) == NULL)
            text++;
        const size_t n = (size_t)(text - word);
        if (by_name < 0 && is_host(word, n, host, true))
            by_name = no;
        if (by_short < 0 && is_host(word, n, host, false))
            by_short = no;
        no += n > 0;
        text = stop + (nl != NULL);
    }
    *lines = no;
    return by_name >= 0 ? by_name : by_short;
}

/* Src: measured, OpenPBS 23.06.06: the status of a task that signal n killed is 256 + n. */
int tm_exit_code(int status)
{
    if (status >= 0 && status < BY_SIGNAL)
        return status;
    return status > BY_SIGNAL && status <= BY_SIGNAL + SIGNALS ? SIGNALLED + status - BY_SIGNAL
                                                               : OUR_FAULT;
}
