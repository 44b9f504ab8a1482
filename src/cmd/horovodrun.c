#include "cmd/horovodrun.h"

#include "base/io.h"
#include "base/num.h"
#include "base/strv.h"
#include "cmd/ddrun_options.h"
#include "hostlist/hostlist.h"
#include "rdzv/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 4 << 20 };

bool horovodrun_is_name(const char *argv0)
{
    const char *slash = argv0 != NULL ? strrchr(argv0, '/') : NULL;
    return argv0 != NULL && strcmp(slash != NULL ? slash + 1 : argv0, "horovodrun") == 0;
}

/* ---- hosts with slots ---- */

static int horovodrun_no_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory");
}

/* Add the hosts of an expression, each with this number of slots. */
static int horovodrun_add(struct horovodrun *h, struct dd_buf *list, const char *names, int slots,
                          struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *these = NULL;
    int rc = hostlist_parse(&these, names, err);
    if (rc < 0)
        return rc;
    const int more = (int)hostlist_count(these);
    int *grown = realloc(h->slots, ((size_t)h->n + (size_t)more) * sizeof(*grown) + 1);
    if (grown == NULL || dd_buf_printf(list, "%s%s", list->len > 0 ? "," : "", names) < 0)
        rc = horovodrun_no_memory(err);
    if (grown != NULL)
        h->slots = grown;
    for (int i = 0; i < more && rc == 0; i++)
        h->slots[h->n++] = slots;
    return rc;
}

/* Split "names:slots". Return false if there is no valid number of slots, or if there are several
 * colons, as in an IPv6 address. */
static bool horovodrun_split_slots(char *item, int *ret)
{
    char *colon = strchr(item, ':');
    if (colon == NULL || colon != strrchr(item, ':') ||
        dd_num_int(colon + 1, 1, PLAN_MAX_SLOTS, ret) < 0)
        return false;
    *colon = '\0';
    return true;
}

/* Return the next item of a list. Commas inside [] do not separate items. */
static char *horovodrun_next_item(char **at)
{
    char *item = *at;
    int depth = 0;
    if (item == NULL)
        return NULL;
    for (char *p = item;; p++) {
        depth += (*p == '[') - (*p == ']');
        if (*p == '\0' || (*p == ',' && depth <= 0)) {
            *at = *p == '\0' ? NULL : p + 1;
            *p = '\0';
            return item;
        }
    }
}

static int horovodrun_read_list(struct horovodrun *h, const char *text, struct dd_buf *list,
                                struct dd_err *err)
{
    DD_AUTO(free) char *copy = strdup(text);
    char *at = copy;
    char *item;
    int with = 0;
    int n = 0;
    int rc = copy == NULL ? horovodrun_no_memory(err) : 0;
    while (rc == 0 && (item = horovodrun_next_item(&at)) != NULL) {
        int slots = 0;
        n++;
        with += horovodrun_split_slots(item, &slots);
        if (with > 0 && with < n)
            return dd_err_set(err, -EINVAL,
                              "--hosts: '%.100s' has %s, unlike the hosts before it"
                              "\n  tip: use NAME:SLOTS for all hosts, or for none",
                              item, slots > 0 ? "slots" : "no valid number of slots");
        if (with > 0 && (rc = horovodrun_add(h, list, item, slots, err)) < 0)
            return dd_err_where(err, rc, "--hosts");
    }
    return rc;
}

/* Read "name slots=N" or "name:N". A line without slots has one slot. */
static int horovodrun_read_line(struct horovodrun *h, char *line, struct dd_buf *list,
                                struct dd_err *err)
{
    static const char key[] = "slots=";
    char *rest = NULL;
    int slots = 1;
    line[strcspn(line, "#")] = '\0';
    char *name = strtok_r(line, " \t\r", &rest);
    if (name == NULL)
        return 0;
    (void)horovodrun_split_slots(name, &slots);
    for (char *word; (word = strtok_r(NULL, " \t\r", &rest)) != NULL;)
        if (strncmp(word, key, sizeof(key) - 1) == 0 &&
            dd_num_int(word + sizeof(key) - 1, 1, PLAN_MAX_SLOTS, &slots) < 0)
            return dd_err_set(err, -EINVAL,
                              "invalid value '%.80s' of host '%.100s': expected slots=N with N "
                              "from 1 to %d",
                              word, name, PLAN_MAX_SLOTS);
    return horovodrun_add(h, list, name, slots, err);
}

static int horovodrun_read_file(struct horovodrun *h, const char *path, struct dd_buf *list,
                                struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf bytes = DD_BUF_INIT(FILE_MAX);
    char *rest = NULL;
    int rc = dd_read_file(path, &bytes, err);
    DD_AUTO(free) char *text = rc == 0 ? dd_buf_steal(&bytes) : NULL;
    if (rc == 0 && text == NULL)
        rc = horovodrun_no_memory(err);
    for (char *line = rc == 0 ? strtok_r(text, "\n", &rest) : NULL; line != NULL && rc == 0;
         line = strtok_r(NULL, "\n", &rest))
        rc = horovodrun_read_line(h, line, list, err);
    return rc < 0 ? dd_err_where(err, rc, "--hostfile") : 0;
}

/* Remove the hosts that get no worker, and the slots of the last host that remain free. */
static int horovodrun_cut(struct horovodrun *h, struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *all = NULL;
    DD_AUTO(buf) struct dd_buf list = DD_BUF_INIT(FILE_MAX);
    int left = h->np;
    int rc = hostlist_parse(&all, h->list, err);
    int n = 0;
    for (; rc == 0 && n < h->n && left > 0; n++) {
        if (dd_buf_printf(&list, "%s%s", n > 0 ? "," : "", hostlist_nth(all, (size_t)n)) < 0)
            rc = horovodrun_no_memory(err);
        h->slots[n] = h->slots[n] < left ? h->slots[n] : left;
        left -= h->slots[n];
    }
    if (rc == 0 && left > 0)
        rc = dd_err_set(err, -EINVAL, "%s %d exceeds the %d slot%s of the hosts", h->np_word, h->np,
                        h->np - left, h->np - left == 1 ? "" : "s");
    if (rc < 0)
        return rc;
    free(h->list);
    h->list = dd_buf_steal(&list);
    h->n = n;
    return h->list == NULL ? horovodrun_no_memory(err) : 0;
}

/* ---- numbers ---- */

static int horovodrun_workers_of_each(const struct horovodrun *h, const struct ddrun_options *o,
                                      struct dd_err *err)
{
    int n = h->n > 0 ? h->slots[0] : 0;
    for (int i = 1; i < h->n; i++)
        if (h->slots[i] != n)
            return dd_err_set(
                err, -EINVAL,
                "--min-np and --max-np need the same number of slots on each host; found %d and "
                "%d",
                n, h->slots[i]);
    if (n == 0 &&
        (o->nproc_per_node == NULL || dd_num_int(o->nproc_per_node, 1, PLAN_MAX_SLOTS, &n) < 0))
        return dd_err_set(err, -EINVAL,
                          "--min-np and --max-np need the number of workers per node"
                          "\n  tip: add --nproc-per-node=N");
    return n;
}

static int horovodrun_nodes_of(const char *option, int workers, int each, struct dd_err *err)
{
    return workers % each == 0
               ? workers / each
               : dd_err_set(err, -EINVAL, "%s %d is not a multiple of the %d workers per node",
                            option, workers, each);
}

static int horovodrun_be_elastic(const struct horovodrun *h, struct ddrun_options *o,
                                 struct dd_err *err)
{
    const int least = h->min_np > 0 ? h->min_np : h->np;
    const int most = h->max_np > 0 ? h->max_np : h->np;
    if (o->nnodes.max > 0)
        return dd_err_set(err, -EINVAL, "--min-np and --max-np cannot be combined with --nnodes");
    if (least == 0)
        return dd_err_set(err, -EINVAL, "--max-np %d needs -np or --min-np", most);
    if (most == 0 || h->min_np > most)
        return dd_err_set(err, -EINVAL, "--min-np %d needs -np or --max-np of at least that number",
                          h->min_np);
    if (least > most)
        return dd_err_set(err, -EINVAL, "%s %d exceeds --max-np %d", h->np_word, least, most);
    int each = horovodrun_workers_of_each(h, o, err);
    int min = each > 0
                  ? horovodrun_nodes_of(h->min_np > 0 ? "--min-np" : h->np_word, least, each, err)
                  : each;
    int max = min > 0
                  ? horovodrun_nodes_of(h->max_np > 0 ? "--max-np" : h->np_word, most, each, err)
                  : min;
    if (max < 0)
        return max;
    o->nnodes = (struct node_range){.min = min, .max = max, .range = true};
    return 0;
}

int horovodrun_apply(struct horovodrun *h, struct ddrun_options *o, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf list = DD_BUF_INIT(FILE_MAX);
    const bool elastic = h->min_np > 0 || h->max_np > 0;
    int rc = 0;
    if (o->hosts != NULL)
        rc = horovodrun_read_list(h, o->hosts, &list, err);
    else if (o->hostfile != NULL && h->np > 0)
        rc = horovodrun_read_file(h, o->hostfile, &list, err);
    if (rc == 0 && h->n > 0 && (h->list = dd_buf_steal(&list)) == NULL)
        rc = horovodrun_no_memory(err);
    if (rc == 0 && h->n > 0 && h->np > 0 && !elastic)
        rc = horovodrun_cut(h, err);
    int each;
    const bool listed = h->n > 0;
    const bool counted = h->np > 0 && !elastic;
    if (rc == 0 && o->nproc_per_node != NULL && (listed || counted) &&
        (listed || dd_num_int(o->nproc_per_node, 1, PLAN_MAX_SLOTS, &each) < 0))
        rc = dd_err_set(err, -EINVAL,
                        "%s and %s both set the number of workers per node"
                        "\n  tip: omit one of them",
                        listed ? "slots of hosts" : h->np_word, h->nproc_word);
    if (rc == 0 && elastic)
        rc = horovodrun_be_elastic(h, o, err);
    if (rc < 0 || h->n == 0)
        return rc;
    o->hosts = h->list;
    o->hostfile = NULL;
    return 0;
}

int horovodrun_nproc(const struct ddrun_options *o, int index, int nnodes, struct dd_err *err)
{
    const struct horovodrun *h = &o->horovodrun;
    const char *s = nnodes == 1 ? "" : "s";
    int each;
    if (h->n > 0)
        return index >= 0 && index < h->n ? h->slots[index] : 0;
    if (h->np == 0 || h->min_np > 0 || h->max_np > 0)
        return 0;
    if (o->nproc_per_node != NULL && dd_num_int(o->nproc_per_node, 1, PLAN_MAX_SLOTS, &each) == 0 &&
        each * nnodes != h->np)
        return dd_err_set(err, -EINVAL,
                          "%s %d contradicts %s %d: the job has %d node%s"
                          "\n  tip: omit one of them",
                          h->np_word, h->np, h->nproc_word, each, nnodes, s);
    if (h->np % nnodes == 0)
        return h->np / nnodes;
    int rc = dd_err_set(err, -EINVAL, "%s %d is not divisible by %d nodes", h->np_word, h->np,
                        nnodes);
    return o->simulate_nodes > 0
               ? dd_err_tip(err, rc,
                            "use a multiple of %d: simulated nodes have equal numbers of workers",
                            nnodes)
               : dd_err_tip(err, rc, "set the slots of each node, as in -H node1:4,node2:2");
}

void horovodrun_done(struct horovodrun *h)
{
    free(h->list);
    free(h->slots);
    *h = (struct horovodrun){0};
}
