#include "stage/stage_venv.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Return the value of the first line "key = value", and its length. NULL: there is none. */
static const char *venv_value(const char *text, const char *key, size_t *len)
{
    const size_t n = strlen(key);
    for (const char *line = text; *line != '\0';
         line += strcspn(line, "\n"), line += *line == '\n') {
        const char *p = line + strspn(line, " \t");
        if (strncmp(p, key, n) != 0)
            continue;
        p += n + strspn(p + n, " \t");
        if (*p != '=')
            continue;
        p += 1 + strspn(p + 1, " \t");
        *len = strcspn(p, "\r\n");
        while (*len > 0 && (p[*len - 1] == ' ' || p[*len - 1] == '\t'))
            (*len)--;
        return p;
    }
    return NULL;
}

/* True for a directory name of uv's interpreters ("cpython-3.12.7-linux-x86_64-gnu"). */
static bool venv_is_managed(const char *name)
{
    static const char *const kinds[] = {"cpython-", "pypy-", "graalpy-"};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strncmp(name, kinds[i], strlen(kinds[i])) == 0)
            return true;
    return false;
}

const char *stage_venv_home(const char *pyvenv_cfg, size_t *len)
{
    return venv_value(pyvenv_cfg, "home", len);
}

int stage_venv_interpreter(char **ret, const char *pyvenv_cfg)
{
    static const char bin[] = "/bin";
    size_t n, unused;
    const char *home = stage_venv_home(pyvenv_cfg, &n);
    if (home == NULL || home[0] != '/' || venv_value(pyvenv_cfg, "uv", &unused) == NULL ||
        n <= sizeof(bin) || memcmp(home + n - (sizeof(bin) - 1), bin, sizeof(bin) - 1) != 0)
        return 0;
    char *dir = strndup(home, n - (sizeof(bin) - 1));
    if (dir == NULL)
        return -ENOMEM;
    if (!venv_is_managed(strrchr(dir, '/') + 1)) {
        free(dir);
        return 0;
    }
    *ret = dir;
    return 1;
}
