#include "stage/stage_containing.h"

#include "base/auto.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* True if real, the path of an existing file, is top or lies in it. */
static bool containing_is_in(const char *top, const char *real)
{
    DD_AUTO(free) char *path = realpath(top, NULL);
    const size_t n = path != NULL ? strlen(path) : 0;
    return n > 0 && strncmp(real, path, n) == 0 && (real[n] == '/' || real[n] == '\0');
}

const char *stage_containing(const char *dir, char *const *paths)
{
    DD_AUTO(free) char *real = realpath(dir, NULL);
    for (size_t i = 0; real != NULL && paths != NULL && paths[i] != NULL; i++)
        if (containing_is_in(paths[i], real))
            return paths[i];
    return NULL;
}
