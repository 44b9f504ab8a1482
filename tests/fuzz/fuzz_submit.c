/* Any text as a template of a job script and as a scheduler's list of queues. A generated script
 * contains the whole command, quoted. */
#include "cmd/ddctl_submit_queue.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void expand(const char *text, const char *job_id)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    struct dd_err err = {.text = ""};
    static char program[] = "/ddrun", argument[] = "a b", path[] = "PATH=/bin";
    static char *env[] = {path, NULL};
    const struct submit_request r = {.name = "n",
                                     .queue = "q",
                                     .account = "a",
                                     .env = env,
                                     .gpus_per_node = 2,
                                     .cpus_per_node = 3,
                                     .log = "x-%j",
                                     .directory = "/d",
                                     .nodes = 1,
                                     .seconds = 60,
                                     .command = (char *[]){program, argument, NULL}};
    if (submit_script_write(&out, text, job_id, &r, &err) < 0)
        must(err.text[0] != '\0');
    else
        must(strstr(dd_buf_str(&out), "/ddrun 'a b'") != NULL);
}

static void check(const struct submit_queue_kind *kind, const char *text, const char *queue)
{
    struct dd_err errs[SUBMIT_ERRORS_MAX] = {{0}};
    const struct submit_request r = {.queue = queue, .nodes = 3, .seconds = 4000};
    const size_t n = submit_queue_check(kind, text, &r, errs);
    must(n <= SUBMIT_ERRORS_MAX);
    for (size_t i = 0; i < n; i++)
        must(errs[i].text[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct submit_queue_kind slurm = {"partition", submit_next_slurm_queue};
    static const struct submit_queue_kind pbs = {"queue", submit_next_pbs_queue};
    static const struct submit_queue_kind sge = {"queue", submit_next_grid_engine_queue};
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    uint64_t seconds;
    if (text == NULL || size > 8192)
        return 0;
    expand(text, NULL);
    expand(text, "ID");
    (void)submit_time_parse(text, &seconds);
    (void)submit_is_log(text);
    check(&slurm, text, NULL);
    check(&slurm, text, "main");
    check(&pbs, text, NULL);
    check(&pbs, text, "workq");
    check(&sge, text, "all.q");
    return 0;
}
