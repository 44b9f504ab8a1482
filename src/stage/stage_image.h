/* Mounts squashfs images by FUSE; squashfuse serves them. */
#ifndef DD_STAGE_STAGE_IMAGE_H
#define DD_STAGE_STAGE_IMAGE_H

#include "base/err.h"

#include <stdbool.h>

#define STAGE_IMAGE "image.squashfs" /* name of the copy of an image, in a directory of its own */

/* True for the path of a copy of an image. */
bool stage_image_is_copy(const char *path);
/* Find squashfuse. The caller frees *ret. */
int stage_image_server(char **ret, struct dd_err *err);
/* Mount the image at the directory `at`, read-only, in the mount namespace of this process, and
 * start `server` for it, which is killed when this process exits. Returns when the mount can be
 * used. */
int stage_image_mount(const char *at, char *image, const char *server, struct dd_err *err);

#endif
