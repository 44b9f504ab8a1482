/* ddrun --doctor: ddctl doctor with ddrun's own options. */
#ifndef DD_CMD_DDRUN_DOCTOR_H
#define DD_CMD_DDRUN_DOCTOR_H

#include "cmd/ddrun_options.h"

/* Becomes ddctl. Returns only with an error. */
int doctor_become(const struct ddrun_options *o, struct dd_err *err);

#endif
