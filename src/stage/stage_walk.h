/* Lists what is below the directories to copy, with several threads. Reads no file. */
#ifndef DD_STAGE_STAGE_WALK_H
#define DD_STAGE_STAGE_WALK_H

#include "base/err.h"
#include "stage/stage_codec.h"

#include <stddef.h>
#include <sys/types.h>

struct stage_item {
    enum stage_kind kind;
    char *path;   /* as in struct stage_entry */
    char *target; /* target of a link; NULL: no link */
    uint32_t mode;
    struct timespec mtime;
    struct timespec ctime; /* changes with the data and with each other attribute */
    uint64_t size;         /* bytes of a file; 0: no file */
    bool may_vanish;       /* no error if the file no longer exists when it is read */
    bool follow;           /* the path is a symbolic link to the file */
    bool archive;          /* an archive: ddrun-archive reads it, and stage_pack.h leaves it out */
    bool image;            /* a file that is the source itself */
};

struct stage_list {
    struct stage_item *items; /* a directory precedes its entries */
    size_t n, cap;
    uint64_t bytes;          /* what a file system needs for the copy */
    size_t skipped;          /* sockets, pipes and devices */
    char first_skipped[512]; /* path of the first skipped entry */
    bool cache;              /* other jobs set the times of these files */
};

/* Append all entries below path, as source `number`. */
int stage_walk(struct stage_list *list, const char *path, int number, struct dd_err *err);
/* Append the archive itself as one file. The bytes of the list grow by its size, which the contents
 * need at least. */
int stage_walk_archive(struct stage_list *list, const char *path, int number, struct dd_err *err);
/* Append the image as the only file of a directory, with the name STAGE_IMAGE. */
int stage_walk_image(struct stage_list *list, const char *path, int number, struct dd_err *err);
/* SHA-256 of the names and attributes of all entries, without their contents. 0 or -EIO. */
int stage_list_digest(const struct stage_list *list, unsigned char out[STAGE_DIGEST]);
void stage_list_done(struct stage_list *list);

#endif
