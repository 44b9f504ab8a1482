#include "stage/stage_ledger.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = 256 };

struct stage_record {
    bool come, gone;
    unsigned char digest[STAGE_DIGEST];
};

static int ledger_grow(struct stage_ledger *l, uint32_t seq)
{
    uint32_t cap = l->cap > 0 ? l->cap : RECORDS;
    if (seq < l->cap)
        return 0;
    while (cap <= seq)
        cap *= 2;
    struct stage_record *v = realloc(l->records, cap * sizeof(*v));
    if (v == NULL)
        return -ENOMEM;
    memset(v + l->cap, 0, (cap - l->cap) * sizeof(*v));
    l->records = v;
    l->cap = cap;
    return 0;
}

int stage_ledger_take(struct stage_ledger *l, uint32_t seq)
{
    if (seq < l->cap && l->records[seq].come)
        return l->records[seq].gone ? STAGE_NEWS_GONE : STAGE_NEWS_HELD;
    /* several threads read: chunks arrive out of order, but within the window */
    if (seq >= STAGE_CHUNKS_MAX || seq >= l->received + STAGE_WINDOW ||
        l->received - l->released >= STAGE_WINDOW)
        return -EPROTO;
    if (ledger_grow(l, seq) < 0)
        return -ENOMEM;
    l->records[seq].come = true;
    l->received++;
    return STAGE_NEWS_NEW;
}

void stage_ledger_digest(struct stage_ledger *l, uint32_t seq,
                         const unsigned char digest[STAGE_DIGEST])
{
    memcpy(l->records[seq].digest, digest, STAGE_DIGEST);
}

void stage_ledger_release(struct stage_ledger *l, uint32_t seq)
{
    l->records[seq].gone = true;
    l->released++;
}

bool stage_ledger_is_complete(const struct stage_ledger *l, uint32_t chunks)
{
    bool all = l->received == chunks && chunks <= l->cap;
    for (uint32_t i = 0; i < chunks && all; i++)
        all = l->records[i].come;
    return all;
}

int stage_ledger_total(const struct stage_ledger *l, uint32_t chunks,
                       unsigned char out[STAGE_DIGEST])
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool ok = md != NULL && stage_ledger_is_complete(l, chunks) &&
              EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1;
    for (uint32_t i = 0; i < chunks && ok; i++)
        ok = EVP_DigestUpdate(md, l->records[i].digest, STAGE_DIGEST) == 1;
    ok = ok && EVP_DigestFinal_ex(md, out, NULL) == 1;
    EVP_MD_CTX_free(md);
    return ok ? 0 : -EIO;
}

void stage_ledger_done(struct stage_ledger *l)
{
    free(l->records);
    *l = (struct stage_ledger){0};
}
