/* Command line options from one const table: a row per option, from which come the parser, --help,
 * --show-config, the OPTIONS section of the manual page and the completions of the shells.
 *
 *   struct hello {
 *       int count;
 *       const char *name;
 *       struct dd_strv env;
 *   };
 *   static const struct opt_row rows[] = {
 *       {.name = "count", .letter = 'c', .kind = OPT_INT, .metavar = "N", .def = "1", .min = 1,
 *        .group = "Greeting", .help = "say it N times", OPT_FIELD(struct hello, count)},
 *       {.name = "name", .kind = OPT_STRING, .metavar = "NAME", .choices = "world,moon",
 *        .group = "Greeting", .help = "whom to greet", OPT_FIELD(struct hello, name)},
 *       {.name = "env", .kind = OPT_REPEATED, .metavar = "NAME=VALUE", .no_env = true,
 *        .group = "Greeting", .help = "set NAME", OPT_FIELD(struct hello, env)},
 *   };
 *   static const struct opt_table table = {
 *       .program = "hello", .version = "1.0", .usage = "[options] SCRIPT [ARG...]",
 *       .about = "Says hello.", .env_prefixes = "HELLO_,PET_", OPT_ROWS(rows)};
 *
 *   struct hello o = {0};                              (zeroed; opt_parse puts the defaults in)
 *   DD_AUTO(opt_result) struct opt_result res = {0};
 *   if (opt_parse(&table, &o, argc, argv, environ, &res, &err) < 0)
 *       print "hello: ERR.TEXT", exit with 2;
 *   if (res.ask != OPT_ASK_NOTHING) {                  (--help, --version, --show-config, ...)
 *       DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
 *       opt_answer(&table, &res, &out) and print it, exit with 0;
 *   }
 *   argv[res.script] is SCRIPT (res.script == argc: none was given), argv + res.args its arguments
 *   opt_result_source(&res, &table, "count")->from      (where the value came from)
 *   opt_values_done(&table, &o);                        (frees the repeated ones)
 *
 * How a command line is read (as argparse does it for torchrun; Src: torch 2.13.0):
 * - options end at the first word that is none, which is SCRIPT; all after it is the script's own;
 * - one "--" directly before SCRIPT, or else one directly after it, is dropped;
 * - "--opt val", "--opt=val", "-r3", "-r 3", "-r=3", and letters of flags may be joined ("-mr3");
 * - every "-" inside a long name may be written "_", and any unique prefix will do, also one that
 * is unique among the names in `first`;
 * - a value that starts with "-" and is no number needs "=" ("--opt=-x");
 * - the last one wins, the command line wins over the environment, that over the default.
 */
#ifndef DD_BASE_OPT_H
#define DD_BASE_OPT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/strv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opt_kind {
    OPT_FLAG,   /* bool; "--flag", also "--flag=no"; in the environment 0, 1, yes, no, true, ... */
    OPT_STRING, /* const char *, lent from argv, env or the row; NULL: not set, no default */
    OPT_INT,    /* int */
    OPT_DURATION, /* uint64_t, nanoseconds: "250ms", "5s", "10m", "2h", "1d", "600", "0.1" */
    OPT_BYTES,    /* uint64_t: "64K", "8M", "1G" or plain bytes */
    OPT_REPEATED, /* struct dd_strv, one entry each time; the command line replaces the environment
                   */
    OPT_CUSTOM,   /* what row->parse makes of the text */
};

struct opt_row {
    const char *name;    /* long name without dashes in front, words joined by '-' */
    const char *aliases; /* other long names, comma separated; accepted, not advertised */
    char letter;         /* short form, 0: none */
    bool one_dash;       /* its names may also be written with one dash, as in "-np 4" */
    enum opt_kind kind;
    const char *metavar; /* what --help writes for the value; every kind but OPT_FLAG */
    const char *def;     /* the default as text, read like a value; NULL: the field stays zero */
    const char *def_doc; /* what help says about the default where it is worked out later */
    const char *implied; /* the value of a bare "--opt": makes the value optional ("--opt[=X]") */
    const char *choices; /* the allowed values, comma separated; NULL: any */
    int64_t min, max;    /* limits of numbers (ns for durations); max <= min: no upper limit;
                          * both 0: none at all */
    char split;          /* OPT_REPEATED: also split each value here; 0: never */
    const char *env;     /* variables of its own, comma separated, before the table's prefixes */
    bool no_env;         /* the table's prefixes make no variable for it */
    const char
        *needs; /* without one of these options it has no effect, comma separated; NULL: it has */
    const char *example; /* a right value for error sentences; NULL: made from default and kind */
    const char *group;   /* heading in the help; shown in the order in which groups first appear */
    const char *since;   /* version that brought it, NULL: the first */
    const char *help;    /* one phrase in lower case, no full stop; more sentences may follow it */
    const char *more;    /* further text for the manual page alone; paragraphs end with "\n\n" */
    bool hidden;         /* works, but no help, manual or completion names it */
    bool common;         /* a bare --help shows it; in a table without any, all are shown */
    size_t offset;       /* of the field in the values struct: see OPT_FIELD */
    /* OPT_CUSTOM: reads text into *field. 0 or negative errno with a sentence that says what is
     * wrong and what would be right; the place ("--nnodes: ") is put in front by the caller. */
    int (*parse)(const char *text, void *field, struct dd_err *err);
};

#define OPT_FIELD(type, field) .offset = offsetof(type, field)

/* An option of another program that people are used to. It is known by its whole name alone. */
struct opt_foreign {
    const char *word; /* with its dashes; '_' is as good as '-' */
    const char *is; /* the option that it means, as "nnodes", or with a value, as "log-level=info";
                     * "": nothing, it may stay; NULL: it is refused */
    const char
        *say; /* when it is refused: whose it is and what to write, which follows "WORD is " */
};

/* A word that the program's first operand may be, with options of its own. */
struct opt_command {
    const char *name;
    const char *help;                  /* one phrase, as in a row */
    const struct opt_table *table;     /* its program is "PROGRAM NAME" */
    int (*run)(int argc, char **argv); /* argv[0] is the name; returns the exit code */
};

struct opt_table {
    const char *program;      /* "ddrun" */
    const char *version;      /* "0.1.0" */
    const char *usage;        /* what follows the program's name: "[options] SCRIPT [ARG...]" */
    const char *about;        /* one or two sentences */
    const char *epilog;       /* after the options, kept as written; NULL: none */
    const char *env_prefixes; /* "DDRUN_,PET_": option a-b may be set by DDRUN_A_B, else PET_A_B */
    const char *env_more;     /* variables with that prefix that are no options, comma separated */
    const struct opt_row *rows;
    size_t n_rows;
    const char
        *first; /* where an abbreviation fits several, one of these is meant; comma separated */
    const struct opt_foreign *foreign; /* up to a row without a word; NULL: none */
    const struct opt_command
        *commands; /* the help, manual and completions have them; main runs them */
    size_t n_commands;
};

#define OPT_ROWS(array) .rows = (array), .n_rows = sizeof(array) / sizeof((array)[0])

enum opt_from { OPT_FROM_DEFAULT, OPT_FROM_ENV, OPT_FROM_COMMAND_LINE };

struct opt_source {
    enum opt_from from;
    char name[64];     /* the variable, or the option as it was written */
    const char *value; /* the text as given, lent from argv, env or the row; NULL: none */
    unsigned times;    /* how often the command line named it */
};

/* Every table also has -h/--help, --version, --show-config and the hidden
 * --dump-options=man|bash|zsh|fish|json. */
enum opt_ask { OPT_ASK_NOTHING, OPT_ASK_HELP, OPT_ASK_VERSION, OPT_ASK_CONFIG, OPT_ASK_DUMP };

enum opt_format {
    OPT_FORMAT_MAN,
    OPT_FORMAT_BASH,
    OPT_FORMAT_ZSH,
    OPT_FORMAT_FISH,
    OPT_FORMAT_JSON
};

struct opt_result {
    enum opt_ask ask;
    enum opt_format format;     /* of OPT_ASK_DUMP */
    const char *about;          /* of OPT_ASK_HELP: see opt_help; lent from argv */
    int script;                 /* index of the first operand in argv; argc: there is none */
    int args;                   /* index of the first argument after it */
    struct opt_source *sources; /* one per row */
    struct dd_strv config;      /* "name\tvalue\tsource" per row, for --show-config */
};

/* Reads defaults, env and argv (argv[0] is the program) into *values, which starts zeroed. Strings
 * are lent from argv, env and the table. 0, or -EINVAL with one sentence (exit code 2), or -ENOMEM;
 * opt_values_done frees what is in *values in any case. An empty variable counts as not set.
 * --help and --version answer at once: what follows them is not read. */
int opt_parse(const struct opt_table *t, void *values, int argc, char *const *argv,
              char *const *env, struct opt_result *ret, struct dd_err *err);

/* Reads one value as if it came from `place` ("--max-restarts", "nodes.conf:3"). */
int opt_set(const struct opt_row *row, void *values, const char *place, const char *text,
            struct dd_err *err);

/* Where the value of option `name` came from; lent from res. NULL: no such row. */
const struct opt_source *opt_result_source(const struct opt_result *res, const struct opt_table *t,
                                           const char *name);
/* Whether the environment or the command line set it. */
bool opt_is_given(const struct opt_result *res, const struct opt_table *t, const char *name);
/* It was said on the command line, but none of those without which it has no effect. */
bool opt_is_idle(const struct opt_result *res, const struct opt_table *t,
                 const struct opt_row *row);

/* Whether entry ("NAME=VALUE") is nearly, but not quite, a variable of the table's first prefix;
 * the one that may be meant goes to out. */
bool opt_env_misspelt(const struct opt_table *t, const char *entry, char out[64]);

/* The text that res->ask asked for. 0 or negative errno. */
int opt_answer(const struct opt_table *t, const struct opt_result *res, struct dd_buf *out);

/* At most 80 columns. about: "" the common options, "all", else those that have this word in their
 * name, group or phrase, with all that the manual says of them (the one of that name alone, where
 * there is one). */
int opt_help(const struct opt_table *t, const char *about, struct dd_buf *out);
int opt_dump(const struct opt_table *t, enum opt_format format, struct dd_buf *out);

/* 0, or -EINVAL and what is wrong with the table itself (a double name, a default that does not
 * parse, no help, ...): for the unit test of each program's table. */
int opt_table_check(const struct opt_table *t, struct dd_err *err);

void opt_result_done(struct opt_result *res);
void opt_values_done(const struct opt_table *t, void *values); /* frees OPT_REPEATED fields */

static inline void dd_auto_opt_result(struct opt_result *res)
{
    opt_result_done(res);
}

#endif
