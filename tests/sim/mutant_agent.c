/* The agent's state machine with one wrong cell (mutant.h): the same source, its table not
 * constant. */
#include "mutant.h"

#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define const
#include "agent/agent_machine.c"
#undef const

static const char *row_name(int row)
{
    static const char *const shared[ROWS - AM_STATES] = {
        [ROW_ANY - AM_STATES] = "any",
        [ROW_FREE - AM_STATES] = "free",
        [ROW_LINKED - AM_STATES] = "linked",
        [ROW_BUSY - AM_STATES] = "busy",
    };
    return row < AM_STATES ? agent_machine_state_name((enum am_state)row) : shared[row - AM_STATES];
}

static void mutate_cell(struct mutation *m, int row, enum am_event_kind e)
{
    struct edge *cell = &edges[row][e];
    const char *event = agent_machine_event_name(e);
    const struct edge was = *cell;
    if (was.act == NULL)
        return;
    if (mutation_is(m, "agent", row_name(row), event, "remove"))
        cell->act = NULL;
    if (was.act != edge_go && mutation_is(m, "agent", row_name(row), event, "silence"))
        cell->act = edge_go;
    if (was.next != SAME && mutation_is(m, "agent", row_name(row), event, "stay"))
        cell->next = SAME;
    if (was.next == SAME && row != AM_LEAVING &&
        mutation_is(m, "agent", row_name(row), event, "leave"))
        cell->next = AM_LEAVING;
}

__attribute__((constructor)) static void mutate(void)
{
    struct mutation m = mutation_begin("agent");
    for (int row = 0; row < ROWS; row++)
        for (enum am_event_kind e = 0; e < AM_EVENTS; e++)
            mutate_cell(&m, row, e);
    mutation_end(&m);
}
