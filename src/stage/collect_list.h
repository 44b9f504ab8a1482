/* Lists the files of this node that match the rules of --collect. Reads no file. */
#ifndef DD_STAGE_COLLECT_LIST_H
#define DD_STAGE_COLLECT_LIST_H

#include "base/err.h"

#include <stddef.h>

struct collect_item {
    unsigned rule;
    size_t prefix; /* bytes of path that are not part of the name in DIR */
    char *path;    /* absolute */
    char *name;    /* name in DIR; NULL: the path without the prefix */
};

struct collect_list {
    struct collect_item *items;
    size_t n, cap;
    size_t matched; /* paths that matched a pattern, of any kind */
    size_t skipped; /* symbolic links, sockets, pipes, devices, and files of other users */
    char first_skipped[512];
    /* Called for each directory that cannot be read. */
    void (*unreadable)(void *arg, const char *path, int error);
    void (*alive)(void *arg); /* called once per 1024 entries; NULL: never */
    size_t seen;              /* number of entries that were examined */
    void *arg;
};

/* Append the files that match the absolute pattern, and those below directories that match. */
int collect_list_add(struct collect_list *l, unsigned rule, const char *pattern,
                     struct dd_err *err);
/* Append the files below a directory. Their names in DIR begin below it. */
int collect_list_tree(struct collect_list *l, unsigned rule, const char *dir, struct dd_err *err);
/* Append an item; takes its texts, even on failure. 0 or -ENOMEM. */
int collect_list_append(struct collect_list *l, const struct collect_item *item);
void collect_list_done(struct collect_list *l);

#endif
