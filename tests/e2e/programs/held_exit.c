/* A library that holds a process after its Python has ended: exit() creates the file HELD, then
 * waits for a signal. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static void hold(void)
{
    const char *held = getenv("HELD");
    if (held != NULL && creat(held, 0600) >= 0)
        for (;;)
            pause();
}

void hold_exit(void)
{
    (void)atexit(hold);
}
