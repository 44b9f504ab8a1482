/* A worker that waits for SIGTERM. Appends to the file $STAMP when it began ("begin TIME RANK
 * PID"), when it received SIGUSR1 ("usr1 ...") and when it received SIGTERM ("stop ..."); TIME is
 * CLOCK_MONOTONIC in ns. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int say(const char *what)
{
    struct timespec t;
    char line[128];
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    const char *path = getenv("STAMP");
    const char *rank = getenv("RANK");
    int fd = path != NULL ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    int n = snprintf(line, sizeof(line), "%s %lld %s %d\n", what,
                     t.tv_sec * 1000000000LL + t.tv_nsec, rank != NULL ? rank : "?", (int)getpid());
    return fd < 0 || write(fd, line, (size_t)n) != n;
}

static void on_usr1(int sig)
{
    (void)sig;
    (void)say("usr1"); /* snprintf is safe in this handler: no other code runs */
}

int main(void)
{
    sigset_t set;
    int sig;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGUSR1, on_usr1); /* ddrun signals only workers with a handler */
    if (say("begin") != 0)
        return 1;
    while (sigwaitinfo(&set, NULL) < 0)
        ;
    sig = SIGTERM;
    return say("stop") != 0 ? 1 : 128 + sig;
}
