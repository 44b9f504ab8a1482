/* The memory that a worker shares with the agent of its node, for the times of its steps. */
#ifndef DD_LIB_STEP_FILE_H
#define DD_LIB_STEP_FILE_H

#include "base/step_page.h"

/* Map the memory that DDRUN_STEPS names. NULL: the variable is not set or invalid, or the memory
 * cannot be opened, as in a container with process numbers of its own. */
struct step_page *step_file_open(void);
void step_file_close(struct step_page *p); /* NULL is fine */

#endif
