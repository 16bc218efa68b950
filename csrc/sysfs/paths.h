/* SPDX-License-Identifier: MIT
 * Paths of sysfs and of devices, and where they are in the private tree. */
#ifndef RW_PATHS_H
#define RW_PATHS_H

#include <limits.h>
#include <stdbool.h>

/* Return the path that is used for `path`: one in the private tree, in `buffer`, if there is such a
 * file, else `path`. A relative path begins at `folder`, a descriptor or AT_FDCWD; if it begins in
 * the tree and names nothing there, the result is an absolute path of the machine, in `buffer`. A
 * folder that the machine has, too, is the machine's, so that a program finds its other devices,
 * except the folders of RDMA. Keeps errno. */
const char *rw_private(int folder, const char *path, char buffer[static PATH_MAX]);

/* Turn an absolute path in the private tree into the one of /sys or /dev for which it is used.
 * Returns whether it was in the tree. Keeps errno. */
bool rw_public(char *path);

#endif
