/* Estimates the strength of a secret. Pure. */
#include "net/key_inner.h"

#include <string.h>

enum { ENOUGH = 256, MATCH_MIN = 3 };

/* Return log2(x) for x > 0, accurate to 0.001, without libm. */
static double bits_of(double x)
{
    double bits = 0;
    for (; x >= 2; bits++)
        x /= 2;
    for (; x < 1; bits--)
        x *= 2;
    for (double step = 0.5; step > 0.0005; step /= 2) {
        x *= x;
        if (x >= 2) {
            x /= 2;
            bits += step;
        }
    }
    return bits;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* The alphabet that a secret seems to be drawn from, and the maximum entropy of one character. Text
 * with blanks, or with letters of one case or digits alone, is treated as words: Shannon's estimate
 * for English. */
struct alphabet {
    double size, bits;
};

static struct alphabet alphabet_of(const unsigned char *s, size_t n)
{
    bool digit = false, lower = false, upper = false, beyond_hex = false, blank = false;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = s[i];
        if (c < ' ' || c > '~')
            return (struct alphabet){256, 8};
        digit |= c >= '0' && c <= '9';
        lower |= c >= 'a' && c <= 'z';
        upper |= c >= 'A' && c <= 'Z';
        blank |= c == ' ';
        beyond_hex |= strchr("0123456789abcdefABCDEF", c) == NULL;
    }
    if (!beyond_hex)
        return lower || upper ? (struct alphabet){16, 4} : (struct alphabet){10, 3.32};
    if (blank || lower + upper + digit < 2)
        return (struct alphabet){32, 1.5};
    if (lower && upper)
        return digit ? (struct alphabet){64, 6} : (struct alphabet){64, 4.5};
    return (struct alphabet){32, 5};
}

/* Return the length for which s[i..] repeats earlier text, or continues in equal steps ("aaaa",
 * "abcd", "9753"). */
static size_t predictable(const unsigned char *s, size_t n, size_t i)
{
    size_t best = 0;
    size_t k = 0;
    for (size_t j = 0; j<i; j++, best = k> best ? k : best)
        for (k = 0; i + k < n && s[j + k] == s[i + k]; k++)
            ;
    k = 0;
    if (i >= 2)
        for (const int step = s[i - 1] - s[i - 2]; i + k < n && s[i + k] - s[i + k - 1] == step;
             k++)
            ;
    best = k > best ? k : best;
    return best >= MATCH_MIN ? best : 0;
}

/* Estimate the minimum description length: a repetition costs its position and length; other
 * characters cost what an adaptive coder needs, bounded by the alphabet. Src: Lempel and Ziv 1977;
 * Krichevsky and Trofimov 1981. */
unsigned key_strength(const unsigned char *secret, size_t n)
{
    const struct alphabet a = alphabet_of(secret, n);
    unsigned count[256] = {0};
    unsigned seen = 0;
    double bits = 0;
    for (size_t i = 0; i < n && bits < ENOUGH;) {
        const size_t k = predictable(secret, n, i);
        if (k > 0) {
            bits += least((double)k * a.bits, 1 + bits_of((double)i + 1) + bits_of((double)k));
            i += k;
            continue;
        }
        bits += least(a.bits, bits_of((seen + a.size / 2) / (count[secret[i]] + 0.5)));
        count[secret[i]]++;
        seen++;
        i++;
    }
    return (unsigned)bits;
}
