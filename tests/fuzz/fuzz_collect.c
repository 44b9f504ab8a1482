/* collect: the first byte chooses the parser: the frames between nodes, or the rules of the command
 * line. What is accepted as a frame encodes to the same bytes. */
#include "base/auto.h"
#include "base/buf.h"
#include "stage/collect_codec.h"
#include "stage/collect_rules.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void read_frame(const uint8_t *p, size_t n)
{
    static struct collect_frame f;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(n + 100);
    if (collect_frame_decode(&f, p, n) < 0)
        return;
    must(collect_frame_encode(&out, &f) == 0);
    must(out.len == n && memcmp(out.data, p, n) == 0);
    must(f.type != COLLECT_OFFER || (f.text[0] != '/' && strstr(f.text, "/../") == NULL));
    must(f.type != COLLECT_HELLO || strchr(f.text, '/') == NULL);
    must(f.type != COLLECT_PIECE || (f.size > 0 && f.size <= COLLECT_PIECE_MAX));
}

static void read_rule(const uint8_t *p, size_t n)
{
    char name[] = "A=x/y";
    char *env[] = {name, NULL};
    DD_AUTO(free) char *rule = strndup((const char *)p, n);
    DD_AUTO(free) char *pattern = NULL;
    DD_AUTO(free) char *dir = NULL;
    DD_AUTO(free) char *full = NULL;
    if (rule == NULL || collect_rule_split(rule, &pattern, &dir, NULL) < 0)
        return;
    must(pattern[0] != '\0' && dir[0] != '\0');
    if (collect_rule_expand(&full, pattern, "/here", env, NULL) < 0)
        return;
    const size_t prefix = collect_rule_prefix(full);
    must(full[0] == '/' && prefix >= 1 && prefix <= strlen(full) && full[prefix - 1] == '/');
    must(strstr(full, "/../") == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == 'f')
        read_frame(data + 1, size - 1);
    else if (size > 0)
        read_rule(data + 1, size - 1);
    return 0;
}
