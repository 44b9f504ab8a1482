/* Reads NCCL's answer to VERBOSE STATUS, a text. Src: NCCL 2.24 to 2.31, src/ras/client_support.cc
 * and "RAS" in NVIDIA's user guide. Lines that are not known are skipped. */
#include "report/nccl_ras.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

enum { RAS_GROUPS = 64, RAS_LINE = 512 };

struct ras_reader {
    struct nccl_ras *ret;
    int sizes[RAS_GROUPS]; /* ranks of each communicator of a group, by the group's number */
    bool in_table;
    bool known; /* a part of the text has been recognized */
    char communicator[NCCL_RAS_NAME];
    int size;
    struct nccl_ras_finding *finding; /* finding to which the next lines belong; NULL: none */
    struct nccl_ras_set *set;
    int rc;
};

/* ---- words ---- */

static bool ras_skip(const char **p, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(*p, word, n) != 0)
        return false;
    *p += n;
    return true;
}

static bool ras_number(const char **p, uint64_t most, uint64_t *ret)
{
    uint64_t n = 0;
    const char *at = *p;
    for (; isdigit((unsigned char)*at); at++) {
        const unsigned digit = (unsigned)(*at - '0');
        if (n > (most - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    if (at == *p)
        return false;
    *p = at;
    *ret = n;
    return true;
}

static bool ras_int(const char **p, int *ret)
{
    uint64_t n;
    if (!ras_number(p, RANK_SET_MAX - 1, &n))
        return false;
    *ret = (int)n;
    return true;
}

/* Return the PID in a line such as "GPU 0 managed by process 4711 on node 10.0.0.1"; 0: none. */
static int ras_pid(const char *p)
{
    int pid = 0;
    const char *at = strstr(p, "process ");
    if (at == NULL)
        return 0;
    at += strlen("process ");
    return ras_int(&at, &pid) ? pid : 0;
}

/* ---- findings ---- */

/* Begin a finding. If there are too many findings, the next lines belong to none. */
static void ras_begin(struct ras_reader *r, enum nccl_ras_kind kind, const char *operation,
                      size_t len)
{
    r->set = NULL;
    r->finding = nccl_ras_add(r->ret, kind);
    if (r->finding == NULL) {
        r->rc = r->ret->n < NCCL_RAS_FINDINGS ? -ENOMEM : r->rc;
        return;
    }
    nccl_ras_copy_name(r->finding->communicator, r->communicator, strlen(r->communicator));
    nccl_ras_copy_name(r->finding->operation, operation, len);
    r->finding->size = r->size;
}

/* Begin a set of the finding. Of a finding with too many sets, ignore the further ones. */
static void ras_begin_set(struct ras_reader *r, int count, uint64_t operation, const char *what,
                          size_t len)
{
    struct nccl_ras_finding *f = r->finding;
    r->set = NULL;
    if (f == NULL || f->nsets == NCCL_RAS_SETS) {
        r->finding = NULL;
        return;
    }
    r->set = &f->sets[f->nsets++];
    r->set->count = count;
    r->set->operation = operation;
    nccl_ras_copy_name(r->set->what, what, len);
}

static void ras_name(struct ras_reader *r, int number, int pid)
{
    if (r->set != NULL && r->rc == 0)
        r->rc = nccl_ras_add_named(r->ret, r->set, number, pid);
}

/* ---- lines ---- */

/* Read a line of the table, "    0         1         4         8        32        32   RUNNING
 * MISMATCH": a group of equal communicators, with their number and the number of ranks of each. */
static bool ras_table_line(struct ras_reader *r, const char *p)
{
    int v[6] = {0};
    for (int i = 0; i < 6; i++) {
        p += strspn(p, " ");
        if (!ras_int(&p, &v[i]))
            return false;
        if (i == 3 && *p == '-') /* ranks per node: "3-4" */
            p += 1 + strspn(p + 1, "0123456789");
    }
    if (v[0] < RAS_GROUPS)
        r->sizes[v[0]] = v[4];
    if (v[1] < INT_MAX - r->ret->communicators)
        r->ret->communicators += v[1];
    return true;
}

/* Read the heading of a communicator, "#0-0 (27a079b828ff1a75) MISMATCH". */
static void ras_heading(struct ras_reader *r, const char *p)
{
    int group = 0, number = 0;
    r->finding = NULL;
    r->set = NULL;
    r->communicator[0] = '\0';
    r->size = 0;
    if (!ras_int(&p, &group) || !ras_skip(&p, "-") || !ras_int(&p, &number) || !ras_skip(&p, " ("))
        return;
    nccl_ras_copy_name(r->communicator, p, strcspn(p, ")"));
    r->size = group < RAS_GROUPS ? r->sizes[group] : 0;
}

/* Begin a finding if the line is the first of one. */
static bool ras_finding_line(struct ras_reader *r, const char *p)
{
    static const char counts[] = " operation counts";
    int n = 0;
    if (ras_skip(&p, "Communicator ranks have different ")) {
        const char *end = strstr(p, counts);
        if (end != NULL)
            ras_begin(r, NCCL_RAS_COUNTS, p,
                      strncmp(p, "collective", 10) == 0 ? 0 : (size_t)(end - p));
        else
            ras_begin(r, NCCL_RAS_STATUS, "", 0);
        return true;
    }
    if (ras_skip(&p, "Missing communicator data from ") && ras_int(&p, &n)) {
        ras_begin(r, NCCL_RAS_SILENT, "", 0);
        ras_begin_set(r, n, 0, "", 0);
        return true;
    }
    if (strncmp(p, "Initialization error", 20) == 0 || strncmp(p, "Asynchronous error", 18) == 0) {
        ras_begin(r, NCCL_RAS_ERROR, p, strcspn(p, " "));
        return true;
    }
    if (ras_int(&p, &n) && ras_skip(&p, " job process") && strstr(p, "considered dead") != NULL) {
        ras_begin(r, NCCL_RAS_DEAD, "", 0);
        ras_begin_set(r, n, 0, "", 0);
        return true;
    }
    return false;
}

/* Begin a set with the property that follows "7 ranks" or "Rank 2". False if none follows. */
static bool ras_property(struct ras_reader *r, const char *p, int count)
{
    uint64_t operation = 0;
    const bool many = ras_skip(&p, " have ");
    if (!many && !ras_skip(&p, " has ") && !ras_skip(&p, " "))
        return false;
    const char *end = strstr(p, " -- ");
    const size_t len = end != NULL ? (size_t)(end - p) : strlen(p);
    if (ras_skip(&p, "launched up to operation ") && ras_number(&p, INT64_MAX, &operation))
        ras_begin_set(r, count, operation, "", 0);
    else if (ras_skip(&p, "not launched any"))
        ras_begin_set(r, count, 0, "", 0);
    else if (ras_skip(&p, "status "))
        ras_begin_set(r, count, 0, p, len - strlen("status "));
    else if (ras_skip(&p, "reported "))
        ras_begin_set(r, count, 0, p, len - strlen("reported "));
    else
        return false;
    return true;
}

/* Read a line within a finding: a set, or a rank or process of the set. */
static void ras_set_line(struct ras_reader *r, const char *p)
{
    const char *line = p;
    int n = 0;
    if (ras_skip(&p, "Rank ") && ras_int(&p, &n)) {
        if (strncmp(p, " -- ", 4) == 0 || ras_property(r, p, 1))
            ras_name(r, n, ras_pid(p));
        return;
    }
    p = line;
    if (ras_int(&p, &n) && ras_skip(&p, " ranks")) {
        (void)ras_property(r, p, n);
        return;
    }
    p = line;
    if (ras_skip(&p, "Process ") && ras_int(&p, &n) && strncmp(p, " on node ", 9) == 0)
        ras_name(r, -1, n);
}

static void ras_line(struct ras_reader *r, const char *line)
{
    const char *p = line + strspn(line, " ");
    if (strncmp(line, "Group ", 6) == 0) {
        r->in_table = r->known = true;
        return;
    }
    if (*p == '\0') {
        r->in_table = false;
        return;
    }
    if (r->in_table && (*p == '#' || ras_table_line(r, p)))
        return;
    r->in_table = false;
    r->known = r->known || strncmp(p, "No communicator data", 20) == 0;
    if (*line == '#')
        ras_heading(r, line + 1);
    else if (*line != ' ')
        ras_heading(r, ""); /* "INCOMPLETE", "DEAD": headings of processes, not of a communicator */
    else if (!ras_finding_line(r, p))
        ras_set_line(r, p);
}

int nccl_ras_read(struct nccl_ras *ret, const char *text, size_t len)
{
    struct ras_reader r = {.ret = ret};
    char line[RAS_LINE];
    *ret = (struct nccl_ras){0};
    for (size_t at = 0; at < len && r.rc == 0;) {
        const char *end = memchr(text + at, '\n', len - at);
        const size_t n = end != NULL ? (size_t)(end - (text + at)) : len - at;
        size_t kept = n < sizeof(line) - 1 ? n : sizeof(line) - 1;
        memcpy(line, text + at, kept);
        if (kept > 0 && line[kept - 1] == '\r')
            kept--;
        line[kept] = '\0';
        ras_line(&r, line);
        at += n + 1;
    }
    ret->answered = r.known;
    return r.rc < 0 ? r.rc : r.known ? 0 : -EPROTO;
}
