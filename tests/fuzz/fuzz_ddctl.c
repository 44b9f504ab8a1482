/* ddctl: any answers of an agent to each of its commands, which print what they decode.
 *
 * The first byte chooses the command. With 0x80 the rest is sent as it is, whether it consists of
 * frames or not; otherwise it is the text of the answer, in pieces of the length in the second
 * byte. */
#include "base/cursor.h"
#include "base/log.h"
#include "cmd/ddctl.h"
#include "net/frame.h"
#include "net/local_socket.h"
#include "net/link.h"
#include "rdzv/msg.h"

#include <event2/event.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_local_socket_connect(int **ret_fds, size_t *ret_n, size_t *ret_busy);
int __wrap_dd_write_full(int fd, const void *p, size_t n);
int __wrap_link_send(struct link *l, uint16_t type, const void *data, size_t n);
void __wrap_dd_log(const struct dd_log *log, enum dd_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

enum { RAW = 0x80 };

static struct dd_rd input;
static int agent_fd = -1;
static unsigned how;

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void put(struct dd_buf *out, const struct msg *m)
{
    DD_AUTO(free) char *text = NULL;
    must(msg_encode(&text, m) == 0);
    must(frame_encode(out, FRAME_CONTROL, text, strlen(text)) == 0);
}

static void put_answer(struct dd_buf *out, struct dd_rd *r)
{
    const size_t most = (dd_rd_u8(r) | 0x1fU) + 1;
    do {
        const size_t n = dd_rd_left(r) < most ? dd_rd_left(r) : most;
        const unsigned char *p = dd_rd_bytes(r, n);
        char piece[257] = "";
        if (n > 0)
            memcpy(piece, p, n);
        put(out, MSG(CTL_REPLY, .id = 1, .ok = 1, .ends = dd_rd_left(r) == 0, .detail = piece));
    } while (dd_rd_left(r) > 0);
}

static void leave(void)
{
    if (agent_fd >= 0)
        close(DD_TAKE_FD(agent_fd));
}

int __wrap_local_socket_connect(int **ret_fds, size_t *ret_n, size_t *ret_busy)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4096);
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    agent_fd = pair[1];
    put(&out, MSG(IDENTITY, .name = "node1", .text = "job.1"));
    must(send(agent_fd, out.data, out.len, MSG_NOSIGNAL) == (ssize_t)out.len);
    *ret_fds = malloc(sizeof(**ret_fds));
    must(*ret_fds != NULL);
    **ret_fds = pair[0];
    *ret_n = 1;
    *ret_busy = 0;
    return 0;
}

/* Receive the request as the agent: answer and close. */
int __wrap_link_send(struct link *l, uint16_t type, const void *data, size_t n)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    must(l != NULL && type == FRAME_CONTROL && data != NULL && n > 0);
    if ((how & RAW) != 0)
        (void)dd_buf_append(&out, input.p, dd_rd_left(&input));
    else
        put_answer(&out, &input);
    if (agent_fd >= 0)
        (void)send(agent_fd, out.data, out.len, MSG_NOSIGNAL);
    leave();
    return 0;
}

/* Discard the output, but read every byte of it. */
int __wrap_dd_write_full(int fd, const void *p, size_t n)
{
    unsigned char sum = 0;
    for (size_t i = 0; i < n; i++)
        sum |= ((const unsigned char *)p)[i];
    must((fd == STDOUT_FILENO || fd == STDERR_FILENO) && (n == 0 || sum != 0));
    return 0;
}

void __wrap_dd_log(const struct dd_log *log, enum dd_log_level level, const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    (void)log;
    (void)level;
    va_start(ap, fmt);
    must(vsnprintf(text, sizeof(text), fmt, ap) > 0);
    va_end(ap);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct {
        int (*run)(int argc, char **argv);
        const char *argv[4];
    } commands[] = {
        {ddctl_status, {"status"}},         {ddctl_status, {"status", "--format=json"}},
        {ddctl_events, {"events"}},         {ddctl_events, {"events", "--format=json"}},
        {ddctl_events, {"events", "-f"}},   {ddctl_kv, {"kv", "list"}},
        {ddctl_kv, {"kv", "get", "a/b"}},   {ddctl_drain, {"drain", "node1"}},
        {ddctl_signal, {"signal", "USR1"}}, {ddctl_kv, {"kv", "list", "a"}},
        {ddctl_metrics, {"metrics"}},       {ddctl_profile, {"profile"}},
        {ddctl_blame, {"blame"}},
    };
    (void)signal(SIGPIPE, SIG_IGN);
    input = dd_rd_of(data, size);
    how = dd_rd_u8(&input);
    const size_t i = (how & ~(unsigned)RAW) % (sizeof(commands) / sizeof(commands[0]));
    char *argv[5] = {NULL};
    int argc = 0;
    while (commands[i].argv[argc] != NULL && argc < 4) {
        argv[argc] = (char *)(uintptr_t)commands[i].argv[argc];
        argc++;
    }
    const int code = commands[i].run(argc, argv);
    must(code >= 0 && code <= 2);
    leave();
    return 0;
}
