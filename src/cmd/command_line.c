#include "cmd/command_line.h"

#include "base/uid.h"
#include "cmd/common.h"
#include "cmd/ddrun_check.h"
#include "cmd/ddrun_doctor.h"
#include "cmd/launcher_program.h"
#include "cmd/site_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void command_line_done(struct command_line *c)
{
    opt_result_done(&c->result);
    horovodrun_done(&c->options.horovodrun);
    dd_strv_done(&c->script);
    dd_strv_done(&c->argv);
    site_settings_done(&c->settings);
    free(DD_TAKE(c->rows));
}

/* Choose the option table: argv[0] may be torchrun or horovodrun, the same program with other
 * defaults. */
static void command_line_choose_table(struct command_line *c, const char *argv0)
{
    c->table = ddrun_options;
    if (torchrun_is_name(argv0))
        c->rows = torchrun_rows(&c->table);
    if (c->rows != NULL) {
        c->table.program = "torchrun";
        c->table.rows = c->rows;
        c->table.epilog =
            "Examples:\n"
            "  torchrun --standalone --nproc-per-node=4 train.py --epochs 3\n"
            "  torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=node1:29500 train.py\n";
    }
    if (horovodrun_is_name(argv0))
        c->table.program = "horovodrun";
}

/* Set the error for a missing SCRIPT. In "ddrun -x train.py", the parser took train.py as the value
 * of -x: name both. */
static int command_line_no_script(int argc, char **argv, struct dd_err *err)
{
    const bool taken = argc > 2 && argv[argc - 1][0] != '-' && argv[argc - 2][0] == '-' &&
                       strchr(argv[argc - 2], '=') == NULL;
    int rc = taken ? dd_err_set(err, -EINVAL,
                                "missing SCRIPT ('%.100s' was taken as the value of %.60s)",
                                argv[argc - 1], argv[argc - 2])
                   : dd_err_set(err, -EINVAL, "missing SCRIPT");
    return dd_err_tip(err, rc, "for example: ddrun --nproc-per-node=2 train.py");
}

/* True if the word is an option of mpirun for the number of processes. word may be NULL. */
static bool is_process_count(const char *word)
{
    static const char *const options[] = {"-n", "-np", "--np", "--n"};
    for (size_t i = 0; word != NULL && i < sizeof(options) / sizeof(options[0]); i++)
        if (strcmp(word, options[i]) == 0)
            return true;
    return false;
}

/* Reject the form in which mpirun starts two programs: "PROGRAM ARG... : -np 1 PROGRAM ARG...". */
static int command_line_one_program(char *const *words, struct dd_err *err)
{
    while (*words != NULL && !(strcmp(words[0], ":") == 0 && is_process_count(words[1])))
        words++;
    if (*words == NULL)
        return 0;
    const int rc = dd_err_set(err, -EINVAL,
                              "several programs separated by ':', as with mpirun, are not "
                              "supported; in ddrun, all workers run the same program");
    return dd_err_tip(err, rc, "let the program check RANK, or use --wrap=RANKS:CMD");
}

/* Append the words, separated by blanks. */
static void command_line_join(struct dd_buf *out, char *const *words, size_t n)
{
    for (size_t i = 0; i < n && words[i] != NULL; i++)
        (void)dd_buf_printf(out, "%s%s", out->len > 0 ? " " : "", words[i]);
}

/* Warn of "ddrun torchrun train.py". With one worker per node on request, a launcher per node may
 * be what the user wants. */
static void command_line_warn_of_launcher(const struct command_line *c, char *const *argv,
                                          const struct dd_log *log)
{
    char *const *program = c->script.v;
    const int n = launcher_program_words(program, c->options.module);
    const char *each = c->options.nproc_per_node;
    DD_AUTO(buf) struct dd_buf name = DD_BUF_INIT(1024);
    DD_AUTO(buf) struct dd_buf instead = DD_BUF_INIT(1024);
    if (n == 0 || (each != NULL && strcmp(each, "1") == 0) || !cmd_is_first_task(environ))
        return;
    command_line_join(&name, program, (size_t)n);
    command_line_join(&instead, argv, c->options.module ? 1 : (size_t)c->result.script);
    command_line_join(&instead, program + n, SIZE_MAX);
    const char *words[] = {dd_buf_str(&name), dd_buf_str(&instead)};
    if (words[0] != NULL && words[1] != NULL)
        dd_log(log, DD_LOG_WARN,
               "each worker starts '%.100s', which starts workers of its own"
               "\n  tip: ddrun replaces it, and takes most of its options: %.300s",
               words[0], words[1]);
}

static void command_line_warn(const struct command_line *c, bool launched, const struct dd_log *log)
{
    cmd_warn_of_misspelt(&c->table, log);
    if (!launched) {
        cmd_warn_of_idle(&c->table, &c->result, log);
        warn_of_fixed_size(&c->options, &c->table, &c->result, log);
    }
    if (c->left_out.rc < 0 && cmd_is_first_task(environ))
        dd_log(log, DD_LOG_WARN, "%s", c->left_out.text);
    if (cmd_is_first_task(environ))
        torchrun_tell(&c->options, log);
}

/* Return an option as the user has typed it, lent by c; `otherwise` if it was not given. */
static const char *command_line_word(const struct command_line *c, const char *name,
                                     const char *otherwise)
{
    const struct opt_source *src = opt_result_source(&c->result, &c->table, name);
    return src != NULL && src->name[0] != '\0' ? src->name : otherwise;
}

/* With --doctor, replace the process by ddctl, and return only after an error. */
static int command_line_check(struct command_line *c, int argc, char **argv, bool launched,
                              const struct dd_log *log, struct dd_err *err)
{
    struct ddrun_options *o = &c->options;
    o->horovodrun.np_word = command_line_word(c, "num-proc", "-np");
    o->horovodrun.nproc_word = command_line_word(c, "nproc-per-node", "--nproc-per-node");
    int rc = horovodrun_apply(&o->horovodrun, o, err);
    if (rc == 0)
        rc = check_options(o, err);
    if (rc == 0 && !o->insecure)
        rc = dd_uid_check(err);
    if (rc == 0 && !launched)
        warn_of_unset(o, log);
    if (rc == 0 && o->doctor != NULL)
        rc = doctor_become(o, err);
    else if (c->result.script >= argc)
        rc = command_line_no_script(argc, argv, err);
    else if (rc == 0)
        rc = command_line_one_program(argv + c->result.script, err);
    return rc;
}

/* True if values of files apply: not with --no-config or --help, nor if the options are invalid. */
static bool command_line_wants_files(const struct command_line *c, const struct opt_input *in)
{
    struct ddrun_options o = {0};
    DD_AUTO(opt_result) struct opt_result res = {0};
    const bool valid = opt_parse(&c->table, &o, in, &res, NULL) == 0;
    const bool wants = valid && !o.no_config &&
                       (res.ask == OPT_ASK_NOTHING || res.ask == OPT_ASK_CONFIG);
    opt_values_done(&c->table, &o);
    horovodrun_done(&o.horovodrun);
    return wants;
}

/* Add the values of files to *in. */
static int command_line_read_files(struct command_line *c, struct opt_input *in, struct dd_err *err)
{
    DD_AUTO(site_files) struct site_files files;
    int rc = site_files_open(&files, err);
    if (rc == 0 && files.any && command_line_wants_files(c, in))
        rc = site_files_read(&c->settings, &files, &c->table, &c->left_out, err);
    in->settings = c->settings.v;
    in->n_settings = c->settings.n;
    return rc;
}

/* Parse the options; return as cmd_options does. */
static int command_line_parse(struct command_line *c, int argc, char **argv, bool launched,
                              const struct dd_log *log)
{
    struct opt_input in = {.argc = argc, .argv = argv, .env = environ};
    struct dd_err err = {0};
    if (!launched && command_line_read_files(c, &in, &err) < 0)
        return cmd_fail(&c->table, &err);
    int code = cmd_options_from(&c->table, &c->options, &in, &c->result);
    if (code < 0 && (c->settings.n > 0 || c->left_out.rc < 0) &&
        site_settings_argv(&c->argv, &c->settings, &c->table, &c->result, argv) < 0) {
        dd_log(log, DD_LOG_ERR, "out of memory");
        return 1;
    }
    return code;
}

int command_line_read(struct command_line *c, int argc, char **argv, bool launched,
                      struct dd_log *log)
{
    struct dd_err err = {0};
    command_line_choose_table(c, argv[0]);
    int code = command_line_parse(c, argc, argv, launched, log);
    if (code >= 0)
        return code;
    torchrun_apply(&c->options, &c->table, &c->result, torchrun_is_name(argv[0]));
    c->options.shutdown_said = opt_is_given(&c->result, &c->table, "shutdown-timeout");
    log->level = cmd_log_level(c->options.log_level);
    log->trace = c->options.trace;
    command_line_warn(c, launched, log);
    if (command_line_check(c, argc, argv, launched, log, &err) < 0) {
        if (cmd_is_first_task(environ))
            dd_log(log, DD_LOG_ERR, "%s", err.text);
        return EXIT_USAGE;
    }
    if (dd_strv_push(&c->script, argv[c->result.script]) < 0 ||
        dd_strv_copy(&c->script, argv + c->result.args) < 0) {
        dd_log(log, DD_LOG_ERR, "out of memory");
        return 1;
    }
    if (!launched)
        command_line_warn_of_launcher(c, argv, log);
    return -1;
}
