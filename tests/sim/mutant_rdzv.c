/* The daemon's round machine with one wrong cell (mutant.h): the same source, its table not
 * constant. */
#include "mutant.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define const
#include "rdzv/machine.c"
#undef const

__attribute__((constructor)) static void mutate(void)
{
    struct mutation m = mutation_begin("daemon");
    for (enum rdzv_state s = 0; s < RDZV_STATE_MAX; s++)
        for (enum rdzv_event_kind e = 0; e < RDZV_EVENT_MAX; e++) {
            rdzv_handler *const was = edge[s][e];
            if (was != NULL &&
                mutation_is(&m, "daemon", rdzv_state_name(s), rdzv_event_name(e), "remove"))
                edge[s][e] = NULL;
            if (was != NULL && was != ignore &&
                mutation_is(&m, "daemon", rdzv_state_name(s), rdzv_event_name(e), "ignore"))
                edge[s][e] = ignore;
        }
    mutation_end(&m);
}
