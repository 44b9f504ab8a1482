/* Finds, checks and reads the files that set options: of the site, of the user, of the current
 * directory. */
#ifndef DD_CMD_SITE_FILES_H
#define DD_CMD_SITE_FILES_H

#include "cmd/site_settings.h"

enum { SITE_FILES = 3 }; /* of the site, the user, the project */

struct site_files {
    int fds[SITE_FILES]; /* -1: no such file, or it cannot be opened */
    int errors[SITE_FILES];
    char *names[SITE_FILES];
    bool any;
};

/* Open the files that exist. Return 0 or -ENOMEM. */
int site_files_open(struct site_files *ret, struct dd_err *err);
/* Check the files, and read them into *ret. Return 0 or -errno with a message. A project file that
 * other users may have written is left out, for the reason in *left_out. */
int site_files_read(struct site_settings *ret, struct site_files *f, const struct opt_table *t,
                    struct dd_err *left_out, struct dd_err *err);
void site_files_close(struct site_files *f);

static inline void dd_auto_site_files(struct site_files *f)
{
    site_files_close(f);
}

#endif
