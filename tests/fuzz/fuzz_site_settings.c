/* What ddrun-toml writes: any text. Every setting names an option and has a value and a place. */
#include "cmd/site_settings.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct values {
    bool flag;
    int number;
    const char *command;
    struct dd_strv env;
};

static const struct opt_row rows[] = {
    {.name = "flag",
     .kind = OPT_FLAG,
     .project = true,
     .help = "h",
     OPT_FIELD(struct values, flag)},
    {.name = "number",
     .kind = OPT_INT,
     .metavar = "N",
     .help = "h",
     OPT_FIELD(struct values, number)},
    {.name = "command",
     .kind = OPT_STRING,
     .metavar = "C",
     .help = "h",
     OPT_FIELD(struct values, command)},
    {.name = "env",
     .kind = OPT_REPEATED,
     .metavar = "NAME=VALUE",
     .no_env = true,
     .help = "h",
     OPT_FIELD(struct values, env)},
};
static const struct opt_table table = {
    .program = "tool", .version = "1", .usage = "", .about = "", OPT_ROWS(rows)};

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void use(const struct site_settings *s)
{
    static char word[] = "tool";
    char *const argv[] = {word, NULL};
    struct values v = {0};
    struct dd_err err = {0};
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(strv) struct dd_strv words = {0};
    const struct opt_input in = {
        .argc = 1, .argv = argv, .env = argv + 1, .settings = s->v, .n_settings = s->n};
    if (opt_parse(&table, &v, &in, &res, &err) < 0)
        must(err.text[0] != '\0');
    else
        must(site_settings_argv(&words, s, &table, &res, argv) == 0 && words.n <= 2 + s->n);
    opt_values_done(&table, &v);
}

static void add(struct dd_buf *json, bool project)
{
    static char *none[] = {NULL};
    DD_AUTO(site_settings) struct site_settings s = {0};
    const struct site_file file = {.name = "f", .project = project};
    const struct site_job job = {
        .partition = "gpu", .queue = "q", .hosts = {"node1", "node1.site"}, .env = none};
    DD_AUTO(strv) struct dd_strv includes = {0};
    struct dd_err err = {0};
    const int included = site_settings_includes(&includes, &table, &file, &job, json, &err);
    must(included == 0 || err.text[0] != '\0');
    must(!project || includes.n == 0);
    int rc = site_settings_add(&s, &table, &file, &job, json, &err);
    must(rc == 0 || err.text[0] != '\0');
    for (size_t i = 0; i < s.n; i++) {
        must(s.v[i].row >= rows && s.v[i].row < rows + 4);
        must(s.v[i].value != NULL && strncmp(s.v[i].place, "f:", 2) == 0);
        must(!project || s.v[i].ahead || s.v[i].row->project);
    }
    if (rc == 0)
        use(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(buf) struct dd_buf json = DD_BUF_INIT(1 << 20);
    if (size > 16384 || dd_buf_append(&json, data, size) < 0)
        return 0;
    add(&json, false);
    add(&json, true);
    return 0;
}
