/* etcd: any bytes as its replies, as the entry of a host, as a URL, as packets of the helper. */
#include "web/entry.h"
#include "web/etcd.h"
#include "web/etcd_url.h"
#include "web/web_wire.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_answers(const char *text)
{
    for (int call = 0; call < ETCD_CALLS; call++) {
        for (int status = 200; status <= 400; status += 200) {
            DD_AUTO(etcd_answer) struct etcd_answer a = {0};
            struct dd_err err = {0};
            enum etcd_result r = etcd_answer_decode(&a, (enum etcd_call)call, status, text, &err);
            must(r != ETCD_DONE || status == 200);
            must(r == ETCD_DONE || (a.value == NULL && a.token == NULL));
            must(a.value == NULL || strlen(a.value) <= ETCD_VALUE_MAX + 3);
            must(a.revision >= 0 && a.lease >= 0);
            must(r != ETCD_FAILED || err.text[0] != '\0');
        }
    }
}

/* An accepted entry survives encoding and decoding. */
static void check_entry(const char *text)
{
    DD_AUTO(entry) struct entry e = {0};
    DD_AUTO(entry) struct entry again = {0};
    DD_AUTO(free) char *written = NULL;
    if (entry_decode(&e, text, NULL) < 0)
        return;
    must(entry_encode(&written, &e) == 0 && entry_decode(&again, written, NULL) == 0);
    must(again.port == e.port && again.epoch == e.epoch && again.started == e.started &&
         again.addrs.n == e.addrs.n);
    must(strcmp(again.node, e.node) == 0 && strcmp(again.secret, e.secret) == 0 &&
         strcmp(again.id, e.id) == 0);
}

static void check_url(const char *text)
{
    DD_AUTO(etcd_url) struct etcd_url u = {0};
    struct dd_err err = {0};
    if (etcd_url_parse(&u, text, &err) < 0)
        must(err.text[0] != '\0' && u.bases.n == 0);
    else
        must(u.bases.n > 0 && u.bases.n <= ETCD_HOSTS_MAX && u.prefix[0] == '/' &&
             (u.cert == NULL) == (u.key == NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup((const char *)data, size);
    struct web_answer a;
    struct web_asked asked;
    must(text != NULL);
    check_answers(text);
    check_entry(text);
    check_url(text);
    if (web_answer_decode(&a, data, size) == 0)
        web_answer_done(&a);
    if (web_request_decode(&asked, data, size) == 0)
        web_asked_done(&asked);
    return 0;
}
