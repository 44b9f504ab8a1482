#include "base/process_name.h"

#include "base/auto.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Find the memory of the command line: fields 48 and 49. The process name (field 2) may contain
 * blanks, so count fields from its closing parenthesis. Src: proc_pid_stat(5). */
static int find_arguments(unsigned long *ret_from, unsigned long *ret_to)
{
    char text[2048];
    DD_AUTO(fd) int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 48; field++)
        at = strchr(at + 1, ' ');
    return at != NULL && sscanf(at, "%lu %lu", ret_from, ret_to) == 2 ? 0 : -1;
}

void dd_process_name(const char *name)
{
    unsigned long from = 0, to = 0;
    (void)prctl(PR_SET_NAME, name);
    if (find_arguments(&from, &to) < 0 || from == 0 || to <= from)
        return;
    char *arguments = (char *)from; /* NOLINT(performance-no-int-to-ptr): from the kernel */
    const size_t room = to - from;
    memset(arguments, 0, room);
    /* The last byte must stay 0: otherwise the kernel reads on beyond the memory. */
    (void)snprintf(arguments, room, "%s", name);
}
