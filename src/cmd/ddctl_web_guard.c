#include "cmd/ddctl_web_guard.h"

#include "base/num.h"

#include <limits.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *path;
    bool open;    /* needs no token */
    bool of_rank; /* needs a rank */
} resources[WEB_RESOURCES] = {
    [WEB_PAGE] = {.path = "/"},
    [WEB_SCRIPT] = {.path = "/web.js", .open = true},
    [WEB_STYLE] = {.path = "/web.css", .open = true},
    [WEB_STATE] = {.path = "/state.json"},
    [WEB_TIMELINE] = {.path = "/timeline.json"},
    [WEB_LOG] = {.path = "/log.json", .of_rank = true},
};

void web_token(char ret[WEB_TOKEN + 1], const unsigned char secret[WEB_SECRET])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < WEB_SECRET; i++) {
        ret[2 * i] = digits[secret[i] >> 4];
        ret[2 * i + 1] = digits[secret[i] & 15];
    }
    ret[WEB_TOKEN] = '\0';
}

/* True for an empty text and for a colon with one to five digits. */
static bool web_is_port(const char *text)
{
    const size_t n = text[0] == ':' ? strspn(text + 1, "0123456789") : 0;
    return text[0] == '\0' || (n >= 1 && n <= 5 && text[1 + n] == '\0');
}

bool web_host_is_loopback(const char *host)
{
    static const char *const names[] = {"127.0.0.1", "[::1]", "localhost"};
    for (size_t i = 0; host != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        const size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) == 0 && web_is_port(host + n))
            return true;
    }
    return false;
}

/* Return what follows the token in a query; NULL: the query does not begin with the token. The time
 * does not depend on the number of digits that match. */
static const char *web_after_token(const char *query, const char token[WEB_TOKEN + 1])
{
    static const char name[] = "token=";
    const size_t n = sizeof(name) - 1;
    unsigned char differ = 0;
    if (query == NULL || strncmp(query, name, n) != 0 || strnlen(query + n, WEB_TOKEN) != WEB_TOKEN)
        return NULL;
    for (size_t i = 0; i < WEB_TOKEN; i++)
        differ |= (unsigned char)(query[n + i] ^ token[i]);
    return differ == 0 ? query + n + WEB_TOKEN : NULL;
}

/* True for an empty text (*ret -1), and for "&rank=" with a number without sign. */
static bool web_is_rank(const char *text, int *ret)
{
    static const char name[] = "&rank=";
    const size_t n = sizeof(name) - 1;
    *ret = -1;
    return text[0] == '\0' ||
           (strncmp(text, name, n) == 0 && strspn(text + n, "0123456789") == strlen(text + n) &&
            dd_num_int(text + n, 0, INT_MAX, ret) == 0);
}

int web_route(const char *target, const char *host, const char token[WEB_TOKEN + 1], int *ret_rank)
{
    const char *mark = strchr(target, '?');
    const size_t len = mark != NULL ? (size_t)(mark - target) : strlen(target);
    const char *rest = web_after_token(mark != NULL ? mark + 1 : NULL, token);
    *ret_rank = -1;
    const bool proven = rest != NULL && web_is_rank(rest, ret_rank);
    if (!web_host_is_loopback(host))
        return WEB_FORBIDDEN;
    for (int i = 0; i < WEB_RESOURCES; i++) {
        if (strlen(resources[i].path) != len || memcmp(resources[i].path, target, len) != 0)
            continue;
        if (!resources[i].open && !proven)
            return WEB_FORBIDDEN;
        return resources[i].of_rank == (*ret_rank >= 0) ? i : WEB_NOT_FOUND;
    }
    return proven ? WEB_NOT_FOUND : WEB_FORBIDDEN;
}
