#include "hostlist/list.h"

#include <errno.h>
#include <string.h>

int hostlist_new(struct hostlist **ret)
{
    struct hostlist *h = calloc(1, sizeof(*h));
    if (h == NULL)
        return -ENOMEM;
    h->text = DD_BUF_INIT((size_t)HOSTLIST_MAX * (HOSTLIST_NAME_MAX + 1));
    *ret = h;
    return 0;
}

void hostlist_free(struct hostlist *h)
{
    if (h == NULL)
        return;
    dd_buf_done(&h->text);
    free(h->start);
    free(h);
}

size_t hostlist_count(const struct hostlist *h)
{
    return h->count;
}

const char *hostlist_nth(const struct hostlist *h, size_t i)
{
    return i < h->count ? (const char *)h->text.data + h->start[i] : NULL;
}

bool hostlist_char_ok(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || hostlist_is_digit(c) ||
           (c != '\0' && strchr("-_.:", c) != NULL);
}

bool hostlist_name_ok(const char *name)
{
    size_t n = 0;
    while (n <= HOSTLIST_NAME_MAX && hostlist_char_ok(name[n]))
        n++;
    return n > 0 && n <= HOSTLIST_NAME_MAX && name[n] == '\0';
}

int hostlist_append(struct hostlist *h, const char *name, size_t n)
{
    if (h->count == HOSTLIST_MAX)
        return -E2BIG;
    if (h->count == h->cap) {
        size_t cap = h->cap == 0 ? 16 : h->cap * 2;
        uint32_t *start = realloc(h->start, cap * sizeof(*start));
        if (start == NULL)
            return -ENOMEM;
        h->start = start;
        h->cap = cap;
    }
    if (dd_buf_reserve(&h->text, n + 1) < 0)
        return -ENOMEM;
    h->start[h->count++] = (uint32_t)h->text.len;
    (void)dd_buf_append(&h->text, name, n);
    return dd_buf_append(&h->text, "", 1);
}

int hostlist_push(struct hostlist *h, const char *name)
{
    return hostlist_name_ok(name) ? hostlist_append(h, name, strlen(name)) : -EINVAL;
}
