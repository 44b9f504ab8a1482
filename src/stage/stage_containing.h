/* Finds which of several directories contains a given one. */
#ifndef DD_STAGE_STAGE_CONTAINING_H
#define DD_STAGE_STAGE_CONTAINING_H

/* Return the path in `paths` that is the same directory as `dir` or contains it, symbolic links
 * resolved; NULL: none, or dir does not exist. paths: NULL-terminated, or NULL. */
const char *stage_containing(const char *dir, char *const *paths);

#endif
