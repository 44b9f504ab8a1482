/* The programs and files that were installed with this program. */
#ifndef DD_BASE_INSTALLED_H
#define DD_BASE_INSTALLED_H

#include <limits.h>
#include <stdbool.h>

/* Makefile.am sets the directories of an installation. These serve tools that read a file without
 * its flags. */
#ifndef BINDIR
#define BINDIR "/usr/local/bin"
#endif
#ifndef PKGLIBEXECDIR
#define PKGLIBEXECDIR "/usr/local/libexec/ddrun"
#endif

/* Find an executable file of ddrun: beside this program, as in the build directory, or where it is
 * installed, `directory`. An installation that was moved as a whole is searched where it is now.
 * Return false if the file is in neither place; ret is then the last path tried. */
bool dd_installed_find(char ret[PATH_MAX], const char *name, const char *directory);

#endif
