/* One rank of Horovod's rendezvous with the requests of Horovod's C++ client: blocking, one
 * connection per request, a GET repeated every 10 ms until the key exists, three attempts per
 * request half a second apart. It connects to no other rank.
 *
 *     hvdbench   (in the environment: HOROVOD_*)
 *
 * Sends the requests of the three scopes of a first init() and prints "BEGIN_NS END_NS REQUESTS
 * FAILED_TRIES". Src: Horovod 0.28.1, its gloo. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RECORD = 136, TRIES = 3, HEAD_MAX = 1024 };

static struct sockaddr_in server = {.sin_family = AF_INET};
static unsigned requests, failed;
static char *reply; /* to the last request */
static size_t reply_len;

static long number(const char *name)
{
    const char *v = getenv(name);
    return v != NULL ? strtol(v, NULL, 10) : 0;
}

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void pause_ms(long ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static int send_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0)
            return -1;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

/* Receive until the body is complete. Return the HTTP status, or -1. */
static int receive(int fd, size_t max)
{
    static const char key[] = "Content-Length: ";
    size_t n = 0;
    for (;;) {
        ssize_t k = recv(fd, reply + n, max - n, 0);
        if (k <= 0)
            return -1;
        n += (size_t)k;
        char *end = memmem(reply, n, "\r\n\r\n", 4);
        char *length = memmem(reply, n, key, sizeof(key) - 1);
        if (end == NULL)
            continue;
        size_t body = length != NULL ? strtoul(length + sizeof(key) - 1, NULL, 10) : 0;
        if (n < (size_t)(end + 4 - reply) + body)
            continue;
        reply_len = body;
        return atoi(reply + 9);
    }
}

static int try_once(const char *head, size_t head_len, const char *body, size_t len, size_t max)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int status = -1;
    if (fd >= 0 && connect(fd, (struct sockaddr *)&server, sizeof(server)) == 0 &&
        send_all(fd, head, head_len) == 0 && send_all(fd, body, len) == 0)
        status = receive(fd, max);
    close(fd);
    return status;
}

static int request(const char *method, const char *scope, const char *key, const char *body,
                   size_t len)
{
    char head[HEAD_MAX];
    const size_t max = (size_t)number("HOROVOD_SIZE") * RECORD + HEAD_MAX;
    int n = snprintf(head, sizeof(head),
                     "%s /%s/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %zu\r\n\r\n", method,
                     scope, key, len);
    requests++;
    for (int i = 0; i < TRIES; i++) {
        int status = try_once(head, (size_t)n, body, len, max);
        if (status == 200 || status == 404)
            return status;
        failed++;
        pause_ms(500);
    }
    fprintf(stderr, "%s %s/%s: no reply\n", method, scope, key);
    exit(1);
}

static void meet(const char *scope, long me, long size)
{
    char key[32];
    char host[64] = "";
    const size_t len = (size_t)(size - 1) * RECORD;
    char *table = calloc(1, len + 1);
    if (table == NULL)
        exit(1);
    (void)gethostname(host, sizeof(host) - 1);
    for (long i = 0; i + 1 < size; i++) {
        memcpy(table + i * RECORD, &(long){me * 1000 + 2}, sizeof(long));
        memcpy(table + i * RECORD + 128, &(long){me * size + i}, sizeof(long));
    }
    (void)snprintf(key, sizeof(key), "rank_%ld", me);
    request("PUT", scope, key, host, strlen(host));
    for (long i = 0; i < me; i++) {
        (void)snprintf(key, sizeof(key), "rank_%ld", i);
        request("GET", scope, key, "", 0);
    }
    (void)snprintf(key, sizeof(key), "%ld", me);
    request("PUT", scope, key, table, len);
    for (long i = 0; i < size; i++) {
        if (i == me)
            continue;
        (void)snprintf(key, sizeof(key), "%ld", i);
        while (request("GET", scope, key, "", 0) == 404)
            pause_ms(10);
        if (request("GET", scope, key, "", 0) != 200 || reply_len != len) {
            fprintf(stderr, "%s/%s: %zu bytes\n", scope, key, reply_len);
            exit(1);
        }
    }
    free(table);
}

int main(void)
{
    char scope[HEAD_MAX / 2];
    long long begin = now_ns();
    const char *port = getenv("HOROVOD_GLOO_RENDEZVOUS_PORT");
    reply = malloc((size_t)number("HOROVOD_SIZE") * RECORD + HEAD_MAX);
    if (reply == NULL || port == NULL)
        return 2;
    server.sin_port = htons((uint16_t)strtol(port, NULL, 10));
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    meet("global", number("HOROVOD_RANK"), number("HOROVOD_SIZE"));
    (void)snprintf(scope, sizeof(scope), "local_%.200s", getenv("HOROVOD_HOSTNAME"));
    meet(scope, number("HOROVOD_LOCAL_RANK"), number("HOROVOD_LOCAL_SIZE"));
    (void)snprintf(scope, sizeof(scope), "cross_%ld", number("HOROVOD_LOCAL_RANK"));
    meet(scope, number("HOROVOD_CROSS_RANK"), number("HOROVOD_CROSS_SIZE"));
    printf("%lld %lld %u %u\n", begin, now_ns(), requests, failed);
    return 0;
}
