/* SPDX-License-Identifier: MIT
 * Calls that change files. A file that is reached through this library is as one of sysfs: none can
 * be made, removed or renamed (EPERM), and what is changed is in the private tree, never a file of
 * the machine. */
#pragma once

#include <stdbool.h>

/* Whether a call with these flags of open(2) may make a file. */
#define RW_MAKES(flags) ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE)

/* Whether a file may be opened so: `path`, and `found` about it, are those of rw_find() for
 * `folder`. Else errno says why. */
bool rw_may_open(int folder, const char *path, int flags, unsigned found);
