#include "launch/bootstrap_payload.h"

#include "base/cursor.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { VERSION = 3 };

/* ---- encode ---- */

static int put_u32(struct dd_buf *out, size_t v)
{
    return dd_wr_be(out, v, 4);
}

static int put_str(struct dd_buf *out, const char *s)
{
    size_t n = s != NULL ? strlen(s) : 0;
    int rc = put_u32(out, n);
    return rc < 0 || n == 0 ? rc : dd_buf_append(out, s, n);
}

static int put_list(struct dd_buf *out, const struct dd_strv *sv)
{
    int rc = sv->n > BOOTSTRAP_STRINGS_MAX ? -EMSGSIZE : put_u32(out, sv->n);
    for (size_t i = 0; i < sv->n && rc == 0; i++)
        rc = put_str(out, sv->v[i]);
    return rc;
}

static int put_nodes(struct dd_buf *out, const struct hostlist *nodes)
{
    DD_AUTO(buf) struct dd_buf folded = DD_BUF_INIT(BOOTSTRAP_MAX);
    int rc = hostlist_fold(nodes, &folded);
    const char *text = rc == 0 ? dd_buf_str(&folded) : NULL;
    return text == NULL ? -ENOMEM : put_str(out, text);
}

static int put_alloc(struct dd_buf *out, const struct alloc *a)
{
    const char *const names[] = {a->source, a->job_id, a->run_id};
    int rc = 0;
    for (size_t i = 0; i < 3 && rc == 0; i++)
        rc = put_str(out, names[i]);
    if (rc == 0)
        rc = put_str(out, a->requeue_id);
    if (rc == 0)
        rc = dd_wr_u8(out, a->requeued);
    if (rc == 0)
        rc = put_nodes(out, a->nodes);
    if (rc == 0)
        rc = put_u32(out, (size_t)a->nnodes);
    if (rc == 0)
        rc = put_str(out, a->host_addr);
    if (rc == 0)
        rc = put_u32(out, (size_t)a->nports);
    for (int i = 0; i < a->nports && rc == 0; i++)
        rc = put_u32(out, a->ports[i]);
    if (rc == 0)
        rc = put_str(out, a->psk);
    if (rc == 0)
        rc = dd_wr_u8(out, a->on_slurm);
    if (rc == 0)
        rc = dd_wr_be(out, a->end_time, 8);
    return rc < 0 ? rc : put_list(out, &a->gpus);
}

_Static_assert(BOOTSTRAP_LIMITS == (int)RLIM_NLIMITS,
               "BOOTSTRAP_LIMITS must have an entry for each RLIMIT_*");

int bootstrap_payload_encode(struct dd_buf *out, const struct bootstrap_payload *p)
{
    int rc = dd_wr_u8(out, VERSION);
    if (rc == 0)
        rc = put_u32(out, p->umask);
    if (rc == 0)
        rc = put_u32(out, p->limits_n);
    for (uint32_t i = 0; i < p->limits_n && rc == 0; i++)
        rc = dd_wr_be(out, p->limits[i], 8);
    if (rc == 0)
        rc = put_str(out, p->directory);
    if (rc == 0)
        rc = put_alloc(out, p->alloc);
    if (rc == 0)
        rc = put_list(out, &p->argv);
    return rc < 0 ? rc : put_list(out, &p->env);
}

/* ---- decode ---- */

static uint64_t get_u64(struct dd_rd *r)
{
    uint64_t high = dd_rd_u32_be(r);
    return high << 32 | dd_rd_u32_be(r);
}

/* Return bytes lent by the input, and their number in *ret_n. NULL, with the reader marked as
 * failed: they are incomplete, or contain a NUL byte. */
static const char *get_bytes(struct dd_rd *r, size_t *ret_n)
{
    *ret_n = dd_rd_u32_be(r);
    const unsigned char *p = dd_rd_bytes(r, *ret_n);
    if (p != NULL && memchr(p, '\0', *ret_n) != NULL)
        r->failed = true;
    return r->failed ? NULL : (const char *)p;
}

/* Return a copy (free()). NULL: the reader has failed (also if out of memory), or with or_null the
 * string is empty. */
static char *get_str(struct dd_rd *r, bool or_null)
{
    size_t n;
    const char *p = get_bytes(r, &n);
    if (p == NULL || (n == 0 && or_null))
        return NULL;
    char *s = strndup(p, n);
    r->failed |= s == NULL;
    return s;
}

static void get_list(struct dd_rd *r, struct dd_strv *out)
{
    size_t count = dd_rd_u32_be(r);
    r->failed |= count > BOOTSTRAP_STRINGS_MAX;
    for (size_t i = 0; i < count && !r->failed; i++) {
        size_t n;
        const char *p = get_bytes(r, &n);
        r->failed |= p == NULL || dd_strv_pushn(out, p, n) < 0;
    }
}

static const char *known_source(const char *name)
{
    for (size_t i = 0; name != NULL && alloc_table[i] != NULL; i++)
        if (strcmp(alloc_table[i]->name, name) == 0)
            return alloc_table[i]->name;
    return "launcher";
}

static void get_nodes(struct dd_rd *r, struct alloc *a)
{
    DD_AUTO(free) char *text = get_str(r, false);
    r->failed |= text == NULL || hostlist_parse(&a->nodes, text, NULL) < 0;
    a->nnodes = (int)(dd_rd_u32_be(r) & INT32_MAX);
    r->failed = r->failed || hostlist_count(a->nodes) == 0 ||
                hostlist_count(a->nodes) != (size_t)a->nnodes;
}

static void get_ports(struct dd_rd *r, struct alloc *a)
{
    uint32_t n = dd_rd_u32_be(r);
    r->failed |= n > ALLOC_MAX_PORTS;
    a->nports = r->failed ? 0 : (int)n;
    /* Ports in a payload are those of --master-port: Slurm's step ports never occur, since nodes
     * are started from a batch script only. */
    a->port_is_fixed = a->nports > 0;
    for (int i = 0; i < a->nports; i++) {
        uint32_t port = dd_rd_u32_be(r);
        r->failed |= port == 0 || port > UINT16_MAX;
        a->ports[i] = (uint16_t)port;
    }
}

/* Read the GPU numbers: one entry for each node, or none at all. */
static void get_gpus(struct dd_rd *r, struct alloc *a)
{
    get_list(r, &a->gpus);
    r->failed |= a->gpus.n != 0 && a->gpus.n != (size_t)a->nnodes;
    for (size_t i = 0; i < a->gpus.n; i++)
        r->failed |= a->gpus.v[i][strspn(a->gpus.v[i], "0123456789,")] != '\0';
}

static struct alloc *get_alloc(struct dd_rd *r)
{
    struct alloc *a = calloc(1, sizeof(*a));
    r->failed |= a == NULL;
    if (a == NULL)
        return NULL;
    DD_AUTO(free) char *source = get_str(r, false);
    a->source = known_source(source);
    a->job_id = get_str(r, false);
    a->run_id = get_str(r, false);
    a->requeue_id = get_str(r, true);
    a->requeued = dd_rd_u8(r) != 0;
    get_nodes(r, a);
    a->host_addr = get_str(r, true);
    get_ports(r, a);
    a->psk = get_str(r, true);
    a->on_slurm = dd_rd_u8(r) != 0;
    a->end_time = get_u64(r);
    get_gpus(r, a);
    a->index = -1;
    return a;
}

int bootstrap_payload_decode(struct bootstrap_payload *ret, const void *data, size_t n,
                             struct dd_err *err)
{
    struct dd_rd r = dd_rd_of(data, n);
    DD_AUTO(bootstrap_payload) struct bootstrap_payload p = {0};
    r.failed = dd_rd_u8(&r) != VERSION;
    p.umask = dd_rd_u32_be(&r) & 0777;
    p.limits_n = dd_rd_u32_be(&r);
    r.failed |= p.limits_n > BOOTSTRAP_LIMITS;
    for (uint32_t i = 0; !r.failed && i < p.limits_n; i++)
        p.limits[i] = get_u64(&r);
    p.directory = get_str(&r, false);
    p.alloc = get_alloc(&r);
    get_list(&r, &p.argv);
    get_list(&r, &p.env);
    if (r.failed || dd_rd_left(&r) > 0 || p.argv.n == 0)
        return dd_err_set(
            err, -EPROTO,
            "cannot decode the payload (%zu bytes) from the starting node: invalid, or "
            "out of memory"
            "\n  tip: install the same version of ddrun on all nodes",
            n);
    *ret = p;
    p = (struct bootstrap_payload){0};
    return 0;
}

void bootstrap_payload_done(struct bootstrap_payload *p)
{
    dd_strv_done(&p->argv);
    dd_strv_done(&p->env);
    free(p->directory);
    alloc_free(p->alloc);
    *p = (struct bootstrap_payload){0};
}

/* ---- environment ---- */

/* Source of a variable of a started node: the launching shell, the node itself, the node if it sets
 * the variable and otherwise the shell, or neither (the variable is unset). UUIDs of GPUs are never
 * taken from the shell: the cgroup hook of PBS sets those of one node. Src: measured with OpenPBS
 * 23.06.06 (TM tasks) and OpenSSH 9.2. */
enum rule { SHELLS, OWN, OWN_FIRST, NOBODYS };

static const struct {
    const char *pattern;
    enum rule rule;
} rules[] = {
    {"HOSTNAME", OWN},
    {"HOST", OWN},
    {"SHLVL", OWN},
    {"_", OWN},
    {"OLDPWD", OWN},
    {"PWD", OWN},
    {"SSH_*", NOBODYS},
    {"XDG_RUNTIME_DIR", OWN},
    {"XDG_SESSION_*", NOBODYS},
    {"DISPLAY", NOBODYS},
    {"PBS_NODENUM", OWN},
    {"PBS_TASKNUM", OWN},
    {"PBS_VNODENUM", OWN},
    {"OAR_KEY*", OWN},
    {"TMPDIR", OWN_FIRST},
    {"NCPUS", OWN_FIRST},
    {"PBS_GPUFILE", OWN_FIRST},
    {"CUDA_VISIBLE_DEVICES", OWN_FIRST},
    {"ROCR_VISIBLE_DEVICES", OWN_FIRST},
    {"HIP_VISIBLE_DEVICES", OWN_FIRST},
    {"ZE_AFFINITY_MASK", OWN_FIRST},
    {"GPU_DEVICE_ORDINAL", OWN_FIRST},
};

static enum rule rule_of(const char *name)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (fnmatch(rules[i].pattern, name, 0) == 0)
            return rules[i].rule;
    return SHELLS;
}

static bool names_one_nodes_gpus(const char *value)
{
    return strncmp(value, "GPU-", 4) == 0 || strncmp(value, "MIG-", 4) == 0;
}

/* Split "NAME=value". The caller frees the name. */
static char *name_of(const char *entry, const char **ret_value)
{
    const char *eq = strchr(entry, '=');
    *ret_value = eq != NULL ? eq + 1 : "";
    return strndup(entry, eq != NULL ? (size_t)(eq - entry) : strlen(entry));
}

static bool takes_shells(const char *name, const char *value, char *const *own)
{
    enum rule rule = rule_of(name);
    return rule == SHELLS ||
           (rule == OWN_FIRST && dd_env_get(own, name) == NULL && !names_one_nodes_gpus(value));
}

static bool keeps_own(const char *name)
{
    enum rule rule = rule_of(name);
    return rule == OWN || rule == OWN_FIRST;
}

int bootstrap_payload_env(struct dd_strv *ret, char *const *shells, char *const *own)
{
    const char *value;
    int rc = 0;
    for (size_t i = 0; shells != NULL && shells[i] != NULL && rc == 0; i++) {
        DD_AUTO(free) char *name = name_of(shells[i], &value);
        rc = name == NULL                     ? -ENOMEM
             : takes_shells(name, value, own) ? dd_strv_push(ret, shells[i])
                                              : 0;
    }
    for (size_t i = 0; own != NULL && own[i] != NULL && rc == 0; i++) {
        DD_AUTO(free) char *name = name_of(own[i], &value);
        rc = name == NULL ? -ENOMEM : keeps_own(name) ? dd_strv_push(ret, own[i]) : 0;
    }
    return rc;
}
