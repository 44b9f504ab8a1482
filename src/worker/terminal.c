#include "worker/terminal.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

void terminal_save(struct terminal *t)
{
    t->there = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &t->mode) == 0;
}

bool terminal_in_background(void)
{
    pid_t front = isatty(STDIN_FILENO) ? tcgetpgrp(STDIN_FILENO) : -1;
    return front >= 0 && front != getpgrp(); /* -1: not our controlling terminal, nobody minds */
}

static void set_mode(const struct termios *mode)
{
    sigset_t ttou;
    sigset_t old;
    sigemptyset(&ttou);
    sigaddset(&ttou, SIGTTOU);
    (void)sigprocmask(SIG_BLOCK, &ttou, &old);
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, mode);
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
}

void terminal_raw(const struct terminal *t, bool whole)
{
    if (!t->there || terminal_in_background())
        return;
    struct termios raw = t->mode;
    cfmakeraw(&raw);
    if (!whole)
        raw.c_oflag |= t->mode.c_oflag & OPOST;
    set_mode(&raw);
}

void terminal_restore(const struct terminal *t)
{
    struct termios now;
    if (!t->there || terminal_in_background() || tcgetattr(STDIN_FILENO, &now) < 0)
        return;
    if (now.c_lflag != t->mode.c_lflag || now.c_iflag != t->mode.c_iflag || now.c_oflag != t->mode.c_oflag ||
        memcmp(now.c_cc, t->mode.c_cc, sizeof(now.c_cc)) != 0)
        set_mode(&t->mode);
}
