#include "cmd/ddctl_workers.h"

#include "base/io.h"
#include "cmd/ddctl_job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

json_t *workers_ask(const char *job, const char *ranks, bool all_lines, struct dd_err *err)
{
    json_t *answer = NULL;
    json_t *q = json_pack("{s:s,s:b}", "ranks", ranks, "all_lines", all_lines);
    DD_AUTO(free) char *text = q != NULL ? json_dumps(q, JSON_COMPACT) : NULL;
    json_decref(q);
    const struct job_question question = {.job = job, .what = "workers", .text = text};
    if (text == NULL)
        (void)dd_err_set(err, -ENOMEM, "out of memory");
    else
        (void)job_ask(&answer, &question, err);
    return answer;
}

int workers_print_lines(const char *job, int rank)
{
    struct dd_err err = {0};
    char ranks[16];
    char silent[80];
    (void)snprintf(silent, sizeof(silent), "no node has answered for rank %d\n", rank);
    (void)snprintf(ranks, sizeof(ranks), "%d", rank);
    json_t *o = workers_ask(job, ranks, true, &err);
    const json_t *worker = json_array_get(json_object_get(o, "workers"), 0);
    const char *text = worker != NULL ? json_text(worker, "text") : o != NULL ? silent : err.text;
    const int rc = dd_write_full(STDOUT_FILENO, text, strlen(text));
    const int code = worker == NULL || rc < 0;
    json_decref(o);
    return code;
}
