/* The status line of a terminal while the job waits for nodes, at the start and at restarts. */
#ifndef DD_AGENT_STATUS_LINE_H
#define DD_AGENT_STATUS_LINE_H

#include "rdzv/msg.h"

struct agent_loop;
struct status_line;
struct uplink;

/* *ret is NULL where no line is shown: without a terminal, with --log-level=error or warning, and
 * with --output=raw, since workers that inherit the terminal erase no line. loop and uplink are
 * borrowed. The functions below accept NULL. */
int status_line_new(struct status_line **ret, const struct agent_loop *loop, struct uplink *uplink);
void status_line_answer(struct status_line *l, const struct msg_ctl_reply *m);
void status_line_link_changed(struct status_line *l);
/* Show what the started workers of this node wait for; "": they no longer wait. */
void status_line_progress(struct status_line *l, const char *text);
void status_line_hide(struct status_line *l); /* hide the line until the agent waits again */
void status_line_free(struct status_line *l);

#endif
