#include "base/num.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static int digits(const char **s, uint64_t *ret)
{
    uint64_t v = 0;
    if (!isdigit((unsigned char)**s))
        return -EINVAL;
    for (; isdigit((unsigned char)**s); (*s)++) {
        unsigned d = (unsigned)(**s - '0');
        if (v > (UINT64_MAX - d) / 10)
            return -ERANGE;
        v = v * 10 + d;
    }
    *ret = v;
    return 0;
}

int dd_num_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
    uint64_t v;
    int rc = digits(&s, &v);
    if (rc < 0)
        return rc;
    if (*s != '\0')
        return -EINVAL;
    if (v < min || v > max)
        return -ERANGE;
    *ret = v;
    return 0;
}

int dd_num_take(const char **at, char end, uint64_t min, uint64_t max, uint64_t *ret)
{
    const char *s = *at;
    uint64_t v;
    int rc = digits(&s, &v);
    if (rc < 0)
        return rc;
    if (*s != end)
        return -EINVAL;
    if (v < min || v > max)
        return -ERANGE;
    *at = s + 1;
    *ret = v;
    return 0;
}

int dd_num_int(const char *s, int min, int max, int *ret)
{
    int negative = *s == '-';
    uint64_t v;
    int rc = dd_num_u64(s + negative, 0, INT64_MAX, &v);
    if (rc < 0)
        return rc;
    int64_t n = negative ? -(int64_t)v : (int64_t)v;
    if (n < min || n > max)
        return -ERANGE;
    *ret = (int)n;
    return 0;
}

struct unit {
    const char *name;
    uint64_t factor;
};

static int with_unit(const char *s, const struct unit *units, size_t n, uint64_t *ret)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(s, units[i].name) != 0)
            continue;
        if (*ret > UINT64_MAX / units[i].factor)
            return -ERANGE;
        *ret *= units[i].factor;
        return 0;
    }
    return -EINVAL;
}

int dd_num_duration_ns(const char *s, uint64_t *ret_ns)
{
    static const struct unit units[] = {
        {"", 1000000000},    {"s", 1000000000},     {"ms", 1000000},        {"us", 1000},
        {"m", 60000000000U}, {"h", 3600000000000U}, {"d", 86400000000000U},
    };
    uint64_t whole;
    uint64_t frac = 0;
    uint64_t scale = 1;
    int rc = digits(&s, &whole);
    if (rc < 0)
        return rc;
    if (*s == '.') {
        s++;
        for (; isdigit((unsigned char)*s); s++)
            if (scale < 1000000) {
                frac = frac * 10 + (unsigned)(*s - '0');
                scale *= 10;
            }
    }
    uint64_t unit = 1;
    rc = with_unit(s, units, sizeof(units) / sizeof(units[0]), &unit);
    if (rc == 0 && whole > (UINT64_MAX - unit) / unit)
        rc = -ERANGE;
    if (rc == 0)
        *ret_ns = whole * unit + (uint64_t)((unsigned __int128)frac * unit / scale);
    return rc;
}

int dd_num_bytes(const char *s, uint64_t *ret)
{
    static const struct unit units[] = {
        {"", 1},
        {"K", 1024},
        {"M", 1024 * 1024},
        {"G", 1024 * 1024 * 1024},
    };
    uint64_t v;
    int rc = digits(&s, &v);
    if (rc == 0)
        rc = with_unit(s, units, sizeof(units) / sizeof(units[0]), &v);
    if (rc == 0)
        *ret = v;
    return rc;
}

void dd_num_duration_text(char out[DD_DURATION_TEXT], uint64_t seconds)
{
    const uint64_t m = seconds / 60;
    const unsigned s = (unsigned)(seconds % 60);
    if (m == 0)
        (void)snprintf(out, DD_DURATION_TEXT, "%u s", s);
    else if (m < 60 && s > 0)
        (void)snprintf(out, DD_DURATION_TEXT, "%u min %u s", (unsigned)m, s);
    else if (m < 60)
        (void)snprintf(out, DD_DURATION_TEXT, "%u min", (unsigned)m);
    else if (m % 60 > 0)
        (void)snprintf(out, DD_DURATION_TEXT, "%" PRIu64 " h %u min", m / 60, (unsigned)(m % 60));
    else
        (void)snprintf(out, DD_DURATION_TEXT, "%" PRIu64 " h", m / 60);
}
