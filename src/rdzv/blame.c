#include "rdzv/blame.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

/* Src: glibc's strerror(), Python 3.11, PyTorch 2.13 with Gloo and NCCL 2.29, Open MPI 4.1 */
static const char *const remote[] = {
    "Connection reset by peer",
    "Connection closed by peer",
    "Broken pipe",
    "BrokenPipeError",
    "ConnectionResetError",
    "ncclRemoteError",
    "remote process exited",
    "remote process exiting prematurely",
    "Watchdog caught collective operation timeout",
    "collective operation timeout",
    "Timed out waiting", /* Gloo: for a send or receive operation */
    "failed to recv, got 0 bytes",
    "DistNetworkError",
    "HorovodInternalError",
    "the job hung: no ", /* all ranks were idle: the first one that ddrun ends is not to blame */
};

bool blame_is_remote(int signal, const char *text)
{
    if (signal == SIGPIPE)
        return true;
    for (size_t i = 0; text != NULL && i < sizeof(remote) / sizeof(remote[0]); i++)
        if (strstr(text, remote[i]) != NULL)
            return true;
    return false;
}
