/* report: any bytes as the stacks of a peer, and as the output of py-spy, eu-stack and gdb.
 * Accepted stacks are bounded, stay within the ranks of the peer, and survive writing and parsing,
 * with their children.
 */
#include "report/native_stack.h"
#include "report/py_spy.h"
#include "report/stacks.h"
#include "tests/fuzz/input_text.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FIRST = 4, WORKERS = 8 };

static void check_text(const char *s)
{
    for (; *s != '\0'; s++)
        if ((unsigned char)*s < ' ' && *s != '\n' && *s != '\t')
            abort();
}

static void check_ranks(const struct rank_set *ranks)
{
    for (size_t i = 0; i < ranks->n; i++)
        if (ranks->v[i].first < FIRST || ranks->v[i].last >= FIRST + WORKERS)
            abort();
}

static void check_children(const struct stack_children *c)
{
    if (c->n > STACK_CHILDREN_GROUPS)
        abort();
    for (size_t i = 0; i < c->n; i++) {
        const struct stack_children_group *g = &c->v[i];
        check_ranks(&g->ranks);
        if (g->processes < 1 ||
            g->processes > STACK_CHILDREN_OF_RANK * (int)rank_set_count(&g->ranks) ||
            stack_child_own(g->child.stack.frames) > strlen(g->child.stack.frames))
            abort();
        (void)stack_child_kind(g->child.stack.frames);
        (void)stack_child_is_loader(g->child.stack.frames);
    }
}

static void check_stacks(struct stacks *s)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 20);
    DD_AUTO(buf) struct dd_buf json = DD_BUF_INIT(16 << 20);
    DD_AUTO(stacks) struct stacks again = {0};
    for (size_t i = 0; i < s->n; i++) {
        check_ranks(&s->v[i].ranks);
        (void)stack_waits_for_child(s->v[i].stack.frames);
    }
    check_children(&s->children);
    stacks_sort(s);
    if (stacks_text(s, "", STACKS_TERMINAL_LINES, &text) < 0 ||
        stacks_write(s, 16 << 20, &json) < 0 ||
        stacks_parse(&again, dd_buf_str(&json), FIRST, WORKERS, NULL) < 0)
        abort();
    check_text(dd_buf_str(&text));
}

static void try_py_spy(const char *text, size_t size)
{
    DD_AUTO(buf) struct dd_buf frames = DD_BUF_INIT(2 * STACKS_TEXT);
    DD_AUTO(buf) struct dd_buf reason = DD_BUF_INIT(2 * STACKS_NAME);
    DD_AUTO(stacks) struct stacks s = {0};
    if (py_spy_reason(text, &reason) < 0)
        abort();
    check_text(dd_buf_str(&reason));
    const int rc = py_spy_parse(text, size, 7, &frames);
    const struct stack what = {.kind = rc == 0 ? STACK_PYTHON : STACK_UNREAD,
                               .frames = dd_buf_str(&frames),
                               .note = dd_buf_str(&reason)};
    if (stacks_add(&s, &what, FIRST, FIRST) == 0)
        check_stacks(&s);
}

static void try_native(const char *text)
{
    static const char python[] = "f\t/a.py\t3\n";
    DD_AUTO(buf) struct dd_buf native = DD_BUF_INIT(2 * STACKS_TEXT);
    DD_AUTO(buf) struct dd_buf merged = DD_BUF_INIT(4 * STACKS_TEXT);
    DD_AUTO(buf) struct dd_buf reason = DD_BUF_INIT(2 * STACKS_NAME);
    DD_AUTO(stacks) struct stacks s = {0};
    if (native_stack_reason("gdb", text, &reason) < 0)
        abort();
    check_text(dd_buf_str(&reason));
    if (native_stack_parse(text, &native) < 0)
        return;
    if (native_stack_merge(dd_buf_str(&native), python, &merged) < 0)
        abort();
    const struct stack alone = {.kind = STACK_KERNEL, .frames = dd_buf_str(&native)};
    const struct stack below = {.kind = STACK_PYTHON, .frames = dd_buf_str(&merged)};
    if (stacks_add(&s, &alone, FIRST, FIRST) == 0 &&
        stacks_add(&s, &below, FIRST + 1, FIRST + 1) == 0)
        check_stacks(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(stacks) struct stacks s = {0};
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    char *text = input_text(data, size);
    if (text == NULL)
        return 0;
    if (stacks_parse(&s, text, FIRST, WORKERS, NULL) == 0)
        check_stacks(&s);
    (void)rank_set_parse(&ranks, text);
    try_py_spy(text, size);
    try_native(text);
    free(text);
    return 0;
}
