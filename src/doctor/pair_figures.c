#include "doctor/pair_figures.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *pair_str(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s != NULL ? s : "";
}

/* Return a count from a node's result, which is untrusted; 0 if it is missing or negative. */
static uint64_t pair_count(const json_t *o, const char *name)
{
    const json_int_t n = json_integer_value(json_object_get(o, name));
    return n > 0 ? (uint64_t)n : 0;
}

static uint64_t pair_rate_of(const json_t *net)
{
    const double took = (double)pair_count(net, "took_ns");
    const double rate = took > 0 ? (double)pair_count(net, "bytes") / took * 1e9 : 0;
    return rate < 1e18 ? (uint64_t)rate : UINT64_C(1000000000000000000);
}

/* Return the name of the node whose index this member contains. */
static const char *pair_node(const json_t *o, const char *name, const struct hostlist *nodes)
{
    const json_t *index = json_object_get(o, name);
    const json_int_t i = json_is_integer(index) ? json_integer_value(index) : -1;
    const char *found = i >= 0 ? hostlist_nth(nodes, (size_t)i) : NULL;
    return found != NULL ? found : "?";
}

static int pair_by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Compute the medians of all measurements, and mark the outliers. */
static int pair_compare(struct pair_figures *f)
{
    DD_AUTO(free) uint64_t *latencies = calloc(f->n + 1, sizeof(*latencies));
    DD_AUTO(free) uint64_t *rates = calloc(f->n + 1, sizeof(*rates));
    size_t n = 0;
    if (latencies == NULL || rates == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < f->n; i++)
        if (f->v[i].error[0] == '\0') {
            latencies[n] = f->v[i].latency_ns;
            rates[n++] = f->v[i].rate;
        }
    if (n == 0)
        return 0;
    qsort(latencies, n, sizeof(*latencies), pair_by_value);
    qsort(rates, n, sizeof(*rates), pair_by_value);
    f->latency_ns = latencies[n / 2];
    f->rate = rates[n / 2];
    for (size_t i = 0; i < f->n && n >= PAIR_FEWEST; i++) {
        struct pair_figure *p = &f->v[i];
        const bool ok = p->error[0] == '\0';
        p->slow = ok && p->rate < f->rate / 2;
        p->late = ok && p->latency_ns / 2 > f->latency_ns &&
                  p->latency_ns - f->latency_ns > PAIR_LATE_US * UINT64_C(1000);
    }
    return 0;
}

int pair_figures_of(struct pair_figures *ret, const json_t *looks, const struct hostlist *nodes)
{
    size_t i;
    const json_t *look;
    *ret = (struct pair_figures){.v = calloc(json_array_size(looks) + 1, sizeof(*ret->v))};
    if (ret->v == NULL)
        return -ENOMEM;
    json_array_foreach (looks, i, look) {
        const json_t *net = json_object_get(look, "net");
        if (!json_is_object(net))
            continue;
        ret->v[ret->n++] = (struct pair_figure){.from = pair_node(look, "index", nodes),
                                                .to = pair_node(net, "to", nodes),
                                                .address = pair_str(net, "address"),
                                                .error = pair_str(net, "error"),
                                                .latency_ns = pair_count(net, "latency_ns"),
                                                .rate = pair_rate_of(net)};
    }
    return pair_compare(ret);
}

void pair_figures_done(struct pair_figures *f)
{
    free(f->v);
    memset(f, 0, sizeof(*f));
}

const char *pair_rate_text(uint64_t rate, char out[PAIR_RATE_TEXT])
{
    const double bits = (double)rate * 8;
    if (bits >= 1e9)
        (void)snprintf(out, PAIR_RATE_TEXT, "%.2f Gbit/s", bits / 1e9);
    else
        (void)snprintf(out, PAIR_RATE_TEXT, "%.2f Mbit/s", bits / 1e6);
    return out;
}

const char *pair_latency_text(uint64_t ns, char out[PAIR_RATE_TEXT])
{
    if (ns >= 10000000)
        (void)snprintf(out, PAIR_RATE_TEXT, "%.1f ms", (double)ns / 1e6);
    else
        (void)snprintf(out, PAIR_RATE_TEXT, "%.1f us", (double)ns / 1e3);
    return out;
}

static int pair_write_row(const struct pair_figure *p, struct dd_buf *out)
{
    char latency[PAIR_RATE_TEXT];
    char rate[PAIR_RATE_TEXT];
    if (p->error[0] != '\0')
        return dd_buf_printf(out, "%-16s %-16s %12s %16s\n", p->from, p->to, "-", "-");
    return dd_buf_printf(out, "%-16s %-16s %12s %16s%s%s\n", p->from, p->to,
                         pair_latency_text(p->latency_ns, latency), pair_rate_text(p->rate, rate),
                         p->slow ? "  slow" : "", p->late ? "  late" : "");
}

int pair_figures_write(const struct pair_figures *f, struct dd_buf *out)
{
    char latency[PAIR_RATE_TEXT];
    char rate[PAIR_RATE_TEXT];
    const bool all = f->n <= PAIR_ROWS_MAX;
    size_t left = 0;
    int rc = dd_buf_printf(out, "\n%-16s %-16s %12s %16s\n", "from", "to", "round trip",
                           "bandwidth");
    for (size_t i = 0; i < f->n && rc == 0; i++) {
        const struct pair_figure *p = &f->v[i];
        if (all || p->slow || p->late || p->error[0] != '\0')
            rc = pair_write_row(p, out);
        else
            left++;
    }
    if (rc == 0 && left > 0)
        rc = dd_buf_printf(out, "%zu more pair%s, not slow or late\n", left, left == 1 ? "" : "s");
    if (rc == 0 && f->rate > 0)
        rc = dd_buf_printf(out, "%-16s %-16s %12s %16s\n", "median", "",
                           pair_latency_text(f->latency_ns, latency),
                           pair_rate_text(f->rate, rate));
    return rc;
}

json_t *pair_figures_json(const struct pair_figures *f)
{
    json_t *pairs = json_array();
    for (size_t i = 0; i < f->n && pairs != NULL; i++) {
        const struct pair_figure *p = &f->v[i];
        (void)json_array_append_new(
            pairs, json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:b,s:b}", "from", p->from, "to", p->to,
                             "address", p->address, "error", p->error, "latency_ns",
                             (json_int_t)p->latency_ns, "bytes_per_second", (json_int_t)p->rate,
                             "slow", (int)p->slow, "late", (int)p->late));
    }
    return pairs == NULL ? NULL
                         : json_pack("{s:I,s:I,s:o}", "latency_ns", (json_int_t)f->latency_ns,
                                     "bytes_per_second", (json_int_t)f->rate, "pairs", pairs);
}
