#include "net/resolve_child_inner.h"

#include "base/auto.h"
#include "base/io.h"
#include "net/resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static void write_piece(int fd, const struct resolve_piece *p)
{
    (void)dd_write_full(fd, p, sizeof(*p));
}

/* Return the number of non-loopback addresses from the system's resolver; -1: no address at all. */
static int resolve_child_look_up(int fd, const char *name, char *why, size_t size)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int useful = 0;
    int n = 0;
    int rc = getaddrinfo(name, NULL, &hints, &list);
    if (rc != 0) {
        (void)snprintf(why, size, "%s", rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
        return -1;
    }
    for (const struct addrinfo *a = list; a != NULL && n < NET_RESOLVE_MAX; a = a->ai_next) {
        struct resolve_piece p = {.addr = {.len = 0}};
        if (net_addr_from_sockaddr(&p.addr, a->ai_addr, a->ai_addrlen) < 0)
            continue;
        n++;
        useful += !net_addr_is_loopback(&p.addr);
        write_piece(fd, &p);
    }
    freeaddrinfo(list);
    return useful;
}

static void exec_scontrol(int out, const char *name)
{
    char own[256];
    (void)snprintf(own, sizeof(own), "%s", name);
    char scontrol[] = "scontrol";
    char show[] = "show";
    char node[] = "node";
    char oneline[] = "-o";
    char *const argv[] = {scontrol, show, node, oneline, own, NULL};
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(null, 2) < 0)
        _exit(127);
    (void)execvp(argv[0], argv);
    _exit(127);
}

/* Read the output of `scontrol show node -o NAME`, NUL-terminated; return its length or -errno. */
static long run_scontrol(const char *name, char *out, size_t size)
{
    int pipes[2];
    size_t len = 0;
    int status;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0)
        exec_scontrol(pipes[1], name);
    (void)close(pipes[1]);
    for (ssize_t n = 1; pid > 0 && n != 0 && len < size - 1;) {
        n = read(pipes[0], out + len, size - 1 - len);
        if (n < 0 && errno != EINTR)
            break;
        len += n > 0 ? (size_t)n : 0;
    }
    (void)close(pipes[0]);
    out[len] = '\0';
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -ECHILD;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? (long)len : -ENOENT;
}

/* Src: scontrol(1): "NodeName=n1 ... NodeAddr=10.0.0.1 NodeHostName=n1 ..." on one line. */
bool net_resolve_node_addr(const char *text, char *out, size_t size)
{
    static const char field[] = " NodeAddr=";
    const char *at = strstr(text, field);
    if (at == NULL)
        return false;
    at += sizeof(field) - 1;
    size_t len = strcspn(at, " \t\n");
    if (len == 0 || len >= size)
        return false;
    memcpy(out, at, len);
    out[len] = '\0';
    return true;
}

/* Write "node3" for "node3.site.org" to out; false if the name has no domain or is an address. */
static bool short_name(const char *name, char *out, size_t size)
{
    struct net_addr numeric;
    size_t len = strcspn(name, ".");
    if (name[len] == '\0' || len == 0 || len >= size || net_addr_parse(&numeric, name, 0) == 0)
        return false;
    memcpy(out, name, len);
    out[len] = '\0';
    return true;
}

/* Retry with the short name: node files may contain full names where the resolver has only short
 * ones (PALS appends the suffix of a network). */
static int look_up_any_form(int fd, const char *name, char *why, size_t size)
{
    char stem[256];
    char again[160];
    int n = resolve_child_look_up(fd, name, why, size);
    if (n < 0 && short_name(name, stem, sizeof(stem)))
        n = resolve_child_look_up(fd, stem, again, sizeof(again));
    return n;
}

void net_resolve_child(int fd, const char *name, enum net_resolve_slurm slurm)
{
    struct resolve_piece sorry = {.addr = {.len = 0}};
    char text[16384];
    char addr[256];
    char again[160];
    int n = look_up_any_form(fd, name, sorry.why, sizeof(sorry.why));
    bool ask = slurm == NET_RESOLVE_SLURM_TOO || (slurm == NET_RESOLVE_SLURM_ELSE && n <= 0);
    if (ask && run_scontrol(name, text, sizeof(text)) > 0 &&
        net_resolve_node_addr(text, addr, sizeof(addr)) && strcmp(addr, name) != 0) {
        if (resolve_child_look_up(fd, addr, again, sizeof(again)) >= 0)
            return;
        (void)snprintf(sorry.why, sizeof(sorry.why), "Slurm reports NodeAddr=%.80s: %.100s", addr,
                       again);
    }
    if (n < 0)
        write_piece(fd, &sorry);
}
