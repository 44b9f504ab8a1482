/* judge: any JSON as observations of the nodes of a job; each finding has nodes and sentences. */
#include "doctor/judge.h"
#include "doctor/pair_figures.h"

#include "base/auto.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check(const json_t *findings)
{
    size_t i;
    const json_t *f;
    must(json_is_array(findings) && doctor_faults(findings) <= json_array_size(findings));
    json_array_foreach (findings, i, f) {
        must(json_is_string(json_object_get(f, "nodes")));
        must(json_string_length(json_object_get(f, "what")) > 0);
        must(json_is_string(json_object_get(f, "do")));
        must(json_is_boolean(json_object_get(f, "hint")));
    }
}

/* The table has a row for each pair, and the document as many pairs. */
static void check_pairs(const json_t *looks, const struct hostlist *nodes)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    struct pair_figures f;
    must(pair_figures_of(&f, looks, nodes) == 0 && pair_figures_write(&f, &out) == 0);
    json_t *o = pair_figures_json(&f);
    must(json_array_size(json_object_get(o, "pairs")) == f.n);
    json_decref(o);
    pair_figures_done(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    json_t *looks = json_loadb(size > 0 ? (const char *)data : "", size, JSON_REJECT_DUPLICATES,
                               NULL);
    must(hostlist_parse(&nodes, "node[1-4]", NULL) == 0);
    if (json_is_array(looks)) {
        for (size_t i = json_array_size(looks); i > 0; i--)
            if (!json_is_object(json_array_get(looks, i - 1)))
                (void)json_array_remove(looks, i - 1); /* the asking node keeps only objects */
        json_t *findings = doctor_judge(looks, nodes, NULL);
        must(findings != NULL);
        check(findings);
        json_decref(findings);
        check_pairs(looks, nodes);
    }
    json_decref(looks);
    return 0;
}
