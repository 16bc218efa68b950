/* SPDX-License-Identifier: MIT
 * Paths of sysfs and of devices, and where they are in the private tree.
 *
 * The tree has two names. A program that uses /sys or /dev/infiniband sees it there, laid over the
 * machine's folders. A program that uses the path of RDMAWIRE_SYSFS sees what is there, and nothing
 * else, as if this library was absent. The two differ in what ".." is, so reached.h keeps which
 * folders were reached by the first name. */
#pragma once

#include <limits.h>
#include <stdbool.h>

/* What rw_find() found about a path. */
enum {
	RW_THROUGH = 1, /* it is reached through this library: by a name that is not its own */
	RW_COUNTER = 2, /* it is that of a counter in the private tree */
};

/* Return the path that is used for `path`, which begins at `folder`, a descriptor or AT_FDCWD: one in
 * the private tree, in `buffer`, if it stands there; the machine's, in `buffer`, if ".." leads out of
 * a folder that was reached through this library; else `path`. A folder that the machine has, too, is
 * the machine's, so that a program finds its other devices, except the folders of RDMA. Keeps
 * errno. */
const char *rw_find(int folder, const char *path, char buffer[static PATH_MAX], unsigned *found);

/* Turn an absolute path in the private tree into the one of /sys or /dev for which it is used.
 * Returns whether it was in the tree. Keeps errno. */
bool rw_public(char *path);

/* Write the path of `folder`, a descriptor or AT_FDCWD, as the kernel has it: without links. Returns
 * false if it has none. Keeps errno. */
bool rw_write_folder(char place[static PATH_MAX], int folder);

/* The same for a path. `flags` are those of open(2): O_NOFOLLOW, O_DIRECTORY. */
bool rw_write_real(char place[static PATH_MAX], int folder, const char *path, int flags);
