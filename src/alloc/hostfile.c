/* Node files: --hostfile, and the file of PBS, which contains names only.
 *
 *   line  = [ names [ "slots=" N ] ] [ "#" anything ]
 *   names = a host list expression, or NAME:N
 *
 * Duplicates of a host are ignored: PBS lists it once per MPI process. Slots of MPI host files do
 * not matter here, because ddrun starts one agent per host (--nproc-per-node).
 */
#include "alloc/alloc_inner.h"

#include "base/num.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 16 << 20, LINE_MAX_BYTES = 4096 };

/* Append a name. If the list is full, remove duplicates first: files in round-robin order contain
 * many. */
static int push(struct hostlist **names, const char *name)
{
    size_t n = hostlist_count(*names);
    if (n > 0 && strcmp(hostlist_nth(*names, n - 1), name) == 0)
        return 0;
    int rc = hostlist_push(*names, name);
    if (rc != -E2BIG)
        return rc;
    struct hostlist *once = NULL;
    rc = hostlist_uniq(&once, *names);
    if (rc < 0)
        return rc;
    hostlist_free(*names);
    *names = once;
    return hostlist_push(*names, name);
}

static bool is_slots(const char *word)
{
    static const char *const keys[] = {"slots=", "max_slots=", "max-slots="};
    int n;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strncmp(word, keys[i], strlen(keys[i])) == 0)
            return dd_num_int(word + strlen(keys[i]), 0, INT32_MAX, &n) == 0;
    return false;
}

/* "node1:4" of MPICH is node1 with 4 slots; an IPv6 address has several colons. */
static void cut_slots(char *names)
{
    int n;
    char *colon = strchr(names, ':');
    if (colon != NULL && colon == strrchr(names, ':') &&
        dd_num_int(colon + 1, 0, INT32_MAX, &n) == 0)
        *colon = '\0';
}

static int add_line(struct hostlist **names, char *line, struct dd_err *err)
{
    static const char blanks[] = " \t\r\f\v";
    DD_AUTO(hostlist) struct hostlist *these = NULL;
    char *rest = NULL;
    line[strcspn(line, "#")] = '\0';
    char *first = strtok_r(line, blanks, &rest);
    if (first == NULL)
        return 0;
    for (char *word; (word = strtok_r(NULL, blanks, &rest)) != NULL;)
        if (!is_slots(word))
            return dd_err_set(err, -EINVAL,
                              "invalid attribute '%.80s': expected a line NAME [slots=N]", word);
    cut_slots(first);
    int rc = hostlist_parse(&these, first, err);
    for (size_t i = 0; rc == 0 && i < hostlist_count(these); i++)
        rc = push(names, hostlist_nth(these, i));
    if (rc == -E2BIG)
        return dd_err_set(err, rc, "too many hosts (limit %d)", HOSTLIST_MAX);
    return rc == -ENOMEM ? alloc_no_memory(err) : rc;
}

int alloc_hostfile_parse(struct hostlist **ret, const char *path, const char *text, size_t n,
                         struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *names = NULL;
    const char *end = text + n;
    int rc = hostlist_new(&names);
    for (unsigned no = 1; rc == 0 && text < end; no++) {
        char line[LINE_MAX_BYTES];
        const char *nl = memchr(text, '\n', (size_t)(end - text));
        size_t len = (size_t)((nl != NULL ? nl : end) - text);
        if (memchr(text, '\0', len) != NULL)
            return dd_err_set(err, -EINVAL, "%s:%u: the line has a NUL byte", path, no);
        if (len >= sizeof(line))
            return dd_err_set(err, -EINVAL, "%s:%u: the line has %zu bytes (limit %d)", path, no,
                              len, LINE_MAX_BYTES - 1);
        memcpy(line, text, len);
        line[len] = '\0';
        rc = add_line(&names, line, err);
        if (rc < 0)
            return dd_err_where(err, rc, "%s:%u", path, no);
        text += len + (nl != NULL);
    }
    if (rc == 0)
        rc = hostlist_uniq(ret, names);
    return rc < 0 ? alloc_no_memory(err) : 0;
}

int alloc_hostfile_read(struct hostlist **ret, const struct alloc_input *in, const char *path,
                        struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(FILE_MAX);
    int rc = in->read_file(path, &text, err);
    if (rc < 0)
        return rc;
    return text.len == 0 ? alloc_hostfile_parse(ret, path, "", 0, err)
                         : alloc_hostfile_parse(ret, path, (const char *)text.data, text.len, err);
}
