/* ddrund: a standing store as a program of its own, or the daemon of one job in a child of the
 * leader's agent. */
#ifndef DD_CMD_DDRUND_MAIN_H
#define DD_CMD_DDRUND_MAIN_H

struct daemon_cfg;

/* Run ddrund as a program, with a standing store; return the exit code. */
int ddrund_main(int argc, char **argv);
/* Serve a job with the configuration of the agent, to which ddrund adds its own options from the
 * environment, and a log with the level of cfg->log. screen_fd: descriptor of the shared memory of
 * that log's screen, which is taken. Return the exit code. */
int ddrund_run_job(struct daemon_cfg *cfg, int screen_fd);

#endif
