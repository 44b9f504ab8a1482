#include "stage/stage_interpreters.h"

#include "base/auto.h"
#include "base/io.h"
#include "stage/stage_containing.h"
#include "stage/stage_venv.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Find the interpreter of a virtual environment. 1 and *ret, which the caller frees; 0: none;
 * -ENOMEM. */
static int interpreters_of(char **ret, const char *venv)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 16);
    DD_AUTO(free) char *path = NULL;
    if (asprintf(&path, "%s/pyvenv.cfg", venv) < 0)
        return -ENOMEM;
    if (dd_read_file(path, &text, NULL) < 0)
        return 0; /* not a virtual environment */
    return stage_venv_interpreter(ret, dd_buf_str(&text));
}

static bool interpreters_fit(const struct dd_strv *found, const char *dir)
{
    size_t all = strlen(dir) + 1;
    for (size_t i = 0; i < found->n; i++)
        all += strlen(found->v[i]) + 1;
    return found->n < STAGE_INTERPRETERS && all <= STAGE_INTERPRETERS_TEXT &&
           strchr(dir, '\n') == NULL;
}

/* True if a copy of dir adds something, and will not contain itself. */
static bool interpreters_is_wanted(char *dir, char *const *paths, const struct dd_strv *found,
                                   const char *copies)
{
    char *const alone[] = {dir, NULL};
    return access(dir, R_OK | X_OK) == 0 && stage_containing(dir, paths) == NULL &&
           stage_containing(dir, found->v) == NULL &&
           (copies == NULL || stage_containing(copies, alone) == NULL);
}

int stage_interpreters_find(struct dd_strv *ret, char *const *paths, const char *copies)
{
    for (size_t i = 0; paths[i] != NULL; i++) {
        DD_AUTO(free) char *dir = NULL;
        int rc = interpreters_of(&dir, paths[i]);
        if (rc > 0 && interpreters_fit(ret, dir) && interpreters_is_wanted(dir, paths, ret, copies))
            rc = dd_strv_push(ret, dir);
        if (rc < 0)
            return rc;
    }
    return 0;
}
