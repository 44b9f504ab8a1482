#include "alloc/endtime.h"

#include "base/auto.h"
#include "base/num.h"
#include "base/strv.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

enum { DAY_S = 86400, MAX_DAYS = 100000 };

/* Read digits; *p then points to the first other character. */
static bool take_number(const char **p, int64_t max, int64_t *ret)
{
    int64_t n = 0;
    const char *start = *p;
    while (isdigit((unsigned char)**p) && n <= max)
        n = n * 10 + *(*p)++ - '0';
    *ret = n;
    return *p > start && n <= max;
}

/* Read "SS", "MM:SS", "HH:MM:SS" with any number of digits, up to the end of the word. */
static int take_clock(const char *p, int64_t *ret)
{
    int64_t total = 0;
    int64_t n;
    for (int i = 0; i < 3; i++) {
        if (!take_number(&p, (int64_t)MAX_DAYS * 24, &n))
            return -ENOENT;
        total = total * 60 + n;
        if (*p != ':')
            break;
        p++;
    }
    if (*p != '\0' && !isspace((unsigned char)*p))
        return -ENOENT;
    *ret = total;
    return 0;
}

int alloc_slurm_time_left(const char *text, int64_t *ret)
{
    const char *p = text + strspn(text, " \t\n");
    const char *dash = p;
    int64_t days = 0;
    int64_t rest;
    if (take_number(&dash, MAX_DAYS, &days) && *dash == '-')
        p = dash + 1;
    else
        days = 0;
    if (take_clock(p, &rest) < 0)
        return -ENOENT;
    *ret = days * DAY_S + rest;
    return 0;
}

/* Return the value after "    NAME = " at the start of a line, lent; NULL: none. */
static const char *pbs_value(const char *text, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += strspn(line, "\n \t\r");
        if (strncmp(line, name, len) == 0 && strncmp(line + len, " = ", 3) == 0)
            return line + len + 3;
        if (*line == '\0')
            break;
    }
    return NULL;
}

/* Set *ret to `start`, a date that strptime() parses by `format`, plus `length`, a time as in
 * take_clock(). -ENOENT: one of them is NULL or invalid. */
static int end_of(const char *start, const char *format, const char *length, int64_t *ret)
{
    struct tm tm = {.tm_isdst = -1};
    int64_t seconds;
    if (start == NULL || length == NULL || take_clock(length, &seconds) < 0 ||
        strptime(start, format, &tm) == NULL)
        return -ENOENT;
    tm.tm_isdst = -1;
    time_t at = mktime(&tm);
    if (at == (time_t)-1)
        return -ENOENT;
    *ret = (int64_t)at + seconds;
    return 0;
}

int alloc_pbs_end_time(const char *text, int64_t *ret)
{
    const char *start = pbs_value(text, "stime");
    if (start == NULL) /* the field's name in TORQUE */
        start = pbs_value(text, "start_time");
    return end_of(start, "%a %b %d %H:%M:%S %Y", pbs_value(text, "Resource_List.walltime"), ret);
}

/* oarstat has the layout of qstat -f, but dates as in SQL. Src: source of OAR 2.5. */
static int oar_end_time(const char *text, int64_t *ret)
{
    return end_of(pbs_value(text, "startTime"), "%Y-%m-%d %H:%M:%S", pbs_value(text, "walltime"),
                  ret);
}

/* "12:05 L": hours and minutes, with LSB_HMS_TIME_FORMAT also seconds; "-": no limit. L marks the
 * limit; E and X refer to an estimate of the user, which a job may exceed. Src: bjobs(1) of
 * LSF 10.1, and scripts that read it. */
static int lsf_time_left(const char *text, int64_t *ret)
{
    const char *p = text + strspn(text, " \t\n");
    int64_t part[3] = {0};
    int n = 0;
    while (n < 3 && take_number(&p, (int64_t)MAX_DAYS * 24, &part[n])) {
        n++;
        if (*p != ':')
            break;
        p++;
    }
    p += strspn(p, " \t");
    if (n < 2 || *p != 'L')
        return -ENOENT;
    *ret = (part[0] * 60 + part[1]) * 60 + part[2];
    return 0;
}

/* Read "hard resource_list:   a=1,h_rt=3600,b=2" of qstat -j; "01:00:00" as requested is possible,
 * too. The limit of a queue is not listed there. Src: qstat(1), sge_types(1) and source of Grid
 * Engine 6.2. */
static int sge_length(const char *text, int64_t *ret)
{
    static const char name[] = "hard resource_list:";
    const char *line = text;
    char value[32];
    while (line != NULL && strncmp(line, name, sizeof(name) - 1) != 0)
        line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL;
    const char *end = line != NULL ? line + strcspn(line, "\n") : NULL;
    for (const char *p = line != NULL ? line + sizeof(name) - 1 : NULL; p != NULL && p < end;
         p += strcspn(p, ",\n"), p += *p == ',') {
        p += strspn(p, " \t");
        if (strncmp(p, "h_rt=", 5) != 0)
            continue;
        const size_t n = strcspn(p + 5, ",\n");
        if (n >= sizeof(value))
            return -ENOENT;
        memcpy(value, p + 5, n);
        value[n] = '\0';
        return take_clock(value, ret);
    }
    return -ENOENT;
}

/* Read the remaining seconds; UINT32_MAX: no limit. Src: flux-core, flux-job(1). */
static int flux_time_left(const char *text, int64_t *ret)
{
    const char *p = text + strspn(text, " \t\n");
    int64_t n;
    if (!take_number(&p, UINT32_MAX, &n) || n == UINT32_MAX ||
        (*p != '\0' && !isspace((unsigned char)*p)))
        return -ENOENT;
    *ret = n;
    return 0;
}

/* ---- commands of the schedulers ---- */

enum told {
    AT,    /* seconds since 1970 */
    LEFT,  /* seconds from now */
    LENGTH /* seconds from the start of the job's script */
};

struct alloc_end_row {
    const char *sources;   /* sources of allocations (alloc_table), comma separated */
    const char *job;       /* variable with the job's id */
    const char *also;      /* alternative name of that variable; NULL: none */
    const char *index;     /* variable with the index in an array job, 0 outside; NULL: none */
    const char *needs;     /* variable without which `job` means something else; NULL: none */
    const char *command;   /* words of the command; %job is the job's id */
    const char *directory; /* directory of the command if PATH does not contain it; NULL: unknown */
    enum told told;
    int (*read)(const char *text, int64_t *ret);
};

static const struct alloc_end_row rows[] = {
    {.sources = "slurm-step,slurm-batch",
     .job = "SLURM_JOB_ID",
     .command = "squeue -h -o %L -j %job",
     .told = LEFT,
     .read = alloc_slurm_time_left},
    {.sources = "pbs",
     .job = "PBS_JOBID",
     .command = "qstat -f %job",
     .directory = ALLOC_PBS_DIRECTORY,
     .told = AT,
     .read = alloc_pbs_end_time},
    {.sources = "lsf",
     .job = "LSB_JOBID",
     .index = "LSB_JOBINDEX",
     .command = "bjobs -noheader -o time_left %job",
     .told = LEFT,
     .read = lsf_time_left},
    {.sources = "sge",
     .job = "JOB_ID",
     .needs = "SGE_ROOT",
     .command = "qstat -j %job",
     .told = LENGTH,
     .read = sge_length},
    {.sources = "oar",
     .job = "OAR_JOB_ID",
     .also = "OAR_JOBID",
     .command = "oarstat -f -j %job",
     .told = AT,
     .read = oar_end_time},
    {.sources = "",
     .job = "FLUX_JOB_ID",
     .also = "FLUX_ENCLOSING_ID",
     .needs = "FLUX_URI",
     .command = "flux job timeleft",
     .told = LEFT,
     .read = flux_time_left},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static bool is_among(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; n > 0 && p != NULL;
         p = strchr(p, ',') != NULL ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

static const char *job_of(const struct alloc_end_row *row, char *const *env)
{
    const char *id = dd_env_get_nonempty(env, row->job);
    if (id == NULL && row->also != NULL)
        id = dd_env_get_nonempty(env, row->also);
    return row->needs != NULL && dd_env_get_nonempty(env, row->needs) == NULL ? NULL : id;
}

const struct alloc_end_row *alloc_end_find(const char *source, char *const *env)
{
    for (size_t i = 0; i < ROWS; i++)
        if (is_among(rows[i].sources, source))
            return job_of(&rows[i], env) != NULL ? &rows[i] : NULL;
    for (size_t i = 0; i < ROWS;
         i++) /* the user has named the nodes, which may still belong to such a job */
        if (job_of(&rows[i], env) != NULL)
            return &rows[i];
    return NULL;
}

int alloc_end_command(const struct alloc_end_row *row, char *const *env, struct dd_strv *ret,
                      const char **ret_directory)
{
    DD_AUTO(strv) struct dd_strv words = {0};
    const char *index = row->index != NULL ? dd_env_get_nonempty(env, row->index) : NULL;
    const char *job = job_of(row, env);
    int rc = dd_strv_split(&words, row->command, " ");
    for (size_t i = 0; i < words.n && rc == 0; i++) {
        if (strcmp(words.v[i], "%job") != 0)
            rc = dd_strv_push(ret, words.v[i]);
        else if (index != NULL && strcmp(index, "0") != 0)
            rc = dd_strv_pushf(ret, "%s[%s]", job, index);
        else
            rc = dd_strv_push(ret, job);
    }
    *ret_directory = row->directory;
    return rc;
}

static int add(enum told told, int64_t n, uint64_t now_s, uint64_t job_start_s, uint64_t *ret)
{
    const uint64_t from = told == LEFT ? now_s : told == LENGTH ? job_start_s : 0;
    if (n < 0 || (told == LENGTH && job_start_s == 0))
        return -ENOENT;
    *ret = from + (uint64_t)n;
    return 0;
}

int alloc_end_answer(const struct alloc_end_row *row, const char *text, uint64_t now_s,
                     uint64_t job_start_s, uint64_t *ret)
{
    int64_t n = 0;
    return row->read(text, &n) < 0 ? -ENOENT : add(row->told, n, now_s, job_start_s, ret);
}

/* Src: slurm 23.02 srun(1); Cobalt's source; pbs_mom of TORQUE. */
int alloc_told_end_time(const char *source, char *const *env, uint64_t job_start_s, uint64_t *ret)
{
    static const struct {
        const char *name, *sources;
        enum told told;
    } variables[] = {{"SLURM_JOB_END_TIME", "slurm-step,slurm-batch", AT},
                     {"COBALT_ENDTIME", "cobalt,cobalt-xc", AT},
                     {"PBS_WALLTIME", "pbs", LENGTH}};
    enum { VARIABLES = sizeof(variables) / sizeof(variables[0]) };
    /* true: only this scheduler's variable counts, since others may be of another job */
    bool is_scheduler = false;
    for (size_t i = 0; i < VARIABLES; i++)
        is_scheduler |= is_among(variables[i].sources, source);
    for (size_t i = 0; i < ROWS; i++)
        is_scheduler |= is_among(rows[i].sources, source);
    for (size_t i = 0; i < VARIABLES; i++) {
        const char *text = dd_env_get_nonempty(env, variables[i].name);
        uint64_t n;
        if (text != NULL && (!is_scheduler || is_among(variables[i].sources, source)) &&
            dd_num_u64(text, 1, UINT64_C(1) << 40, &n) == 0 &&
            add(variables[i].told, (int64_t)n, 0, job_start_s, ret) == 0)
            return 0;
    }
    return -ENOENT;
}

/* ---- reason ---- */

/* True if the value after `name`, such as " Reason=", is one of `words`, separated by '|'. */
static bool slurm_is(const char *text, const char *name, const char *words)
{
    const char *at = strstr(text, name);
    if (at == NULL)
        return false;
    at += strlen(name);
    size_t len = strcspn(at, " \t\n");
    for (const char *w = words; *w != '\0'; w += strcspn(w, "|"), w += *w == '|')
        if (strcspn(w, "|") == len && strncmp(w, at, len) == 0)
            return true;
    return false;
}

/* Src: scontrol(1), squeue(1); Slurm 22.05.8, measured 2026-11-21: a job that has come to its limit
 * is JobState=COMPLETING or TIMEOUT with Reason=TimeLimit, a cancelled one is CANCELLED or
 * COMPLETING with Reason=None; PreemptTime is a date as soon as Slurm has sent the first signal of
 * a preemption. */
enum alloc_end alloc_slurm_why(const char *text)
{
    if (slurm_is(text, " JobState=", "CANCELLED"))
        return ALLOC_END_OTHER;
    if (strstr(text, " PreemptTime=") != NULL &&
        !slurm_is(text, " PreemptTime=", "None|N/A|Unknown"))
        return ALLOC_END_PREEMPTED;
    if (slurm_is(text, " JobState=", "PREEMPTED"))
        return ALLOC_END_PREEMPTED;
    if (slurm_is(text, " JobState=", "TIMEOUT|DEADLINE") || slurm_is(text, " Reason=", "TimeLimit"))
        return ALLOC_END_TIMEOUT;
    return ALLOC_END_OTHER;
}
