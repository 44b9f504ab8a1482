#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

/* least: the smallest code point of each length; a smaller one must use a shorter form. Src: RFC
 * 3629. */
size_t dd_utf8_len(const char *p, size_t n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80)
        return 1;
    size_t len = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
    if (u[0] < 0xc2 || u[0] > 0xf4 || len > n)
        return 0;
    uint32_t c = u[0] & (0x7fU >> len);
    for (size_t i = 1; i < len; i++) {
        if ((u[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (u[i] & 0x3f);
    }
    return c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? 0 : len;
}

bool dd_utf8_is(const char *s)
{
    const size_t n = strlen(s);
    size_t at = 0;
    for (size_t len = 1; at < n && len > 0; at += len)
        len = dd_utf8_len(s + at, n - at);
    return at == n;
}

char *dd_utf8_clean(char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n;) {
        size_t len = dd_utf8_len(s + i, n - i);
        if (len == 0)
            s[i] = '?';
        i += len > 0 ? len : 1;
    }
    return s;
}
