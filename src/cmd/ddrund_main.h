/* The main function of ddrund, which the leader's agent calls in a child, too. */
#ifndef DD_CMD_DDRUND_MAIN_H
#define DD_CMD_DDRUND_MAIN_H

/* Run a standing store, or the daemon of one job with --job-fd=N. Return the exit code. */
int ddrund_main(int argc, char **argv);

#endif
