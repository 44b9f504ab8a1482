#include "recorded_world.h"

#include "base/io.h"
#include "base/num.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct {
    char path[4096];
    bool has_text; /* use text instead of the file; NULL: there is no file */
    const char *text;
} nodefile;

static void data_path(char *out, size_t size, const char *name, const char *end)
{
    const char *srcdir = getenv("srcdir");
    (void)snprintf(out, size, "%s/tests/data/env/%s%s", srcdir != NULL ? srcdir : ".", name, end);
}

static void read_data(struct dd_buf *text, const char *name, const char *end)
{
    char path[4096];
    struct dd_err err;
    data_path(path, sizeof(path), name, end);
    if (dd_read_file(path, text, &err) < 0)
        fail_msg("%s", err.text);
}

void recorded_expected(struct recorded rows[RECORDED])
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 20);
    DD_AUTO(strv) struct dd_strv lines = {0};
    read_data(&text, "expected", "");
    assert_int_equal(dd_strv_split(&lines, dd_buf_str(&text), "\n"), 0);
    assert_int_equal(lines.n, RECORDED + 1);
    for (size_t i = 0; i < RECORDED; i++) {
        struct recorded *r = &rows[i];
        assert_int_equal(sscanf(lines.v[i + 1], "%79s %31s %15s %31s %199s %7s %7s %47s %15s",
                                r->name, r->host, r->source, r->job, r->nodes, r->index, r->gpus,
                                r->key, r->start),
                         9);
    }
}

void recorded_load(struct dd_strv *env, const char *name)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 20);
    read_data(&text, name, ".env");
    assert_int_equal(dd_strv_split(env, dd_buf_str(&text), "\n"), 0);
}

void recorded_set_nodefile(const char *name)
{
    char test_case[64];
    nodefile.has_text = false;
    data_path(nodefile.path, sizeof(nodefile.path), name, ".nodefile");
    FILE *f = fopen(nodefile.path, "re");
    if (f != NULL) {
        fclose(f);
        return;
    }
    const char *dash = strchr(name, '-');
    const char *dot = strchr(strchr(dash, '.') + 1, '.'); /* openpbs-23.06-CASE. */
    (void)snprintf(test_case, sizeof(test_case), "%.*s.script", (int)(dot - name), name);
    data_path(nodefile.path, sizeof(nodefile.path), test_case, ".nodefile");
}

void recorded_set_nodefile_text(const char *text)
{
    nodefile.has_text = true;
    nodefile.text = text;
}

int recorded_read(const char *path, struct dd_buf *out, struct dd_err *err)
{
    if (nodefile.has_text && nodefile.text == NULL)
        return dd_err_set(err, -ENOENT, "cannot open '%s': No such file or directory", path);
    if (nodefile.has_text)
        return dd_buf_puts(out, nodefile.text) < 0 ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
    int rc = dd_read_file(nodefile.path, out, err);
    return rc == -ENOENT /* name the recorded path: that of the tree may be of any words */
               ? dd_err_set(err, rc, "cannot open '%s': No such file or directory", path)
               : rc;
}

struct alloc_input recorded_input(const struct dd_strv *env, const char *hostname)
{
    return (struct alloc_input){.env = env->v,
                                .hostname = hostname,
                                .read_file = recorded_read,
                                .node_rank = -1,
                                .nonce = 1};
}

void recorded_with_agents(struct alloc_input *in)
{
    const char *tasks = dd_env_get(in->env, "SLURM_STEP_NUM_TASKS");
    int n;
    in->have_nproc = true;
    if (tasks != NULL && dd_env_get(in->env, "SLURM_STEP_ID") != NULL &&
        dd_num_int(tasks, 1, 1000, &n) == 0)
        in->min_nodes = in->max_nodes = n;
}

bool recorded_is_message(const char *text)
{
    bool ok = text[0] != '\0' && text[0] != '\n';
    for (const char *lf = strchr(text, '\n'); lf != NULL && ok; lf = strchr(lf + 1, '\n'))
        ok = strncmp(lf, "\n  tip: ", 8) == 0;
    return ok;
}
