/* opt: parsing of a command line and an environment with a table of options. */
#include "base/opt.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct range {
    int least, most;
};

struct values {
    bool module;
    bool quiet;
    int restarts;
    int any;
    uint64_t interval;
    uint64_t limit;
    const char *redirects;
    const char *method;
    const char *report;
    const char *log_dir;
    const char *log_file;
    const char *secret;
    struct dd_strv env;
    struct dd_strv signals;
    struct range nodes;
};

static int parse_range(const char *text, void *field, struct dd_err *err)
{
    struct range *r = field;
    char *end;
    r->least = r->most = (int)strtol(text, &end, 10);
    if (*end == ':')
        r->most = (int)strtol(end + 1, &end, 10);
    if (*end == '\0' && end != text)
        return 0;
    return dd_err_set(err, -EINVAL, "'%s' is neither N nor MIN:MAX", text);
}

#define FIELD(name) OPT_FIELD(struct values, name)

static const struct opt_row rows[] = {
    {.name = "nnodes",
     .kind = OPT_CUSTOM,
     .metavar = "N|MIN:MAX",
     .def = "1",
     .parse = parse_range,
     .group = "Nodes",
     .help = "how many nodes take part",
     FIELD(nodes)},
    {.name = "node-env",
     .letter = 'e',
     .kind = OPT_REPEATED,
     .metavar = "NAME=VALUE",
     .group = "Workers",
     .help = "set NAME for the workers",
     FIELD(env)},
    {.name = "max-restarts",
     .kind = OPT_INT,
     .metavar = "N",
     .def = "0",
     .max = INT_MAX,
     .env = "TOOL_RETRIES",
     .group = "Workers",
     .help = "start again so often",
     FIELD(restarts)},
    {.name = "any", .kind = OPT_INT, .metavar = "N", .help = "any number", FIELD(any)},
    {.name = "monitor-interval",
     .aliases = "poll-interval,poll",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "0.1",
     .min = 1000000,
     .group = "Workers",
     .help = "look at the workers so often",
     FIELD(interval)},
    {.name = "limit",
     .kind = OPT_BYTES,
     .metavar = "SIZE",
     .min = 10,
     .max = 1024,
     .group = "Workers",
     .help = "use so much",
     FIELD(limit)},
    {.name = "redirects",
     .letter = 'r',
     .kind = OPT_STRING,
     .metavar = "MAP",
     .def = "0",
     .group = "Output",
     .help = "which streams go to files",
     FIELD(redirects)},
    {.name = "start-method",
     .kind = OPT_STRING,
     .metavar = "METHOD",
     .choices = "spawn,fork",
     .def = "spawn",
     .group = "Workers",
     .help = "how workers start",
     FIELD(method)},
    {.name = "report",
     .kind = OPT_STRING,
     .metavar = "FILE",
     .implied = "-",
     .group = "Output",
     .since = "0.2.0",
     .help = "write a report to FILE, with a text that is long enough to need "
             "a second line in the help and the manual",
     .more = "A paragraph about --report and its FILE.\n"
             "\n.A second one with a dot and a back\\slash.",
     FIELD(report)},
    {.name = "log-dir",
     .kind = OPT_STRING,
     .metavar = "DIR",
     .no_env = true,
     .group = "Output",
     .def_doc = "a new one",
     .help = "the user's [log] folder",
     FIELD(log_dir)},
    {.name = "log-file",
     .kind = OPT_STRING,
     .metavar = "FILE",
     .group = "Output",
     .help = "one file",
     FIELD(log_file)},
    {.name = "module",
     .letter = 'm',
     .kind = OPT_FLAG,
     .group = "Workers",
     .help = "SCRIPT is a module",
     FIELD(module)},
    {.name = "quiet", .letter = 'q', .kind = OPT_FLAG, .help = "say less", FIELD(quiet)},
    {.name = "signals",
     .kind = OPT_REPEATED,
     .metavar = "NAMES",
     .split = ',',
     .def = "TERM,INT",
     .choices = "TERM,INT,USR1",
     .help = "signals that are passed on",
     FIELD(signals)},
    {.name = "secret-door",
     .kind = OPT_STRING,
     .metavar = "X",
     .hidden = true,
     .help = "hidden",
     FIELD(secret)},
};

static const struct opt_table table = {
    .program = "tool",
    .version = "1.2.3",
    .usage = "[options] SCRIPT [ARG...]",
    .about = "Runs SCRIPT.",
    .epilog = "See tool(1).\n",
    .env_prefixes = "TOOL_,PET_",
    OPT_ROWS(rows),
};

/* The result of a parse, and the strings that it borrows. */
struct run {
    struct dd_strv argv;
    struct dd_strv env;
    struct values v;
    struct opt_result res;
    struct dd_err err;
    int rc;
};

/* Split at single spaces, so that two of them delimit an empty argument; "~" stands for a space. */
static void push_words(struct dd_strv *sv, const char *words)
{
    while (*words != '\0') {
        size_t n = strcspn(words, " ");
        assert_int_equal(dd_strv_pushn(sv, words, n), 0);
        for (char *p = sv->v[sv->n - 1]; *p != '\0'; p++)
            *p = *p == '~' ? ' ' : *p;
        words += n + (words[n] == ' ');
    }
}

static void run_begin(struct run *r, const char *words, const char *env)
{
    *r = (struct run){0};
    assert_int_equal(dd_strv_push(&r->argv, "tool"), 0);
    push_words(&r->argv, words);
    push_words(&r->env, env);
    r->rc = opt_parse(
        &table, &r->v,
        &(struct opt_input){.argc = (int)r->argv.n, .argv = r->argv.v, .env = r->env.v}, &r->res,
        &r->err);
}

static void run_end(struct run *r)
{
    opt_values_done(&table, &r->v);
    opt_result_done(&r->res);
    dd_strv_done(&r->argv);
    dd_strv_done(&r->env);
}

static const struct {
    const char *words;
    const char *env;
    const char *sentence;
} refused[] = {
    {"--max-restarts abc s.py", "",
     "--max-restarts: 'abc' is not a whole number; for example --max-restarts=0"},
    {"--max-restarts= s.py", "",
     "--max-restarts: '' is not a whole number; for example --max-restarts=0"},
    {"--max-restarts=-1 s.py", "",
     "--max-restarts: '-1' is too small: the minimum is 0; for example --max-restarts=0"},
    {"--max-restarts=99999999999 s.py", "",
     "--max-restarts: '99999999999' is too large: the maximum is 2147483647; for example --max-restarts=0"},
    {"--any=-99999999999 s.py", "",
     "--any: '-99999999999' is too small: the minimum is -2147483648; for example --any=3"},
    {"--any 3x s.py", "", "--any: '3x' is not a whole number; for example --any=3"},
    {"s.py", "TOOL_MAX_RESTARTS=abc",
     "TOOL_MAX_RESTARTS: 'abc' is not a whole number; for example TOOL_MAX_RESTARTS=0"},
    {"s.py", "PET_MODULE=maybe",
     "PET_MODULE: 'maybe' is not a boolean (expected yes or no); for example PET_MODULE=yes"},
    {"--module=maybe s.py", "",
     "--module: 'maybe' is not a boolean (expected yes or no); for example --module=yes"},
    {"-m=3x s.py", "", "-m: '3x' is not a boolean (expected yes or no); for example -m yes"},
    {"--monitor-interval 5x s", "",
     "--monitor-interval: '5x' is not a duration (a number, optionally with a unit: us, ms, s, m, h or d); for example --monitor-interval=0.1"},
    {"--poll 0 s", "",
     "--monitor-interval: '0' is too small: the minimum is 0.001s; for example --monitor-interval=0.1"},
    {"--limit 2K s", "",
     "--limit: '2K' is too large: the maximum is 1024 bytes; for example --limit=64M"},
    {"--limit many s", "",
     "--limit: 'many' is not a size (a whole number, optionally with K, M or G); for example --limit=64M"},
    {"--start-method thread s", "",
     "--start-method: invalid value 'thread': expected spawn or fork"},
    {"--signals=TERM,KILL s", "", "--signals: invalid value 'KILL': expected TERM, INT or USR1"},
    {"--nnodes=two s", "", "--nnodes: 'two' is neither N nor MIN:MAX"},
    {"s", "PET_NNODES=1:2:3", "PET_NNODES: '1:2:3' is neither N nor MIN:MAX"},
    {"--bogus s", "", "unknown option '--bogus'\n  tip: 'tool --help' lists all options"},
    {"--max-restart=3 --nnode s", "", "--nnodes: 's' is neither N nor MIN:MAX"},
    {"--max-restrats=3 s", "",
     "unknown option '--max-restrats'\n  tip: did you mean '--max-restarts'?"},
    {"--max_restrats=3 s", "",
     "unknown option '--max_restrats'\n  tip: did you mean '--max-restarts'?"},
    {"-nnodes=3 s", "", "unknown option '-nnodes'\n  tip: did you mean '--nnodes'?"},
    {"--nndoes=3 s", "", "unknown option '--nndoes'\n  tip: did you mean '--nnodes'?"},
    {"--nndeos=3 s", "", "unknown option '--nndeos'\n  tip: did you mean '--nnodes'?"},
    {"-x s", "", "unknown option '-x'\n  tip: 'tool --help' lists all options"},
    {"-1 s", "", "unknown option '-1'\n  tip: 'tool --help' lists all options"},
    {"-mx s", "", "unknown option '-x'\n  tip: 'tool --help' lists all options"},
    {"--log s", "", "--log is ambiguous: could be --log-dir, --log-file"},
    {"--secret=1 s", "", "unknown option '--secret'\n  tip: 'tool --help' lists all options"},
    {"--=3 s", "", "unknown option '--'\n  tip: 'tool --help' lists all options"},
    {"--\x1b[0m s", "", "unknown option '--\\x1b[0m'\n  tip: 'tool --help' lists all options"},
    {"--redirects", "", "missing value for --redirects\n  tip: for example --redirects=0"},
    {"-r", "", "missing value for -r\n  tip: for example -r 0"},
    {"-r -- s", "", "missing value for -r\n  tip: for example -r 0"},
    {"--nnodes", "", "missing value for --nnodes\n  tip: for example --nnodes=1"},
    {"--redirects --module s", "",
     "missing value for --redirects (found '--module')\n  tip: if the value starts with '-', use --redirects=--module"},
    {"--dump-options=text", "",
     "--dump-options: invalid value 'text': expected man, bash, zsh, fish or json"},
};

static void parse_refuses_with_a_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct run r;
        run_begin(&r, refused[i].words, refused[i].env);
        assert_int_equal(r.rc, -EINVAL);
        assert_string_equal(r.err.text, refused[i].sentence);
        run_end(&r);
    }
}

static void parse_cuts_very_long_words_in_its_sentences(void **state)
{
    (void)state;
    char word[5000] = "--";
    char tool[] = "tool", any[] = "--any";
    memset(word + 2, 'a', sizeof(word) - 3);
    char *const argv[] = {tool, word, any, word, NULL};
    struct values v = {0};
    struct opt_result res = {0};
    struct dd_err err;
    assert_int_equal(
        opt_parse(&table, &v, &(struct opt_input){.argc = 2, .argv = argv}, &res, &err), -EINVAL);
    assert_in_range(strlen(err.text), 50, 250);
    word[1] = 'a';
    word[0] = 'a';
    char *const argv2[] = {tool, any, word, NULL};
    assert_int_equal(
        opt_parse(&table, &v, &(struct opt_input){.argc = 3, .argv = argv2}, &res, &err), -EINVAL);
    assert_in_range(strlen(err.text), 50, 250);
}

/* The positions of SCRIPT and its arguments; the options before them are valid. */
static const struct {
    const char *words;
    const char *script; /* NULL: none */
    const char *args;   /* joined by spaces */
} operands[] = {
    {"", NULL, ""},
    {"--module", NULL, ""},
    {"--", NULL, ""},
    {"s.py", "s.py", ""},
    {"s.py --nnodes 3", "s.py", "--nnodes 3"},
    {"--nnodes 3 s.py -r 3", "s.py", "-r 3"},
    {"s.py -- --x -- y", "s.py", "--x -- y"},
    {"-- s.py -- --x", "s.py", "-- --x"},
    {"-- -s.py x", "-s.py", "x"},
    {"-m -- s.py x", "s.py", "x"},
    {"s a -- b", "s", "a -- b"},
    {"s --", "s", ""},
    {"-- -- s", "--", "s"},
    {"- x", "-", "x"},
    {"-r - s", "s", ""},
    {"-r -1 s", "s", ""},
    {"-r -.5 s", "s", ""},
    {"-r3 s 1", "s", "1"},
    {"-mr 3 s 1", "s", "1"},
    {"-mr3 s 1", "s", "1"},
    {"--redirects=  s", "", "s"}, /* an empty argument is an operand */
    {"--redirects -p~x s", "s", ""},
    {"--report s.py x", "s.py", "x"},
    {"--report=r s.py x", "s.py", "x"},
    {"--help s.py", "s.py", ""},
};

static void parse_finds_the_script_as_argparse_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(operands) / sizeof(operands[0]); i++) {
        struct run r;
        DD_AUTO(buf) struct dd_buf args = DD_BUF_INIT(1000);
        run_begin(&r, operands[i].words, "");
        assert_int_equal(r.rc, 0);
        const char *script = r.argv.v[r.res.script];
        if (operands[i].script == NULL)
            assert_null(script);
        else
            assert_string_equal(script, operands[i].script);
        for (char **p = r.argv.v + r.res.args; *p != NULL; p++)
            assert_int_equal(dd_buf_printf(&args, "%s%s", args.len > 0 ? " " : "", *p), 0);
        assert_string_equal(dd_buf_str(&args), operands[i].args);
        run_end(&r);
    }
}

static void parse_puts_defaults_in(void **state)
{
    (void)state;
    struct run r;
    run_begin(&r, "s.py", "PET_UNKNOWN=1 PET_MAX_RESTARTS= PET_LOG_DIR=x");
    assert_int_equal(r.rc, 0);
    assert_int_equal(r.v.restarts, 0);
    assert_int_equal(r.v.interval, 100000000);
    assert_string_equal(r.v.redirects, "0");
    assert_string_equal(r.v.method, "spawn");
    assert_null(r.v.report);
    assert_null(r.v.log_dir); /* no_env */
    assert_int_equal(r.v.signals.n, 2);
    assert_string_equal(r.v.signals.v[1], "INT");
    assert_int_equal(r.v.nodes.most, 1);
    assert_int_equal(opt_result_source(&r.res, &table, "redirects")->from, OPT_FROM_DEFAULT);
    assert_false(opt_is_given(&r.res, &table, "redirects"));
    assert_null(opt_result_source(&r.res, &table, "nothing"));
    run_end(&r);
}

/* Every spelling of a value, for --redirects. */
static const struct {
    const char *words;
    const char *redirects;
} spellings[] = {
    {"--redirects 3 s", "3"},
    {"--redirects=3 s", "3"},
    {"-r3 s", "3"},
    {"-r 3 s", "3"},
    {"-r=3 s", "3"},
    {"-mqr3 s", "3"},
    {"-mr 3 s", "3"},
    {"--redir 3 s", "3"},
    {"--redirects= s", ""},
    {"-r= s", ""},
    {"-r 1 -r 2 s", "2"},
    {"--redirects=-x s", "-x"},
    {"--redirects=a=b=c s", "a=b=c"},
    {"-ra=b s", "a=b"},
    {"-r -1 s", "-1"},
    {"-r -p~gpu s", "-p gpu"},
    {"-r  s", ""},
};

static void parse_takes_every_spelling(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        struct run r;
        run_begin(&r, spellings[i].words, "PET_REDIRECTS=9");
        assert_int_equal(r.rc, 0);
        assert_string_equal(r.v.redirects, spellings[i].redirects);
        assert_string_equal(r.argv.v[r.res.script], "s");
        run_end(&r);
    }
}

static void parse_takes_underscores_prefixes_and_aliases(void **state)
{
    (void)state;
    struct run r;
    run_begin(&r, "--max_restarts 3 --start_m=fork --poll_interval 2m --secret_door x -q s", "");
    assert_int_equal(r.rc, 0);
    assert_int_equal(r.v.restarts, 3);
    assert_string_equal(r.v.method, "fork");
    assert_int_equal(r.v.interval, UINT64_C(120000000000));
    assert_string_equal(r.v.secret, "x");
    assert_true(r.v.quiet);
    assert_false(r.v.module);
    const struct opt_source *src = opt_result_source(&r.res, &table, "monitor-interval");
    assert_int_equal(src->from, OPT_FROM_COMMAND_LINE);
    assert_string_equal(src->value, "2m");
    assert_int_equal(src->times, 1);
    run_end(&r);
}

static void parse_prefers_command_line_then_own_variable_then_prefixes(void **state)
{
    (void)state;
    static const struct {
        const char *words, *env, *source;
        int restarts;
    } cases[] = {
        {"--max-restarts=1 s", "TOOL_RETRIES=2 TOOL_MAX_RESTARTS=3 PET_MAX_RESTARTS=x",
         "--max-restarts", 1},
        {"s", "PET_MAX_RESTARTS=4 TOOL_MAX_RESTARTS=3 TOOL_RETRIES=2", "TOOL_RETRIES", 2},
        {"s", "PET_MAX_RESTARTS=4 TOOL_MAX_RESTARTS=3", "TOOL_MAX_RESTARTS", 3},
        {"s", "PET_MAX_RESTARTS=4", "PET_MAX_RESTARTS", 4},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct run r;
        run_begin(&r, cases[i].words, cases[i].env);
        assert_int_equal(r.rc, 0);
        assert_int_equal(r.v.restarts, cases[i].restarts);
        assert_string_equal(opt_result_source(&r.res, &table, "max-restarts")->name,
                            cases[i].source);
        run_end(&r);
    }
}

static void parse_reads_flags_from_the_environment_as_torchrun_does(void **state)
{
    (void)state;
    static const struct {
        const char *words, *env;
        bool module;
    } cases[] = {
        {"s", "PET_MODULE=1", true},
        {"s", "PET_MODULE=0", false},
        {"s", "PET_MODULE=7", true},
        {"s", "PET_MODULE=yes", true},
        {"s", "PET_MODULE=False", false},
        {"-m s", "PET_MODULE=0", true},
        {"--module=no s", "PET_MODULE=1", false},
        {"-m --module=off s", "", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct run r;
        run_begin(&r, cases[i].words, cases[i].env);
        assert_int_equal(r.rc, 0);
        assert_int_equal(r.v.module, cases[i].module);
        run_end(&r);
    }
}

static void parse_collects_repeated_options(void **state)
{
    (void)state;
    struct run r;
    run_begin(&r, "-e A=1 --node-env=B=a,b -e C= --signals=USR1 s", "PET_NODE_ENV=X=1");
    assert_int_equal(r.rc, 0);
    assert_int_equal(r.v.env.n, 3);
    assert_string_equal(r.v.env.v[0], "A=1");
    assert_string_equal(r.v.env.v[1], "B=a,b");
    assert_string_equal(r.v.env.v[2], "C=");
    assert_int_equal(r.v.signals.n, 1); /* replaces the default */
    assert_int_equal(opt_result_source(&r.res, &table, "node-env")->times, 3);
    run_end(&r);
    run_begin(&r, "s", "PET_NODE_ENV=X=1,2");
    assert_int_equal(r.v.env.n, 1);
    assert_string_equal(r.v.env.v[0], "X=1,2");
    run_end(&r);
}

static void parse_gives_the_implied_value_when_an_optional_one_is_left_out(void **state)
{
    (void)state;
    struct run r;
    run_begin(&r, "--report s", "");
    assert_string_equal(r.v.report, "-");
    run_end(&r);
    run_begin(&r, "--report=x s", "");
    assert_string_equal(r.v.report, "x");
    run_end(&r);
}

static void parse_answers_help_before_it_looks_further(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        enum opt_ask ask;
    } cases[] = {
        {"--help --bogus", OPT_ASK_HELP},  {"-h", OPT_ASK_HELP},
        {"-mh --bogus", OPT_ASK_HELP},     {"--version --bogus", OPT_ASK_VERSION},
        {"--show-config", OPT_ASK_CONFIG}, {"--dump_options json", OPT_ASK_DUMP},
        {"s.py --help", OPT_ASK_NOTHING},  {"-- --help", OPT_ASK_NOTHING},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct run r;
        run_begin(&r, cases[i].words, "PET_MAX_RESTARTS=5");
        assert_int_equal(r.rc, 0);
        assert_int_equal(r.res.ask, cases[i].ask);
        run_end(&r);
    }
}

static const char *answer(struct run *r, struct dd_buf *out)
{
    assert_int_equal(r->rc, 0);
    assert_int_equal(opt_answer(&table, &r->res, out), 0);
    return dd_buf_str(out);
}

static void show_config_names_value_and_source_of_every_option(void **state)
{
    (void)state;
    struct run r;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(10000);
    run_begin(&r, "--show-config -e A=a~b -e B=\t -m s.py", "PET_MAX_RESTARTS=5");
    assert_string_equal(answer(&r, &out), "nnodes\t1\tdefault\n"
                                          "node-env\tA=a b\tcommand line\n"
                                          "node-env\tB=\\x09\tcommand line\n"
                                          "max-restarts\t5\tenvironment PET_MAX_RESTARTS\n"
                                          "any\t\tdefault\n"
                                          "monitor-interval\t0.1\tdefault\n"
                                          "limit\t\tdefault\n"
                                          "redirects\t0\tdefault\n"
                                          "start-method\tspawn\tdefault\n"
                                          "report\t\tdefault\n"
                                          "log-dir\t(a new one)\tdefault\n"
                                          "log-file\t\tdefault\n"
                                          "module\tyes\tcommand line\n"
                                          "quiet\tno\tdefault\n"
                                          "signals\tTERM\tdefault\n"
                                          "signals\tINT\tdefault\n");
    run_end(&r);
}

static void show_config_as_json_is_complete(void **state)
{
    static const char head[] =
        "{\"version\": 1, \"program\": \"tool\", \"options\": [\n{\"name\": ";
    (void)state;
    struct run r;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(10000);
    run_begin(&r, "--show-config=json -e A=\"\xff\\ s.py", "PET_MAX_RESTARTS=5");
    const char *text = answer(&r, &out);
    assert_memory_equal(text, head, strlen(head));
    assert_non_null(strstr(text, "{\"name\": \"node-env\", \"value\": \"A=\\\"?\\\\\", \"source\": "
                                 "\"command line\", \"place\": null},\n"));
    assert_non_null(strstr(text, "{\"name\": \"max-restarts\", \"value\": \"5\", \"source\": "
                                 "\"environment\", \"place\": \"PET_MAX_RESTARTS\"},\n"));
    assert_non_null(strstr(text, "{\"name\": \"any\", \"value\": null, \"source\": \"default\", "
                                 "\"place\": null},\n"));
    assert_string_equal(text + strlen(text) - 4, "\n]}\n");
    run_end(&r);
}

static void help_is_grouped_and_fits_eighty_columns(void **state)
{
    (void)state;
    struct run r;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(10000);
    run_begin(&r, "-h", "");
    const char *help = answer(&r, &out);
    assert_string_equal(
        help,
        "Usage: tool [options] SCRIPT [ARG...]\n\nRuns SCRIPT.\n\nNodes:\n      --nnodes=N|MIN:MAX    how many nodes take part (default: 1)\n\nWorkers:\n  -e, --node-env=NAME=VALUE\n                            set NAME for the workers\n      --max-restarts=N      start again so often (default: 0; variable:\n                            TOOL_RETRIES)\n      --monitor-interval=TIME\n                            look at the workers so often (default: 0.1)\n      --limit=SIZE          use so much\n      --start-method=METHOD\n                            how workers start (one of spawn, fork; default:\n                            spawn)\n  -m, --module              SCRIPT is a module\n\nOptions:\n      --any=N               any number\n  -q, --quiet               say less\n      --signals=NAMES       signals that are passed on (one of TERM, INT, USR1;\n                            default: TERM,INT)\n\nOutput:\n  -r, --redirects=MAP       which streams go to files (default: 0)\n      --report[=FILE]       write a report to FILE, with a text that is long\n                            enough to need a second line in the help and the\n                            manual\n      --log-dir=DIR         the user's [log] folder (default: a new one)\n      --log-file=FILE       one file\n\nHelp:\n  -h, --help[=all|WORD]     show the common options, all, or those that match\n                            WORD\n      --version             print the version\n      --show-config[=FORM]  print all option values with their sources and exit\n                            (one of text, json)\n\nSee tool(1).\n");
    run_end(&r);
}

static void version_is_one_line(void **state)
{
    (void)state;
    struct run r;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(10000);
    run_begin(&r, "--version", "");
    assert_string_equal(answer(&r, &out), "tool 1.2.3\n");
    run_end(&r);
}

/* Each format must contain these pieces; tests/tools/check-completions runs the completions in
 * shells. */
static const struct {
    const char *format;
    const char *piece;
} dumped[] = {
    {"man", ".SS Nodes\n.TP\n\\fB\\-\\-nnodes\\fP=\\fIN|MIN:MAX\\fP\nHow many nodes take part.\n"
            "Default: 1.\n.SS Workers\n"},
    {"man", "\\fB\\-e\\fP \\fINAME=VALUE\\fP, \\fB\\-\\-node\\-env\\fP=\\fINAME=VALUE\\fP\n"},
    {"man", "\\fB\\-\\-report\\fP[=\\fIFILE\\fP]\nWrite a report to \\fIFILE\\fP, with a text"},
    {"man", "\\fB\\-h\\fP, \\fB\\-\\-help\\fP[=\\fIall|WORD\\fP]\n"}, /* -h takes no value */
    {"man", "Since version 0.2.0.\n.IP\nA paragraph about \\fB\\-\\-report\\fP and its "
            "\\fIFILE\\fP.\n.IP\n\\&.A second one with a dot and a back\\eslash.\n"},
    {"man", "One of spawn, fork; default: spawn.\n"},
    {"bash", "--limit|--redirects|-r|--start-method|"},
    {"bash",
     "        --start-method) mapfile -t COMPREPLY < <(compgen -W 'spawn fork' -- \"$cur\") ;;\n"},
    {"bash", "        --log-dir) mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"},
    {"bash", "complete -F _tool tool\n"},
    {"zsh", "#compdef tool\n"},
    {"zsh", "    '--start-method=[how workers start]:METHOD:(spawn fork)' \\\n"},
    {"zsh", "    '(-m --module)'{-m,--module}'[SCRIPT is a module]' \\\n"},
    {"zsh", "    '--log-dir=[the user'\\''s \\[log\\] folder]:DIR:_files -/' \\\n"},
    {"fish", "complete -c tool -l start-method -x -a 'spawn fork' -d 'how workers start'\n"},
    {"fish", "complete -c tool -l log-dir -x -a '(__fish_complete_directories)' "
             "-d 'the user\\'s [log] folder'\n"},
    {"json", "{\"program\": \"tool\", \"version\": \"1.2.3\", \"options\": [\n"},
    {"json",
     "{\"name\": \"max-restarts\", \"kind\": \"int\", \"letter\": null, \"metavar\": \"N\", "
     "\"default\": \"0\", \"implied\": null, \"group\": \"Workers\", \"since\": null, "
     "\"help\": \"start again so often\", \"aliases\": [], \"choices\": [], "
     "\"variables\": [\"TOOL_RETRIES\", \"TOOL_MAX_RESTARTS\", \"PET_MAX_RESTARTS\"], "
     "\"hidden\": false},\n"},
};

static void dump_holds_every_kind_of_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(dumped) / sizeof(dumped[0]); i++) {
        struct run r;
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(100000);
        char words[100] = "--dump-options=";
        run_begin(&r, strcat(words, dumped[i].format), "");
        const char *text = answer(&r, &out);
        if (strstr(text, dumped[i].piece) == NULL)
            fail_msg("%s has no\n%s\nbut\n%s", dumped[i].format, dumped[i].piece, text);
        if (strcmp(dumped[i].format, "json") != 0)
            assert_null(strstr(text, "secret"));
        run_end(&r);
    }
}

static void dump_reports_a_full_buffer(void **state)
{
    (void)state;
    for (int f = OPT_FORMAT_MAN; f <= OPT_FORMAT_JSON; f++) {
        DD_AUTO(buf) struct dd_buf whole = DD_BUF_INIT(100000);
        assert_int_equal(opt_dump(&table, (enum opt_format)f, &whole), 0);
        for (size_t limit = 1; limit < whole.len; limit += 7) {
            DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(limit);
            assert_int_equal(opt_dump(&table, (enum opt_format)f, &out), -EMSGSIZE);
        }
    }
    DD_AUTO(buf) struct dd_buf whole = DD_BUF_INIT(100000);
    assert_int_equal(opt_help(&table, "all", &whole), 0);
    for (size_t limit = 1; limit < whole.len; limit += 7) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(limit);
        assert_int_equal(opt_help(&table, "all", &out), -EMSGSIZE);
    }
}

#define GOOD .kind = OPT_INT, .metavar = "N", .help = "a number", .offset = 0

static const struct {
    struct opt_row row[2];
    const char *sentence;
} bad_tables[] = {
    {{{.name = "Upper", GOOD}, {.name = "other", GOOD}},
     "row 0 (--Upper): invalid name: expected 2 to 40 of a-z, 0-9 and, inside, '-'"},
    {{{.name = "one", GOOD}, {.name = "one", GOOD}}, "row 0 (--one): duplicate name"},
    {{{.name = "help", GOOD}, {.name = "one", GOOD}}, "row 0 (--help): duplicate name"},
    {{{.name = "one", GOOD}, {.name = "two", .aliases = "uno,one", GOOD}},
     "row 0 (--one): duplicate name"},
    {{{.name = "one", .letter = 'h', GOOD}, {.name = "two", GOOD}},
     "row 0 (--one): same letter as --help"},
    {{{.name = "one", .letter = '1', GOOD}, {.name = "two", GOOD}},
     "row 0 (--one): short form is not a letter"},
    {{{.name = "one", .def = "x", GOOD}, {.name = "two", GOOD}},
     "row 0 (--one): one: 'x' is not a whole number; for example x"},
    {{{.name = "one", GOOD}, {.name = "two", .kind = OPT_STRING, .metavar = "X", .help = "End."}},
     "row 1 (--two): help line ends with a full stop"},
    {{{.name = "one", GOOD}, {.name = "two", .kind = OPT_STRING, .metavar = "X"}},
     "row 1 (--two): the help line is missing or not printable ASCII"},
    {{{.name = "one", GOOD}, {.name = "two", .kind = OPT_STRING, .help = "text"}},
     "row 1 (--two): a flag must have no metavar, other options must have one"},
    {{{.name = "one", GOOD}, {.name = "two", .kind = OPT_CUSTOM, .metavar = "X", .help = "text"}},
     "row 1 (--two): missing parse function of a custom option"},
};

static void an_unknown_command_has_the_nearest_one_as_its_tip(void **state)
{
    static const struct opt_command commands[] = {
        {.name = "drain"}, {.name = "status"}, {.name = "events"}, {.name = "kv"}};
    static const struct {
        const char *word, *near; /* NULL: none is near */
    } cases[] = {{"statsu", "status"}, {"stat", "status"},    {"s", "status"},
                 {"event", "events"},  {"eventss", "events"}, {"drian", "drain"},
                 {"v", NULL},          {"train", "drain"},    {"", NULL},
                 {"submarine", NULL}};
    const struct opt_table t = {.commands = commands, .n_commands = 4};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct opt_command *c = opt_nearest_command(&t, cases[i].word);
        if (cases[i].near == NULL)
            assert_null(c);
        else
            assert_string_equal(c->name, cases[i].near);
    }
}

/* Words are separated by one space. */
static void reorder(bool mixed, const char *before, const char *after)
{
    static const struct opt_row small[] = {
        {.name = "job", .kind = OPT_STRING, .metavar = "ID"},
        {.name = "follow", .letter = 'f', .kind = OPT_FLAG},
        {.name = "nth", .letter = 'n', .kind = OPT_INT, .metavar = "N"},
        {.name = "show", .kind = OPT_STRING, .metavar = "X", .implied = "all"},
    };
    static const struct opt_foreign json[] = {{.word = "--json", .is = "show=json"}, {0}};
    const struct opt_table t = {.program = "x", .mixed = mixed, .foreign = json, OPT_ROWS(small)};
    DD_AUTO(strv) struct dd_strv words = {0};
    DD_AUTO(buf) struct dd_buf joined = DD_BUF_INIT(1000);
    assert_int_equal(dd_strv_split(&words, before, " "), 0);
    opt_options_first(&t, (int)words.n, words.v);
    for (size_t i = 0; i < words.n; i++)
        assert_int_equal(dd_buf_printf(&joined, "%s%s", i > 0 ? " " : "", words.v[i]), 0);
    assert_string_equal(dd_buf_str(&joined), after);
}

static void options_of_a_mixed_table_may_follow_operands(void **state)
{
    (void)state;
    reorder(false, "x TERM --job 4711", "x TERM --job 4711");
    reorder(true, "x", "x");
    reorder(true, "x TERM --job=4711", "x --job=4711 TERM");
    reorder(true, "x a --job 4711 b -f c", "x --job 4711 -f a b c");
    reorder(true, "x a --jo 4711 b -n -1", "x --jo 4711 -n -1 a b");
    reorder(true, "x a --show b --json c", "x --show --json a b c");
    reorder(true, "x a --follow b", "x --follow a b");
    reorder(true, "x a -f -- --job b", "x -f -- a --job b");
    reorder(true, "x a - --nosuch b --job", "x --nosuch --job a - b");
    reorder(true, "x a --job --follow", "x --job --follow a");
}

static void table_check_finds_what_is_wrong_with_a_table(void **state)
{
    (void)state;
    struct dd_err err;
    for (size_t i = 0; i < sizeof(bad_tables) / sizeof(bad_tables[0]); i++) {
        const struct opt_table bad = {.program = "x", OPT_ROWS(bad_tables[i].row)};
        assert_int_equal(opt_table_check(&bad, &err), -EINVAL);
        assert_string_equal(err.text, bad_tables[i].sentence);
    }
    assert_int_equal(opt_table_check(&table, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_refuses_with_a_sentence),
        cmocka_unit_test(parse_cuts_very_long_words_in_its_sentences),
        cmocka_unit_test(parse_finds_the_script_as_argparse_does),
        cmocka_unit_test(parse_puts_defaults_in),
        cmocka_unit_test(parse_takes_every_spelling),
        cmocka_unit_test(parse_takes_underscores_prefixes_and_aliases),
        cmocka_unit_test(parse_prefers_command_line_then_own_variable_then_prefixes),
        cmocka_unit_test(parse_reads_flags_from_the_environment_as_torchrun_does),
        cmocka_unit_test(parse_collects_repeated_options),
        cmocka_unit_test(parse_gives_the_implied_value_when_an_optional_one_is_left_out),
        cmocka_unit_test(parse_answers_help_before_it_looks_further),
        cmocka_unit_test(show_config_names_value_and_source_of_every_option),
        cmocka_unit_test(show_config_as_json_is_complete),
        cmocka_unit_test(help_is_grouped_and_fits_eighty_columns),
        cmocka_unit_test(version_is_one_line),
        cmocka_unit_test(dump_holds_every_kind_of_row),
        cmocka_unit_test(dump_reports_a_full_buffer),
        cmocka_unit_test(an_unknown_command_has_the_nearest_one_as_its_tip),
        cmocka_unit_test(options_of_a_mixed_table_may_follow_operands),
        cmocka_unit_test(table_check_finds_what_is_wrong_with_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
