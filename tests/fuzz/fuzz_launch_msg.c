/* launch: any bytes as a message between a started node and its parent. */
#include "launch/launch_msg.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { NODES = 64 };
    DD_AUTO(launch_msg) struct launch_msg w = {0};
    DD_AUTO(buf) struct dd_buf bytes = DD_BUF_INIT(1 << 20);
    if (launch_msg_decode(&w, data, size, NODES) < 0)
        return 0;
    for (int i = 0; i < w.task.n; i++)
        if (w.task.nodes[i] < 0 || w.task.nodes[i] >= NODES)
            abort();
    if (w.node < 0 || w.node >= NODES || launch_msg_encode(&bytes, &w) < 0 || bytes.len > size)
        abort();
    /* a task has several encodings: any non-zero byte is true */
    if (w.type != LAUNCH_TASK && (bytes.len != size || memcmp(bytes.data, data, size) != 0))
        abort();
    return 0;
}
