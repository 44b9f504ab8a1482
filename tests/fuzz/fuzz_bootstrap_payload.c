/* launch: any bytes as a bootstrap payload; an accepted one survives encoding and decoding. */
#include "launch/bootstrap_payload.h"
#include "launch/parent_link.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(bootstrap_payload) struct bootstrap_payload p = {0};
    DD_AUTO(bootstrap_payload) struct bootstrap_payload again = {0};
    DD_AUTO(buf) struct dd_buf bytes = DD_BUF_INIT(BOOTSTRAP_MAX);
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    struct launch_ticket t;
    if (text != NULL && launch_ticket_parse(&t, text, NULL) == 0)
        launch_ticket_done(&t);
    if (bootstrap_payload_decode(&p, data, size, NULL) < 0)
        return 0;
    if (bootstrap_payload_encode(&bytes, &p) < 0 ||
        bootstrap_payload_decode(&again, bytes.data, bytes.len, NULL) < 0 ||
        again.env.n != p.env.n || again.argv.n != p.argv.n ||
        again.alloc->nnodes != p.alloc->nnodes)
        abort();
    return 0;
}
