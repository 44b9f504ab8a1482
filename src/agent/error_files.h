/* Where workers say why they failed: TORCHELASTIC_ERROR_FILE, written by torch's record() as JSON.
 *
 * With a log directory it is error.json there. Without one it is a temporary file whose name no
 * other user knows before it is there (error_names.h). Where there can be none, it is an anonymous
 * file of the agent, which workers open by its name in /proc (which they cannot from another user
 * namespace, as containers have). */
#ifndef DD_AGENT_ERROR_FILES_H
#define DD_AGENT_ERROR_FILES_H

#include "base/err.h"
#include "base/log.h"

struct error_files;
struct agent_cfg;     /* agent/agent.h */
struct worker_exit;   /* worker/group.h */
struct worker_output; /* worker/output.h */

/* For a new round of n workers. *ef is NULL at first and is used again; output (borrowed, may be
 * NULL) has begun the round. cfg->output.log_dir "/dev/null": no files. */
int error_files_begin(struct error_files **ef, int n, const struct worker_output *output,
                      const struct agent_cfg *cfg, struct dd_err *err);
/* Lent until the next round; "": none. */
const char *error_files_path(const struct error_files *ef, int local_rank);
/* The round is being stopped: whoever fails from now on is not the cause. */
void error_files_over(struct error_files *ef);
/* A worker has failed. What the first one of the round wrote is kept. */
void error_files_keep(struct error_files *ef, const struct worker_exit *e);
/* What was kept, with the exit code put in, to the file that our own starter has named (NULL:
 * none). */
void error_files_copy(const struct error_files *ef, const char *path, const struct dd_log *log);
void error_files_free(struct error_files *ef);

#endif
