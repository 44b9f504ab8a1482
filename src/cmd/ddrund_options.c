#include "cmd/ddrund_options.h"

#include "config.h"

#define FIELD(name) OPT_FIELD(struct ddrund_options, name)

static const struct opt_row rows[] = {
    {.name = "listen",
     .kind = OPT_STRING,
     .metavar = "ADDR:PORT",
     .example = "127.0.0.1:29500",
     .group = "Service",
     .help = "address at which to serve a store; port 0: any free port",
     .more = "When ddrund accepts connections, it prints 'ddrund: listening on ADDR:PORT'.",
     FIELD(listen)},
    {.name = "insecure",
     .kind = OPT_FLAG,
     .group = "Service",
     .help = "serve clients without authentication",
     FIELD(insecure)},
    {.name = "key-file",
     .kind = OPT_STRING,
     .metavar = "FILE",
     .example = "~/.ddrun.key",
     .group = "Service",
     .help = "file with a secret, readable by you alone",
     .more = "With a secret, ddrund serves only processes of this user.",
     FIELD(key_file)},
    {.name = "old-clients",
     .kind = OPT_STRING,
     .metavar = "VERSION",
     .def = "refuse",
     .choices = "refuse,1.13,2.1",
     .group = "Service",
     .help = "serve clients of PyTorch before 2.2, too",
     .more = "1.13 is for PyTorch 1.13 and 2.0, 2.1 for PyTorch 2.1. ddrund cannot distinguish the "
             "two from their requests.",
     FIELD(old_clients)},
    {.name = "max-memory",
     .kind = OPT_BYTES,
     .metavar = "BYTES",
     .def = "8G",
     .def_doc = "8G, or half of the memory if that is less",
     .group = "Limits",
     .help = "memory limit for all keys and values",
     .more = "The memory is the smallest of the machine's memory and the limits of ddrund's "
             "cgroups. In a job, 'ddctl status --format=json' shows the limit as "
             "store_max_bytes.",
     FIELD(max_memory)},
    {.name = "max-value",
     .kind = OPT_BYTES,
     .metavar = "BYTES",
     .def = "64M",
     .group = "Limits",
     .help = "size limit of a value",
     FIELD(max_value)},
    {.name = "log-level",
     .kind = OPT_STRING,
     .metavar = "LEVEL",
     .def = "notice",
     .choices = "error,warning,notice,info,debug",
     .group = "Messages",
     .help = "verbosity of ddrund's messages",
     FIELD(log_level)},
};

const struct opt_table ddrund_options = {
    .program = "ddrund",
    .version = PACKAGE_VERSION,
    .usage = "--listen=ADDR:PORT [options]",
    .about = "Serves a store over PyTorch's c10d protocol. ddrun starts one ddrund for each job; "
             "a standing ddrund serves the agents of torchrun and other c10d clients.",
    .env_prefixes = "DDRUND_",
    OPT_ROWS(rows),
};
