/* libddrun's side of the wire: the first byte chooses the request, the second the pieces in which
 * the rest arrives as the reply; the values of the reply are then parsed as records of a
 * collective. */
#include "lib/allgather_records.h"
#include "lib/c10d_wire.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEMBERS = 5, MAX_IN = 4096 };

static void ask(struct wire *w, unsigned what)
{
    const struct wire_key k = {"ddrun/0/", "k"};
    wire_init(w, MAX_IN);
    if ((what & 1) != 0)
        wire_hello(w, 0x01020304);
    if ((what & 2) != 0)
        wire_delete(w, k);
    if ((what & 4) != 0)
        wire_barrier(w, k, 2);
    if ((what & 8) != 0)
        wire_get(w, k);
    if ((what & 16) != 0) {
        wire_multi_get(w, what >> 5);
        for (unsigned i = 0; i < what >> 5; i++)
            wire_key(w, k);
    }
    if ((what & 31) == 0)
        wire_cancel_wait(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire w;
    struct record v[MEMBERS];
    if (size < 2)
        return 0;
    ask(&w, data[0]);
    size_t piece = data[1] + 1U, at = 2;
    while (at < size && !wire_done(&w)) {
        size_t n = piece < size - at ? piece : size - at;
        ssize_t used = wire_feed(&w, data + at, n);
        if (used < 0)
            break;
        if ((size_t)used < n && !wire_done(&w))
            abort();
        at += (size_t)used;
    }
    if (w.in.len > MAX_IN)
        abort();
    for (size_t i = 0; wire_done(&w) && i < w.nstrs; i++)
        (void)records_parse(v, MEMBERS, wire_str(&w, i), w.strs[i].len);
    wire_done_with(&w);
    return 0;
}
