#include "alloc/node_marks.h"

#include "alloc/endtime.h"
#include "base/auto.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { WORDS_MAX = 100000 /* the kernel accepts words of 128 KiB */, REASON_MAX = 120 };

/* A part of the output; p NULL: not in the output. */
struct span {
    const char *p;
    size_t n;
};

/* A state of nodes, and what it means for a node: "being drained". */
struct state {
    const char *word, *means;
};

struct alloc_marks_row {
    const char *sources; /* sources of allocations (alloc_table), comma separated */
    const char *job;     /* variable with the job's id */
    const char *nodes;   /* variable with a host list of the job's nodes; NULL: none */
    const char *scheduler;
    const char *command;   /* words of the command, before the nodes */
    bool folded;           /* the nodes are one word, a host list */
    const char *directory; /* directory of the command if PATH does not contain it; NULL: unknown */
    const char *separators; /* characters between the words of a state */
    const struct state *states;
    int (*read)(const struct alloc_marks_row *row, const char *text, struct dd_buf *out);
};

/* ---- shared by both formats ---- */

/* Return the meaning of the first row whose word occurs in the state; NULL: none occurs. A word of
 * the state may end with signs, as in DOWN* of a node that does not respond. */
static const char *meaning_of(const struct alloc_marks_row *row, struct span state)
{
    for (const struct state *s = row->states; s->word != NULL; s++)
        for (size_t at = 0; at < state.n;) {
            size_t n = 0;
            size_t letters = 0;
            while (at + n < state.n && strchr(row->separators, state.p[at + n]) == NULL)
                n++;
            while (letters < n && (isalnum((unsigned char)state.p[at + letters]) ||
                                   strchr("_-", state.p[at + letters]) != NULL))
                letters++;
            if (letters == strlen(s->word) && strncasecmp(s->word, state.p + at, letters) == 0)
                return s->means;
            at += n + 1;
        }
    return NULL;
}

/* Append a line for a node. The reason is free text of an administrator: escape and limit it. */
static int put_mark(const struct alloc_marks_row *row, struct span name, const char *means,
                    struct span reason, struct dd_buf *out)
{
    char text[REASON_MAX + 1] = "";
    size_t n = reason.p != NULL ? reason.n : 0;
    const bool cut = n > REASON_MAX;
    if (n > 0)
        (void)snprintf(text, sizeof(text), "%.*s", (int)(cut ? REASON_MAX : n), reason.p);
    for (char *c = dd_utf8_clean(text); *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    if (text[0] == '\0')
        return dd_buf_printf(out, "%.*s\t%s by %s\n", (int)name.n, name.p, means, row->scheduler);
    return dd_buf_printf(out, "%.*s\t%s by %s (reason: %s%s)\n", (int)name.n, name.p, means,
                         row->scheduler, text, cut ? "..." : "");
}

/* Add the node if it is out of service. Return 1 if the text describes a node. */
static int take_node(const struct alloc_marks_row *row, struct span name, struct span state,
                     struct span reason, struct dd_buf *out)
{
    char word[256];
    if (name.n == 0 || name.n >= sizeof(word) || state.p == NULL || state.n == 0)
        return 0;
    (void)snprintf(word, sizeof(word), "%.*s", (int)name.n, name.p);
    if (!hostlist_name_ok(word))
        return 0;
    const char *means = meaning_of(row, state);
    const int rc = means != NULL ? put_mark(row, name, means, reason, out) : 0;
    return rc < 0 ? rc : 1;
}

/* ---- Slurm ---- */

/* Return the text between `before` and the end of the line; p NULL: the line lacks `before`. */
static struct span rest_after(struct span line, const char *before)
{
    const char *at = memmem(line.p, line.n, before, strlen(before));
    if (at == NULL)
        return (struct span){0};
    at += strlen(before);
    return (struct span){.p = at, .n = (size_t)(line.p + line.n - at)};
}

static struct span first_word(struct span s)
{
    size_t n = 0;
    while (n < s.n && s.p[n] != ' ')
        n++;
    return (struct span){.p = s.p, .n = n};
}

/* "bad DIMM [root@2026-11-23T16:59:52]"; fields of later versions may follow. */
static struct span slurm_reason(struct span line)
{
    struct span s = rest_after(line, " Reason=");
    const char *end = s.p != NULL ? memrchr(s.p, ']', s.n) : NULL;
    if (end != NULL)
        s.n = (size_t)(end + 1 - s.p);
    while (s.n > 0 && s.p[s.n - 1] == ' ')
        s.n--;
    return s;
}

/* Src: scontrol(1); Slurm 22.05.8, measured 2026-11-23: one line for each node, "NodeName=node2 …
 * State=MIXED+DRAIN … Reason=bad DIMM [root@2026-11-23T16:59:52]". Since the reason is the last
 * field, text in it is not taken for a state. */
static int slurm_read(const struct alloc_marks_row *row, const char *text, struct dd_buf *out)
{
    static const char head[] = "NodeName=";
    int n = 0;
    for (const char *p = text; *p != '\0';) {
        const struct span line = {.p = p, .n = strcspn(p, "\n")};
        p += line.n + (p[line.n] == '\n');
        if (line.n < sizeof(head) || strncmp(line.p, head, sizeof(head) - 1) != 0)
            continue;
        const struct span rest = {line.p + sizeof(head) - 1, line.n - (sizeof(head) - 1)};
        const struct span state = rest_after(line, " State=");
        const int rc = take_node(row, first_word(rest), state.p != NULL ? first_word(state) : state,
                                 slurm_reason(line), out);
        if (rc < 0)
            return rc;
        n += rc;
    }
    return n;
}

/* ---- PBS ---- */

/* Take the value of "     NAME = VALUE". */
static void pbs_take(struct span *to, struct span line, const char *name)
{
    const size_t len = strlen(name);
    if (line.n > len + 3 && strncmp(line.p, name, len) == 0 && strncmp(line.p + len, " = ", 3) == 0)
        *to = (struct span){.p = line.p + len + 3, .n = line.n - len - 3};
}

/* Src: pbsnodes(8B); OpenPBS 23.06, measured 2026-11-23: a line with the name, then indented
 * attributes, "state = job-busy,offline", "comment = …". TORQUE prints "note = …". */
static int pbs_read(const struct alloc_marks_row *row, const char *text, struct dd_buf *out)
{
    struct span name = {0};
    struct span state = {0};
    struct span reason = {0};
    int n = 0;
    for (const char *p = text;;) {
        struct span line = {.p = p, .n = strcspn(p, "\n")};
        const bool indented = line.n > 0 && isspace((unsigned char)*line.p);
        if (!indented && name.p != NULL) {
            const int rc = take_node(row, name, state, reason, out);
            if (rc < 0)
                return rc;
            n += rc;
        }
        if (*p == '\0')
            return n;
        p += line.n + (p[line.n] == '\n');
        if (!indented) {
            name = line.n > 0 ? line : (struct span){0};
            state = reason = (struct span){0};
            continue;
        }
        while (line.n > 0 && isspace((unsigned char)*line.p)) {
            line.p++;
            line.n--;
        }
        pbs_take(&state, line, "state");
        pbs_take(&reason, line, "comment");
        pbs_take(&reason, line, "note");
    }
}

/* ---- the schedulers ---- */

/* scontrol prints DRAIN beside the other words of a state. Other outputs and versions print
 * DRAINING for a drained node that runs jobs, and DRAINED for one that does not. */
static const struct state slurm_states[] = {
    {"DRAIN", "being drained"},
    {"DRAINING", "being drained"},
    {"DRAINED", "being drained"},
    {"FAIL", "marked as failing"},
    {"FAILING", "marked as failing"},
    {"MAINT", "put into maintenance"},
    {"MAINTENANCE", "put into maintenance"},
    {"DOWN", "marked as down"},
    {NULL, NULL},
};

static const struct state pbs_states[] = {
    {"offline", "taken offline"},
    {"offline_by_mom", "taken offline"},
    {"maintenance", "put into maintenance"},
    {"down", "marked as down"},
    {NULL, NULL},
};

static const struct alloc_marks_row rows[] = {
    {.sources = "slurm-step,slurm-batch",
     .job = "SLURM_JOB_ID",
     .nodes = "SLURM_JOB_NODELIST",
     .scheduler = "Slurm",
     .command = "scontrol show node -o",
     .folded = true,
     .separators = "+",
     .states = slurm_states,
     .read = slurm_read},
    {.sources = "pbs",
     .job = "PBS_JOBID",
     .scheduler = "PBS",
     .command = "pbsnodes",
     .directory = ALLOC_PBS_DIRECTORY,
     .separators = ", ",
     .states = pbs_states,
     .read = pbs_read},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

const struct alloc_marks_row *alloc_marks_find(const char *source, char *const *env)
{
    const size_t n = strlen(source);
    for (size_t i = 0; i < ROWS && n > 0; i++)
        for (const char *p = rows[i].sources; p != NULL;
             p = strchr(p, ',') != NULL ? strchr(p, ',') + 1 : NULL)
            if (strncmp(p, source, n) == 0 && (p[n] == ',' || p[n] == '\0'))
                return &rows[i];
    for (size_t i = 0; i < ROWS; i++) /* the user has named the nodes of such a job */
        if (dd_env_get_nonempty(env, rows[i].job) != NULL)
            return &rows[i];
    return NULL;
}

const char *alloc_marks_scheduler(const struct alloc_marks_row *row)
{
    return row->scheduler;
}

const char *alloc_marks_variable(const struct alloc_marks_row *row)
{
    return row->nodes;
}

static int push_folded(const struct hostlist *nodes, struct dd_strv *ret)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(WORDS_MAX);
    const int rc = hostlist_fold(nodes, &text);
    const char *word = rc == 0 ? dd_buf_str(&text) : NULL;
    if (rc == -EMSGSIZE)
        return -E2BIG;
    return word != NULL ? dd_strv_push(ret, word) : -ENOMEM;
}

bool alloc_marks_other_names(const struct alloc_marks_row *row, const struct hostlist *nodes)
{
    for (size_t i = 0; i < hostlist_count(nodes) && !row->folded; i++)
        if (strchr(hostlist_nth(nodes, i), '.') != NULL)
            return true;
    return false;
}

int alloc_marks_command(const struct alloc_marks_row *row, const struct hostlist *nodes, bool hosts,
                        struct alloc_marks_words *ret)
{
    size_t bytes = 0;
    int rc = dd_strv_split(&ret->words, row->command, " ");
    ret->directory = row->directory;
    if (rc == 0 && row->folded)
        return push_folded(nodes, &ret->words);
    for (size_t i = 0; i < hostlist_count(nodes) && rc == 0; i++) {
        const char *name = hostlist_nth(nodes, i);
        const size_t n = hosts ? strcspn(name, ".") : strlen(name);
        bytes += n + 1;
        rc = bytes > WORDS_MAX ? -E2BIG : dd_strv_pushn(&ret->words, name, n);
    }
    return rc;
}

int alloc_marks_read(const struct alloc_marks_row *row, const char *text, struct dd_buf *out)
{
    return row->read(row, text, out);
}
