#include "alloc/endtime.h"

#include "base/num.h"
#include "base/strv.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

enum { DAY_S = 86400, MAX_DAYS = 100000 };

/* Digits up to the first other character, which *p then points to. */
static bool take_number(const char **p, int64_t max, int64_t *ret)
{
    int64_t n = 0;
    const char *start = *p;
    while (isdigit((unsigned char)**p) && n <= max)
        n = n * 10 + *(*p)++ - '0';
    *ret = n;
    return *p > start && n <= max;
}

/* "SS", "MM:SS", "HH:MM:SS" with any number of digits, up to the end of the word. */
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

/* The value behind "    NAME = " at the start of a line, or NULL; lent. */
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

int alloc_pbs_end_time(const char *text, int64_t *ret)
{
    const char *start = pbs_value(text, "stime");
    const char *wall = pbs_value(text, "Resource_List.walltime");
    struct tm tm = {.tm_isdst = -1};
    int64_t seconds;
    if (start == NULL) /* TORQUE */
        start = pbs_value(text, "start_time");
    if (start == NULL || wall == NULL || take_clock(wall, &seconds) < 0 ||
        strptime(start, "%a %b %d %H:%M:%S %Y", &tm) == NULL)
        return -ENOENT;
    tm.tm_isdst = -1;
    time_t at = mktime(&tm);
    if (at == (time_t)-1)
        return -ENOENT;
    *ret = (int64_t)at + seconds;
    return 0;
}

/* Src: slurm 23.02 srun(1); Cobalt's source; pbs_mom of TORQUE: seconds since 1970, but for the last. */
int alloc_told_end_time(char *const *env, uint64_t job_start_s, uint64_t *ret)
{
    static const struct {
        const char *name;
        bool is_length;
    } told[] = {{"SLURM_JOB_END_TIME", false}, {"COBALT_ENDTIME", false}, {"PBS_WALLTIME", true}};
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        const char *text = dd_env_get_nonempty(env, told[i].name);
        uint64_t n;
        if (text == NULL || dd_num_u64(text, 1, UINT64_C(1) << 40, &n) < 0 || (told[i].is_length && job_start_s == 0))
            continue;
        *ret = told[i].is_length ? job_start_s + n : n;
        return 0;
    }
    return -ENOENT;
}

/* The word behind " NAME=" is one of those that are separated by '|'. */
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

/* Src: scontrol(1), squeue(1); Slurm 22.05.8, measured 2026-11-21: a job that has come to its limit is
 * JobState=COMPLETING or TIMEOUT with Reason=TimeLimit, a cancelled one is CANCELLED or COMPLETING with
 * Reason=None; PreemptTime is a date from the first signal of a preemption on. */
enum alloc_end alloc_slurm_why(const char *text)
{
    if (slurm_is(text, " JobState=", "CANCELLED"))
        return ALLOC_END_OTHER;
    if (strstr(text, " PreemptTime=") != NULL && !slurm_is(text, " PreemptTime=", "None|N/A|Unknown"))
        return ALLOC_END_PREEMPTED;
    if (slurm_is(text, " JobState=", "PREEMPTED"))
        return ALLOC_END_PREEMPTED;
    if (slurm_is(text, " JobState=", "TIMEOUT|DEADLINE") || slurm_is(text, " Reason=", "TimeLimit"))
        return ALLOC_END_TIMEOUT;
    return ALLOC_END_OTHER;
}
