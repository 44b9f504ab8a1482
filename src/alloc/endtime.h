/* When does the allocation end, and why: from the words of the schedulers' commands. Pure. */
#ifndef DD_ALLOC_ENDTIME_H
#define DD_ALLOC_ENDTIME_H

#include "base/strv.h"

#include <stdbool.h>
#include <stdint.h>

/* squeue's TimeLeft: "4:59", "1:02:03", "2-03:04:05". 0 and the seconds, or -ENOENT where there is
 * no limit or none is known ("UNLIMITED", "NOT_SET", anything else). */
int alloc_slurm_time_left(const char *text, int64_t *ret);

/* The answer to `qstat -f JOB` of OpenPBS, PBS Pro and TORQUE: start plus wall time, in seconds
 * since 1970. 0 or -ENOENT. */
int alloc_pbs_end_time(const char *text, int64_t *ret);

/* Where OpenPBS has its commands when PATH has them not: `qsub -- PROGRAM` runs it with
 * PATH=/bin:/usr/bin. Src: measured, OpenPBS 23.06. */
#define ALLOC_PBS_FOLDER "/opt/pbs/bin"

/* What variables tell of an allocation from this source. 0 and seconds since 1970, or -ENOENT.
 * job_start_s: when this job's script began (0: not known), for those that tell the wall time only.
 */
int alloc_told_end_time(const char *source, char *const *env, uint64_t job_start_s, uint64_t *ret);

/* The scheduler's command that tells it, for an allocation from this source; NULL: there is none.
 */
const struct alloc_end_row *alloc_end_find(const char *source, char *const *env);
/* Its words; *ret_folder: where it is besides in PATH, or NULL. 0 or -ENOMEM. */
int alloc_end_command(const struct alloc_end_row *row, char *const *env, struct dd_strv *ret,
                      const char **ret_folder);
/* What it has answered at now_s. 0 and seconds since 1970, or -ENOENT. */
int alloc_end_answer(const struct alloc_end_row *row, const char *text, uint64_t now_s,
                     uint64_t job_start_s, uint64_t *ret);

enum alloc_end { ALLOC_END_OTHER, ALLOC_END_PREEMPTED, ALLOC_END_TIMEOUT };

/* Why Slurm ends the job: from the answer to `scontrol show job -o JOB`. */
enum alloc_end alloc_slurm_why(const char *text);

#endif
