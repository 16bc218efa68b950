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

/* Keeps a function's path buffer out of the stack frame of its caller: stacks may be small. */
#define OWN_FRAME __attribute__((noinline))

static bool begins(const char *path, const char *prefix)
{
	return strncmp(path, prefix, strlen(prefix)) == 0;
}

/* As stat(2), which this library replaces. */
static bool find(const char *path, struct stat *found)
{
	int before = errno;
	bool exists = syscall(SYS_newfstatat, AT_FDCWD, path, found, 0) == 0;

	errno = before;
	return exists;
}

/* Write the path in the tree for a path of the machine. Returns whether it can have one. */
static bool write_place(char *place, const char *root, const char *path)
{
	int length;

	if (begins(path, SYSFS))
		length = snprintf(place, PATH_MAX, "%s/%s", root, path + strlen(SYSFS));
	else if (begins(path, DEVICES))
		length = snprintf(place, PATH_MAX, "%s/..%s", root, path);
	else
		return false;
	return length > 0 && length < PATH_MAX;
}

/* Write the path in the tree for an absolute path. Returns whether programs get it. */
static bool is_private(const char *path, const char *root, char *place)
{
	struct stat found, own;

	if (!write_place(place, root, path) || !find(place, &found))
		return false;
	return !S_ISDIR(found.st_mode) || begins(path, OF_RDMA) || begins(path, DEVICES) ||
	       !find(path, &own);
}

/* Write the path of `folder`, a descriptor or AT_FDCWD, as the kernel has it: without links. */
static bool write_folder(char *place, int folder)
{
	char link[64];
	int before = errno;
	long length;

	if (folder == AT_FDCWD) {
		length = syscall(SYS_getcwd, place, PATH_MAX) - 1;
	} else {
		snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
		length = syscall(SYS_readlinkat, AT_FDCWD, link, place, PATH_MAX - 1);
	}
	errno = before;
	if (length <= 0 || place[0] != '/')
		return false;
	place[length] = 0;
	return true;
}

/* Skip "." and ".." at the start of a path, and remove the last name of `folder` for each "..". */
static const char *leave(char *folder, const char *path)
{
	size_t length;

	for (; *path; path += length) {
		path += strspn(path, "/");
		length = strcspn(path, "/");
		if (length > 2 || strncmp(path, "..", length) != 0)
			break;
		if (length == 2)
			*strrchr(folder, '/') = 0;
		if (!*folder)
			strcpy(folder, "/");
	}
	return path;
}

/* Append a relative path to that of a folder. Returns whether there is room for it. */
static bool join(char *folder, const char *path)
{
	size_t length;

	path = leave(folder, path);
	length = folder[1] ? strlen(folder) : 0;
	if (length + 1 + strlen(path) >= PATH_MAX)
		return false;
	if (*path) {
		folder[length] = '/';
		strcpy(folder + length + 1, path);
	}
	return true;
}

/* rw_private() for a relative path: one that leaves the tree or is not in it is the machine's. */
OWN_FRAME static const char *of_relative(int folder, const char *path, const char *root,
					 char *buffer)
{
	char absolute[PATH_MAX];
	bool is_below;

	if (!write_folder(absolute, folder))
		return path;
	is_below = rw_public(absolute);
	if (!join(absolute, path))
		return path;
	if (is_private(absolute, root, buffer))
		return buffer;
	return is_below ? strcpy(buffer, absolute) : path;
}

const char *rw_private(int folder, const char *path, char buffer[static PATH_MAX])
{
	const char *root = getenv("RDMAWIRE_SYSFS");

	if (!path || !*path || !root || !*root)
		return path;
	if (*path != '/')
		return of_relative(folder, path, root, buffer);
	return is_private(path + strspn(path, "/") - 1, root, buffer) ? buffer : path;
}

/* Replace the first `length` bytes of a path by a prefix that is not longer, if a name ends there. */
static bool replace(char *path, size_t length, const char *prefix)
{
	size_t kept = strlen(prefix);

	if (length < kept || (path[length] && path[length] != '/'))
		return false;
	memmove(path + kept, path + length, strlen(path + length) + 1);
	memcpy(path, prefix, kept);
	return true;
}

/* As rw_public(), for this root. */
static bool replace_root(char *path, const char *root)
{
	size_t length = strlen(root);

	while (length > 1 && root[length - 1] == '/')
		length--;
	if (strncmp(path, root, length) == 0)
		return replace(path, length, "/sys");
	while (length > 0 && root[length - 1] != '/') /* to the folder of both trees */
		length--;
	return length > 0 && strncmp(path, root, length) == 0 &&
	       begins(path + length, &DEVICES[1]) &&
	       replace(path, length + strlen(&DEVICES[1]), DEVICES);
}

/* The same for a root whose path has links: the kernel gives paths without them. */
OWN_FRAME static bool replace_real_root(char *path, const char *root)
{
	char real[PATH_MAX];
	int before = errno;
	int folder = (int)syscall(SYS_openat, AT_FDCWD, root, O_PATH | O_CLOEXEC);
	bool written = folder >= 0 && write_folder(real, folder);

	if (folder >= 0)
		syscall(SYS_close, folder);
	errno = before;
	return written && replace_root(path, real);
}

bool rw_public(char *path)
{
	const char *root = getenv("RDMAWIRE_SYSFS");
	const char *name = root ? strrchr(root, '/') : NULL;

	if (!name)
		return false;
	if (replace_root(path, root))
		return true;
	return (strstr(path, name) || strstr(path, DEVICES)) && replace_real_root(path, root);
}
