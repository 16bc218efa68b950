/* SPDX-License-Identifier: MIT
 * Functions of the C library that take a path: each looks in the private tree first. Those that
 * open or read counters refresh them first. */
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "counters.h"
#include "paths.h"

/* Functions that headers do not declare: programs built with checks, and by glibc before 2.33. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);
int __xstat(int version, const char *path, struct stat *found);
int __xstat64(int version, const char *path, struct stat64 *found);
int __lxstat(int version, const char *path, struct stat *found);
int __lxstat64(int version, const char *path, struct stat64 *found);
int __fxstatat(int version, int folder, const char *path, struct stat *found, int flags);
int __fxstatat64(int version, int folder, const char *path, struct stat64 *found, int flags);
ssize_t __readlink_chk(const char *path, char *buffer, size_t size, size_t room);
ssize_t __readlinkat_chk(int folder, const char *path, char *buffer, size_t size, size_t room);
char *__realpath_chk(const char *path, char *resolved, size_t room);
char *__getcwd_chk(char *path, size_t size, size_t room);
int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t *actions, const char *path);
int posix_spawn_file_actions_addchdir(posix_spawn_file_actions_t *actions, const char *path);
ssize_t __read_chk(int fd, void *data, size_t size, size_t room);
ssize_t __pread_chk(int fd, void *data, size_t size, off_t offset, size_t room);
ssize_t __pread64_chk(int fd, void *data, size_t size, off64_t offset, size_t room);

/* Return the result, of type `type`, of the next library's function of this name. */
#define NEXT(type, name, parameters, ...)                                                      \
	type(*next) parameters = (type(*) parameters)dlsym(RTLD_NEXT, #name);                  \
	char buffer[PATH_MAX];                                                                 \
	return next(__VA_ARGS__)

/* The same for functions that open a file: `place` is its path, which the arguments name `at`, and
 * `number` is the descriptor of the result `opened`. */
#define OPEN(type, name, parameters, place, number, ...)                                       \
	type(*next) parameters = (type(*) parameters)dlsym(RTLD_NEXT, #name);                  \
	char buffer[PATH_MAX];                                                                 \
	const char *at = place;                                                                \
	bool is_counter = rw_is_counter(at);                                                   \
	type opened;                                                                           \
	if (is_counter)                                                                        \
		rw_refresh_counters();                                                         \
	opened = next(__VA_ARGS__);                                                            \
	rw_opened(number, is_counter);                                                         \
	return opened

/* The same for functions that read, which programs call so often that the next one is kept. */
#define READ(name, parameters, offset, ...)                                                    \
	static ssize_t(*_Atomic kept) parameters;                                              \
	ssize_t(*next) parameters = kept;                                                      \
	if (!next)                                                                             \
		kept = next = (ssize_t(*) parameters)dlsym(RTLD_NEXT, #name);                  \
	rw_before_read(fd, offset);                                                            \
	return next(__VA_ARGS__)

#define PLACE(path) rw_private(AT_FDCWD, path, buffer)
#define PLACE_IN(folder, path) rw_private(folder, path, buffer)

/* The mode that follows the flags of a call, which is there if the call may make a file. */
static mode_t mode_of(int flags, va_list arguments)
{
	bool makes = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;

	return makes ? va_arg(arguments, mode_t) : 0;
}

#define MODE(last)                                                                             \
	({                                                                                     \
		va_list arguments;                                                             \
		mode_t mode;                                                                   \
		va_start(arguments, last);                                                     \
		mode = mode_of(last, arguments);                                               \
		va_end(arguments);                                                             \
		mode;                                                                          \
	})

int open(const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	OPEN(int, open, (const char *, int, ...), PLACE(path),
	     opened, at, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	OPEN(int, open64, (const char *, int, ...), PLACE(path),
	     opened, at, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	OPEN(int, openat, (int, const char *, int, ...), PLACE_IN(folder, path),
	     opened, folder, at, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	OPEN(int, openat64, (int, const char *, int, ...), PLACE_IN(folder, path),
	     opened, folder, at, flags, mode);
}

int __open_2(const char *path, int flags)
{
	OPEN(int, __open_2, (const char *, int), PLACE(path),
	     opened, at, flags);
}

int __open64_2(const char *path, int flags)
{
	OPEN(int, __open64_2, (const char *, int), PLACE(path),
	     opened, at, flags);
}

int __openat_2(int folder, const char *path, int flags)
{
	OPEN(int, __openat_2, (int, const char *, int), PLACE_IN(folder, path),
	     opened, folder, at, flags);
}

int __openat64_2(int folder, const char *path, int flags)
{
	OPEN(int, __openat64_2, (int, const char *, int), PLACE_IN(folder, path),
	     opened, folder, at, flags);
}

FILE *fopen(const char *path, const char *mode)
{
	OPEN(FILE *, fopen, (const char *, const char *), PLACE(path),
	     opened ? fileno(opened) : -1, at, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	OPEN(FILE *, fopen64, (const char *, const char *), PLACE(path),
	     opened ? fileno(opened) : -1, at, mode);
}

ssize_t read(int fd, void *data, size_t size)
{
	READ(read, (int, void *, size_t), -1, fd, data, size);
}

ssize_t __read_chk(int fd, void *data, size_t size, size_t room)
{
	READ(__read_chk, (int, void *, size_t, size_t), -1, fd, data, size, room);
}

ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
	READ(pread, (int, void *, size_t, off_t), offset, fd, data, size, offset);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset)
{
	READ(pread64, (int, void *, size_t, off64_t), offset, fd, data, size, offset);
}

ssize_t __pread_chk(int fd, void *data, size_t size, off_t offset, size_t room)
{
	READ(__pread_chk, (int, void *, size_t, off_t, size_t), offset, fd, data, size, offset,
	     room);
}

ssize_t __pread64_chk(int fd, void *data, size_t size, off64_t offset, size_t room)
{
	READ(__pread64_chk, (int, void *, size_t, off64_t, size_t), offset, fd, data, size, offset,
	     room);
}

DIR *opendir(const char *path)
{
	NEXT(DIR *, opendir, (const char *), PLACE(path));
}

int scandir(const char *path, struct dirent ***list, int (*select)(const struct dirent *),
	    int (*compare)(const struct dirent **, const struct dirent **))
{
	NEXT(int, scandir,
	     (const char *, struct dirent ***, int (*)(const struct dirent *),
	      int (*)(const struct dirent **, const struct dirent **)),
	     PLACE(path), list, select, compare);
}

int scandir64(const char *path, struct dirent64 ***list, int (*select)(const struct dirent64 *),
	      int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
	NEXT(int, scandir64,
	     (const char *, struct dirent64 ***, int (*)(const struct dirent64 *),
	      int (*)(const struct dirent64 **, const struct dirent64 **)),
	     PLACE(path), list, select, compare);
}

int access(const char *path, int mode)
{
	NEXT(int, access, (const char *, int), PLACE(path), mode);
}

int faccessat(int folder, const char *path, int mode, int flags)
{
	NEXT(int, faccessat, (int, const char *, int, int), folder, PLACE_IN(folder, path), mode,
	     flags);
}

int euidaccess(const char *path, int mode)
{
	NEXT(int, euidaccess, (const char *, int), PLACE(path), mode);
}

int eaccess(const char *path, int mode)
{
	NEXT(int, eaccess, (const char *, int), PLACE(path), mode);
}

int stat(const char *path, struct stat *found)
{
	NEXT(int, stat, (const char *, struct stat *), PLACE(path), found);
}

int stat64(const char *path, struct stat64 *found)
{
	NEXT(int, stat64, (const char *, struct stat64 *), PLACE(path), found);
}

int lstat(const char *path, struct stat *found)
{
	NEXT(int, lstat, (const char *, struct stat *), PLACE(path), found);
}

int lstat64(const char *path, struct stat64 *found)
{
	NEXT(int, lstat64, (const char *, struct stat64 *), PLACE(path), found);
}

int fstatat(int folder, const char *path, struct stat *found, int flags)
{
	NEXT(int, fstatat, (int, const char *, struct stat *, int), folder, PLACE_IN(folder, path),
	     found, flags);
}

int fstatat64(int folder, const char *path, struct stat64 *found, int flags)
{
	NEXT(int, fstatat64, (int, const char *, struct stat64 *, int), folder,
	     PLACE_IN(folder, path), found, flags);
}

int statx(int folder, const char *path, int flags, unsigned mask, struct statx *found)
{
	NEXT(int, statx, (int, const char *, int, unsigned, struct statx *), folder,
	     PLACE_IN(folder, path), flags, mask, found);
}

int __xstat(int version, const char *path, struct stat *found)
{
	NEXT(int, __xstat, (int, const char *, struct stat *), version, PLACE(path), found);
}

int __xstat64(int version, const char *path, struct stat64 *found)
{
	NEXT(int, __xstat64, (int, const char *, struct stat64 *), version, PLACE(path), found);
}

int __lxstat(int version, const char *path, struct stat *found)
{
	NEXT(int, __lxstat, (int, const char *, struct stat *), version, PLACE(path), found);
}

int __lxstat64(int version, const char *path, struct stat64 *found)
{
	NEXT(int, __lxstat64, (int, const char *, struct stat64 *), version, PLACE(path), found);
}

int __fxstatat(int version, int folder, const char *path, struct stat *found, int flags)
{
	NEXT(int, __fxstatat, (int, int, const char *, struct stat *, int), version, folder,
	     PLACE_IN(folder, path), found, flags);
}

int __fxstatat64(int version, int folder, const char *path, struct stat64 *found, int flags)
{
	NEXT(int, __fxstatat64, (int, int, const char *, struct stat64 *, int), version, folder,
	     PLACE_IN(folder, path), found, flags);
}

ssize_t readlink(const char *path, char *target, size_t size)
{
	NEXT(ssize_t, readlink, (const char *, char *, size_t), PLACE(path), target, size);
}

ssize_t readlinkat(int folder, const char *path, char *target, size_t size)
{
	NEXT(ssize_t, readlinkat, (int, const char *, char *, size_t), folder, PLACE_IN(folder, path),
	     target, size);
}

ssize_t __readlink_chk(const char *path, char *target, size_t size, size_t room)
{
	NEXT(ssize_t, __readlink_chk, (const char *, char *, size_t, size_t), PLACE(path), target,
	     size, room);
}

ssize_t __readlinkat_chk(int folder, const char *path, char *target, size_t size, size_t room)
{
	NEXT(ssize_t, __readlinkat_chk, (int, const char *, char *, size_t, size_t), folder,
	     PLACE_IN(folder, path), target, size, room);
}

ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
	NEXT(ssize_t, getxattr, (const char *, const char *, void *, size_t), PLACE(path), name,
	     value, size);
}

ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size)
{
	NEXT(ssize_t, lgetxattr, (const char *, const char *, void *, size_t), PLACE(path), name,
	     value, size);
}

ssize_t listxattr(const char *path, char *names, size_t size)
{
	NEXT(ssize_t, listxattr, (const char *, char *, size_t), PLACE(path), names, size);
}

ssize_t llistxattr(const char *path, char *names, size_t size)
{
	NEXT(ssize_t, llistxattr, (const char *, char *, size_t), PLACE(path), names, size);
}

int chdir(const char *path)
{
	NEXT(int, chdir, (const char *), PLACE(path));
}

int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t *actions, const char *path)
{
	NEXT(int, posix_spawn_file_actions_addchdir_np,
	     (posix_spawn_file_actions_t *, const char *), actions, PLACE(path));
}

int posix_spawn_file_actions_addchdir(posix_spawn_file_actions_t *actions, const char *path)
{
	NEXT(int, posix_spawn_file_actions_addchdir, (posix_spawn_file_actions_t *, const char *),
	     actions, PLACE(path));
}

/* Copy the path of a working directory as getcwd(3) does. */
static char *copy_folder(const char *folder, char *path, size_t size)
{
	size_t needed = strlen(folder) + 1;

	if (path && size == 0)
		errno = EINVAL;
	else if (size > 0 && size < needed)
		errno = ERANGE;
	else if (path || (path = malloc(size ? size : needed)))
		return memcpy(path, folder, needed);
	return NULL;
}

/* The result is the path that Linux has for the folder: below /sys, without links. */
char *getcwd(char *path, size_t size)
{
	char *(*next)(char *, size_t) = (char *(*)(char *, size_t))dlsym(RTLD_NEXT, "getcwd");
	char folder[PATH_MAX];
	int before = errno;

	if (next(folder, sizeof folder) && rw_public(folder))
		return copy_folder(folder, path, size);
	errno = before;
	return next(path, size);
}

/* The C library ends a program whose buffer is smaller than it says. */
char *__getcwd_chk(char *path, size_t size, size_t room)
{
	char *(*next)(char *, size_t, size_t) =
		(char *(*)(char *, size_t, size_t))dlsym(RTLD_NEXT, "__getcwd_chk");

	return size > room ? next(path, size, room) : getcwd(path, size);
}

/* As that of the C library, this prefers the variable PWD, the path by which a shell came. */
char *get_current_dir_name(void)
{
	const char *named = getenv("PWD");
	struct stat here, there;
	int before = errno;

	if (named && stat(named, &there) == 0 && stat(".", &here) == 0 &&
	    here.st_dev == there.st_dev && here.st_ino == there.st_ino)
		return strdup(named);
	errno = before;
	return getcwd(NULL, 0);
}

static void *open_folder(const char *path)
{
	return opendir(path);
}

static struct dirent *read_folder(void *folder)
{
	return readdir(folder);
}

static struct dirent64 *read_folder64(void *folder)
{
	return readdir64(folder);
}

static void close_folder(void *folder)
{
	closedir(folder);
}

/* The C library calls functions of its own to find files, unless it gets others: those here. */
#define GLOB(name, type, read, stat, lstat)                                                    \
	int (*next)(const char *, int, int (*)(const char *, int), type *) =                   \
		(int (*)(const char *, int, int (*)(const char *, int), type *))dlsym(         \
			RTLD_NEXT, #name);                                                     \
	int result;                                                                            \
	if (flags & GLOB_ALTDIRFUNC)                                                           \
		return next(pattern, flags, failed, found);                                    \
	found->gl_opendir = open_folder;                                                       \
	found->gl_readdir = read;                                                              \
	found->gl_closedir = close_folder;                                                     \
	found->gl_stat = stat;                                                                 \
	found->gl_lstat = lstat;                                                               \
	result = next(pattern, flags | GLOB_ALTDIRFUNC, failed, found);                        \
	found->gl_flags &= ~GLOB_ALTDIRFUNC;                                                   \
	return result

int glob(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *found)
{
	GLOB(glob, glob_t, read_folder, stat, lstat);
}

int glob64(const char *pattern, int flags, int (*failed)(const char *, int), glob64_t *found)
{
	GLOB(glob64, glob64_t, read_folder64, stat64, lstat64);
}

/* The result names the path as programs know it, below /sys. */
static char *resolve(const char *path, char *resolved)
{
	char *(*next)(const char *, char *) =
		(char *(*)(const char *, char *))dlsym(RTLD_NEXT, "realpath");
	char buffer[PATH_MAX], found[PATH_MAX];

	if (!next(PLACE(path), found))
		return NULL;
	rw_public(found);
	return resolved ? strcpy(resolved, found) : strdup(found);
}

char *realpath(const char *path, char *resolved)
{
	return resolve(path, resolved);
}

/* The C library ends a program whose buffer is too small. */
char *__realpath_chk(const char *path, char *resolved, size_t room)
{
	if (room < PATH_MAX) {
		NEXT(char *, __realpath_chk, (const char *, char *, size_t), PLACE(path),
		     resolved, room);
	}
	return resolve(path, resolved);
}

char *canonicalize_file_name(const char *path)
{
	return resolve(path, NULL);
}
