#include "base/installed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Return the relative path from BINDIR to `installed` if both have a common prefix, such as
 * "/../libexec/ddrun"; otherwise NULL. */
static const char *way_from_bin(char out[PATH_MAX], const char *installed)
{
    const char *slash = strrchr(BINDIR, '/');
    size_t n = slash != NULL ? (size_t)(slash - BINDIR) : 0;
    if (n == 0 || strncmp(installed, BINDIR, n + 1) != 0)
        return NULL;
    (void)snprintf(out, PATH_MAX, "/..%s", installed + n);
    return out;
}

bool dd_installed_find(char ret[PATH_MAX], const char *name, const char *directory)
{
    char here[PATH_MAX] = "", way[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", here, sizeof(here) - 1);
    char *slash = n > 0 ? strrchr(here, '/') : NULL;
    const char *ways[] = {"", way_from_bin(way, directory)};
    for (size_t i = 0; slash != NULL && i < sizeof(ways) / sizeof(ways[0]); i++) {
        *slash = '\0';
        if (ways[i] != NULL && snprintf(ret, PATH_MAX, "%s%s/%s", here, ways[i], name) < PATH_MAX &&
            access(ret, X_OK) == 0)
            return true;
    }
    (void)snprintf(ret, PATH_MAX, "%s/%s", directory, name);
    return access(ret, X_OK) == 0;
}
