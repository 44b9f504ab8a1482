/* The target and the Host header of a request to 'ddctl web', separated by a line feed. Nothing
 * that shows the job is served to a request without the token. */
#include "cmd/ddctl_web_guard.h"
#include "tests/fuzz/input_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char token[] = "0123456789abcdef0123456789abcdef";
    char *text = input_text(data, size);
    if (text == NULL)
        return 0;
    char *host = strchr(text, '\n');
    if (host != NULL)
        *host++ = '\0';
    int rank;
    const int what = web_route(text, host, token, &rank);
    if ((what == WEB_PAGE || what == WEB_STATE || what == WEB_TIMELINE || what == WEB_LOG) &&
        strstr(text, token) == NULL)
        abort();
    if (what < WEB_RESOURCES && (what == WEB_LOG) != (rank >= 0))
        abort();
    if (what != WEB_FORBIDDEN && (host == NULL || !web_host_is_loopback(host)))
        abort();
    free(text);
    return 0;
}
