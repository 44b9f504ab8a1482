#include "report/profile_text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { OPERATIONS_MAX = 64, TEXT_MAX = 900 };

static long long profile_number(const json_t *o, const char *name)
{
    return (long long)json_integer_value(json_object_get(o, name));
}

/* Copy a text, and escape what could control the terminal. Backslashes stay: in keys, ddrund has
 * escaped what is not printable. */
static const char *profile_string(char out[TEXT_MAX], const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));
    size_t n = 0;
    for (; text != NULL && *text != '\0' && n + 5 < TEXT_MAX; text++)
        n += (size_t)snprintf(out + n, TEXT_MAX - n,
                              *text >= ' ' && *text <= '~' ? "%c" : "\\x%02x",
                              (unsigned char)*text);
    out[n] = '\0';
    return out;
}

static double profile_mean(const json_t *o, const char *sum, const char *count, double unit)
{
    const long long n = profile_number(o, count);
    return n > 0 ? (double)profile_number(o, sum) / (double)n / unit : 0;
}

/* Compare operations: the one with the largest sum of times comes first; without times, the most
 * frequent one. */
static int profile_compare(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a;
    const json_t *y = *(json_t *const *)b;
    const long long tx = profile_number(x, "service_ns"), ty = profile_number(y, "service_ns");
    if (tx != ty)
        return tx < ty ? 1 : -1;
    const long long nx = profile_number(x, "count"), ny = profile_number(y, "count");
    return (nx < ny) - (nx > ny);
}

static int profile_put_operation(const json_t *o, bool measured, struct dd_buf *out)
{
    char name[TEXT_MAX];
    int rc = dd_buf_printf(out, "%-12s %10lld %13lld %13lld", profile_string(name, o, "operation"),
                           profile_number(o, "count"), profile_number(o, "bytes_in"),
                           profile_number(o, "bytes_out"));
    if (rc == 0 && measured)
        rc = dd_buf_printf(out, "  %12.1f  %11.1f  %6lld  %13.3f  %12.3f",
                           profile_mean(o, "service_ns", "count", 1e3),
                           (double)profile_number(o, "service_max_ns") / 1e3,
                           profile_number(o, "waits"), profile_mean(o, "wait_ns", "waits", 1e6),
                           (double)profile_number(o, "wait_max_ns") / 1e6);
    return rc == 0 ? dd_buf_puts(out, "\n") : rc;
}

static int profile_put_operations(const json_t *profile, bool measured, struct dd_buf *out)
{
    const json_t *list = json_object_get(profile, "operations");
    const json_t *sorted[OPERATIONS_MAX];
    size_t n = json_array_size(list);
    n = n < OPERATIONS_MAX ? n : OPERATIONS_MAX;
    for (size_t i = 0; i < n; i++)
        sorted[i] = json_array_get(list, i);
    qsort(sorted, n, sizeof(sorted[0]), profile_compare);
    int rc = dd_buf_printf(out, "%-12s %10s %13s %13s", "OPERATION", "COUNT", "BYTES IN",
                           "BYTES OUT");
    if (rc == 0 && measured)
        rc = dd_buf_printf(out, "  %12s  %11s  %6s  %13s  %12s", "MEAN RUN, us", "MAX RUN, us",
                           "WAITED", "MEAN WAIT, ms", "MAX WAIT, ms");
    if (rc == 0)
        rc = dd_buf_puts(out, "\n");
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = profile_put_operation(sorted[i], measured, out);
    return rc;
}

static int profile_put_sizes(const json_t *list, struct dd_buf *out)
{
    int rc = dd_buf_printf(out, "\n%-25s %13s %13s\n", "BYTES OF A MESSAGE", "REQUESTS", "REPLIES");
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
        const json_t *o = json_array_get(list, i);
        rc = dd_buf_printf(out, "%11lld-%-13lld %13lld %13lld\n", profile_number(o, "from"),
                           profile_number(o, "to"), profile_number(o, "requests"),
                           profile_number(o, "replies"));
    }
    return rc;
}

static int profile_put_keys(const json_t *list, struct dd_buf *out)
{
    char key[TEXT_MAX];
    int rc = dd_buf_printf(out, "\n%10s %10s  KEY\n", "REQUESTS", "AT LEAST");
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
        const json_t *o = json_array_get(list, i);
        const long long n = profile_number(o, "count");
        rc = dd_buf_printf(out, "%10lld %10lld  %s\n", n, n - profile_number(o, "over"),
                           profile_string(key, o, "key"));
    }
    return rc;
}

int profile_text(const struct json_t *o, struct dd_buf *out)
{
    const bool measured = json_is_true(json_object_get(o, "measured"));
    const json_t *connections = json_object_get(o, "connections");
    const json_t *keys = json_object_get(o, "keys");
    if (json_array_size(json_object_get(o, "operations")) == 0)
        return dd_buf_puts(out, "no worker has used the store\n");
    int rc = profile_put_operations(o, measured, out);
    if (rc == 0)
        rc = profile_put_sizes(json_object_get(o, "sizes"), out);
    if (rc == 0 && json_array_size(keys) > 0)
        rc = profile_put_keys(keys, out);
    return rc < 0 ? rc
                  : dd_buf_printf(out, "\nconnections: %lld open, %lld in all, %lld refused\n",
                                  profile_number(connections, "open"),
                                  profile_number(connections, "opened"),
                                  profile_number(connections, "refused"));
}
