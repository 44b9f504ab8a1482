#include "launch/select.h"

#include "base/auto.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Always forwarded: login variables, and those that identify the job to ddrun, the scheduler and
 * the launcher. */
#define ALWAYS                                                                                                                  \
    "PATH,HOME,USER,LOGNAME,SHELL,LANG,LC_*,TERM,TZ,TMPDIR,XDG_RUNTIME_DIR,DDRUN_*,SLURM*,PBS_*,PALS_*,PMI*,LSB_*,LSF_*,JSM_*," \
    "SGE_*,JOB_ID,PE_HOSTFILE,NSLOTS,NHOSTS,OAR_*,COBALT_*,FLUX_*,MUNGE_*"

static bool is_named(char *const *patterns, const char *name)
{
    for (size_t i = 0; patterns != NULL && patterns[i] != NULL; i++)
        if (fnmatch(patterns[i], name, 0) == 0)
            return true;
    return false;
}

int select_env(struct dd_strv *ret, char *const *env, const char *only, const char *without)
{
    DD_AUTO(strv) struct dd_strv goes = {0};
    DD_AUTO(strv) struct dd_strv stays = {0};
    int rc = dd_strv_split(&goes, only != NULL ? only : "*", ",");
    if (rc == 0)
        rc = dd_strv_split(&goes, ALWAYS, ",");
    if (rc == 0 && without != NULL)
        rc = dd_strv_split(&stays, without, ",");
    for (size_t i = 0; env != NULL && env[i] != NULL && rc == 0; i++) {
        DD_AUTO(free) char *name = strndup(env[i], strcspn(env[i], "="));
        if (name == NULL)
            rc = -ENOMEM;
        else if (name[0] != '\0' && (is_named(stays.v, name) || !is_named(goes.v, name)))
            rc = dd_strv_push(ret, name);
    }
    return rc;
}
