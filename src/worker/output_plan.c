/* Evaluates the options for the workers' output, and chooses the mode of each stream of an attempt.
 */
#include "worker/output_inner.h"

#include "worker/output_dirs.h"
#include "worker/output_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const file_names[2] = {"stdout.log", "stderr.log"};
static const char *const filtered_names[2] = {"filtered_stdout.log", "filtered_stderr.log"};

static int no_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory");
}

static int copy(char **ret, const char *s, struct dd_err *err)
{
    *ret = s == NULL ? NULL : strdup(s);
    return s != NULL && *ret == NULL ? no_memory(err) : 0;
}

/* For options, NULL and "" mean the same. */
static const char *given(const char *s)
{
    return s == NULL || *s == '\0' ? NULL : s;
}

int output_options_take(struct worker_output *o, const struct output_spec *spec, struct dd_err *err)
{
    int rc = rank_map_parse(&o->redirects, spec->redirects, "--redirects", err);
    if (rc == 0)
        rc = rank_map_parse(&o->tee, spec->tee, "--tee", err);
    if (rc == 0)
        rc = rank_list_parse(&o->visible, spec->local_ranks_filter, "--local-ranks-filter", err);
    o->label = spec->label;
    o->raw = spec->raw;
    o->folds = spec->fold;
    o->watch = spec->watch;
    o->log = spec->log;
    const char *dir = given(spec->log_dir);
    o->no_files = dir != NULL && strcmp(dir, "/dev/null") == 0;
    if (rc == 0)
        rc = copy(&o->log_dir, o->no_files ? NULL : dir, err);
    o->log_all = spec->log_all && o->log_dir != NULL;
    if (rc == 0)
        rc = copy(&o->tmp_dir, given(spec->tmp_dir), err);
    if (rc == 0)
        rc = copy(&o->run_id, spec->run_id, err);
    if (rc == 0)
        rc = copy(&o->role, given(spec->role) == NULL ? "default" : spec->role, err);
    if (rc == 0)
        rc = copy(&o->prefix, given(spec->prefix), err);
    for (int k = 0; k < 2 && rc == 0; k++)
        rc = output_filters_split(&o->filters[k], spec->filters[k]) < 0 ? no_memory(err) : 0;
    return rc;
}

bool output_any_filter(const struct worker_output *o)
{
    return rank_map_any(&o->tee) && o->filters[0].n + o->filters[1].n > 0;
}

/* Plan a stream that is shown on the console without labels. */
static void plain_plan(const struct worker_output *o, struct output_stream *s, int rank, int k)
{
    s->plain = true;
    s->tty = !o->raw && rank == 0 && console_is_terminal(o->console[k]);
    s->bare = o->raw || o->alone || s->tty;
    bool kept = s->tty || o->watch || k == 1 || o->console[0] == o->console[1];
    if (o->alone && !kept && !o->log_all)
        s->mode = OUTPUT_INHERIT; /* no other worker writes there, and the tail of stderr suffices
                                     for the report */
}

/* True if the agent searches the output of this rank for steps. */
static bool is_searched(const struct worker_output *o, int local_rank)
{
    return o->steps != NULL && local_rank == 0;
}

/* Plan one stream of a worker. */
static void stream_plan(const struct worker_output *o, struct output_rank *r, int local_rank, int k)
{
    struct output_stream *s = &r->stream[k];
    int bit = k == 0 ? OUTPUT_STDOUT : OUTPUT_STDERR;
    bool tee = (rank_map_get(&o->tee, local_rank) & bit) != 0;
    bool redirect = (rank_map_get(&o->redirects, local_rank) & bit) != 0 && !tee;
    bool file = (tee || redirect || o->log_all) && o->run_dir != NULL;
    bool shown = !redirect && rank_map_get(&o->visible, local_rank) != 0;
    bool raw = o->raw && !o->watch && !tee && !o->log_all && (!shown || !o->label);
    s->mode = !raw ? OUTPUT_PIPE : shown ? OUTPUT_INHERIT : OUTPUT_NULL;
    if (!shown && file && !is_searched(o, local_rank))
        s->mode = OUTPUT_FILE;
    if (s->mode == OUTPUT_PIPE && shown && !tee && !o->label)
        plain_plan(o, s, r->rank, k);
    s->console = s->mode == OUTPUT_PIPE && shown ? o->console[k] : NULL;
    s->fold = s->console != NULL && !o->alone ? o->fold : NULL;
    if (s->fold != NULL) /* a terminal for rank 0 alone would make its lines differ from those of
                            other ranks */
        s->tty = s->bare = false;
    s->local_rank = local_rank;
    s->tail.most = o->tail_most;
    s->log = o->log;
}

/* Use one pipe for both streams, which keeps the order of writes. */
static void join(struct output_stream s[2])
{
    if (s[0].mode == OUTPUT_PIPE && s[1].mode == OUTPUT_PIPE && s[0].path == NULL && s[0].bare &&
        s[1].bare && s[0].console == s[1].console)
        s[1].mode = OUTPUT_JOIN;
}

static int prefix_make(char **ret, const struct worker_output *o, int rank, int local_rank)
{
    if (o->label)
        return asprintf(ret, "[%d]: ", rank) < 0 ? -ENOMEM : 0;
    if (o->prefix != NULL)
        return output_prefix_fill(ret, o->prefix, o->role, rank, local_rank);
    return asprintf(ret, "[%s%d]:", o->role, local_rank) < 0 ? -ENOMEM : 0;
}

int output_rank_begin(struct worker_output *o, int i, int rank)
{
    struct output_rank *r = &o->ranks[i];
    r->rank = rank;
    output_stream_init(&r->stream[0]);
    output_stream_init(&r->stream[1]);
    for (int k = 0; k < 2; k++) {
        struct output_stream *s = &r->stream[k];
        int bit = k == 0 ? OUTPUT_STDOUT : OUTPUT_STDERR;
        stream_plan(o, r, i, k);
        bool tee = (rank_map_get(&o->tee, i) & bit) != 0;
        bool redirect = (rank_map_get(&o->redirects, i) & bit) != 0;
        bool file = s->mode == OUTPUT_FILE ||
                    (s->mode == OUTPUT_PIPE &&
                     (tee || o->log_all || (redirect && is_searched(o, i))) && o->run_dir != NULL);
        if (file && output_path(&s->path, o->run_dir, o->attempt, i, file_names[k]) < 0)
            return -ENOMEM;
        bool named = o->label || tee;
        int rc = 0;
        if (named)
            rc = prefix_make(&s->prefix, o, rank, i);
        else if ((s->prefix = strdup("")) == NULL)
            rc = -ENOMEM;
        if (rc < 0) {
            s->prefix = NULL;
            return rc;
        }
        s->number = k;
        s->steps = is_searched(o, i) ? o->steps : NULL;
        s->filters = &o->filters[k];
        s->filter = NULL;
    }
    join(r->stream);
    return o->run_dir == NULL
               ? 0
               : output_path(&r->error_file, o->run_dir, o->attempt, i, "error.json");
}

void output_ranks_done(struct worker_output *o)
{
    for (int i = 0; i < o->nlocal; i++) {
        output_stream_done(&o->ranks[i].stream[0]);
        output_stream_done(&o->ranks[i].stream[1]);
        free(o->ranks[i].error_file);
    }
    free(o->ranks);
    o->ranks = NULL;
    o->nlocal = 0;
}

int output_filters_begin(struct worker_output *o)
{
    for (int k = 0; k < 2; k++) {
        free(DD_TAKE(o->filter_path[k]));
        if (o->run_dir != NULL && o->filters[k].n > 0 &&
            asprintf(&o->filter_path[k], "%s/attempt_%d/%s", o->run_dir, o->attempt,
                     filtered_names[k]) < 0) {
            o->filter_path[k] = NULL;
            return -ENOMEM;
        }
    }
    return 0;
}
