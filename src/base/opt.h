/* Command line options from one const table with a row per option. The table generates the parser,
 * --help, --show-config, the OPTIONS section of the manual page and the shell completions.
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
 *   struct hello o = {0};                              (opt_parse sets the defaults)
 *   DD_AUTO(opt_result) struct opt_result res = {0};
 *   const struct opt_input in = {.argc = argc, .argv = argv, .env = environ};
 *   if (opt_parse(&table, &o, &in, &res, &err) < 0)
 *       print "hello: ERR.TEXT", exit with 2
 *   if (res.ask != OPT_ASK_NOTHING) {                  (--help, --version, --show-config, ...)
 *       DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
 *       opt_answer(&table, &res, &out) and print it, exit with 0
 *   }
 *   argv[res.script] is SCRIPT (res.script == argc: none), argv + res.args its arguments
 *   opt_result_source(&res, &table, "count")->from      (source of the value)
 *   opt_values_done(&table, &o);                        (frees OPT_REPEATED fields)
 *
 * Rules for the command line, as argparse applies them for torchrun (Src: torch 2.13.0):
 * - options end at the first word that is not an option, SCRIPT; its arguments follow;
 * - one "--" directly before SCRIPT, or else one directly after it, is dropped;
 * - "--opt val", "--opt=val", "-r3", "-r 3" and "-r=3" are allowed; flags may be joined ("-mr3");
 * - "-" within a long name may be written "_";
 * - a prefix of a name suffices if it is unique, or unique among the names in `first`;
 * - a value that starts with "-" and is not a number needs "=" ("--opt=-x");
 * - the last occurrence wins; the order of precedence is command line, environment, files, default.
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
    OPT_STRING, /* const char *, borrowed from its source; NULL: not set, no default */
    OPT_INT,    /* int */
    OPT_DURATION, /* uint64_t, nanoseconds: "250ms", "5s", "10m", "2h", "1d", "600", "0.1" */
    OPT_BYTES,    /* uint64_t: "64K", "8M", "1G" or plain bytes */
    OPT_REPEATED, /* struct dd_strv, one entry per occurrence; the command line replaces the
                     environment */
    OPT_CUSTOM,   /* parsed by row->parse */
};

/* What --show-config hides of a value. */
enum opt_hide {
    OPT_HIDE_NOTHING,
    OPT_HIDE_USER, /* of a URL what precedes '@', which may contain a password */
    OPT_HIDE_VALUE,
};

struct opt_row {
    const char *name;    /* long name without leading dashes, words joined by '-' */
    const char *aliases; /* other long names, comma-separated; accepted but not documented */
    char letter;         /* short form, 0: none */
    bool one_dash;       /* a single dash suffices before its names, as in "-np 4" */
    enum opt_kind kind;
    const char *metavar; /* placeholder for the value in --help; set for every kind but OPT_FLAG */
    const char *def;     /* the default as text, parsed like a value; NULL: the field stays zero */
    const char *def_doc; /* replaces the default in the help if it is computed later */
    const char *implied; /* the value of a bare "--opt": makes the value optional ("--opt[=X]") */
    const char *choices; /* allowed values, comma-separated; NULL: any */
    int64_t min, max; /* limits of numbers (ns for durations); max <= min: no upper limit; both 0:
                         no limits */
    char split;       /* OPT_REPEATED: also split each value at this character; 0: never */
    const char *env;  /* additional variables, comma-separated, which precede those from the table's
                         prefixes */
    bool no_env;      /* the table's prefixes define no variable for the option */
    bool no_file;     /* cannot be set in a file */
    bool project; /* may be set in a file of the current directory, which may come with a download:
                     its values must not let ddrun run, read, write or connect
                     to anything */
    const char *needs; /* options, comma-separated: without one of these, the option has no effect;
                          NULL: none */
    const char *example; /* a valid value for error messages; NULL: derived from default and kind */
    const char *group;   /* heading in the help; groups are ordered by first appearance */
    const char *since;   /* version that introduced it; NULL: the first */
    const char *help; /* a phrase in lower case without full stop; further sentences may follow */
    const char *more; /* additional text for the manual page; paragraphs end with "\n\n" */
    bool hidden;      /* accepted, but absent from help, manual and completions */
    enum opt_hide hide;
    bool common;   /* shown by a bare --help; if no row of a table is common, all are shown */
    size_t offset; /* offset of the option's field in the values struct: see OPT_FIELD */
    /* OPT_CUSTOM: parses text into *field. 0, or -errno with a message that names the error and the
     * valid values; the caller adds the prefix ("--nnodes: "). */
    int (*parse)(const char *text, void *field, struct dd_err *err);
};

#define OPT_FIELD(type, field) .offset = offsetof(type, field)

/* An option of another launcher. It is recognized by its full name only. */
struct opt_foreign {
    const char *word; /* with its dashes; '_' may replace '-' */
    const char *is; /* the equivalent option, "nnodes" or, with a value, "log-level=info"; "": none,
                       the word is ignored; NULL: the word is refused */
    const char *say; /* if refused: its origin and the alternative, as a continuation of "WORD is ";
                        OPTION stands for the word as typed */
};

/* A command: a word that may be the first operand, with options of its own. */
struct opt_command {
    const char *name;
    const char *help;                  /* one phrase, as in a row */
    const struct opt_table *table;     /* its program is "PROGRAM NAME" */
    int (*run)(int argc, char **argv); /* argv[0] is the name; returns the exit code */
};

struct opt_table {
    const char *program;      /* "ddrun" */
    const char *version;      /* "0.1.0" */
    const char *usage;        /* usage text after the program's name: "[options] SCRIPT [ARG...]" */
    const char *about;        /* one or two sentences */
    const char *epilog;       /* printed verbatim after the options; NULL: none */
    const char *env_prefixes; /* "DDRUN_,PET_": option a-b may be set by DDRUN_A_B, else PET_A_B */
    const char *env_more;     /* variables with the first prefix that are no options, separated by
                                 commas */
    const struct opt_row *rows;
    size_t n_rows;
    const char *first; /* preferred options for ambiguous abbreviations, comma-separated */
    const struct opt_foreign *foreign; /* ends with a row whose word is NULL; NULL: none */
    const struct opt_command
        *commands; /* listed in help, manual and completions; main() runs them */
    size_t n_commands;
    bool mixed; /* options may also follow operands: see opt_options_first() */
};

#define OPT_ROWS(array) .rows = (array), .n_rows = sizeof(array) / sizeof((array)[0])

enum opt_from { OPT_FROM_DEFAULT, OPT_FROM_FILE, OPT_FROM_ENV, OPT_FROM_COMMAND_LINE };

struct opt_source {
    enum opt_from from;
    char name[64];     /* the variable, or the option as written */
    const char *place; /* OPT_FROM_FILE: "FILE:LINE", borrowed from the setting */
    const char *value; /* the text as given, borrowed from its source; NULL: none */
    unsigned times;    /* number of occurrences on the command line */
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
    enum opt_format format;     /* format for OPT_ASK_DUMP */
    const char *about;          /* for OPT_ASK_HELP: see opt_help; borrowed from argv */
    int script;                 /* index of the first operand in argv; argc: none */
    int args;                   /* index of the first argument after the first operand */
    struct opt_source *sources; /* one per row */
    bool json;                  /* JSON is requested by OPT_ASK_CONFIG */
    struct dd_strv config;      /* for --show-config: "name\tvalue\tsource" per row, or JSON */
};

/* A value from a file. */
struct opt_setting {
    const struct opt_row *row;
    char *value;
    char *place; /* "FILE:LINE" */
    bool ahead;  /* an entry of an OPT_REPEATED row that precedes the entries of all sources */
};

/* Where values come from, besides the defaults. */
struct opt_input {
    int argc;
    char *const *argv; /* argv[0] is the program */
    char *const *env;
    const struct opt_setting *settings; /* if a row has several, all apply, in this order */
    size_t n_settings;
};

/* Set *values, which must be zeroed, to the defaults and the values from `in`. Strings are borrowed
 * from argv, env, the settings and the table. Return 0, -EINVAL with a message (exit
 * code 2), or -ENOMEM; opt_values_done() must be called in any case. An empty variable counts as
 * not set. Parsing ends at --help and --version. */
int opt_parse(const struct opt_table *t, void *values, const struct opt_input *in,
              struct opt_result *ret, struct dd_err *err);

/* Move the options of a `mixed` table before its operands, up to "--"; options and operands keep
 * their order. Only for programs whose operands are not a script with options of its own. Call it
 * before opt_parse(). */
void opt_options_first(const struct opt_table *t, int argc, char **argv);

/* Parse one value with `place` as its source ("--max-restarts", "nodes.conf:3"). */
int opt_set(const struct opt_row *row, void *values, const char *place, const char *text,
            struct dd_err *err);

/* Return the source of the value of option `name`, borrowed from res. NULL: no such row. */
const struct opt_source *opt_result_source(const struct opt_result *res, const struct opt_table *t,
                                           const char *name);
/* True if a file, the environment or the command line has set the option. */
bool opt_is_given(const struct opt_result *res, const struct opt_table *t, const char *name);
/* Return the row with this full name or alias; NULL: none, or one that is hidden or that every
 * table has. */
const struct opt_row *opt_row_named(const struct opt_table *t, const char *name);
/* Return the row that was likely meant by this word, which names none, or NULL. */
const struct opt_row *opt_nearest_row(const struct opt_table *t, const char *word, size_t len);

/* True if the option is on the command line but has no effect, since all options in its `needs` are
 * absent. */
bool opt_is_idle(const struct opt_result *res, const struct opt_table *t,
                 const struct opt_row *row);

/* True if entry ("NAME=VALUE") misspells a variable with the table's first prefix, whose name is
 * then written to out. */
bool opt_env_misspelt(const struct opt_table *t, const char *entry, char out[64]);

/* Return the number of single-letter edits from word to name; '_' equals '-'. SIZE_MAX: name has 64
 * letters or more. */
size_t opt_distance(const char *word, size_t len, const char *name);

/* Return the command that was likely meant by this unknown word, or NULL. */
const struct opt_command *opt_nearest_command(const struct opt_table *t, const char *word);

/* Append the text requested by res->ask. 0 or -errno. */
int opt_answer(const struct opt_table *t, const struct opt_result *res, struct dd_buf *out);

/* Append the help in at most 80 columns. about: "": the common options; "all"; else the options
 * with that word in name, group or phrase, in full (only the option with that name if there is
 * one). */
int opt_help(const struct opt_table *t, const char *about, struct dd_buf *out);
int opt_dump(const struct opt_table *t, enum opt_format format, struct dd_buf *out);

/* Check the table itself for duplicate names, invalid defaults, missing help etc. 0 or -EINVAL with
 * a message. For the unit test of each program's table. */
int opt_table_check(const struct opt_table *t, struct dd_err *err);

void opt_result_done(struct opt_result *res);
void opt_values_done(const struct opt_table *t, void *values); /* frees OPT_REPEATED fields */

static inline void dd_auto_opt_result(struct opt_result *res)
{
    opt_result_done(res);
}

#endif
