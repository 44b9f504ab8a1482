#include "worker/writer.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/output_dirs.h"
#include "worker/spawn.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024, CONTROL_FD = 3, END_WAIT_MS = 300, ASK_WAIT_MS = 1000, SLICE_MS = 100 };

enum kind {
    OPENED, /* a direct file is open; with the descriptor */
    READY,  /* all files are open */
    SIZE,   /* size of a direct file */
    FAILED, /* a file cannot be opened or written; with a message */
    TAKE,   /* to the child: a socket for a file */
    ASK,    /* to the child: request for the sizes */
};

struct note {
    enum kind kind;
    int file;
    int error;
    uint64_t size;
    char text[sizeof(((struct dd_err *)NULL)->text)];
};

struct writer {
    const struct dd_log *log;
    void (*on_end)(void *arg);
    void *arg;
    pid_t pid;
    int control;
    struct event *on_note;
    int n;
    int *direct;     /* descriptors of direct files; -1: not open, or passed on */
    uint64_t *sizes; /* last known sizes of direct files, in bytes */
    bool ready, asked, ended;
    struct dd_err failed; /* error of the child before it was ready */
};

DD_AUTO_DEFINE(writer, struct writer *, writer_free);

/* ---- both processes ---- */

/* Send one note, with a descriptor unless it is -1. Return 0 or -errno. */
static int note_send(int fd, const struct note *note, int pass)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    struct note copy = *note; /* iov_base is not const */
    struct iovec iov = {.iov_base = &copy, .iov_len = sizeof(copy)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (pass >= 0) {
        m.msg_control = control.room;
        m.msg_controllen = sizeof(control.room);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &pass, sizeof(pass));
    }
    ssize_t n;
    do
        n = sendmsg(fd, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

/* Return 1: received a note, with a descriptor or -1; 0: the other process has closed the socket;
 * or -errno. */
static int note_recv(int fd, struct note *note, int *ret_pass)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    struct iovec iov = {.iov_base = note, .iov_len = sizeof(*note)};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = sizeof(control.room)};
    *ret_pass = -1;
    ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    if (n < 0)
        return -errno;
    struct cmsghdr *c = n == 0 ? NULL : CMSG_FIRSTHDR(&m);
    if (c != NULL && c->cmsg_type == SCM_RIGHTS)
        memcpy(ret_pass, CMSG_DATA(c), sizeof(*ret_pass));
    return n == 0 ? 0 : 1;
}

/* ---- child ---- */

struct child {
    const struct writer_spec *spec;
    int *files;         /* descriptors of the files; -1: this number is unused */
    struct pollfd *fds; /* the sockets, then the control socket */
    int open;           /* number of open entries of fds */
};

static void tell_failed(const struct dd_err *err)
{
    struct note note = {.kind = FAILED, .error = err->rc};
    memcpy(note.text, err->text, sizeof(note.text));
    (void)note_send(CONTROL_FD, &note, -1);
}

static void close_socket(struct child *c, int i)
{
    (void)close(c->fds[i].fd);
    c->fds[i].fd = -1;
    c->open--;
}

static void take_note(struct child *c)
{
    struct note note;
    struct stat st;
    int fd;
    int n = c->spec->n;
    if (note_recv(CONTROL_FD, &note, &fd) <= 0) {
        close_socket(c, n);
        return;
    }
    if (note.kind == TAKE && fd >= 0 && note.file >= 0 && note.file < n &&
        c->fds[note.file].fd < 0) {
        c->fds[note.file].fd = fd;
        c->open++;
        return;
    }
    for (int i = 0; i < n && note.kind == ASK; i++)
        if (c->spec->files[i].direct && fstat(c->files[i], &st) == 0)
            (void)note_send(CONTROL_FD,
                            &(struct note){.kind = SIZE, .file = i, .size = (uint64_t)st.st_size},
                            -1);
    if (note.kind == ASK)
        (void)note_send(CONTROL_FD, &(struct note){.kind = SIZE, .file = -1}, -1);
}

static void copy_some(struct child *c, int i)
{
    static char chunk[CHUNK];
    struct dd_err err = {0};
    ssize_t n = read(c->fds[i].fd, chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR)
        return;
    int rc = n > 0 ? dd_write_full(c->files[i], chunk, (size_t)n) : 0;
    if (rc < 0) {
        errno = -rc;
        (void)dd_err_set(&err, rc, "cannot write '%.400s': %m; further output to it is dropped",
                         c->spec->files[i].path);
        tell_failed(&err);
    }
    if (n <= 0 || rc < 0)
        close_socket(c, i);
}

static int open_one(struct child *c, int i, struct dd_err *err)
{
    const struct writer_file *f = &c->spec->files[i];
    c->files[i] = -1;
    if (f->path == NULL)
        return 0;
    int fd = c->files[i] = output_open(f->path, err);
    return fd < 0 || !f->direct
               ? fd
               : note_send(CONTROL_FD, &(struct note){.kind = OPENED, .file = i}, fd);
}

static int open_all(struct child *c, struct dd_err *err)
{
    int rc = c->spec->prepare == NULL ? 0 : c->spec->prepare(c->spec->arg, err);
    for (int i = 0; i < c->spec->n && rc >= 0; i++)
        rc = open_one(c, i, err);
    return rc < 0 ? rc : note_send(CONTROL_FD, &(struct note){.kind = READY}, -1);
}

/* All signals stay blocked: the child must write its input to the end while the job is being
 * stopped. */
static _Noreturn void child_run(const struct writer_spec *spec, int control)
{
    struct dd_err err = {0};
    struct child c = {.spec = spec, .open = 1};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)prctl(PR_SET_NAME, "ddrun-writer");
    (void)setsid();
    for (int fd = 0; fd < 3; fd++) /* the reader of ddrun's output must not wait for this process */
        (void)dup2(null, fd);
    if (control != CONTROL_FD && dup2(control, CONTROL_FD) < 0)
        _exit(1);
    spawn_close_from(CONTROL_FD + 1);
    c.files = calloc((size_t)spec->n + 1, sizeof(*c.files));
    c.fds = calloc((size_t)spec->n + 1, sizeof(*c.fds));
    if (c.files == NULL || c.fds == NULL)
        _exit(1);
    for (int i = 0; i <= spec->n; i++)
        c.fds[i] = (struct pollfd){.fd = i < spec->n ? -1 : CONTROL_FD, .events = POLLIN};
    if (open_all(&c, &err) < 0) {
        tell_failed(&err);
        _exit(1);
    }
    while (c.open > 0) {
        if (poll(c.fds, (nfds_t)spec->n + 1, -1) < 0 && errno != EINTR)
            break;
        for (int i = 0; i < spec->n; i++)
            if (c.fds[i].fd >= 0 && c.fds[i].revents != 0)
                copy_some(&c, i);
        if (c.fds[spec->n].fd >= 0 && c.fds[spec->n].revents != 0)
            take_note(&c);
    }
    _exit(0);
}

/* ---- agent ---- */

/* Return 1: handled a note; 0: there is none; -1: the child has exited. */
static int take(struct writer *w)
{
    struct note note;
    int fd;
    int rc = note_recv(w->control, &note, &fd);
    if (rc == -EAGAIN || rc == -EINTR)
        return 0;
    if (rc <= 0)
        return -1;
    bool known = note.file >= 0 && note.file < w->n;
    if (note.kind == OPENED && known && w->direct[note.file] < 0)
        w->direct[note.file] = fd;
    else if (fd >= 0)
        (void)close(fd);
    w->ready |= note.kind == READY;
    if (note.kind == SIZE && known)
        w->sizes[note.file] = note.size;
    else if (note.kind == SIZE)
        w->asked = false;
    if (note.kind != FAILED)
        return 1;
    note.text[sizeof(note.text) - 1] = '\0';
    if (w->on_note == NULL) /* called from writer_new() */
        (void)dd_err_set(&w->failed, note.error, "%s", note.text);
    else
        dd_log(w->log, DD_LOG_WARN, "%s", note.text);
    return 1;
}

static void on_note(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct writer *w = arg;
    int rc;
    while ((rc = take(w)) > 0)
        ;
    if (rc == 0)
        return;
    event_del(w->on_note);
    w->ended = true;
    if (w->on_end != NULL)
        w->on_end(w->arg);
}

/* The child has exited before it was ready. Set its error message, or else its exit status. */
static int explain_exit(struct writer *w, struct dd_err *err)
{
    int status = 0;
    if (w->failed.rc < 0)
        return dd_err_set(err, w->failed.rc, "%s", w->failed.text);
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
        ;
    w->pid = 0;
    return dd_err_set(err, -ECHILD,
                      "the log writer process %s %d before it had opened the log files",
                      WIFSIGNALED(status) ? "was killed by signal" : "exited with status",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* The time limit is a number of slices in which poll() finds nothing: a stall of the whole machine
 * uses up at most one slice, and leaves the others to the child. */
static int wait_ready(struct writer *w, unsigned limit_ms, struct dd_err *err)
{
    struct pollfd p = {.fd = w->control, .events = POLLIN};
    for (unsigned waited = 0; !w->ready && waited < limit_ms;) {
        int ready = poll(&p, 1, SLICE_MS);
        if (ready < 0 && errno != EINTR)
            return dd_err_set(err, -errno, "cannot wait for the log writer process: %m");
        waited += ready == 0 ? SLICE_MS : 0;
        if (ready <= 0)
            continue;
        if (take(w) < 0)
            return explain_exit(w, err);
    }
    if (!w->ready)
        dd_log(w->log, DD_LOG_WARN,
               "the file system of the logs does not respond; the workers' output is delayed");
    return 0;
}

static int start(struct writer *w, const struct writer_spec *spec, struct dd_err *err)
{
    int fds[2];
    struct spawn_mask mask;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return dd_err_set(err, -errno, "cannot create a socket pair: %m");
    w->control = fds[0];
    DD_AUTO(fd) int theirs = fds[1];
    spawn_begin(&mask);
    w->pid = fork();
    if (w->pid == 0)
        child_run(spec, theirs);
    spawn_end(&mask);
    if (w->pid < 0)
        return dd_err_set(err, -errno, "cannot start the log writer process: %m");
    return dd_fd_nonblock(w->control);
}

int writer_new(struct writer **ret, struct event_base *base, const struct writer_spec *spec,
               struct dd_err *err)
{
    DD_AUTO(writer) struct writer *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *w = (struct writer){
        .log = spec->log, .on_end = spec->on_end, .arg = spec->arg, .control = -1, .n = spec->n};
    w->direct = calloc((size_t)spec->n + 1, sizeof(*w->direct));
    w->sizes = calloc((size_t)spec->n + 1, sizeof(*w->sizes));
    if (w->direct == NULL || w->sizes == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; i <= spec->n; i++)
        w->direct[i] = -1;
    int rc = start(w, spec, err);
    if (rc == 0)
        rc = wait_ready(w, spec->limit_ms, err);
    if (rc < 0)
        return rc;
    w->on_note = event_new(base, w->control, EV_READ | EV_PERSIST, on_note, w);
    if (w->on_note == NULL || event_add(w->on_note, NULL) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *ret = DD_TAKE(w);
    return 0;
}

int writer_direct(struct writer *w, int file)
{
    int fd = w->direct[file];
    w->direct[file] = -1;
    return fd;
}

int writer_socket(struct writer *w, int file, struct dd_err *err)
{
    int fds[2];
    struct pollfd p = {.fd = w->control, .events = POLLOUT};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return dd_err_set(err, -errno, "cannot create a socket pair: %m");
    DD_AUTO(fd) int ours = fds[0];
    DD_AUTO(fd) int theirs = fds[1];
    const struct note note = {.kind = TAKE, .file = file};
    int rc = note_send(w->control, &note, theirs);
    if (rc == -EAGAIN && poll(&p, 1, ASK_WAIT_MS) > 0)
        rc = note_send(w->control, &note, theirs);
    errno = -rc;
    return rc < 0 ? dd_err_set(err, rc, "cannot reach the log writer process: %m")
                  : DD_TAKE_FD(ours);
}

uint64_t writer_size(struct writer *w, int file)
{
    if (!w->asked && !w->ended)
        w->asked = note_send(w->control, &(struct note){.kind = ASK}, -1) == 0;
    return w->sizes[file];
}

void writer_finish(struct writer *w)
{
    if (w->ended)
        event_active(w->on_note, EV_READ, 0);
    else
        (void)shutdown(w->control, SHUT_WR);
}

/* If the child is stuck in the kernel on a failed file server, leave it to the guardian. */
static void end_child(struct writer *w)
{
    uint64_t end = dd_now_ns() + END_WAIT_MS * DD_NS_PER_MS;
    struct pollfd p = {.fd = w->control, .events = POLLIN};
    (void)shutdown(w->control, SHUT_WR);
    int rc = w->ended ? -1 : 0;
    while (rc >= 0 && dd_now_ns() < end)
        if (poll(&p, 1, END_WAIT_MS) > 0)
            rc = take(w);
    if (rc >= 0)
        (void)kill(w->pid, SIGKILL);
    (void)waitpid(w->pid, NULL, rc >= 0 ? WNOHANG : 0);
}

void writer_free(struct writer *w)
{
    if (w == NULL)
        return;
    if (w->pid > 0)
        end_child(w);
    if (w->on_note != NULL)
        event_free(w->on_note);
    if (w->control >= 0)
        (void)close(w->control);
    for (int i = 0; w->direct != NULL && i < w->n; i++)
        if (w->direct[i] >= 0)
            (void)close(w->direct[i]);
    free(w->direct);
    free(w->sizes);
    free(w);
}
