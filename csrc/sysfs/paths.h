/* SPDX-License-Identifier: MIT
 * Paths of sysfs and of devices, and where they are in the private tree. */
#ifndef RW_PATHS_H
#define RW_PATHS_H

#include <limits.h>
#include <stdbool.h>

/* Return the path in the private tree that stands for `path`, in `buffer`, or `path` itself if there
 * is none. A relative path begins at `folder`, a descriptor or AT_FDCWD. One that begins in the tree
 * and names nothing there is turned into the absolute path of the machine. Folders that the machine
 * has itself are its own, so that a program finds its other devices; only those of RDMA are always
 * those of the tree. Keeps errno. */
const char *rw_private(int folder, const char *path, char buffer[static PATH_MAX]);

/* Turn an absolute path in the private tree into that for which it stands. Returns whether it is
 * one. Keeps errno. */
bool rw_public(char *path);

#endif
