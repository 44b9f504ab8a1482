#include "worker/terminal.h"

#include "base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void terminal_save(struct terminal *t)
{
    t->there = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &t->mode) == 0;
}

/* The pseudo-terminal becomes the controlling terminal of no process: a program that reads keys
 * from it gets an error instead of waiting forever. */
int terminal_pair(int ret[2], int like)
{
    char path[64];
    struct termios mode;
    DD_AUTO(fd) int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 ||
        ptsname_r(master, path, sizeof(path)) != 0)
        return -errno;
    DD_AUTO(fd) int slave = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (slave < 0 || (tcgetattr(like, &mode) < 0 && tcgetattr(slave, &mode) < 0))
        return -errno;
    mode.c_oflag &= ~(tcflag_t)OPOST; /* the console's terminal itself converts \n */
    mode.c_lflag &= ~(tcflag_t)ECHO;
    if (tcsetattr(slave, TCSANOW, &mode) < 0)
        return -errno;
    terminal_copy_size(master, like);
    ret[0] = DD_TAKE_FD(master);
    ret[1] = DD_TAKE_FD(slave);
    return 0;
}

void terminal_copy_size(int to, int from)
{
    struct winsize size;
    if (ioctl(from, TIOCGWINSZ, &size) == 0)
        (void)ioctl(to, TIOCSWINSZ, &size); /* processes with this terminal get SIGWINCH */
}

bool terminal_in_background(void)
{
    pid_t front = isatty(STDIN_FILENO) ? tcgetpgrp(STDIN_FILENO) : -1;
    return front >= 0 &&
           front != getpgrp(); /* -1: not the controlling terminal: reading is allowed */
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
    if (now.c_lflag != t->mode.c_lflag || now.c_iflag != t->mode.c_iflag ||
        now.c_oflag != t->mode.c_oflag || memcmp(now.c_cc, t->mode.c_cc, sizeof(now.c_cc)) != 0)
        set_mode(&t->mode);
}
