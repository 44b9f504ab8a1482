/* Writes collected files into DIR: each file appears complete under its name, or not at all. */
#ifndef DD_STAGE_COLLECT_WRITE_H
#define DD_STAGE_COLLECT_WRITE_H

#include "base/err.h"
#include "stage/collect_codec.h"

struct collect_target {
    const char *dir; /* DIR; created if it does not exist */
    const char
        *folder; /* directory of the node in DIR; NULL: the files of all nodes belong together */
    bool named;  /* do not use O_TMPFILE */
    bool cache;  /* --compile-cache: a file that exists is marked as used and never replaced;
                    only the user can write what is created */
    int top;     /* for cache: descriptor of DIR */
};

struct collect_file {
    int parent, fd; /* -1: no file is being written */
    uint64_t size, got;
    uint32_t mode;
    bool cache; /* as in struct collect_target */
    struct timespec mtime;
    char name[STAGE_NAME_MAX + 1];
    char temporary[48]; /* name before the commit; "": none */
};

#define COLLECT_FILE_NONE (struct collect_file){.parent = -1, .fd = -1}

/* Begin a file at DIR/FOLDER/PATH. Return COLLECT_WANT; COLLECT_HAVE: DIR has the file with this
 * size and time; COLLECT_REFUSED with a reason: DIR has a newer file, there is not enough space, …
 */
enum collect_verdict collect_file_begin(struct collect_file *f, const struct collect_target *t,
                                        const struct collect_frame *offer, struct dd_err *err);
int collect_file_write(struct collect_file *f, const void *p, size_t n, struct dd_err *err);
/* Give the complete file its name. */
int collect_file_commit(struct collect_file *f, struct dd_err *err);
/* Remove the incomplete file. Does nothing if no file is being written. */
void collect_file_drop(struct collect_file *f);

#endif
