#include "daemon/store_memory.h"

#include "node/memory.h"
#include "store/store_server.h"

size_t store_memory_share(size_t most)
{
    const uint64_t half = node_memory_limit("") / 2;
    return half > 0 && half < most ? (size_t)half : most;
}

static void store_memory_on_event(void *arg, const struct journal_event *e)
{
    struct store_memory *m = arg;
    struct store_stats st;
    if (e->kind != JOURNAL_STARTED || m->limited)
        return;
    m->limited = true;
    store_server_stats(m->store, &st);
    store_server_limit(m->store, store_memory_share(st.max_bytes));
}

void store_memory_follow(struct store_memory *m, struct journal *j, struct store_server *store)
{
    *m = (struct store_memory){.store = store,
                               .subscriber = {.on_event = store_memory_on_event, .arg = m}};
    journal_subscribe(j, &m->subscriber);
}
