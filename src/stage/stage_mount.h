/* "ddrun-stage mount": mounts images of --stage for the workers of one node, and serves them until
 * its agent closes the socket. */
#ifndef DD_STAGE_STAGE_MOUNT_H
#define DD_STAGE_STAGE_MOUNT_H

int stage_mount_serve(void);

#endif
