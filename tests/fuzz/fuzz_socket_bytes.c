/* worker: any bytes as the kernel's answer about TCP connections. */
#include "worker/socket_bytes.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct socket_bytes s = {0};
    const int rc = socket_bytes_parse(&s, data, size);
    uint64_t bytes;
    if (rc > 1 || s.n > size / 16 || s.n > s.cap)
        abort();
    for (size_t i = 0; i < s.n && s.n == 1; i++)
        if (!socket_bytes_find(&s, s.v[i].inode, &bytes) || bytes != s.v[i].bytes)
            abort();
    socket_bytes_done(&s);
    return 0;
}
