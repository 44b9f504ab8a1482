#include "base/sig.h"

#include "base/io.h"
#include "base/num.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <strings.h>

static const struct {
    int sig;
    const char *name;
} signals[] = {
    {SIGHUP, "HUP"},   {SIGINT, "INT"},       {SIGQUIT, "QUIT"}, {SIGILL, "ILL"},
    {SIGTRAP, "TRAP"}, {SIGABRT, "ABRT"},     {SIGBUS, "BUS"},   {SIGFPE, "FPE"},
    {SIGKILL, "KILL"}, {SIGUSR1, "USR1"},     {SIGSEGV, "SEGV"}, {SIGUSR2, "USR2"},
    {SIGPIPE, "PIPE"}, {SIGALRM, "ALRM"},     {SIGTERM, "TERM"}, {SIGSTKFLT, "STKFLT"},
    {SIGCHLD, "CHLD"}, {SIGCONT, "CONT"},     {SIGSTOP, "STOP"}, {SIGTSTP, "TSTP"},
    {SIGTTIN, "TTIN"}, {SIGTTOU, "TTOU"},     {SIGURG, "URG"},   {SIGXCPU, "XCPU"},
    {SIGXFSZ, "XFSZ"}, {SIGVTALRM, "VTALRM"}, {SIGPROF, "PROF"}, {SIGWINCH, "WINCH"},
    {SIGIO, "IO"},     {SIGPWR, "PWR"},       {SIGSYS, "SYS"},
};

/* Names of SIGRTMIN and the signals above it: the number of SIGRTMIN is known at run time only. */
static const char *const realtime[] = {
    "RTMIN",    "RTMIN+1",  "RTMIN+2",  "RTMIN+3",  "RTMIN+4",  "RTMIN+5",  "RTMIN+6",  "RTMIN+7",
    "RTMIN+8",  "RTMIN+9",  "RTMIN+10", "RTMIN+11", "RTMIN+12", "RTMIN+13", "RTMIN+14", "RTMIN+15",
    "RTMIN+16", "RTMIN+17", "RTMIN+18", "RTMIN+19", "RTMIN+20", "RTMIN+21", "RTMIN+22", "RTMIN+23",
    "RTMIN+24", "RTMIN+25", "RTMIN+26", "RTMIN+27", "RTMIN+28", "RTMIN+29", "RTMIN+30",
};

enum {
    SIGNALS = sizeof(signals) / sizeof(signals[0]),
    REALTIME = sizeof(realtime) / sizeof(realtime[0])
};

const char *dd_signal_name(int sig)
{
    if (sig >= SIGRTMIN && sig < SIGRTMIN + REALTIME)
        return realtime[sig - SIGRTMIN];
    for (size_t i = 0; i < SIGNALS; i++)
        if (signals[i].sig == sig)
            return signals[i].name;
    return "?";
}

int dd_signal_parse(const char *name)
{
    int sig;
    if (dd_num_int(name, 1, 64, &sig) == 0)
        return sig;
    if (strncasecmp(name, "SIG", 3) == 0)
        name += 3;
    for (size_t i = 0; i < SIGNALS; i++)
        if (strcasecmp(signals[i].name, name) == 0)
            return signals[i].sig;
    for (int i = 0; i < REALTIME; i++)
        if (strcasecmp(realtime[i], name) == 0)
            return SIGRTMIN + i;
    return -EINVAL;
}

static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
static const int announces[] = {SIGUSR1, SIGUSR2};

enum {
    ENDS = sizeof(ends) / sizeof(ends[0]),
    ANNOUNCES = sizeof(announces) / sizeof(announces[0])
};

void dd_signals_of_jobs(sigset_t *ret)
{
    sigemptyset(ret);
    for (size_t i = 0; i < ENDS; i++)
        sigaddset(ret, ends[i]);
    for (size_t i = 0; i < ANNOUNCES; i++)
        sigaddset(ret, announces[i]);
}

bool dd_signal_ends_jobs(int sig)
{
    for (size_t i = 0; i < ENDS; i++)
        if (ends[i] == sig)
            return true;
    return false;
}

bool dd_signal_announces(int sig)
{
    for (size_t i = 0; i < ANNOUNCES; i++)
        if (announces[i] == sig)
            return true;
    return false;
}

bool dd_signal_is_copy(int sig, uint64_t *taken, uint64_t *heard, uint64_t now)
{
    const uint64_t since = now - *taken;
    const uint64_t soon = dd_signal_announces(sig) ? DD_SIGNAL_NOTICES_MS : DD_SIGNAL_COPIES_MS;
    const bool copy = *taken != 0 && (since < DD_SIGNAL_SAME_MS * DD_NS_PER_MS ||
                                      (since < soon * DD_NS_PER_MS && *heard < *taken));
    *heard = now;
    if (!copy)
        *taken = now;
    return copy;
}
