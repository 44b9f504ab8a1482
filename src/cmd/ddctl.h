/* The commands of ddctl: one file each, with the options of the command. argv[0] is the name of the
 * command; each function returns the exit code. */
#ifndef DD_CMD_DDCTL_H
#define DD_CMD_DDCTL_H

#include "base/opt.h"

extern const struct opt_table ddctl_doctor_options;
int ddctl_doctor(int argc, char **argv);

extern const struct opt_table ddctl_env_options;
int ddctl_env(int argc, char **argv);

extern const struct opt_table ddctl_hosts_options;
int ddctl_hosts(int argc, char **argv);

extern const struct opt_table ddctl_jobs_options;
int ddctl_jobs(int argc, char **argv);

extern const struct opt_table ddctl_status_options;
int ddctl_status(int argc, char **argv);

extern const struct opt_table ddctl_blame_options;
int ddctl_blame(int argc, char **argv);
extern const struct opt_table ddctl_drain_options;
int ddctl_drain(int argc, char **argv);

extern const struct opt_table ddctl_events_options;
int ddctl_events(int argc, char **argv);

extern const struct opt_table ddctl_kv_options;
int ddctl_kv(int argc, char **argv);

extern const struct opt_table ddctl_metrics_options;
int ddctl_metrics(int argc, char **argv);

extern const struct opt_table ddctl_timeline_options;
int ddctl_timeline(int argc, char **argv);

extern const struct opt_table ddctl_profile_options;
int ddctl_profile(int argc, char **argv);

extern const struct opt_table ddctl_report_options;
int ddctl_report(int argc, char **argv);

extern const struct opt_table ddctl_signal_options;
int ddctl_signal(int argc, char **argv);

extern const struct opt_table ddctl_stacks_options;
int ddctl_stacks(int argc, char **argv);

extern const struct opt_table ddctl_submit_options;
int ddctl_submit(int argc, char **argv);

extern const struct opt_table ddctl_top_options;
int ddctl_top(int argc, char **argv);

extern const struct opt_table ddctl_web_options;
int ddctl_web(int argc, char **argv);

#endif
