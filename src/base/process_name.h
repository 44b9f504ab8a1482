/* The name of a process that was forked and runs another program's code. */
#ifndef DD_BASE_PROCESS_NAME_H
#define DD_BASE_PROCESS_NAME_H

/* Name this process in /proc/PID/comm, and in place of its command line in /proc/PID/cmdline: ps,
 * top and pgrep show `name` as if a program of this name had been executed. Overwrites argv, whose
 * strings must not be used afterwards. Without /proc, the command line is left unchanged. */
void dd_process_name(const char *name);

#endif
