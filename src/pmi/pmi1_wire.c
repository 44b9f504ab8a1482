#include "pmi/pmi1_wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define FIELD(name) (1U << offsetof(struct pmi_request, name) / sizeof(void *))

static const struct {
    const char *name;
    size_t offset;
    size_t max; /* including the NUL */
} fields[] = {
    {"kvsname", offsetof(struct pmi_request, kvsname), PMI_NAME_MAX},
    {"key", offsetof(struct pmi_request, key), PMI_NAME_MAX},
    {"value", offsetof(struct pmi_request, value), PMI_VALUE_MAX},
    {"exitcode", offsetof(struct pmi_request, exitcode), 16},
    {"pmi_version", offsetof(struct pmi_request, pmi_version), 16},
};

static const struct {
    const char *name;
    unsigned needs;
} commands[PMI_CMD_MAX] = {
    [PMI_INIT] = {"cmd=init", FIELD(pmi_version)},
    [PMI_GET_MAXES] = {"cmd=get_maxes", 0},
    [PMI_GET_APPNUM] = {"cmd=get_appnum", 0},
    [PMI_GET_MY_KVSNAME] = {"cmd=get_my_kvsname", 0},
    [PMI_GET_UNIVERSE_SIZE] = {"cmd=get_universe_size", 0},
    [PMI_PUT] = {"cmd=put", FIELD(kvsname) | FIELD(key) | FIELD(value)},
    [PMI_GET] = {"cmd=get", FIELD(kvsname) | FIELD(key)},
    [PMI_BARRIER_IN] = {"cmd=barrier_in", 0},
    [PMI_FINALIZE] = {"cmd=finalize", 0},
    [PMI_ABORT] = {"cmd=abort", 0},
    [PMI_PUBLISH_NAME] = {"cmd=publish_name", 0},
    [PMI_UNPUBLISH_NAME] = {"cmd=unpublish_name", 0},
    [PMI_LOOKUP_NAME] = {"cmd=lookup_name", 0},
    [PMI_SPAWN] = {"mcmd=spawn", 0},
    [PMI_ENDCMD] = {"endcmd", 0},
};

static enum pmi_cmd pmi1_wire_find_command(const char *word)
{
    for (size_t i = 0; i < PMI_OTHER; i++)
        if (strcmp(commands[i].name, word) == 0)
            return (enum pmi_cmd)i;
    return PMI_OTHER;
}

static const char **field_of(struct pmi_request *r, size_t offset)
{
    return (const char **)(void *)((char *)r + offset);
}

/* Parse one KEY=VALUE of the line. The first of several equal keys counts; unknown keys are
 * ignored. */
static int take_word(struct pmi_request *r, char *word, struct dd_err *err)
{
    char *value = strchr(word, '=');
    if (value == NULL)
        return 0;
    *value++ = '\0';
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strcmp(fields[i].name, word) != 0 || *field_of(r, fields[i].offset) != NULL)
            continue;
        if (strlen(value) >= fields[i].max)
            return dd_err_set(err, -EPROTO,
                              "the field '%s' of %zu bytes exceeds the limit, %zu bytes",
                              fields[i].name, strlen(value), fields[i].max - 1);
        *field_of(r, fields[i].offset) = value;
    }
    return 0;
}

int pmi_request_parse(struct pmi_request *ret, char *line, size_t n, struct dd_err *err)
{
    struct pmi_request r = {.cmd = PMI_OTHER};
    char *rest = line;
    line[n] = '\0';
    if (memchr(line, '\0', n) != NULL)
        return dd_err_set(err, -EPROTO, "the request contains a NUL byte");
    for (bool first = true; *rest != '\0'; first = false) {
        char *word = rest;
        rest += strcspn(rest, " ");
        if (*rest != '\0')
            *rest++ = '\0';
        if (first)
            r.cmd = pmi1_wire_find_command(word);
        int rc = r.cmd == PMI_OTHER || first ? 0 : take_word(&r, word, err);
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; r.cmd != PMI_OTHER && i < sizeof(fields) / sizeof(fields[0]); i++)
        if ((commands[r.cmd].needs & 1U << fields[i].offset / sizeof(void *)) != 0 &&
            *field_of(&r, fields[i].offset) == NULL)
            return dd_err_set(err, -EPROTO, "'%s' lacks the field '%s'", commands[r.cmd].name,
                              fields[i].name);
    *ret = r;
    return 0;
}

int pmi_name_ok(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= ' ' || text[i] == '\177')
            return 0;
    return n > 0 && n < PMI_VALUE_MAX;
}

int pmi_mapping(struct dd_buf *out, const int *sizes, int nnodes)
{
    int rc = dd_buf_puts(out, "(vector");
    for (int i = 0, n; i < nnodes && rc == 0; i += n) {
        for (n = 1; i + n < nnodes && sizes[i + n] == sizes[i];)
            n++;
        rc = dd_buf_printf(out, ",(%d,%d,%d)", i, n, sizes[i]);
    }
    if (rc == 0)
        rc = dd_buf_puts(out, ")");
    return rc == 0 && out->len >= PMI_VALUE_MAX ? -EMSGSIZE : rc;
}
