#include "base/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

int dd_library_bind(void *functions, void *library, const struct dd_library_row *rows, size_t n,
                    const char **missing)
{
    for (size_t i = 0; i < n; i++) {
        void *function = dlsym(library, rows[i].name);
        *missing = rows[i].name;
        if (function == NULL)
            return -ELIBBAD;
        memcpy((char *)functions + rows[i].at, &function, sizeof(function));
    }
    return 0;
}

/* RTLD_GLOBAL, as if the library were linked: libpmix's plug-ins look up its symbols. */
int dd_library_load(void *functions, const char *soname, const struct dd_library_row *rows,
                    size_t n, struct dd_err *err)
{
    const char *missing = "";
    void *library = dlopen(soname, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (library == NULL) {
        const char *why = dlerror();
        return dd_err_set(err, -ELIBACC, "cannot load %s", why != NULL ? why : soname);
    }
    int rc = dd_library_bind(functions, library, rows, n, &missing);
    return rc < 0 ? dd_err_set(err, rc, "%s has no function %s", soname, missing) : 0;
}
