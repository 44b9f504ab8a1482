/* hostlist: reads an expression from each line of standard input and prints a line for each: the
 * names separated by commas, a tab, and the folded expression; or "!" and why the expression is
 * invalid. */
#include "hostlist/hostlist.h"

#include <stdio.h>
#include <string.h>

static int answer(const char *expr)
{
    struct dd_err err = {.text = ""};
    DD_AUTO(hostlist) struct hostlist *h = NULL;
    DD_AUTO(buf) struct dd_buf folded = DD_BUF_INIT(64 << 20);
    if (hostlist_parse(&h, expr, &err) < 0)
        return printf("!%s\n", err.text);
    if (hostlist_fold(h, &folded) < 0)
        return -1;
    for (size_t i = 0; i < hostlist_count(h); i++)
        printf(i > 0 ? ",%s" : "%s", hostlist_nth(h, i));
    return printf("\t%s\n", dd_buf_str(&folded));
}

int main(void)
{
    DD_AUTO(free) char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, stdin) >= 0) {
        line[strcspn(line, "\n")] = '\0';
        if (answer(line) < 0 || fflush(stdout) != 0)
            return 1;
    }
    return 0;
}
