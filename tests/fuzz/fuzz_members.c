/* rdzv: any text as the members of a round; an accepted one survives encoding and decoding. */
#include "rdzv/members.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(rdzv_members) struct rdzv_members m = RDZV_MEMBERS_NONE;
    DD_AUTO(rdzv_members) struct rdzv_members again = RDZV_MEMBERS_NONE;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    if (text == NULL || rdzv_members_parse(&m, text, NULL) < 0)
        return 0;
    if (rdzv_members_format(&out, &m) < 0 ||
        rdzv_members_parse(&again, dd_buf_str(&out), NULL) < 0 || !rdzv_members_same(&m, &again) ||
        m.restarts != again.restarts || m.tie != again.tie || m.n != again.n ||
        (m.n > 0 && memcmp(m.index, again.index, (size_t)m.n * sizeof(*m.index)) != 0))
        abort();
    return 0;
}
