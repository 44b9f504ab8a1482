#include "base/screen.h"

#include "base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define ERASE "\r\033[K"

enum { COLUMNS_MAX = 512, BUSY_MS = 100 };

enum line_state {
    LINE_HIDDEN,
    LINE_SHOWN,
    LINE_BUSY, /* a process draws or erases */
};

/* Shared state, which survives the death of a process: LINE_SHOWN lasts until another process
 * erases or redraws the line, LINE_BUSY expires after BUSY_MS, and a count of writers that stays
 * above 0 only prevents further status lines. */
struct shared {
    atomic_int line;    /* enum line_state */
    atomic_int writers; /* number of processes between dd_screen_begin() and _end() */
    atomic_int drawer;  /* pid of the process that may draw; 0: none */
};

struct dd_screen {
    int fd; /* reopened, so that O_NONBLOCK is set for this process alone */
    int memory_fd;
    struct shared *shared;
};

static struct dd_screen *screen_make(int fd, int memory_fd)
{
    char path[40];
    struct dd_screen *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    s->memory_fd = memory_fd;
    s->fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    void *at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    s->shared = at == MAP_FAILED ? NULL : at;
    if (s->fd >= 0 && s->shared != NULL)
        return s;
    s->memory_fd = -1; /* the caller keeps memory_fd after a failure */
    dd_screen_free(s);
    return NULL;
}

struct dd_screen *dd_screen_new(int fd)
{
    const char *term = getenv("TERM");
    if (term == NULL || term[0] == '\0' || strcmp(term, "dumb") == 0 || isatty(fd) != 1)
        return NULL;
    DD_AUTO(fd) int memory = memfd_create("ddrun-screen", MFD_CLOEXEC);
    if (memory < 0 || ftruncate(memory, sizeof(struct shared)) < 0)
        return NULL;
    struct dd_screen *s = screen_make(fd, memory);
    if (s != NULL)
        (void)DD_TAKE_FD(memory);
    return s;
}

struct dd_screen *dd_screen_open(int fd, int memory_fd)
{
    DD_AUTO(fd) int memory = memory_fd;
    if (memory < 0)
        return NULL;
    (void)fcntl(memory, F_SETFD, FD_CLOEXEC);
    struct dd_screen *s = screen_make(fd, memory);
    if (s != NULL)
        (void)DD_TAKE_FD(memory);
    return s;
}

int dd_screen_memory(const struct dd_screen *s)
{
    return s != NULL ? s->memory_fd : -1;
}

void dd_screen_free(struct dd_screen *s)
{
    if (s == NULL)
        return;
    if (s->shared != NULL)
        (void)munmap(s->shared, sizeof(*s->shared));
    if (s->memory_fd >= 0)
        close(s->memory_fd);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

static void wait_ms(int ms)
{
    const int saved = errno;
    (void)poll(NULL, 0, ms);
    errno = saved;
}

/* Write a short text; false if the terminal does not accept it now. */
static bool put(const struct dd_screen *s, const char *text, size_t n)
{
    const int saved = errno;
    const ssize_t done = write(s->fd, text, n);
    errno = saved;
    return done > 0;
}

/* Become the process that draws or erases, unless the line has the state `unless`. Return the
 * former state. */
static enum line_state take_line(struct shared *m, enum line_state unless)
{
    for (int waited = 0;; waited++) {
        int was = atomic_load(&m->line);
        if (was == (int)unless)
            return unless;
        /* a process that stays busy was stopped or killed */
        if (was == LINE_BUSY && waited < BUSY_MS)
            wait_ms(1);
        else if (was == LINE_BUSY)
            return LINE_SHOWN;
        else if (atomic_compare_exchange_strong(&m->line, &was, LINE_BUSY))
            return (enum line_state)was;
    }
}

bool dd_screen_begin(struct dd_screen *s)
{
    if (s == NULL)
        return true;
    atomic_fetch_add(&s->shared->writers, 1);
    if (take_line(s->shared, LINE_HIDDEN) != LINE_SHOWN)
        return true;
    const bool erased = put(s, ERASE, strlen(ERASE));
    atomic_store(&s->shared->line, erased ? LINE_HIDDEN : LINE_SHOWN);
    return erased;
}

void dd_screen_end(struct dd_screen *s)
{
    if (s != NULL)
        atomic_fetch_sub(&s->shared->writers, 1);
}

void dd_screen_clear(struct dd_screen *s)
{
    (void)dd_screen_begin(s);
    dd_screen_end(s);
}

bool dd_screen_claim(struct dd_screen *s)
{
    if (s == NULL)
        return false;
    const int self = getpid();
    int drawer = atomic_load(&s->shared->drawer);
    if (drawer == self)
        return true;
    if (drawer != 0 && (kill(drawer, 0) == 0 || errno != ESRCH))
        return false;
    return atomic_compare_exchange_strong(&s->shared->drawer, &drawer, self);
}

bool dd_screen_is_ours(const struct dd_screen *s)
{
    return s != NULL && atomic_load(&s->shared->drawer) == getpid();
}

size_t dd_screen_columns(const struct dd_screen *s)
{
    struct winsize size;
    const bool known = s != NULL && ioctl(s->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return !known ? 80 : size.ws_col < COLUMNS_MAX ? size.ws_col : COLUMNS_MAX;
}

/* begins: the cursor may follow other text without a newline. As many blanks as the terminal has
 * columns then move it to the next line; at the start of a line, they leave it there. */
static void put_line(const struct dd_screen *s, const char *line, bool begins)
{
    char text[2 * COLUMNS_MAX + sizeof(ERASE)];
    const int columns = (int)dd_screen_columns(s);
    const int n = snprintf(text, sizeof(text), "%*s\r%.*s\033[K", begins ? columns : 0, "",
                           columns - 1, line);
    if (n > 0)
        (void)put(s, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

static bool in_background(const struct dd_screen *s)
{
    const pid_t front = tcgetpgrp(s->fd);
    return front > 0 && front != getpgrp();
}

void dd_screen_draw(struct dd_screen *s, const char *line)
{
    if (s == NULL || in_background(s))
        return;
    int was = atomic_load(&s->shared->line);
    if (was == LINE_BUSY || !atomic_compare_exchange_strong(&s->shared->line, &was, LINE_BUSY))
        return;
    const bool free_now = atomic_load(&s->shared->writers) == 0;
    if (free_now)
        put_line(s, line, was == LINE_HIDDEN);
    atomic_store(&s->shared->line, free_now ? LINE_SHOWN : was);
}
