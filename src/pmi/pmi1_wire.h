/* PMI-1, the protocol between MPICH-like libraries and their launcher: lines of "cmd=NAME key=value
 * ...". Pure. Src: MPICH 4.0.2, measured. Specified in docs/protocol/pmi1.md. */
#ifndef DD_PMI_PMI1_WIRE_H
#define DD_PMI_PMI1_WIRE_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>

enum {
    PMI_LINE_MAX = 1024, /* limit of lines that clients read, with the newline */
    PMI_READ_MAX = 4096, /* limit of lines that clients send */
    PMI_NAME_MAX = 64,   /* limit of kvsname and key, with the NUL */
    PMI_VALUE_MAX =
        860, /* limit of values, with the NUL: kvsname, key and value fit into PMI_LINE_MAX */
};

enum pmi_cmd {
    PMI_INIT,
    PMI_GET_MAXES,
    PMI_GET_APPNUM,
    PMI_GET_MY_KVSNAME,
    PMI_GET_UNIVERSE_SIZE,
    PMI_PUT,
    PMI_GET,
    PMI_BARRIER_IN,
    PMI_FINALIZE,
    PMI_ABORT,
    PMI_PUBLISH_NAME,
    PMI_UNPUBLISH_NAME,
    PMI_LOOKUP_NAME,
    PMI_SPAWN, /* "mcmd=spawn": further lines up to "endcmd" belong to it */
    PMI_ENDCMD,
    PMI_OTHER, /* part of a spawn, or unknown */
    PMI_CMD_MAX,
};

/* Fields are NULL if the line lacks them. They point into the line. */
struct pmi_request {
    enum pmi_cmd cmd;
    const char *kvsname, *key, *value, *exitcode, *pmi_version;
};

/* Parse a line of n bytes without its newline in place: line[n] is overwritten, too. -EPROTO with a
 * message. A known command has all required fields, within their limits. */
int pmi_request_parse(struct pmi_request *ret, char *line, size_t n, struct dd_err *err);

/* Append "(vector,(first node,nodes,ranks of each),...)", the value of PMI_process_mapping.
 * -EMSGSIZE: too long for a value; MPICH then compares host names. */
int pmi_mapping(struct dd_buf *out, const int *sizes, int nnodes);

/* True if the text can be part of a reply: not empty, no blanks or control characters, not too
 * long. */
int pmi_name_ok(const char *text);

#endif
