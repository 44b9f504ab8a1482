/* Which requests 'ddctl web' answers. Pure.
 *
 * Three conditions must hold for a request: the kernel reports that its connection belongs to the
 * user of ddctl (the caller checks this), its Host header names a loopback address, and its query
 * has the token, followed by the rank for the lines of a rank. Only the script and the style sheet,
 * which contain nothing about the job, are served without a token. */
#ifndef DD_CMD_DDCTL_WEB_GUARD_H
#define DD_CMD_DDCTL_WEB_GUARD_H

#include <stdbool.h>
#include <stddef.h>

enum { WEB_SECRET = 16, WEB_TOKEN = 2 * WEB_SECRET }; /* bytes; hexadecimal digits */

enum web_resource {
    WEB_PAGE,
    WEB_SCRIPT,
    WEB_STYLE,
    WEB_STATE,
    WEB_TIMELINE,
    WEB_LOG,
    WEB_RESOURCES
};

void web_token(char ret[WEB_TOKEN + 1], const unsigned char secret[WEB_SECRET]);

/* True if the Host header names 127.0.0.1, [::1] or localhost, with any port: the port may be one
 * that ssh forwards. A page of another site that has resolved its own name to 127.0.0.1 (DNS
 * rebinding) sends that name. NULL: the request has no such header. */
bool web_host_is_loopback(const char *host);

/* Return the web_resource that the target of a request names, or the status of a refusal: 403 or
 * 404. *ret_rank: the rank of WEB_LOG ("/log.json?token=TOKEN&rank=3"), otherwise -1. */
int web_route(const char *target, const char *host, const char token[WEB_TOKEN + 1], int *ret_rank);

enum { WEB_FORBIDDEN = 403, WEB_NOT_FOUND = 404 };

#endif
