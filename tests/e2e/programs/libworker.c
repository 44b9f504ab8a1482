/* A worker for tests/e2e/test_lib.py; the same text is compiled as C and as C++.
 *
 *     libworker turns TURNS KILLED_RANK KILLED_TURN     (-1: nobody is)
 *     libworker events
 *     libworker beat
 *     libworker nccl RANKS_PER_ID TRIES
 */
#include <ddrun/nccl.h>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMIT_MS 60000

static struct ddrun *d;

/* One write, so that lines of several workers do not mix. */
static void say(const char *what, long a, const char *text)
{
    char line[700];
    int n = snprintf(line, sizeof(line),
                     "{\"rank\": %d, \"round\": %d, \"%s\": %ld, \"text\": \"%s\"}\n",
                     ddrun_rank(d), ddrun_round(d), what, a, text);
    if (write(1, line, (size_t)n) != n)
        _exit(9);
}

static int failed(const char *what, int rc)
{
    say(what, rc, ddrun_error());
    return 4;
}

static int turns(int n, int killed_rank, int killed_turn)
{
    int i, k, rc, size = ddrun_size(d);
    int *all = (int *)calloc((size_t)size, sizeof(*all));
    (void)signal(SIGTERM, SIG_IGN); /* so that it is the library that ends the wait */
    for (i = 0; i < n; i++) {
        int mine = ddrun_rank(d) * n + i;
        if (ddrun_rank(d) == killed_rank && i == killed_turn && ddrun_round(d) == 0)
            (void)raise(SIGKILL);
        rc = ddrun_barrier(d, NULL, LIMIT_MS);
        if (rc == 0)
            rc = ddrun_allgather(d, NULL, &mine, sizeof(mine), all, LIMIT_MS);
        if (rc < 0)
            return failed("failed", rc);
        for (k = 0; k < size; k++)
            if (all[k] != k * n + i)
                return failed("wrong", k);
    }
    free(all);
    say("done", n, "");
    return 0;
}

/* Print every event; check that a barrier succeeds, also while the round is being stopped. */
static int events(void)
{
    struct ddrun_event e;
    int rc = ddrun_barrier(d, NULL, LIMIT_MS);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN);
    say("ready", rc, "");
    do {
        rc = ddrun_next_event(d, &e, LIMIT_MS);
        if (rc < 0)
            return failed("failed", rc);
        say("event", e.signal, e.kind == DDRUN_EVENT_STOP ? "stop" : "signal");
    } while (e.kind != DDRUN_EVENT_STOP);
    if (ddrun_rank(d) == 0)
        (void)usleep(300000); /* after the others, as a rule; the result does not depend on it */
    rc = ddrun_barrier(d, NULL, LIMIT_MS);
    say("saved", rc, rc < 0 ? ddrun_error() : "");
    return 0;
}

/* Print whether a heartbeat changes the time of this worker's heartbeat file. */
static int beat(void)
{
    const struct timespec nap = {0, 50000000}; /* file times are coarse */
    const char *path = getenv("DDRUN_HEARTBEAT_FILE");
    struct stat before, after;
    int rc;
    if (path == NULL || stat(path, &before) < 0)
        return failed("failed", -1);
    (void)nanosleep(&nap, NULL);
    rc = ddrun_heartbeat(d);
    if (rc < 0 || stat(path, &after) < 0)
        return failed("failed", rc);
    say("beat",
        before.st_mtim.tv_sec != after.st_mtim.tv_sec ||
            before.st_mtim.tv_nsec != after.st_mtim.tv_nsec,
        "");
    return 0;
}

static int nccl(int ranks_per_id, int tries)
{
    struct ddrun_nccl lib;
    struct ddrun_nccl_opts opts;
    struct ddrun_nccl_id_list ids = {NULL, 0};
    void *comm = NULL;
    int rc = ddrun_nccl_load(&lib);
    memset(&opts, 0, sizeof(opts));
    opts.ranks_per_id = ranks_per_id;
    opts.tries = tries;
    if (rc == 0 && tries == 0) { /* no GPU: the ids alone */
        rc = ddrun_nccl_ids(d, NULL, &lib, ranks_per_id, &ids, LIMIT_MS);
        if (rc == 0) {
            char text[60];
            unsigned long sum = 5381;
            size_t i;
            for (i = 0; i < (size_t)ids.n * sizeof(*ids.v); i++)
                sum = sum * 33 + (unsigned char)((const char *)ids.v)[i];
            (void)snprintf(text, sizeof(text), "%d %lx", ids.n, sum);
            say("version", lib.version, text);
            (void)ddrun_barrier(d, NULL,
                                LIMIT_MS); /* a root lives in the process that has made its id */
        }
        free(ids.v);
    } else if (rc == 0) {
        rc = ddrun_nccl_comm(d, NULL, &lib, &opts, &comm, LIMIT_MS);
        if (rc == 0)
            say("version", lib.version, "made");
    }
    if (rc < 0)
        say("failed", rc, lib.error);
    return rc < 0 ? 4 : 0;
}

int main(int argc, char **argv)
{
    int rc = ddrun_init(&d, LIMIT_MS);
    if (rc < 0) {
        fprintf(stderr, "libworker: %s\n", ddrun_error());
        return 3;
    }
    if (argc == 5 && strcmp(argv[1], "turns") == 0)
        rc = turns(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    else if (argc == 2 && strcmp(argv[1], "events") == 0)
        rc = events();
    else if (argc == 2 && strcmp(argv[1], "beat") == 0)
        rc = beat();
    else if (argc == 4 && strcmp(argv[1], "nccl") == 0)
        rc = nccl(atoi(argv[2]), atoi(argv[3]));
    else
        rc = 2;
    ddrun_free(d);
    return rc;
}
