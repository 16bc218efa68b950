/* SPDX-License-Identifier: MIT
 * Functions of the C library that change files: see changes.h. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#include "changes.h"
#include "next.h"
#include "paths.h"
#include "reached.h"

#define OF_DESCRIPTORS "/proc/self/fd/"

/* What a call does with the file that it names. */
enum change {
	MAKES,
	REPLACES,
	TAKES,	    /* removes it, or gives it another name or one more */
	ALTERS,	    /* changes what it has; of a link, the file that this names */
	ALTERS_LINK /* the same for the link itself */
};

/* No header declares functions of programs built by glibc before 2.33. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static bool refuse(int number)
{
	errno = number;
	return false;
}

static bool exists(int folder, const char *path)
{
	struct stat found;

	return syscall(SYS_newfstatat, folder, path, &found, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether a file is in the private tree, or does not exist. */
static bool is_own(int folder, const char *path, int flags)
{
	char real[PATH_MAX];

	return rw_write_real(real, folder, path, flags) ? rw_public(real) : !exists(folder, path);
}

bool rw_may_open(int folder, const char *path, int flags, unsigned found)
{
	bool makes = RW_MAKES(flags);
	struct stat file;

	if (!(found & RW_THROUGH) || flags & O_PATH ||
	    !(makes || flags & O_TRUNC || (flags & O_ACCMODE) != O_RDONLY))
		return true;
	if (syscall(SYS_newfstatat, folder, path, &file, 0) != 0)
		return !makes || refuse(errno == ENOENT ? EACCES : errno);
	return S_ISCHR(file.st_mode) /* of an RDMA device */ ||
	       is_own(folder, path, flags & O_NOFOLLOW) || refuse(EPERM);
}

/* Whether a file may be changed by its descriptor. */
static bool may_alter(int fd)
{
	char path[PATH_MAX];

	return !rw_is_reached(fd) || (rw_write_folder(path, fd) && rw_public(path)) ||
	       refuse(EPERM);
}

static bool may_change(int folder, const char *path, enum change change)
{
	switch (change) {
	case MAKES:
		return refuse(exists(folder, path) ? EEXIST : EPERM);
	case REPLACES:
		return refuse(EPERM);
	case TAKES:
		return exists(folder, path) && refuse(EPERM);
	default:
		return is_own(folder, path, change == ALTERS ? 0 : O_NOFOLLOW) || refuse(EPERM);
	}
}

/* Return the path that a call uses, as rw_find(), or NULL if it is refused: errno then says why. No
 * path, and an empty one, are those of the descriptor. */
static const char *change(int folder, const char *path, enum change change, char *buffer)
{
	size_t length = strlen(OF_DESCRIPTORS);
	unsigned found;
	const char *at;

	if (!path || !*path)
		return may_alter(folder) ? (path ? path : "") : NULL;
	if (strncmp(path, OF_DESCRIPTORS, length) == 0 && !strchr(path + length, '/'))
		return may_alter(atoi(path + length)) ? path : NULL;
	at = rw_find(folder, path, buffer, &found);
	return !(found & RW_THROUGH) || may_change(folder, at, change) ? at : NULL;
}

/* Define a function of these parameters, which is called for the path `at` of `path`. */
#define CHANGE(name, parameters, folder, path, how, ...)                                       \
	int name parameters                                                                    \
	{                                                                                      \
		char buffer[PATH_MAX];                                                         \
		const char *at = change(folder, path, how, buffer);                            \
		return at ? NEXT(name)(__VA_ARGS__) : -1;                                      \
	}

#define HERE(name, parameters, how, ...) CHANGE(name, parameters, AT_FDCWD, path, how, __VA_ARGS__)
#define THERE(name, parameters, how, ...) CHANGE(name, parameters, folder, path, how, __VA_ARGS__)
#define BY_FLAGS (flags & AT_SYMLINK_NOFOLLOW ? ALTERS_LINK : ALTERS)

HERE(unlink, (const char *path), TAKES, at)
THERE(unlinkat, (int folder, const char *path, int flags), TAKES, folder, at, flags)
HERE(rmdir, (const char *path), TAKES, at)
HERE(remove, (const char *path), TAKES, at)
HERE(mkdir, (const char *path, mode_t mode), MAKES, at, mode)
THERE(mkdirat, (int folder, const char *path, mode_t mode), MAKES, folder, at, mode)
HERE(mkfifo, (const char *path, mode_t mode), MAKES, at, mode)
THERE(mkfifoat, (int folder, const char *path, mode_t mode), MAKES, folder, at, mode)
HERE(mknod, (const char *path, mode_t mode, dev_t device), MAKES, at, mode, device)
THERE(mknodat, (int folder, const char *path, mode_t mode, dev_t device), MAKES, folder, at, mode,
      device)
HERE(__xmknod, (int version, const char *path, mode_t mode, dev_t *device), MAKES, version, at,
     mode, device)
THERE(__xmknodat, (int version, int folder, const char *path, mode_t mode, dev_t *device), MAKES,
      version, folder, at, mode, device)
HERE(symlink, (const char *target, const char *path), MAKES, target, at)
THERE(symlinkat, (const char *target, int folder, const char *path), MAKES, target, folder, at)
HERE(chmod, (const char *path, mode_t mode), ALTERS, at, mode)
HERE(lchmod, (const char *path, mode_t mode), ALTERS_LINK, at, mode)
THERE(fchmodat, (int folder, const char *path, mode_t mode, int flags), BY_FLAGS, folder, at, mode,
      flags)
HERE(chown, (const char *path, uid_t user, gid_t group), ALTERS, at, user, group)
HERE(lchown, (const char *path, uid_t user, gid_t group), ALTERS_LINK, at, user, group)
THERE(fchownat, (int folder, const char *path, uid_t user, gid_t group, int flags), BY_FLAGS,
      folder, at, user, group, flags)
HERE(truncate, (const char *path, off_t size), ALTERS, at, size)
HERE(truncate64, (const char *path, off64_t size), ALTERS, at, size)
HERE(utime, (const char *path, const struct utimbuf *times), ALTERS, at, times)
HERE(utimes, (const char *path, const struct timeval times[2]), ALTERS, at, times)
HERE(lutimes, (const char *path, const struct timeval times[2]), ALTERS_LINK, at, times)
THERE(futimesat, (int folder, const char *path, const struct timeval times[2]), ALTERS, folder,
      path ? at : NULL, times)
THERE(utimensat, (int folder, const char *path, const struct timespec times[2], int flags),
      BY_FLAGS, folder, at, times, flags)
HERE(setxattr, (const char *path, const char *name, const void *value, size_t size, int flags),
     ALTERS, at, name, value, size, flags)
HERE(lsetxattr, (const char *path, const char *name, const void *value, size_t size, int flags),
     ALTERS_LINK, at, name, value, size, flags)
HERE(removexattr, (const char *path, const char *name), ALTERS, at, name)
HERE(lremovexattr, (const char *path, const char *name), ALTERS_LINK, at, name)

/* The same for two paths. */
#define RENAME(name, parameters, from, to, how, ...)                                           \
	int name parameters                                                                    \
	{                                                                                      \
		char buffer[PATH_MAX], other[PATH_MAX];                                        \
		const char *at = change(from, path, TAKES, buffer);                            \
		const char *at_new = at ? change(to, new_path, how, other) : NULL;             \
		return at_new ? NEXT(name)(__VA_ARGS__) : -1;                                  \
	}

RENAME(rename, (const char *path, const char *new_path), AT_FDCWD, AT_FDCWD, REPLACES, at, at_new)
RENAME(renameat, (int from, const char *path, int to, const char *new_path), from, to, REPLACES,
       from, at, to, at_new)
RENAME(renameat2, (int from, const char *path, int to, const char *new_path, unsigned flags), from,
       to, REPLACES, from, at, to, at_new, flags)
RENAME(link, (const char *path, const char *new_path), AT_FDCWD, AT_FDCWD, MAKES, at, at_new)
RENAME(linkat, (int from, const char *path, int to, const char *new_path, int flags), from, to,
       MAKES, from, at, to, at_new, flags)

/* The same for a descriptor. */
#define ALTER(name, parameters, ...)                                                           \
	int name parameters                                                                    \
	{                                                                                      \
		return may_alter(fd) ? NEXT(name)(__VA_ARGS__) : -1;                           \
	}

ALTER(fchmod, (int fd, mode_t mode), fd, mode)
ALTER(fchown, (int fd, uid_t user, gid_t group), fd, user, group)
ALTER(futimens, (int fd, const struct timespec times[2]), fd, times)
ALTER(futimes, (int fd, const struct timeval times[2]), fd, times)
ALTER(fsetxattr, (int fd, const char *name, const void *value, size_t size, int flags), fd, name,
      value, size, flags)
ALTER(fremovexattr, (int fd, const char *name), fd, name)
