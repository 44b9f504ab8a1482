/* The settings of ddrun.toml files: which values of a file apply to this job, and which files may
 * set which options. Pure; site_files.c reads the files. */
#ifndef DD_CMD_SITE_SETTINGS_H
#define DD_CMD_SITE_SETTINGS_H

#include "base/opt.h"

struct site_settings {
    struct opt_setting *v; /* for opt_parse; values and places are owned */
    size_t n;
};

/* Properties of the job that the sections of a file match. */
struct site_job {
    const char *partition, *queue; /* NULL: none */
    const char *hosts[2];          /* names of this node; NULL: none */
    char *const *env;              /* variables that are set, which [environment] does not
                                      override */
};

struct site_file {
    const char *name; /* name in messages, such as "./ddrun.toml" */
    bool project;     /* in the current directory: sets only options with .project */
    bool included;    /* another file includes this one, which must not include files itself */
};

/* Read partition or queue of the job, and the scheduler's name of this node, from the scheduler's
 * variables. hostname is borrowed. */
void site_job_read(struct site_job *ret, char *const *env, const char *hostname);

/* Append the paths of the files that this file includes, in the order of their lines. Return as
 * site_settings_add(), which ignores `include`. */
int site_settings_includes(struct dd_strv *ret, const struct opt_table *t,
                           const struct site_file *file, const struct site_job *job,
                           const struct dd_buf *json, struct dd_err *err);

/* Add the values of a file, as ddrun-toml prints them, over those of earlier files. Return 0, or
 * -EINVAL with a message, also for wrong keys in sections that do not apply; -ENOMEM. */
int site_settings_add(struct site_settings *s, const struct opt_table *t,
                      const struct site_file *file, const struct site_job *job,
                      const struct dd_buf *json, struct dd_err *err);

/* Append the command line with those settings that res uses as options, for the other nodes. */
int site_settings_argv(struct dd_strv *ret, const struct site_settings *s,
                       const struct opt_table *t, const struct opt_result *res, char *const *argv);

void site_settings_done(struct site_settings *s);

static inline void dd_auto_site_settings(struct site_settings *s)
{
    site_settings_done(s);
}

#endif
