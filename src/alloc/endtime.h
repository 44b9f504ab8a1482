/* Finds when and why an allocation ends, from variables and from the output of the schedulers'
 * commands. Pure. */
#ifndef DD_ALLOC_ENDTIME_H
#define DD_ALLOC_ENDTIME_H

#include "base/strv.h"

#include <stdbool.h>
#include <stdint.h>

/* Read squeue's TimeLeft: "4:59", "1:02:03", "2-03:04:05". Return 0 with the seconds, or -ENOENT
 * without a known limit ("UNLIMITED", "NOT_SET", anything else). */
int alloc_slurm_time_left(const char *text, int64_t *ret);

/* Read the output of `qstat -f JOB` of OpenPBS, PBS Pro and TORQUE: start plus wall time, in
 * seconds since 1970. 0 or -ENOENT. */
int alloc_pbs_end_time(const char *text, int64_t *ret);

/* Directory of OpenPBS's commands if PATH does not contain them: `qsub -- PROGRAM` sets
 * PATH=/bin:/usr/bin. Src: measured, OpenPBS 23.06. */
#define ALLOC_PBS_DIRECTORY "/opt/pbs/bin"

/* Find the end from variables of an allocation from this source. Return 0 and seconds since 1970,
 * or -ENOENT. job_start_s: start of the job's script (0: unknown), for variables that contain a
 * wall time only. */
int alloc_told_end_time(const char *source, char *const *env, uint64_t job_start_s, uint64_t *ret);

/* Return the row of the scheduler's command for an allocation from this source; NULL: none. */
const struct alloc_end_row *alloc_end_find(const char *source, char *const *env);
/* Return the words of the row's command. *ret_directory: directory of the command if PATH may not
 * contain it; NULL: unknown. 0 or -ENOMEM. */
int alloc_end_command(const struct alloc_end_row *row, char *const *env, struct dd_strv *ret,
                      const char **ret_directory);
/* Parse the output of the command, read at the time now_s. Return 0 and seconds since 1970, or
 * -ENOENT. */
int alloc_end_answer(const struct alloc_end_row *row, const char *text, uint64_t now_s,
                     uint64_t job_start_s, uint64_t *ret);

enum alloc_end { ALLOC_END_OTHER, ALLOC_END_PREEMPTED, ALLOC_END_TIMEOUT };

/* Return why Slurm ends the job, from the output of `scontrol show job -o JOB`. */
enum alloc_end alloc_slurm_why(const char *text);

#endif
