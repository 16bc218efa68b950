/* SPDX-License-Identifier: MIT
 * The private tree is the folder that RDMAWIRE_SYSFS names, for /sys; beside it is one for /dev. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "paths.h"

#define SYSFS "/sys/"
#define OF_RDMA "/sys/class/infiniband"
#define DEVICES "/dev/infiniband"

static bool begins(const char *path, const char *prefix)
{
	return strncmp(path, prefix, strlen(prefix)) == 0;
}

/* As access(2), which this library replaces. */
static bool exists(const char *path)
{
	int before = errno;
	bool found = syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;

	errno = before;
	return found;
}

/* Write the place of a path in the tree. Returns whether it can have one. */
static bool write_place(char *place, const char *root, const char *path)
{
	int length;

	if (begins(path, SYSFS))
		length = snprintf(place, PATH_MAX, "%s/%s", root, path + strlen(SYSFS));
	else
		length = snprintf(place, PATH_MAX, "%s/..%s", root, path);
	return length > 0 && length < PATH_MAX;
}

const char *rw_private(const char *path, enum rw_use use, char buffer[static PATH_MAX])
{
	const char *root;

	if (!path || (!begins(path, SYSFS) && !begins(path, DEVICES)))
		return path;
	root = getenv("RDMAWIRE_SYSFS");
	if (!root || !*root || !write_place(buffer, root, path) || !exists(buffer))
		return path;
	if (use == RW_LIST && begins(path, SYSFS) && !begins(path, OF_RDMA) && exists(path))
		return path;
	return buffer;
}

/* As fstatat(2), which this library replaces. */
static bool is_root(int folder)
{
	struct stat at, root;
	int before = errno;
	bool same = syscall(SYS_newfstatat, folder, "", &at, AT_EMPTY_PATH) == 0 &&
		    syscall(SYS_newfstatat, AT_FDCWD, "/", &root, 0) == 0 &&
		    at.st_dev == root.st_dev && at.st_ino == root.st_ino;

	errno = before;
	return same;
}

const char *rw_private_at(int folder, const char *path, enum rw_use use,
			  char buffer[static PATH_MAX])
{
	char absolute[PATH_MAX];

	if (!path || path[0] == '/' || folder < 0)
		return rw_private(path, use, buffer);
	if ((!begins(path, &SYSFS[1]) && !begins(path, &DEVICES[1])) ||
	    strlen(path) + 2 > sizeof absolute || !is_root(folder))
		return path;
	absolute[0] = '/';
	strcpy(absolute + 1, path);
	return rw_private(absolute, use, buffer) == buffer ? buffer : path;
}

void rw_public(char *path)
{
	const char *root = getenv("RDMAWIRE_SYSFS");
	size_t length = root ? strlen(root) : 0;

	while (length > 1 && root[length - 1] == '/')
		length--;
	if (length >= strlen("/sys") && strncmp(path, root, length) == 0 &&
	    (path[length] == '/' || !path[length])) {
		memmove(path + strlen("/sys"), path + length, strlen(path + length) + 1);
		memcpy(path, "/sys", strlen("/sys"));
	}
}
