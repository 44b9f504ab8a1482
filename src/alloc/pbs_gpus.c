/* The GPUs of a Torque job: PBS_GPUFILE names a file on the first node with a line HOST-gpuNUMBER
 * for each GPU of the whole job.
 *
 * Src: pbs_mom of Torque 6, its source; not run. The numbers are NVML's, in the order of the PCI
 * addresses. The file is empty if the job has requested no GPUs. */
#include "alloc/alloc_inner.h"

#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FILE_MAX = 4 << 20, LINE_LEN_MAX = 400, GPUS_MAX = 256 };

struct gpus {
    unsigned char has[GPUS_MAX];
};

static bool is_same_host(const char *a, const char *b, bool whole)
{
    if (whole)
        return strcasecmp(a, b) == 0;
    const size_t n = strcspn(a, ".");
    return n == strcspn(b, ".") && strncasecmp(a, b, n) == 0;
}

/* Return the index of the node; -1: none. Search from the last result on: the lines of a host are
 * adjacent. */
static int find_node(const struct hostlist *nodes, const char *host, size_t from)
{
    const size_t n = hostlist_count(nodes);
    for (int whole = 1; whole >= 0; whole--)
        for (size_t i = 0; i < n; i++)
            if (is_same_host(hostlist_nth(nodes, (from + i) % n), host, whole != 0))
                return (int)((from + i) % n);
    return -1;
}

/* Parse "node-1.site-gpu3"; the host remains in line. */
static int take_line(char *line, int *number)
{
    char *at = NULL;
    for (char *p = line; (p = strstr(p, "-gpu")) != NULL; p += 4)
        at = p;
    if (at == NULL || dd_num_int(at + 4, 0, GPUS_MAX - 1, number) < 0 || at[4] == '-')
        return -EINVAL;
    *at = '\0';
    return hostlist_name_ok(line) ? 0 : -EINVAL;
}

static int format(struct dd_strv *ret, const struct gpus *g)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(4096);
    int rc = dd_buf_puts(&text, "");
    for (int i = 0; i < GPUS_MAX && rc == 0; i++)
        if (g->has[i])
            rc = dd_buf_printf(&text, "%s%d", text.len > 0 ? "," : "", i);
    const char *s = rc == 0 && text.len > 0 ? dd_buf_str(&text) : "";
    return rc < 0 || s == NULL ? -ENOMEM : dd_strv_push(ret, s);
}

static int read_lines(struct gpus *all, const struct hostlist *nodes, const char *path,
                      const char *text, size_t n, struct dd_err *err)
{
    const char *end = text + n;
    struct alloc_shown shown;
    int node = 0;
    int found = 0;
    for (unsigned no = 1; text < end; no++) {
        char line[LINE_LEN_MAX];
        int number;
        const char *nl = memchr(text, '\n', (size_t)(end - text));
        size_t len = (size_t)((nl != NULL ? nl : end) - text);
        const char *next = text + len + (nl != NULL);
        len -= len > 0 && text[len - 1] == '\r';
        (void)snprintf(line, sizeof(line), "%.*s",
                       (int)(len < sizeof(line) ? len : sizeof(line) - 1), text);
        if (len > 0 && (strlen(line) != len || take_line(line, &number) < 0))
            return dd_err_set(
                err, -EINVAL,
                "%s:%u: invalid entry '%.80s': expected HOST-gpuNUMBER, as Torque writes it to "
                "PBS_GPUFILE",
                path, no, line);
        if (len > 0 && (node = find_node(nodes, line, (size_t)node)) < 0)
            return dd_err_set(
                err, -EINVAL,
                "%s:%u: %.80s is not a node of the job (%s); PBS_GPUFILE may be of another job",
                path, no, line, alloc_show(&shown, nodes));
        if (len > 0) {
            all[node].has[number] = 1;
            found = 1;
        }
        text = next;
    }
    return found;
}

int alloc_gpufile_parse(struct dd_strv *ret, const struct hostlist *nodes, const char *path,
                        const char *text, size_t n, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv gpus = {0};
    DD_AUTO(free) struct gpus *all = calloc(hostlist_count(nodes) + 1, sizeof(*all));
    int rc = all == NULL                  ? alloc_no_memory(err)
             : hostlist_count(nodes) == 0 ? 0
                                          : read_lines(all, nodes, path, text, n, err);
    if (rc <= 0)
        return rc;
    for (size_t i = 0; i < hostlist_count(nodes); i++)
        if (format(&gpus, &all[i]) < 0)
            return alloc_no_memory(err);
    *ret = gpus;
    gpus = (struct dd_strv){0};
    return 0;
}

int alloc_pbs_gpus(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(FILE_MAX);
    struct dd_err why = {0};
    const char *path = dd_env_get_nonempty(in->env, "PBS_GPUFILE");
    int rc = path != NULL ? in->read_file(path, &text, &why) : 0;
    if (rc == -ENOENT || rc == -EACCES ||
        rc == -ENOTDIR) /* not the first node, which has the file */
        return 0;
    if (rc < 0)
        return dd_err_set(err, rc, "PBS_GPUFILE: %.500s", why.text);
    return text.len == 0 ? 0
                         : alloc_gpufile_parse(&a->gpus, a->nodes, path, (const char *)text.data,
                                               text.len, err);
}
