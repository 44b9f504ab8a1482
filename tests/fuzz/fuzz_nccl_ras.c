/* report: any bytes as the answer of NCCL's RAS, and as the stacks of a peer that has asked it.
 * What is read is bounded, can be shown, and survives writing and parsing. */
#include "report/stacks.h"
#include "tests/fuzz/input_text.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORLD = 4, OUT = 1 << 20 };

static void show(const struct stacks *s)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(OUT);
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(OUT);
    DD_AUTO(rank_set) struct rank_set found = {0};
    const struct rank_set ended = {0};
    const int rc = nccl_ras_missing(&s->ras, WORLD, &ended, &found, &why);
    if (nccl_ras_text(&s->ras, "", NCCL_RAS_FINDINGS, &out) < 0 || rc < 0 ||
        (rc == 0) != (found.n == 0) || 2 * rank_set_count(&found) > WORLD)
        abort();
    for (const char *p = dd_buf_str(&out); *p != '\0'; p++)
        if ((unsigned char)*p < ' ' && *p != '\n')
            abort();
}

/* A node sends it, the daemon resolves it, the report is read again. */
static void travel(struct stacks *s)
{
    DD_AUTO(buf) struct dd_buf json = DD_BUF_INIT(STACKS_MESSAGE);
    DD_AUTO(buf) struct dd_buf again = DD_BUF_INIT(STACKS_MESSAGE);
    DD_AUTO(stacks) struct stacks got = {0};
    DD_AUTO(stacks) struct stacks read = {0};
    if (stacks_write(s, STACKS_MESSAGE - 1, &json) < 0 ||
        stacks_parse(&got, dd_buf_str(&json), 0, WORLD, NULL) < 0 ||
        stacks_add_node(&got, "n", 0, WORLD) < 0 || stacks_resolve(&got) < 0)
        abort();
    show(&got);
    if (stacks_write(&got, STACKS_MESSAGE - 1, &again) < 0 ||
        stacks_parse(&read, dd_buf_str(&again), 0, -1, NULL) < 0)
        abort();
    show(&read);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(stacks) struct stacks s = {0};
    DD_AUTO(stacks) struct stacks theirs = {0};
    char *text = input_text(data, size);
    if (text == NULL)
        return 0;
    const int rc = nccl_ras_read(&s.ras, text, size);
    if (s.ras.n > NCCL_RAS_FINDINGS || s.ras.named > NCCL_RAS_NAMED)
        abort();
    for (int rank = 0; rc == 0 && rank < WORLD; rank++)
        if (nccl_ras_add_process(&s.ras, rank, 3000 + rank) < 0)
            abort();
    if (rc == 0)
        travel(&s);
    if (stacks_parse(&theirs, text, 0, -1, NULL) == 0)
        show(&theirs);
    free(text);
    return 0;
}
