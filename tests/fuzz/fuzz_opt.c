/* opt: any strings as command line and environment, separated by NUL or newline; those before the
 * first empty string are the command line, the others the environment. */
#include "base/opt.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct values {
    bool flag;
    int number;
    uint64_t time;
    uint64_t bytes;
    const char *text;
    const char *maybe;
    const char *choice;
    struct dd_strv many;
    struct dd_strv few;
};

#define FIELD(name) OPT_FIELD(struct values, name)

static const struct opt_row rows[] = {
    {.name = "flag", .letter = 'f', .kind = OPT_FLAG, .help = "a flag", FIELD(flag)},
    {.name = "number",
     .letter = 'n',
     .aliases = "num,n-of",
     .kind = OPT_INT,
     .metavar = "N",
     .help = "a number",
     FIELD(number)},
    {.name = "time",
     .letter = 't',
     .kind = OPT_DURATION,
     .metavar = "T",
     .def = "1s",
     .help = "a time",
     FIELD(time)},
    {.name = "bytes",
     .kind = OPT_BYTES,
     .metavar = "B",
     .min = 1,
     .max = 1024,
     .help = "a size",
     FIELD(bytes)},
    {.name = "text",
     .letter = 'x',
     .kind = OPT_STRING,
     .metavar = "X",
     .env = "A,B",
     .help = "a text",
     FIELD(text)},
    {.name = "maybe",
     .letter = 'y',
     .kind = OPT_STRING,
     .metavar = "Y",
     .implied = "yes",
     .help = "a text or none",
     FIELD(maybe)},
    {.name = "choice",
     .kind = OPT_STRING,
     .metavar = "C",
     .choices = "red,green,blue",
     .help = "one of three",
     FIELD(choice)},
    {.name = "many",
     .letter = 'm',
     .kind = OPT_REPEATED,
     .metavar = "M",
     .help = "many",
     FIELD(many)},
    {.name = "many-few",
     .kind = OPT_REPEATED,
     .metavar = "M",
     .split = ',',
     .def = "1,2",
     .choices = "1,2,3",
     .help = "few",
     FIELD(few)},
    {.name = "many-hidden",
     .kind = OPT_STRING,
     .metavar = "H",
     .hidden = true,
     .help = "hidden",
     FIELD(text)},
};

static const struct opt_table table = {
    .program = "fuzz",
    .version = "0",
    .usage = "",
    .about = "x",
    .env_prefixes = "PET_",
    OPT_ROWS(rows),
};

/* True if text is a sentence, followed by nothing but lines of tips. */
static bool is_message(const char *text)
{
    bool ok = text[0] != '\0' && text[0] != '\n';
    for (const char *lf = strchr(text, '\n'); lf != NULL && ok; lf = strchr(lf + 1, '\n'))
        ok = strncmp(lf, "\n  tip: ", 8) == 0;
    return ok;
}

static void check(const struct dd_strv *argv, const struct dd_strv *env)
{
    struct values v = {0};
    struct dd_err err = {0};
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1U << 22);
    int rc = opt_parse(&table, &v,
                       &(struct opt_input){.argc = (int)argv->n, .argv = argv->v, .env = env->v},
                       &res, &err);
    if (rc != 0 && (rc != -EINVAL || !is_message(err.text)))
        abort();
    if (rc == 0) {
        if (res.script < 1 || res.script > (int)argv->n || res.args < res.script ||
            res.args > (int)argv->n)
            abort();
        if (opt_answer(&table, &res, &out) != 0)
            abort();
        if (res.ask == OPT_ASK_NOTHING && v.bytes > 1024)
            abort();
    }
    opt_values_done(&table, &v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(strv) struct dd_strv argv = {0};
    DD_AUTO(strv) struct dd_strv env = {0};
    struct dd_strv *to = &argv;
    size_t start = 0;
    if (size > 4096 || dd_strv_push(&argv, "fuzz") < 0)
        return 0;
    for (size_t i = 0; i <= size; i++) {
        if (i < size && data[i] != '\0' && data[i] != '\n')
            continue;
        if (i == start && to == &argv && i < size)
            to = &env;
        else if (dd_strv_pushn(to, (const char *)data + start, i - start) < 0)
            return 0;
        start = i + 1;
    }
    check(&argv, &env);
    return 0;
}
