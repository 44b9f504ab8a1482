/* Finds the programs and files that were installed with this program. */
#ifndef DD_BASE_INSTALLED_H
#define DD_BASE_INSTALLED_H

#include <limits.h>
#include <stdbool.h>

/* Makefile.am defines the directories of an installation; these are defaults for tools that compile
 * a file without its flags. */
#ifndef BINDIR
#define BINDIR "/usr/local/bin"
#endif
#ifndef PKGLIBEXECDIR
#define PKGLIBEXECDIR "/usr/local/libexec/ddrun"
#endif

/* Find an executable file of ddrun: beside this program (the build directory), at the place of
 * `directory` relative to this program (an installation that was moved as a whole), or in
 * `directory`. Return false if none exists; ret is then the path in `directory`. */
bool dd_installed_find(char ret[PATH_MAX], const char *name, const char *directory);

#endif
