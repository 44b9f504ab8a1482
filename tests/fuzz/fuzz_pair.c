/* doctor: any text as a node's offer of a measurement; an accepted one has a port and a whole
 * token, or neither. */
#include "doctor/pair.h"

#include "base/auto.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    struct pair_offer offer;
    if (text == NULL)
        return 0;
    int rc = pair_offer_parse(&offer, text);
    if (rc == 0 && strlen(offer.token) != (offer.port != 0 ? PAIR_TOKEN : 0))
        abort();
    if (rc == 0 && strncmp(offer.address, text, strlen(offer.address)) != 0)
        abort();
    return 0;
}
