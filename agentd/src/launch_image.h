/* A sandbox's files in a file of their own: a disk with an end. */
#ifndef AGENTD_LAUNCH_IMAGE_H
#define AGENTD_LAUNCH_IMAGE_H

#include <stdbool.h>

/* Mounts the ext4 file system in the file PATH and returns the mount, which is attached nowhere.
 * Preconditions: host root. Waits for a sandbox that used the file before; then nobody else has it. With
 * SHARED it waits for nobody: whoever has the file already has the same file system.
 * Ends the process by launch_fail ("image", "image-lock", "loop", "image-mount"). */
int image_mount(const char *path, bool shared);

#endif
