/* base and rdzv: the page of a worker and the texts of STEPS and LOAD hold any bytes. */
#include "base/auto.h"
#include "rdzv/stragglers.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 6, WORKERS = 2, TEXT = 2000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct step_times *t)
{
    if (t->step < -1 || t->count < 1 || t->count > INT64_MAX || t->n < 1 || t->n > STEP_WINDOW ||
        t->wall_us > STEP_US_MAX || t->cpu_us > STEP_US_MAX || t->work_us > STEP_US_MAX)
        abort();
}

/* What a page says is what the daemon reads of it. */
static void through_page(const uint8_t *data, size_t size)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TEXT);
    struct step_times t;
    struct step_times back;
    int local;
    if (!step_page_read(data, size, &t))
        return;
    check(&t);
    if (step_times_put(&text, 1, &t) < 0)
        abort();
    const char *at = dd_buf_str(&text);
    if (step_times_take(&at, WORKERS, &local, &back) != 1 || local != 1 || *at != '\0' ||
        back.step != t.step || back.count != t.count || back.n != t.n ||
        back.wall_us != t.wall_us || back.cpu_us != t.cpu_us || back.work_us != t.work_us)
        abort();
}

static void judge(struct stragglers *s)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TEXT);
    struct straggler g;
    struct steps_view v;
    stragglers_judge(s);
    while (stragglers_next(s, &g))
        if (g.rank < 0 || g.rank >= RANKS || g.node != g.rank / WORKERS ||
            straggler_text(&g, "node1", &text) < 0)
            abort();
    stragglers_view(s, &v);
    if (v.ranks < 0 || v.ranks > RANKS || v.median_us > STEP_US_MAX)
        abort();
}

/* Each byte 0 of the input ends a message; they come from the nodes in turn. */
static void through_text(const uint8_t *data, size_t size)
{
    struct stragglers *s = NULL;
    if (stragglers_new(&s, RANKS) < 0)
        abort();
    for (int node = 0; node < RANKS / WORKERS; node++)
        stragglers_place(s, node * WORKERS, WORKERS, node);
    for (int node = 0; size > 0; node = (node + 1) % (RANKS / WORKERS)) {
        const size_t n = strnlen((const char *)data, size);
        char *text = strndup((const char *)data, n);
        const char *at = text;
        const char *load = text;
        struct rank_load l;
        struct step_times t;
        int local;
        while (text != NULL && load_take(&load, WORKERS, &local, &l) > 0) {
            if (l.wait > 100 || l.mhz > LOAD_MHZ_MAX || l.max_mhz > LOAD_MHZ_MAX)
                abort();
            stragglers_take_load(s, node * WORKERS + local, &l);
        }
        while (text != NULL && step_times_take(&at, WORKERS, &local, &t) > 0) {
            check(&t);
            stragglers_take(s, node * WORKERS + local, &t);
        }
        judge(s);
        free(text);
        data += n;
        size -= n;
        data += size > 0;
        size -= size > 0;
    }
    stragglers_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    through_page(data, size);
    through_text(data, size);
    return 0;
}
