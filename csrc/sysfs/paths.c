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

#include "counters.h"
#include "paths.h"
#include "reached.h"

#define SYSFS "/sys"
#define OF_RDMA "/sys/class/infiniband" /* and infiniband_verbs */
#define DEVICES "/dev/infiniband"

/* Keeps a function's path buffer out of the stack frame of its caller: stacks may be small. */
#define OWN_FRAME __attribute__((noinline))

static bool begins(const char *path, const char *prefix)
{
	return strncmp(path, prefix, strlen(prefix)) == 0;
}

/* Whether a path is that of a folder or begins with it. */
static bool is_at(const char *path, const char *folder)
{
	size_t length = strlen(folder);

	return strncmp(path, folder, length) == 0 && (!path[length] || path[length] == '/');
}

/* Whether the tree may have a file for an absolute path of the machine. */
static bool is_covered(const char *path)
{
	return is_at(path, SYSFS) || is_at(path, DEVICES);
}

/* The private tree's folder for /sys, or NULL. The machine's own is none. */
static const char *root_of_tree(void)
{
	const char *root = getenv("RDMAWIRE_SYSFS");

	return root && *root == '/' && !is_at(root, SYSFS) ? root : NULL;
}

/* As lstat(2), which this library replaces, but it returns the number of the error, or 0. */
static int find(const char *path, struct stat *found)
{
	int before = errno, error = 0;

	if (syscall(SYS_newfstatat, AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW) != 0)
		error = errno;
	errno = before;
	return error;
}

/* Write the path in the tree for a path of the machine. Returns whether it can have one. */
static bool write_place(char *place, const char *root, const char *path)
{
	int length;

	if (begins(path, SYSFS "/"))
		length = snprintf(place, PATH_MAX, "%s%s", root, path + strlen(SYSFS));
	else if (is_at(path, DEVICES))
		length = snprintf(place, PATH_MAX, "%s/..%s", root, path);
	else
		return false;
	return length > 0 && length < PATH_MAX;
}

/* Whether a path is in a folder that the tree has as a whole: what it lacks there does not exist. */
static bool is_in_whole_folder(const char *path)
{
	return begins(path, OF_RDMA "/") || begins(path, OF_RDMA "_verbs/") ||
	       begins(path, DEVICES "/");
}

/* Write the path in the tree for an absolute path without "..". Returns whether programs get it. */
static bool is_private(const char *path, const char *root, char *place)
{
	struct stat found, own;
	int error;

	if (!write_place(place, root, path))
		return false;
	error = find(place, &found);
	if (error)
		return error == ENOTDIR || (is_in_whole_folder(path) && !find(root, &own));
	return !S_ISDIR(found.st_mode) || begins(path, OF_RDMA) || begins(path, DEVICES) ||
	       find(path, &own);
}

bool rw_write_folder(char place[static PATH_MAX], int folder)
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

bool rw_write_real(char place[static PATH_MAX], int folder, const char *path, int flags)
{
	int before = errno;
	int fd = (int)syscall(SYS_openat, folder, path, O_PATH | O_CLOEXEC | flags);
	bool written = fd >= 0 && rw_write_folder(place, fd);

	if (fd >= 0)
		syscall(SYS_close, fd);
	errno = before;
	return written;
}

/* Replace a path that programs use by the one without links. Returns false if it is no folder, or
 * none for which the tree may have a file. */
OWN_FRAME static bool look_up(char *path, const char *root, unsigned *found)
{
	char place[PATH_MAX], real[PATH_MAX];
	bool is_of_tree = is_private(path, root, place);

	if (is_of_tree)
		*found |= RW_THROUGH;
	if (!is_covered(path) ||
	    !rw_write_real(real, AT_FDCWD, is_of_tree ? place : path, O_DIRECTORY))
		return false;
	rw_public(real);
	strcpy(path, real);
	return true;
}

static bool add_name(char *path, const char *name, size_t length)
{
	size_t end = strlen(path);

	if (end + 1 + length >= PATH_MAX)
		return false;
	path[end] = '/';
	memcpy(path + end + 1, name, length);
	path[end + 1 + length] = 0;
	return true;
}

/* Append `path` to the absolute path `to`, which has no links, without its "." and "..". Returns
 * false if this is not possible; `to` is then a folder that cannot be opened if `found` says that the
 * tree is concerned, so that the call fails. */
static bool follow(char *to, const char *path, const char *root, unsigned *found)
{
	bool has_links = false, is_folder = false;
	size_t length;

	for (path += strspn(path, "/"); *path; path += strspn(path, "/")) {
		length = strcspn(path, "/");
		is_folder = path[length] || (length == 1 && *path == '.');
		if (length == 2 && path[1] == '.' && *path == '.') {
			if (has_links && !look_up(to, root, found))
				return add_name(to, ".", 1) && (*found & RW_THROUGH);
			if (*to)
				*strrchr(to, '/') = 0;
			has_links = is_folder = false;
		} else if (length > 1 || *path != '.') {
			if (!add_name(to, path, length))
				return false;
			has_links = true;
		}
		path += length;
	}
	return *to ? !is_folder || add_name(to, "", 0) : add_name(to, "", 0);
}

static bool has_parents(const char *path)
{
	for (const char *at = path; (at = strstr(at, "..")); at += 2)
		if ((at == path || at[-1] == '/') && (!at[2] || at[2] == '/'))
			return true;
	return false;
}

/* Note whether a path that stays in its folder, which is `at`, is that of a counter. */
static void note_counter(int folder, char *at, const char *path, unsigned *found)
{
	bool of_counters = add_name(at, "any", 3) && rw_is_in_counters(at);

	if (!of_counters && !rw_is_in_counters(path))
		rw_note_plain(folder);
	else if (rw_public(at))
		*found |= RW_COUNTER;
}

/* rw_find() for an absolute path, or a relative one, that begins at `at`, without links, as programs
 * know that folder. */
static const char *find_from(char *at, const char *path, const char *root, char *buffer,
			     unsigned *found)
{
	if (!follow(at, path, root, found))
		return path;
	if (is_private(at, root, buffer)) {
		*found |= RW_THROUGH | (rw_is_in_counters(buffer) ? RW_COUNTER : 0);
		return buffer;
	}
	if (!(*found & RW_THROUGH) || !has_parents(path))
		return path;
	if (!is_covered(at)) /* it is far from sysfs, and as if it was named by its own path */
		*found = 0;
	return strcpy(buffer, at);
}

OWN_FRAME static const char *find_absolute(const char *path, const char *root, char *buffer,
					   unsigned *found)
{
	char at[PATH_MAX] = "";

	return find_from(at, path, root, buffer, found);
}

/* Whether a name in a folder of the machine may be one that the tree covers. */
static bool leads_to_tree(const char *folder)
{
	return !folder[1] || strcmp(folder, "/dev") == 0 || is_covered(folder);
}

/* A relative path that stays in its folder of the tree, or in another one, is the kernel's to find.
 * So it is for a folder of the tree that was reached by its own path, whatever the path is. */
OWN_FRAME static const char *find_relative(int folder, const char *path, const char *root,
					   char *buffer, unsigned *found)
{
	bool leaves = has_parents(path), is_below;
	char at[PATH_MAX];

	if (rw_is_reached(folder))
		*found = RW_THROUGH;
	if (!leaves && !rw_is_in_counters(path) && rw_is_plain(folder))
		return path;
	if (!rw_write_folder(at, folder))
		return path;
	if (!leaves && !leads_to_tree(at)) {
		note_counter(folder, at, path, found);
		return path;
	}
	is_below = rw_public(at);
	if (is_below && !(*found & RW_THROUGH))
		return path;
	if (!at[1])
		at[0] = 0;
	return find_from(at, path, root, buffer, found);
}

const char *rw_find(int folder, const char *path, char buffer[static PATH_MAX], unsigned *found)
{
	const char *root = root_of_tree(), *from;

	*found = 0;
	if (!path || !*path || !root)
		return path;
	if (*path != '/')
		return find_relative(folder, path, root, buffer, found);
	from = path + strspn(path, "/") - 1;
	if (is_covered(from) || from[1] == '.')
		return find_absolute(path, root, buffer, found);
	if (begins(path, root) && rw_is_in_counters(path))
		*found = RW_COUNTER;
	return path;
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
		return replace(path, length, SYSFS);
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

	return rw_write_real(real, AT_FDCWD, root, 0) && replace_root(path, real);
}

bool rw_public(char *path)
{
	const char *root = root_of_tree();
	const char *name = root ? strrchr(root, '/') : NULL;

	if (!name)
		return false;
	if (replace_root(path, root))
		return true;
	return (strstr(path, name) || strstr(path, DEVICES)) && replace_real_root(path, root);
}
