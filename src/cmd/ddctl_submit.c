/* ddctl submit: generate a job script from a ddrun command, check command, files and limits, and
 * submit the script to the scheduler. */
#include "base/installed.h"
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_submit_check.h"
#include "cmd/ddctl_submit_run.h"
#include "config.h"
#include "worker/spawn.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SCRIPT_MAX = 8 << 20, NAME_MAX_LEN = 40, EXIT_LEFT = 130 };

struct submit_options {
    struct submit_request request;
    const char *scheduler, *template;
    bool dry_run, follow, force;
};

/* ---- options ---- */

/* Reject a value with unsafe characters; print it escaped. */
static int refuse_value(const char *text, const char *expected, struct dd_err *err)
{
    char shown[80];
    return dd_err_set(err, -EINVAL, "invalid value '%s': expected %s",
                      dd_log_escape(shown, sizeof(shown), text, strlen(text)), expected);
}

static int parse_plain(const char *text, void *field, const char *more, const char *expected,
                       struct dd_err *err)
{
    if (!submit_is_plain(text, more) || text[0] == '-')
        return refuse_value(text, expected, err);
    *(const char **)field = text;
    return 0;
}

static int parse_name(const char *text, void *field, struct dd_err *err)
{
    return parse_plain(text, field, "", "letters, digits, '.', '_' and '-', not beginning with '-'",
                       err);
}

static int parse_queue(const char *text, void *field, struct dd_err *err)
{
    return parse_plain(text, field, ",@",
                       "one or more names of letters, digits and '._-@', separated by commas, not "
                       "beginning with '-'",
                       err);
}

static int parse_account(const char *text, void *field, struct dd_err *err)
{
    return parse_plain(text, field, "/:+@=,",
                       "a name of letters, digits and '._-/:+@=,', not beginning with '-'", err);
}

static int parse_log(const char *text, void *field, struct dd_err *err)
{
    if (!submit_is_log(text))
        return refuse_value(text,
                            "a file name of letters, digits and '._-/+=:,@', not beginning with "
                            "'-'; %j stands for the job id",
                            err);
    *(const char **)field = text;
    return 0;
}

/* True if "N:N" is valid both as hours and minutes, and as minutes and seconds. */
static bool takes_both(const char *text)
{
    char longer[32];
    uint64_t seconds;
    if (snprintf(longer, sizeof(longer), "%s:00", text) >= (int)sizeof(longer) ||
        submit_time_parse(longer, &seconds) < 0)
        return false;
    (void)snprintf(longer, sizeof(longer), "0:%s", text);
    return submit_time_parse(longer, &seconds) == 0;
}

/* Parse a time limit. Reject a plain number (minutes for Slurm, seconds for PBS) and N:N (minutes
 * and seconds for both, but hours and minutes for most users). */
static int parse_time(const char *text, void *field, struct dd_err *err)
{
    const size_t first = strspn(text, "0123456789");
    const bool number = strspn(text, "0") < first && text[first] == '\0';
    const bool pair = first > 0 && text[first] == ':' &&
                      text[first + 1 + strspn(text + first + 1, "0123456789")] == '\0';
    if (strspn(text, "0123456789.") != strlen(text) && submit_time_parse(text, field) == 0)
        return 0;
    int rc = refuse_value(text, "12h, 90m or HH:MM:SS", err);
    if (number)
        rc = dd_err_tip(err, rc, "%.20s minutes are --time=%.20sm", text, text);
    else if (pair && takes_both(text))
        rc = dd_err_tip(err, rc,
                        "as hours and minutes --time=%.20s:00, "
                        "as minutes and seconds --time=0:%.20s",
                        text, text);
    return rc;
}

#define ANOTHER(what) "an option of " what "\n  tip: "
#define TEMPLATE "write it in the job script: --template=FILE (docs/submit.md)"
#define WORKERS "ddrun starts the workers of a node: ddrun --nproc-per-node=N"

/* Options of sbatch and qsub. */
static const struct opt_foreign foreign[] = {
    {"-J", "name", NULL},
    {"--job-name", "name", NULL},
    {"-o", "log", NULL},
    {"--output", "log", NULL},
    {"-q", NULL, "a queue of qsub, and a QOS of sbatch\n  tip: for a queue, use --queue=NAME"},
    {"-l", NULL, ANOTHER("qsub") "use --nodes, --gpus-per-node, --cpus-per-node and --time"},
    {"--gres", NULL, ANOTHER("sbatch") "--gpus-per-node=N requests GPUs; for others, " TEMPLATE},
    {"-n", NULL, ANOTHER("sbatch") WORKERS},
    {"--ntasks", NULL, ANOTHER("sbatch") WORKERS},
    {"--ntasks-per-node", NULL, ANOTHER("sbatch") WORKERS},
    {"-c", NULL, ANOTHER("sbatch") "use --cpus-per-node=N"},
    {"--cpus-per-task", NULL, ANOTHER("sbatch") "use --cpus-per-node=N"},
    {"--mem", NULL, ANOTHER("sbatch") TEMPLATE},
    {"--qos", NULL, ANOTHER("sbatch") TEMPLATE},
    {"--constraint", NULL, ANOTHER("sbatch") TEMPLATE},
    {"-C", NULL, ANOTHER("sbatch") TEMPLATE},
    {"--exclusive", NULL, ANOTHER("sbatch") TEMPLATE},
    {0},
};

#define FIELD(name) OPT_FIELD(struct submit_options, name)

static const struct opt_row rows[] = {
    {.name = "nodes",
     .letter = 'N',
     .kind = OPT_INT,
     .metavar = "N",
     .def = "1",
     .min = 1,
     .max = 65536,
     .group = "Resources",
     .help = "number of nodes",
     FIELD(request.nodes)},
    {.name = "gpus-per-node",
     .kind = OPT_INT,
     .metavar = "N",
     .min = 1,
     .max = 1024,
     .example = "4",
     .group = "Resources",
     .help = "number of GPUs on each node",
     FIELD(request.gpus_per_node)},
    {.name = "cpus-per-node",
     .kind = OPT_INT,
     .metavar = "N",
     .min = 1,
     .max = 65536,
     .example = "32",
     .group = "Resources",
     .help = "number of CPUs on each node",
     FIELD(request.cpus_per_node)},
    {.name = "time",
     .letter = 't',
     .kind = OPT_CUSTOM,
     .parse = parse_time,
     .metavar = "TIME",
     .example = "12h",
     .group = "Resources",
     .help = "time limit of the job: 12h, 90m or HH:MM:SS",
     FIELD(request.seconds)},
    {.name = "partition",
     .letter = 'p',
     .aliases = "queue",
     .kind = OPT_CUSTOM,
     .parse = parse_queue,
     .metavar = "NAME",
     .example = "gpu",
     .group = "Resources",
     .help = "partition (Slurm) or queue (PBS, Grid Engine); also --queue",
     FIELD(request.queue)},
    {.name = "account",
     .letter = 'A',
     .kind = OPT_CUSTOM,
     .parse = parse_account,
     .metavar = "NAME",
     .example = "project7",
     .group = "Resources",
     .help = "account or project to charge",
     FIELD(request.account)},
    {.name = "name",
     .kind = OPT_CUSTOM,
     .parse = parse_name,
     .metavar = "NAME",
     .def_doc = "the name of the script",
     .example = "train",
     .group = "Job",
     .help = "name of the job",
     FIELD(request.name)},
    {.name = "log",
     .kind = OPT_CUSTOM,
     .parse = parse_log,
     .metavar = "FILE",
     .def_doc = "NAME-%j.out",
     .example = "logs/%j.out",
     .group = "Job",
     .help = "file for the output of the job; %j is its id",
     FIELD(request.log)},
    {.name = "scheduler",
     .kind = OPT_STRING,
     .metavar = "NAME",
     .def = "auto",
     .choices = SUBMIT_SCHEDULER_NAMES,
     .group = "Job",
     .help = "scheduler; auto: the one whose commands are installed",
     FIELD(scheduler)},
    {.name = "template",
     .kind = OPT_STRING,
     .metavar = "FILE",
     .env = "DDRUN_SUBMIT_TEMPLATE",
     .example = "site.sbatch",
     .group = "Job",
     .help = "job script with placeholders such as @NODES@",
     FIELD(template)},
    {.name = "dry-run",
     .kind = OPT_FLAG,
     .group = "Action",
     .help = "check and print the job script, submit nothing",
     FIELD(dry_run)},
    {.name = "follow",
     .kind = OPT_FLAG,
     .group = "Action",
     .help = "print the log until the job ends; exit with its exit code",
     FIELD(follow)},
    {.name = "force",
     .kind = OPT_FLAG,
     .group = "Action",
     .help = "submit even if a check fails",
     FIELD(force)},
};

const struct opt_table ddctl_submit_options = {
    .program = "ddctl submit",
    .version = PACKAGE_VERSION,
    .usage = "[options] -- ddrun [option...] SCRIPT [ARG...]",
    .about =
        "Submits a ddrun command as a job of Slurm, PBS or Grid Engine. Checks the command, its files, "
        "the partition and the limits first; if a check fails, nothing is submitted. Prints "
        "the id of the job.",
    OPT_ROWS(rows),
    .foreign = foreign,
};

/* ---- the request ---- */

struct submit {
    struct submit_options o;
    struct dd_log log;
    const struct submit_scheduler *scheduler;
    char program[PATH_MAX]; /* path of the submit command; "": not found */
    struct dd_strv command, files;
    char *directory;
    char name[NAME_MAX_LEN + 1], log_name[NAME_MAX_LEN + 16];
    struct dd_buf script;
    bool has_log; /* the script contains the name of the log */
};

static void submit_done(struct submit *s)
{
    dd_strv_done(&s->command);
    dd_strv_done(&s->files);
    dd_buf_done(&s->script);
    free(s->directory);
}

static int find_scheduler(struct submit *s, struct dd_err *err)
{
    const struct submit_scheduler *found = submit_scheduler_find(s->o.scheduler);
    if (found != NULL && found->template == NULL && s->o.template == NULL)
        return dd_err_tip(err,
                          dd_err_set(err, -EINVAL,
                                     "no built-in job script for Grid Engine, whose parallel "
                                     "environments and GPU resources differ between sites"),
                          "use --template=FILE with the site's '#$' lines (docs/submit.md)");
    if (found == NULL)
        return dd_err_tip(err,
                          dd_err_set(err, -ENOENT, "no scheduler: found neither sbatch nor qsub"),
                          "run this on a login node, or use --scheduler=NAME --dry-run");
    if (!submit_scheduler_program(s->program, found, found->program)) {
        s->program[0] = '\0';
        if (!s->o.dry_run)
            return dd_err_tip(
                err, dd_err_set(err, -ENOENT, "cannot find '%s' on this machine", found->program),
                "run this on a login node, or use --dry-run");
    }
    s->scheduler = found;
    return 0;
}

/* Find the path of ddrun, since the job may have another PATH: the ddrun that a shell would start
 * on this machine, otherwise the one that was installed with this ddctl. */
static int find_ddrun(char **ret, const char *word, const char *directory, struct dd_err *err)
{
    const char *slash = strrchr(word, '/');
    char ours[PATH_MAX];
    DD_AUTO(free) char *path = NULL;
    if (strcmp(slash != NULL ? slash + 1 : word, "ddrun") != 0)
        return dd_err_tip(
            err,
            dd_err_set(err, -EINVAL, "the command must begin with ddrun, not with '%.100s'", word),
            "for example: ddctl submit --nodes=2 -- ddrun train.py");
    const char *found = spawn_lookup(&path, word, environ) == 0 ? path : NULL;
    if (found == NULL && slash == NULL && dd_installed_find(ours, "ddrun", BINDIR))
        found = ours;
    if (found == NULL)
        return dd_err_set(err, -ENOENT, "cannot find an executable '%.200s'", word);
    /* Keep symbolic links: with an automounter, the resolved path may not exist on other nodes. */
    if (asprintf(ret, "%s%s%s", *found == '/' ? "" : directory, *found == '/' ? "" : "/", found) <
        0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    return 0;
}

static int take_command(struct submit *s, const struct opt_result *res, int argc, char **argv,
                        struct dd_err *err)
{
    DD_AUTO(free) char *ddrun = NULL;
    if (res->script >= argc)
        return dd_err_tip(err, dd_err_set(err, -EINVAL, "missing command"),
                          "for example: ddctl submit --nodes=2 -- ddrun train.py");
    s->directory = get_current_dir_name();
    if (s->directory == NULL)
        return dd_err_set(err, -errno, "cannot determine the current directory: %m");
    int rc = find_ddrun(&ddrun, argv[res->script], s->directory, err);
    if (rc < 0)
        return rc;
    if (dd_strv_push(&s->command, ddrun) < 0 || dd_strv_copy(&s->command, argv + res->args) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    s->o.request.command = s->command.v;
    s->o.request.directory = s->directory;
    s->o.request.env = environ;
    return 0;
}

/* Set the defaults: the job is named after the script, and its log after the job. */
static void name_job(struct submit *s, const char *script)
{
    struct submit_request *r = &s->o.request;
    const char *slash = strrchr(script, '/');
    (void)snprintf(s->name, sizeof(s->name), "%s", slash != NULL ? slash + 1 : script);
    char *dot = strrchr(s->name, '.');
    if (dot != NULL && dot > s->name)
        *dot = '\0';
    for (char *c = s->name; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL)
            *c = '_';
    if (r->name == NULL)
        r->name = isalpha((unsigned char)s->name[0]) ? s->name : "ddrun";
    if (r->log == NULL) {
        (void)snprintf(s->log_name, sizeof(s->log_name), "%.40s-%%j.out", r->name);
        r->log = s->log_name;
    }
}

static int write_script(struct submit *s, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf file = DD_BUF_INIT(SCRIPT_MAX);
    const char *text = s->scheduler->template;
    if (s->o.template != NULL) {
        int rc = dd_read_file(s->o.template, &file, err);
        if (rc < 0)
            return dd_err_where(err, rc, "--template");
        text = dd_buf_str(&file);
        if (text == NULL)
            return dd_err_set(err, -ENOMEM, "out of memory");
        if (strlen(text) != file.len)
            return dd_err_set(err, -EINVAL, "--template: '%.200s' contains a NUL byte",
                              s->o.template);
    }
    s->has_log = strstr(text, "@LOG@") != NULL;
    return submit_script_write(&s->script, text, s->scheduler->job_id, &s->o.request, err);
}

/* ---- checks ---- */

/* Make all checks and write the job script. Return the number of errors: with --force, a failed
 * check is only a warning. */
static unsigned check(struct submit *s)
{
    struct submit_checks c = {.log = &s->log, .force = s->o.force, .dry_run = s->o.dry_run};
    const struct submit_request *r = &s->o.request;
    struct dd_err err = {0};
    submit_check_command(&c, r, &s->files);
    name_job(s, s->files.n > 0 ? s->files.v[0] : "ddrun");
    submit_check_shared(&c, (char *[]){s->command.v[0], s->directory, NULL});
    submit_check_shared(&c, s->files.n > 0 ? s->files.v + 1 : NULL);
    submit_check_log(&c, r);
    submit_check_queue(&c, s->scheduler, r);
    if (s->o.template == NULL)
        submit_check_cpus(&c, s->scheduler, r);
    c.force = false; /* the next failure is an error even with --force: there is no script to
                        submit */
    if (write_script(s, &err) < 0)
        submit_failed(&c, &err);
    return c.failed;
}

/* ---- submitting ---- */

static int script_file(const struct submit *s, struct dd_err *err)
{
    DD_AUTO(fd) int fd = memfd_create("job script", MFD_CLOEXEC);
    int rc = fd < 0 ? -errno : dd_write_full(fd, s->script.data, s->script.len);
    if (rc == 0 && lseek(fd, 0, SEEK_SET) < 0)
        rc = -errno;
    if (rc < 0)
        return dd_err_set(err, rc, "cannot write the job script: %s", strerror(-rc));
    return DD_TAKE_FD(fd);
}

/* Start the submit command and read the id of the job. */
static int start(struct submit *s, struct submit_process *p, struct dd_buf *id, struct dd_err *err)
{
    const struct submit_scheduler *found = s->scheduler;
    const char *argv[5] = {s->program};
    size_t n = 1;
    DD_AUTO(fd) int script = script_file(s, err);
    if (script < 0)
        return script;
    if (found->options != NULL)
        argv[n++] = found->options;
    for (size_t i = 0; s->o.follow && i < 2 && found->wait[i] != NULL; i++)
        argv[n++] = found->wait[i];
    int rc = submit_start(p, argv, script, found->terminal);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot run %s: %s", s->program, strerror(-rc));
    if (submit_read_line(p, id) < 0) {
        const int code = submit_wait(p);
        return dd_err_set(err, -EIO, "%s %s (exit code %d)", found->program,
                          code == 0 ? "printed no job id" : "failed", code);
    }
    id->len = strcspn(dd_buf_str(id), ";"); /* Slurm appends the name of the cluster */
    return 0;
}

static int follow(struct submit *s, struct submit_process *p, const char *id, const char *log)
{
    const int code = submit_follow(p, log);
    if (code == SUBMIT_LEFT) {
        dd_log(&s->log, DD_LOG_NOTICE,
               "job %s continues\n  tip: '%s %s' cancels it, 'tail -F %s' prints its log", id,
               s->scheduler->cancel, id, log);
        return EXIT_LEFT;
    }
    if (access(log, F_OK) < 0)
        dd_log(&s->log, DD_LOG_WARN, "cannot find the log of job %s, '%s': %m", id, log);
    dd_log(&s->log, DD_LOG_NOTICE, "job %s ended with exit code %d, as '%s' reports", id, code,
           s->scheduler->program);
    return code;
}

static int submit_job(struct submit *s)
{
    DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(4096);
    DD_AUTO(buf) struct dd_buf name = DD_BUF_INIT(PATH_MAX);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4096);
    struct submit_process p;
    struct dd_err err = {0};
    sigset_t before;
    submit_hold_signals(&before); /* until the id is printed: the job may already be queued */
    if (start(s, &p, &line, &err) < 0) {
        dd_log(&s->log, DD_LOG_ERR, "%s", err.text);
        return 1;
    }
    const char *id = dd_buf_str(&line);
    (void)submit_log_name(&name, s->o.request.log, id);
    const char *log = dd_buf_str(&name);
    dd_log(&s->log, DD_LOG_NOTICE, "submitted job %s%s%s", id, s->has_log ? "; log: " : "",
           s->has_log ? log : "");
    (void)dd_buf_printf(&out, "%s\n", id);
    int code = cmd_write(&ddctl_submit_options, &out);
    if (s->o.follow)
        return follow(s, &p, id, log);
    const int failed = submit_wait(&p);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return failed != 0 ? failed : code;
}

int ddctl_submit(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    struct submit s = {.log = {.fd = STDERR_FILENO,
                               .colours = dd_log_has_colours(STDERR_FILENO),
                               .level = DD_LOG_NOTICE,
                               .who = "ddctl submit"},
                       .script = DD_BUF_INIT(SCRIPT_MAX)};
    struct dd_err err = {0};
    int code = cmd_options_alone(&ddctl_submit_options, &s.o, argc, argv, &res);
    if (code >= 0)
        return code;
    int rc = take_command(&s, &res, argc, argv, &err);
    if (rc == 0)
        rc = find_scheduler(&s, &err);
    if (rc < 0)
        code = cmd_fail(&ddctl_submit_options, &err);
    else if (check(&s) > 0)
        code = EXIT_USAGE;
    else if (s.o.dry_run)
        code = cmd_write(&ddctl_submit_options, &s.script);
    else
        code = submit_job(&s);
    submit_done(&s);
    return code;
}
