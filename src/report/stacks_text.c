/* Writes stacks as lines for users. */
#include "report/stacks.h"

#include "report/report_lines_inner.h"
#include "report/stack_frames.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_SHOWN = 160, CHILDREN_SHOWN = 4 };

static int put_frame(const char *frames, struct dd_buf *out)
{
    struct stack_frame called;
    struct stack_frame user;
    if (!stack_frames_choose(frames, &called, &user))
        return dd_buf_puts(out, "no Python frame");
    const bool imports = stack_frame_is_in(&called, "<frozen importlib");
    int rc = imports ? dd_buf_puts(out, "import, ")
                     : dd_buf_printf(out, "%.*s, ", called.nfunction, called.function);
    return rc < 0 ? rc : stack_frame_put_place(&user, out);
}

int stack_headline(const struct stack *s, struct dd_buf *out)
{
    int rc = 0;
    const bool frames = s->kind == STACK_PYTHON ||
                        (s->kind == STACK_KERNEL && s->frames[0] != '\0');
    if (frames)
        rc = put_frame(s->frames, out);
    else if (s->kind == STACK_ENDED && stack_text(s->frames)[0] == '\0')
        rc = dd_buf_puts(out, "had ended");
    else if (s->kind == STACK_ENDED && (rc = dd_buf_puts(out, "had failed in ")) == 0)
        rc = put_frame(s->frames, out);
    else if (s->kind == STACK_UNREAD && s->note[0] == '\0')
        rc = dd_buf_puts(out, "not read");
    if (rc == 0 && s->state[0] != '\0')
        rc = dd_buf_printf(out, frames ? " (%s)" : "%s", s->state);
    if (rc == 0 && s->note[0] != '\0')
        rc = dd_buf_printf(out, s->kind == STACK_UNREAD ? "%s" : " (%s)", s->note);
    return rc;
}

/* ---- lines ---- */

/* Append "rank 2 on node1" or "ranks 0-1,3-7". */
static int put_ranks(const struct stacks *s, const struct rank_set *ranks, struct dd_buf *out)
{
    int rc = rank_set_name(ranks, out);
    if (rc < 0 || ranks->n == 0 || s->nnodes < 2)
        return rc;
    const struct stacks_node *node = stacks_node_of(s, ranks->v[0].first);
    const struct stacks_node *end = stacks_node_of(s, ranks->v[ranks->n - 1].last);
    return node != NULL && node == end ? dd_buf_printf(out, " on %s", node->name) : 0;
}

/* Append the indent, the text in `line`, and the headline of the stack, as one line. */
static int put_line(struct dd_buf *line, const struct stack *stack, const char *indent,
                    struct dd_buf *out)
{
    int rc = dd_buf_puts(line, ": ");
    const size_t limit = line->len + LINE_SHOWN;
    if (rc == 0)
        rc = stack_headline(stack, line);
    if (rc < 0)
        return rc;
    const bool cut = line->len > limit;
    return dd_buf_printf(out, "%s%.*s%s\n", indent, (int)(cut ? limit : line->len),
                         (const char *)line->data, cut ? "..." : "");
}

static int put_group(const struct stacks *s, const struct stack_group *g, const char *indent,
                     struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(STACKS_TEXT);
    const int rc = put_ranks(s, &g->ranks, &line);
    return rc < 0 ? rc : put_line(&line, &g->stack, indent, out);
}

/* Append "rank 5, DataLoader process 1234: read, data.py:40". */
static int put_child(const struct stacks *s, const struct stack_children_group *g,
                     const char *indent, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(STACKS_TEXT);
    const struct stack_child *c = &g->child;
    const char *what = c->loader ? "DataLoader process" : "child process";
    int rc = put_ranks(s, &g->ranks, &line);
    if (rc == 0)
        rc = g->processes == 1 ? dd_buf_printf(&line, ", %s %d", what, c->pid)
                               : dd_buf_printf(&line, ", %d %ses", g->processes, what);
    return rc < 0 ? rc : put_line(&line, &c->stack, indent, out);
}

int stacks_text(const struct stacks *s, const char *indent, int lines, struct dd_buf *out)
{
    size_t most = (size_t)lines;
    size_t rest = 0;
    const size_t before = out->len;
    int rc = 0;
    if (s->n > most)
        most--;
    for (size_t i = 0; i < s->n && rc == 0; i++)
        if (i < most)
            rc = put_group(s, &s->v[i], indent, out);
        else
            rest += rank_set_count(&s->v[i].ranks);
    if (rc == 0 && s->n > most)
        rc = dd_buf_printf(out, "%s%zu more ranks, with %zu other stacks\n", indent, rest,
                           s->n - most);
    for (size_t i = 0; i < s->children.n && i < CHILDREN_SHOWN && rc == 0; i++)
        rc = put_child(s, &s->children.v[i], indent, out);
    return rc == 0 ? report_clean(out, before) : rc;
}

const char *stacks_tip(const struct stacks *s)
{
    static const struct {
        const char *note, *tip;
    } tips[] = {
        {"kernel.yama.ptrace_scope is 3",
         "for Python stacks, boot the nodes with kernel.yama.ptrace_scope=1 or 0: it is 3, which "
         "only a reboot changes"},
        {"kernel.yama.ptrace_scope is 2",
         "for Python stacks, set kernel.yama.ptrace_scope on the nodes to 1 or 0 (it is 2), or "
         "give ddrun CAP_SYS_PTRACE"},
        {"kernel.yama.ptrace_scope is 1",
         "for stacks of processes that do not descend from ddrun, set kernel.yama.ptrace_scope on "
         "the nodes to 0 (it is 1), or give ddrun CAP_SYS_PTRACE"},
        {"neither eu-stack", "for native frames, install eu-stack (elfutils) or gdb on the nodes"},
        {"not permitted", "for Python stacks, let the workers be dumpable and of the same user as "
                          "ddrun, or give ddrun CAP_SYS_PTRACE"},
    };
    for (size_t i = 0; i < sizeof(tips) / sizeof(tips[0]); i++)
        for (size_t k = 0; k < s->n; k++)
            if (strstr(s->v[k].stack.note, tips[i].note) != NULL)
                return tips[i].tip;
    return NULL;
}

static int put_frames(const char *frames, struct dd_buf *out)
{
    struct stack_frame f;
    int rc = 0;
    for (const char *at = frames; rc == 0 && stack_frame_next(&at, &f);)
        rc = dd_buf_printf(out, "    %.*s (%.*s:%.*s)\n", f.nfunction, f.function, f.nfile, f.file,
                           f.nline, f.line);
    return rc;
}

int stacks_text_long(const struct stacks *s, struct dd_buf *out)
{
    const size_t before = out->len;
    int rc = flight_groups_text(&s->collectives, "", FLIGHT_GROUPS_MAX, out);
    if (rc == 0)
        rc = nccl_ras_text(&s->ras, "NCCL: ", NCCL_RAS_FINDINGS, out);
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        rc = put_group(s, &s->v[i], "", out);
        if (rc == 0)
            rc = put_frames(s->v[i].stack.frames, out);
    }
    for (size_t i = 0; i < s->children.n && rc == 0; i++) {
        rc = put_child(s, &s->children.v[i], "", out);
        if (rc == 0)
            rc = put_frames(s->children.v[i].child.stack.frames, out);
    }
    return rc == 0 ? report_clean(out, before) : rc;
}
