/* Compares the variables of the job with those of the profile of its fabric, for ddctl doctor. */
#ifndef DD_CMD_DDCTL_DOCTOR_FABRIC_H
#define DD_CMD_DDCTL_DOCTOR_FABRIC_H

#include <jansson.h>

/* Read the profile of each fabric that these nodes have from DIRECTORY (NULL: the installed ones),
 * and compare it with this process's environment and the variables of ddrun.toml files. Return
 * hints for doctor_judge(), without fabrics whose profile cannot be read. NULL: out of memory. */
json_t *doctor_fabric_advice(const json_t *looks, const char *directory);

#endif
