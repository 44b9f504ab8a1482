#include "node/health.h"

#include "base/auto.h"
#include "base/num.h"
#include "node/health_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

/* Form of the argument, which follows "NAME=". */
enum argument { NONE, PATH, SIZE, PATH_AND_SIZE };

static const struct check {
    const char *name;
    int bit; /* 0: the check needs an argument */
    enum argument argument;
    health_note_f *note; /* NULL: nothing to note */
    health_idle_f *idle; /* NULL: there is always something to check */
    health_check_f *check;
} checks[] = {
    {"gpu", NODE_HEALTH_GPU, NONE, health_gpu_note, health_gpu_idle, health_gpu_check},
    {"ib", NODE_HEALTH_IB, NONE, health_ib_note, health_ib_idle, health_ib_check},
    {"shm", NODE_HEALTH_SHM, NONE, NULL, NULL, health_shm_check},
    {"disk", NODE_HEALTH_DISK, NONE, NULL, NULL, health_tmpdir_check},
    {"storage", 0, PATH, NULL, NULL, health_storage_check},
    {"memory", 0, SIZE, NULL, NULL, health_memory_check},
    {"disk", 0, PATH_AND_SIZE, NULL, NULL, health_disk_check},
};

enum { CHECKS = sizeof(checks) / sizeof(checks[0]) };

/* ---- the list ---- */

static int parse_target(struct node_health_target *t, enum argument kind, const char *text,
                        struct dd_err *err)
{
    const char *colon = kind == PATH_AND_SIZE ? strrchr(text, ':') : NULL;
    const char *size = kind == SIZE ? text : colon != NULL ? colon + 1 : "";
    const size_t path = kind == SIZE ? 0 : colon != NULL ? (size_t)(colon - text) : strlen(text);
    if (kind != PATH && (dd_num_bytes(size, &t->bytes) < 0 || t->bytes == 0))
        return dd_err_set(err, -EINVAL, "invalid value '%.100s': expected %s", text,
                          kind == SIZE ? "memory=SIZE, as in memory=64G"
                                       : "disk=PATH:SIZE, as in disk=/scratch:10G");
    if (kind != SIZE && (text[0] != '/' || path >= sizeof(t->path)))
        return dd_err_set(err, -EINVAL,
                          "invalid path '%.*s': expected an absolute path of at most %zu bytes",
                          (int)(path < 100 ? path : 100), text, sizeof(t->path) - 1);
    (void)snprintf(t->path, sizeof(t->path), "%.*s", (int)path, text);
    return 0;
}

static int parse_argument(struct node_health_list *l, const char *word, size_t name,
                          struct dd_err *err)
{
    for (int i = 0; i < CHECKS; i++) {
        if (checks[i].argument == NONE || strlen(checks[i].name) != name ||
            strncmp(checks[i].name, word, name) != 0)
            continue;
        if (l->n == NODE_HEALTH_TARGETS)
            return dd_err_set(err, -EINVAL,
                              "too many checks with a value at '%.100s': expected at most %d", word,
                              NODE_HEALTH_TARGETS);
        l->targets[l->n].row = i;
        return parse_target(&l->targets[l->n++], checks[i].argument, word + name + 1, err);
    }
    return 1;
}

static int parse_word(struct node_health_list *l, const char *word, struct dd_err *err)
{
    const size_t name = strcspn(word, "=");
    int rc = word[name] == '=' ? parse_argument(l, word, name, err) : 1;
    for (size_t i = 0; i < CHECKS && word[name] == '\0'; i++)
        if (checks[i].bit != 0 && (strcmp(checks[i].name, word) == 0 || strcmp(word, "all") == 0)) {
            l->checks |= checks[i].bit;
            rc = 0;
        }
    if (rc == 1)
        return dd_err_set(err, -EINVAL,
                          "invalid value '%.100s': expected gpu, ib, shm, disk, storage=PATH, "
                          "memory=SIZE, disk=PATH:SIZE, all, or none alone",
                          word);
    return rc;
}

int node_health_parse(struct node_health_list *ret, const char *text, struct dd_err *err)
{
    int rc = 0;
    *ret = (struct node_health_list){0};
    if (strcmp(text, "none") == 0)
        return 0;
    for (const char *p = text; rc == 0; p++) {
        const size_t n = strcspn(p, ",");
        DD_AUTO(free) char *word = strndup(p, n);
        if (word == NULL)
            return dd_err_set(err, -ENOMEM, "out of memory");
        rc = parse_word(ret, word, err);
        p += n;
        if (*p == '\0')
            break;
    }
    return rc;
}

/* ---- checks ---- */

int node_health_new(struct node_health **ret, const struct node_health_cfg *cfg, struct dd_err *err)
{
    struct node_health *h = calloc(1, sizeof(*h));
    int rc = h == NULL || (h->page = health_page_new()) == NULL ? -ENOMEM : 0;
    if (rc == 0)
        h->cfg = *cfg;
    for (size_t i = 0; i < CHECKS && rc == 0; i++)
        if ((cfg->list->checks & checks[i].bit) && checks[i].note != NULL)
            rc = checks[i].note(h);
    if (rc < 0) {
        node_health_free(h);
        return dd_err_set(err, rc, "out of memory");
    }
    *ret = h;
    return 0;
}

bool node_health_is_idle(const struct node_health *h)
{
    bool idle = h->cfg.list->n == 0;
    for (size_t i = 0; i < CHECKS && idle; i++)
        if (h->cfg.list->checks & checks[i].bit)
            idle = checks[i].idle != NULL && checks[i].idle(h);
    return idle;
}

static int check_one(const struct node_health *h, const struct check *c,
                     const struct node_health_target *t, struct dd_err *why)
{
    const char *path = t != NULL ? t->path : "";
    (void)snprintf(h->page->check, HEALTH_SENTENCE_MAX, "%s%s%.300s", c->name,
                   path[0] != '\0' ? "=" : "", path);
    return c->check(h, t, why);
}

int node_health_check(const struct node_health *h, struct dd_err *why)
{
    const struct node_health_list *l = h->cfg.list;
    int rc = 0;
    h->page->warnings[0] = h->page->note[0] = h->page->doing[0] = '\0';
    for (size_t i = 0; i < CHECKS && rc == 0; i++)
        if (l->checks & checks[i].bit)
            rc = check_one(h, &checks[i], NULL, why);
    for (int i = 0; i < l->n && rc == 0; i++)
        rc = check_one(h, &checks[l->targets[i].row], &l->targets[i], why);
    return rc;
}

void node_health_watch(const struct node_health *h)
{
    health_gpu_watch(h);
}

/* The child may write at the same time; some values may then be those of the next reading. */
int node_health_gpus(const struct node_health *h, struct gpu_usage ret[GPU_USAGE_MAX],
                     uint64_t *ret_readings)
{
    *ret_readings = __atomic_load_n(&h->page->readings, __ATOMIC_ACQUIRE);
    const int n = h->page->nusage;
    if (n < 0 || n > GPU_USAGE_MAX)
        return 0;
    for (int i = 0; i < n; i++) {
        ret[i] = h->page->usage[i];
        ret[i].uuid[sizeof(ret[i].uuid) - 1] = '\0';
    }
    return n;
}

void node_health_free(struct node_health *h)
{
    if (h == NULL)
        return;
    dd_strv_done(&h->gpus);
    dd_strv_done(&h->ports);
    health_page_free(h->page);
    free(h);
}

const char *node_health_name(const struct node_health *h)
{
    return h->page->check;
}

const char *node_health_doing(const struct node_health *h)
{
    return h->page->doing;
}

const char *node_health_warnings(const struct node_health *h)
{
    return h->page->warnings;
}

const char *node_health_note(const struct node_health *h)
{
    return h->page->note;
}
