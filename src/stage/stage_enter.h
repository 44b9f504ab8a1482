/* A worker that waits for the copy: "ddrun-stage enter FD PROGRAM ARGUMENT…". */
#ifndef DD_STAGE_STAGE_ENTER_H
#define DD_STAGE_STAGE_ENTER_H

/* Wait for a packet of the agent at descriptor fd, enter the namespaces that come with it or point
 * the environment to the copy, and execute argv. Returns the exit code if that fails; the message
 * has been printed. */
int stage_enter(int fd, char **argv);

#endif
