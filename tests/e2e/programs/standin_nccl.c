/* A libnccl that only prints its calls: a line of JSON for each, to stdout.
 *
 * STANDIN_FAILS=RANK  the first communicator of this rank fails */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char internal[128];
} ncclUniqueId;

static void say(const char *call, int nids, const ncclUniqueId *ids)
{
    char line[1000];
    int n = snprintf(line, sizeof(line), "{\"rank\": %s, \"call\": \"%s\", \"ids\": [",
                     getenv("RANK"), call);
    for (int i = 0; i < nids && n < 800; i++)
        n += snprintf(line + n, sizeof(line) - (size_t)n, "%s\"%s\"", i > 0 ? ", " : "",
                      ids[i].internal);
    n += snprintf(line + n, sizeof(line) - (size_t)n, "]}\n");
    if (write(1, line, (size_t)n) != n)
        abort();
}

int ncclGetVersion(int *version);
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(void **comm, int n, ncclUniqueId id, int rank);
int ncclCommInitRankScalable(void **comm, int n, int rank, int nids, ncclUniqueId *ids,
                             void *config);
int ncclCommAbort(void *comm);
const char *ncclGetErrorString(int result);

int ncclGetVersion(int *version)
{
    *version = 23000;
    return 0;
}

int ncclGetUniqueId(ncclUniqueId *id)
{
    static int made;
    memset(id, 0, sizeof(*id));
    (void)snprintf(id->internal, sizeof(id->internal), "%s.%d", getenv("RANK"), made++);
    say("id", 1, id);
    return 0;
}

static int make(void **comm, const char *call, int nids, const ncclUniqueId *ids)
{
    static int made;
    const char *fails = getenv("STANDIN_FAILS");
    *comm = &made;
    say(call, nids, ids);
    return made++ == 0 && fails != NULL && strcmp(fails, getenv("RANK")) == 0 ? 1 : 0;
}

int ncclCommInitRank(void **comm, int n, ncclUniqueId id, int rank)
{
    (void)n;
    (void)rank;
    return make(comm, "init", 1, &id);
}

#ifndef OLD
int ncclCommInitRankScalable(void **comm, int n, int rank, int nids, ncclUniqueId *ids,
                             void *config)
{
    (void)n;
    (void)rank;
    (void)config;
    return make(comm, "scalable", nids, ids);
}
#endif

int ncclCommAbort(void *comm)
{
    (void)comm;
    say("abort", 0, NULL);
    return 0;
}

const char *ncclGetErrorString(int result)
{
    return result == 1 ? "unhandled cuda error" : "?";
}
