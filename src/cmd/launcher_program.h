/* A launcher given as the program: every worker would start workers of its own. */
#ifndef DD_CMD_LAUNCHER_PROGRAM_H
#define DD_CMD_LAUNCHER_PROGRAM_H

#include <stdbool.h>

/* Return the number of words at the beginning of the program that call another launcher: 2 for
 * "accelerate launch"; 0 if it is none. module: the first word is the name of a Python module. */
int launcher_program_words(char *const *program, bool module);

#endif
