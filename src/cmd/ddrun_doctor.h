/* ddrun --doctor: execute ddctl doctor with the options of ddrun's command line. */
#ifndef DD_CMD_DDRUN_DOCTOR_H
#define DD_CMD_DDRUN_DOCTOR_H

#include "cmd/ddrun_options.h"

/* Replace this process by ddctl. Returns only with an error. */
int doctor_become(const struct ddrun_options *o, struct dd_err *err);

#endif
