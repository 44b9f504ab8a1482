#include "cmd/ddctl_web_guard.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *path;
    bool open; /* needs no token */
} resources[WEB_RESOURCES] = {
    [WEB_PAGE] = {"/", false},
    [WEB_SCRIPT] = {"/web.js", true},
    [WEB_STYLE] = {"/web.css", true},
    [WEB_STATE] = {"/state.json", false},
    [WEB_TIMELINE] = {"/timeline.json", false},
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

/* True for an empty text and for a colon with up to five digits. */
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

/* The time does not depend on the number of digits that match. */
static bool web_is_token(const char *query, const char token[WEB_TOKEN + 1])
{
    static const char name[] = "token=";
    const size_t n = sizeof(name) - 1;
    unsigned char differ = 0;
    if (query == NULL || strncmp(query, name, n) != 0 || strlen(query + n) != WEB_TOKEN)
        return false;
    for (size_t i = 0; i < WEB_TOKEN; i++)
        differ |= (unsigned char)(query[n + i] ^ token[i]);
    return differ == 0;
}

int web_route(const char *target, const char *host, const char token[WEB_TOKEN + 1])
{
    const char *mark = strchr(target, '?');
    const size_t len = mark != NULL ? (size_t)(mark - target) : strlen(target);
    const bool proven = web_is_token(mark != NULL ? mark + 1 : NULL, token);
    if (!web_host_is_loopback(host))
        return WEB_FORBIDDEN;
    for (int i = 0; i < WEB_RESOURCES; i++)
        if (strlen(resources[i].path) == len && memcmp(resources[i].path, target, len) == 0)
            return resources[i].open || proven ? i : WEB_FORBIDDEN;
    return proven ? WEB_NOT_FOUND : WEB_FORBIDDEN;
}
