/* Table of options of other launchers: torch.distributed.launch, mpirun, srun, deepspeed,
 * accelerate, horovodrun. */
#ifndef DD_CMD_FOREIGN_H
#define DD_CMD_FOREIGN_H

#include "base/opt.h"

/* Rows for opt_table.foreign. */
extern const struct opt_foreign foreign_options[];

#endif
