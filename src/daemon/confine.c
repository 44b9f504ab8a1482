#include "daemon/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

#if defined(__x86_64__) && defined(__LP64__)
#define ARCH AUDIT_ARCH_X86_64
#define RESULT(u) (u)->uc_mcontext.gregs[REG_RAX]
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ARCH AUDIT_ARCH_AARCH64
#define RESULT(u) (u)->uc_mcontext.regs[0]
#endif

void confine_privileges(void)
{
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

#if !defined(ARCH) || defined(SANITIZED)

void confine(const struct dd_log *log, bool connects)
{
    (void)connects;
    confine_privileges();
    dd_log(log, DD_LOG_DEBUG,
           "ddrund runs without a system call filter: not supported by this build");
}

#else

/* System calls that the C libraries of Debian 11 to 13 make for ddrund; newer calls are listed next
 * to those that they replace. */
static const int allowed[] = {
    /* connections */
    __NR_read,
    __NR_write,
    __NR_readv,
    __NR_writev,
    __NR_close,
    __NR_accept,
    __NR_accept4,
    __NR_bind,
    __NR_sendto,
    __NR_recvfrom,
    __NR_sendmsg,
    __NR_recvmsg,
    __NR_shutdown,
    __NR_getsockname,
    __NR_getpeername,
    __NR_getsockopt,
    __NR_setsockopt,
    /* event loop */
    __NR_epoll_create1,
    __NR_epoll_ctl,
    __NR_epoll_pwait,
    __NR_ppoll,
    __NR_pselect6,
    __NR_eventfd2,
    __NR_restart_syscall,
#ifdef __NR_epoll_wait
    __NR_epoll_wait,
    __NR_poll,
    __NR_select,
    __NR_time,
#endif
#ifdef __NR_epoll_pwait2
    __NR_epoll_pwait2,
#endif
    __NR_clock_gettime,
    __NR_clock_getres,
    __NR_clock_nanosleep,
    __NR_nanosleep,
    __NR_gettimeofday,
    /* memory and threads */
    __NR_brk,
    __NR_munmap,
    __NR_mremap,
    __NR_madvise,
    __NR_futex,
    __NR_set_robust_list,
    __NR_sched_yield,
    __NR_sched_getaffinity,
    __NR_membarrier,
#ifdef __NR_rseq
    __NR_rseq,
#endif
    /* signals and exit */
    __NR_rt_sigaction,
    __NR_rt_sigprocmask,
    __NR_rt_sigreturn,
    __NR_sigaltstack,
    __NR_exit,
    __NR_exit_group,
    /* reading files; removing the key file */
    __NR_lseek,
    __NR_fstat,
    __NR_newfstatat,
    __NR_unlinkat,
    __NR_readlinkat,
    __NR_faccessat,
#ifdef __NR_statx
    __NR_statx,
#endif
#ifdef __NR_access /* used by older C libraries, whose if_nametoindex() checks for /proc/net */
    __NR_access,
    __NR_stat,
    __NR_lstat,
#endif
    /* this process and machine */
    __NR_getpid,
    __NR_getppid,
    __NR_gettid,
    __NR_getuid,
    __NR_geteuid,
    __NR_getgid,
    __NR_getegid,
    __NR_getrandom,
    __NR_getrusage,
    __NR_sysinfo,
    __NR_uname,
};

enum {
    ALLOWED = sizeof(allowed) / sizeof(allowed[0]),
    LEAF = 4,
    REPORTED_MAX = 8,
    PROGRAM_MAX = 3 * ALLOWED + 64
};

struct program {
    struct sock_filter code[PROGRAM_MAX];
    unsigned short n;
};

static void confine_add(struct program *p, uint16_t code, uint8_t yes, uint8_t no, uint32_t k)
{
    if (p->n < PROGRAM_MAX)
        p->code[p->n++] = (struct sock_filter){.code = code, .jt = yes, .jf = no, .k = k};
}

static void confine_load(struct program *p, size_t offset)
{
    confine_add(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

static void confine_verdict(struct program *p, uint32_t what)
{
    confine_add(p, BPF_RET | BPF_K, 0, 0, what);
}

static void confine_allow(struct program *p, int call)
{
    confine_add(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)call);
    confine_verdict(p, SECCOMP_RET_ALLOW);
}

static int confine_by_number(const void *a, const void *b)
{
    const int x = *(const int *)a;
    const int y = *(const int *)b;
    return (x > y) - (x < y);
}

_Static_assert(5 * ALLOWED / 4 <= UINT8_MAX, "a jump over half of the calls fits in 8 bits");

/* Allow these calls, in ascending order, and refuse all others. */
static void confine_allow_only(struct program *p, const int *calls, size_t n)
{
    if (n > LEAF) {
        const unsigned short at = p->n;
        confine_add(p, BPF_JMP | BPF_JGE | BPF_K, 0, 0, (uint32_t)calls[n / 2]);
        confine_allow_only(p, calls, n / 2);
        p->code[at].jt = (uint8_t)(p->n - at - 1);
        confine_allow_only(p, calls + n / 2, n - n / 2);
        return;
    }
    for (size_t i = 0; i < n; i++)
        confine_add(p, BPF_JMP | BPF_JEQ | BPF_K, (uint8_t)(n - i), 0, (uint32_t)calls[i]);
    confine_verdict(p, SECCOMP_RET_TRAP);
    confine_verdict(p, SECCOMP_RET_ALLOW);
}

/* Return the offset of the lower half of argument i: the arguments that the filter checks are ints,
 * and both processors are little-endian. */
static size_t confine_argument(int i)
{
    return offsetof(struct seccomp_data, args) + (size_t)i * sizeof(uint64_t);
}

/* Allow the call if its argument i has none of these bits set. */
static void confine_allow_without(struct program *p, int call, int i, uint32_t bits)
{
    confine_add(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, (uint32_t)call);
    confine_load(p, confine_argument(i));
    confine_add(p, BPF_JMP | BPF_JSET | BPF_K, 1, 0, bits);
    confine_verdict(p, SECCOMP_RET_ALLOW);
    confine_verdict(p, SECCOMP_RET_TRAP);
}

/* Allow the call if its argument i equals one of these values. */
static void confine_allow_of(struct program *p, int call, int i, const uint32_t *values, uint8_t n)
{
    confine_add(p, BPF_JMP | BPF_JEQ | BPF_K, 0, (uint8_t)(n + 3), (uint32_t)call);
    confine_load(p, confine_argument(i));
    for (uint8_t k = 0; k < n; k++)
        confine_add(p, BPF_JMP | BPF_JEQ | BPF_K, (uint8_t)(n - k), 0, values[k]);
    confine_verdict(p, SECCOMP_RET_TRAP);
    confine_verdict(p, SECCOMP_RET_ALLOW);
}

/* Write the program as a search tree: since Linux 5.11, the kernel evaluates a new filter once for
 * each call number, which takes too long for a list. */
static void confine_write_program(struct program *p, bool connects)
{
    int calls[ALLOWED];
    /* for owners of sockets; for munged and names of interfaces */
    static const uint32_t families[] = {AF_NETLINK, AF_UNIX};
    static const uint32_t requests[] = {FIONREAD, TCGETS, SIOCGIFINDEX, SIOCGIFNAME};
    /* not F_SETOWN, which lets a descriptor signal any process of the user */
    static const uint32_t commands[] = {F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC};
    static const uint32_t caller = 0;
    const uint32_t self = (uint32_t)getpid();
    memcpy(calls, allowed, sizeof(calls));
    qsort(calls, ALLOWED, sizeof(calls[0]), confine_by_number);
    confine_load(p, offsetof(struct seccomp_data, arch));
    confine_add(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCH);
    confine_verdict(p, SECCOMP_RET_KILL_PROCESS); /* system call numbers of another architecture */
    confine_load(p, offsetof(struct seccomp_data, nr));
    confine_allow_without(p, __NR_openat, 2, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC);
    confine_allow_without(p, __NR_mmap, 2, PROT_EXEC);
    confine_allow_without(p, __NR_mprotect, 2, PROT_EXEC);
    confine_allow_of(p, __NR_socket, 0, families, 2);
    confine_allow_of(p, __NR_ioctl, 1, requests, 4);
    confine_allow_of(p, __NR_fcntl, 1, commands, 5);
    confine_allow_of(p, __NR_tgkill, 0, &self, 1); /* abort() */
    /* only of this process: a limit can end another one */
    confine_allow_of(p, __NR_prlimit64, 0, &caller, 1);
    if (connects)
        confine_allow(p, __NR_connect);
    confine_allow_only(p, calls, ALLOWED);
}

/* The refused call was not executed and returns ENOSYS. Src: seccomp(2), SECCOMP_RET_TRAP. */
static void confine_on_refused(int sig, siginfo_t *si, void *context)
{
    static volatile sig_atomic_t reported;
    static const char before[] = "ddrund: warning: system call ",
                      after[] = " is not allowed by ddrund's filter; it returned ENOSYS\n";
    ucontext_t *u = context;
    char line[sizeof(before) + sizeof(after) + 12];
    char digits[12];
    size_t n = 0, d = 0;
    (void)sig;
    if (si->si_code <= 0) /* sent by a process */
        return;
    RESULT(u) = -ENOSYS;
    if (reported >= REPORTED_MAX)
        return;
    reported = reported + 1;
    for (unsigned nr = (unsigned)si->si_syscall; d == 0 || nr > 0; nr /= 10)
        digits[d++] = (char)('0' + nr % 10);
    memcpy(line, before, sizeof(before) - 1);
    n = sizeof(before) - 1;
    while (d > 0)
        line[n++] = digits[--d];
    memcpy(line + n, after, sizeof(after) - 1);
    const ssize_t written = write(STDERR_FILENO, line, n + sizeof(after) - 1);
    (void)written;
}

void confine(const struct dd_log *log, bool connects)
{
    struct program p = {.n = 0};
    const struct sigaction sa = {.sa_sigaction = confine_on_refused,
                                 .sa_flags = SA_SIGINFO | SA_RESTART};
    confine_privileges();
    confine_write_program(&p, connects);
    const struct sock_fprog prog = {.len = p.n, .filter = p.code};
    if (p.n >= PROGRAM_MAX) {
        dd_log(log, DD_LOG_DEBUG,
               "ddrund runs without a system call filter: the filter has %d or more instructions",
               PROGRAM_MAX);
        return;
    }
    if (sigaction(SIGSYS, &sa, NULL) < 0) {
        dd_log(log, DD_LOG_DEBUG,
               "ddrund runs without a system call filter: cannot handle SIGSYS: %m");
        return;
    }
    /* Filter all threads. Do not enable the speculation mitigations that a filter implies by
     * default: before Linux 5.16 they slow down every system call. */
    if (syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER,
                SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, &prog) != 0 &&
        syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog) != 0)
        dd_log(log, DD_LOG_DEBUG, "ddrund runs without a system call filter: %m");
}

#endif
