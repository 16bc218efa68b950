/* SPDX-License-Identifier: MIT
 * Paths of sysfs and of devices, and where they are in the private tree. */
#ifndef RW_PATHS_H
#define RW_PATHS_H

#include <limits.h>
#include <stdbool.h>

/* How a path is used. Directories that the machine has itself are listed there, so that a program
 * finds its other devices; only those of RDMA are listed in the private tree. */
enum rw_use { RW_FILE, RW_LIST };

/* Return the path in the private tree that stands for `path`, in `buffer`, or `path` itself if
 * there is none. Keeps errno. */
const char *rw_private(const char *path, enum rw_use use, char buffer[static PATH_MAX]);

/* The same for a path relative to a folder, which counts if the folder is the root, as for hwloc. */
const char *rw_private_at(int folder, const char *path, enum rw_use use,
			  char buffer[static PATH_MAX]);

/* Turn a path in the private tree into that which it stands for. */
void rw_public(char *path);

#endif
