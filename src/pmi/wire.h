/* PMI-1, as MPICH and its relatives speak it with their launcher: lines of "cmd=NAME key=value
 * ...". Pure. Src: MPICH 4.0.2, measured. Drawn in docs/protocol/pmi1.md. */
#ifndef DD_PMI_WIRE_H
#define DD_PMI_WIRE_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>

enum {
    PMI_LINE_MAX = 1024, /* of what clients read, with the newline */
    PMI_READ_MAX = 4096, /* of what is taken from them */
    PMI_NAME_MAX = 64,   /* kvsname and key, with the NUL */
    PMI_VALUE_MAX = 860, /* with the NUL: the line with kvsname and key still fits PMI_LINE_MAX */
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
    PMI_SPAWN, /* "mcmd=spawn": more lines belong to it, up to "endcmd" */
    PMI_ENDCMD,
    PMI_OTHER, /* none of these: part of a spawn, or not known */
    PMI_CMD_MAX,
};

/* NULL where the line does not have it. Lent from the line. */
struct pmi_request {
    enum pmi_cmd cmd;
    const char *kvsname, *key, *value, *exitcode, *pmi_version;
};

/* Takes a line of n bytes without its newline apart, in place: line[n] is written too. -EPROTO with
 * a sentence. Of a command that is known all that it needs is there, and short enough. */
int pmi_request_parse(struct pmi_request *ret, char *line, size_t n, struct dd_err *err);

/* "(vector,(first node,nodes,ranks of each),...)", the value of PMI_process_mapping. -EMSGSIZE when
 * it is too long for a value: MPICH then compares host names. */
int pmi_mapping(struct dd_buf *out, const int *sizes, int nnodes);

/* Whether an answer can carry it: no blank, no control character, not too long. */
int pmi_name_ok(const char *text);

#endif
