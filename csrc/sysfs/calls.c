/* SPDX-License-Identifier: MIT
 * Functions of the C library that take a path: each looks in the private tree first. Those that
 * open or read counters refresh them first. */
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "changes.h"
#include "counters.h"
#include "next.h"
#include "paths.h"
#include "reached.h"

/* No header declares functions of programs built with checks, or by glibc before 2.33. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* Find the path `at` that is used for `path`, and `what` it is. */
#define FIND(folder, path)                                                                     \
	char buffer[PATH_MAX];                                                                 \
	unsigned what;                                                                         \
	const char *at = rw_find(folder, path, buffer, &what)

/* Let reads of an opened file fail with EINVAL, as those of an epoll descriptor do, if the file is
 * empty: so are the attributes of a free slot of a GID table, which Linux opens, and reads not. */
static void refuse_reads(int fd)
{
	struct stat found;
	int before = errno, other;

	if (!fstat(fd, &found) && S_ISREG(found.st_mode) && !found.st_size) {
		other = epoll_create1(EPOLL_CLOEXEC);
		dup3(other, fd, fcntl(fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
		close(other);
	}
	errno = before;
}

/* Define a function that returns the result of the next library's for that path. */
#define PLACED(type, name, parameters, folder, ...)                                            \
	type name parameters                                                                   \
	{                                                                                      \
		FIND(folder, path);                                                            \
		return NEXT(name)(__VA_ARGS__);                                                \
	}

/* The same for functions that open a file; `number` is the descriptor of the result `opened`. */
#define OPEN(type, failure, name, parameters, folder, flags, number, ...)                      \
	type name parameters                                                                   \
	{                                                                                      \
		FIND(folder, path);                                                            \
		type opened;                                                                   \
		if (!rw_may_open(folder, at, flags, what))                                     \
			return failure;                                                        \
		if (what & RW_COUNTER)                                                         \
			rw_refresh_counters();                                                 \
		opened = NEXT(name)(__VA_ARGS__);                                              \
		rw_note_counter(number, what & RW_COUNTER);                                    \
		rw_note_opened(number, what & RW_THROUGH);                                     \
		if (what & RW_THROUGH && strstr(at, "/gid_attrs/"))                            \
			refuse_reads(number);                                                  \
		return opened;                                                                 \
	}

#define OPEN_FILE(name, parameters, folder, ...)                                               \
	OPEN(int, -1, name, parameters, folder, flags, opened, __VA_ARGS__)
#define OPEN_STREAM(name, parameters, ...)                                                     \
	OPEN(FILE *, NULL, name, parameters, AT_FDCWD, flags_of(mode),                         \
	     opened ? fileno(opened) : -1, __VA_ARGS__)

/* The same for functions that read. */
#define READ(name, parameters, offset, ...)                                                    \
	ssize_t name parameters                                                                \
	{                                                                                      \
		rw_before_read(fd, offset);                                                    \
		return NEXT(name)(__VA_ARGS__);                                                \
	}

/* The mode that follows the flags of a call, which is there if the call may make a file. */
#define MODE(last)                                                                             \
	({                                                                                     \
		va_list arguments;                                                             \
		mode_t mode;                                                                   \
		va_start(arguments, last);                                                     \
		mode = RW_MAKES(last) ? va_arg(arguments, mode_t) : 0;                         \
		va_end(arguments);                                                             \
		mode;                                                                          \
	})

/* The flags with which fopen(3) opens a file. */
static int flags_of(const char *mode)
{
	int makes = *mode == 'w' ? O_CREAT | O_TRUNC : *mode == 'a' ? O_CREAT : 0;

	return makes | (strchr(mode, '+') ? O_RDWR : makes ? O_WRONLY : O_RDONLY);
}

/* Functions of which there is one for files of up to 2 GiB on small machines, and one with a 64. */
#define SIZED(bits)                                                                            \
	OPEN_FILE(open##bits, (const char *path, int flags, ...), AT_FDCWD, at, flags,         \
		  MODE(flags))                                                                 \
	OPEN_FILE(openat##bits, (int folder, const char *path, int flags, ...), folder,        \
		  folder, at, flags, MODE(flags))                                              \
	OPEN_FILE(__open##bits##_2, (const char *path, int flags), AT_FDCWD, at, flags)        \
	OPEN_FILE(__openat##bits##_2, (int folder, const char *path, int flags), folder,       \
		  folder, at, flags)                                                           \
	OPEN_STREAM(fopen##bits, (const char *path, const char *mode), at, mode)               \
	OPEN_STREAM(freopen##bits, (const char *path, const char *mode, FILE *stream), at,     \
		    mode, stream)                                                              \
	OPEN(int, -1, creat##bits, (const char *path, mode_t mode), AT_FDCWD, O_CREAT, opened, \
	     at, mode)                                                                         \
	READ(pread##bits, (int fd, void *data, size_t size, off##bits##_t offset), offset, fd, \
	     data, size, offset)                                                               \
	READ(__pread##bits##_chk, (int fd, void *data, size_t size, off##bits##_t offset,      \
	     size_t room), offset, fd, data, size, offset, room)                               \
	PLACED(int, scandir##bits, (const char *path, struct dirent##bits ***list,             \
	       int (*select)(const struct dirent##bits *),                                     \
	       int (*compare)(const struct dirent##bits **, const struct dirent##bits **)),    \
	       AT_FDCWD, at, list, select, compare)                                            \
	PLACED(int, stat##bits, (const char *path, struct stat##bits *found), AT_FDCWD, at,    \
	       found)                                                                          \
	PLACED(int, lstat##bits, (const char *path, struct stat##bits *found), AT_FDCWD, at,   \
	       found)                                                                          \
	PLACED(int, fstatat##bits, (int folder, const char *path, struct stat##bits *found,    \
	       int flags), folder, folder, at, found, flags)                                   \
	PLACED(int, __xstat##bits, (int version, const char *path, struct stat##bits *found),  \
	       AT_FDCWD, version, at, found)                                                   \
	PLACED(int, __lxstat##bits, (int version, const char *path, struct stat##bits *found), \
	       AT_FDCWD, version, at, found)                                                   \
	PLACED(int, __fxstatat##bits, (int version, int folder, const char *path,              \
	       struct stat##bits *found, int flags), folder, version, folder, at, found, flags)

SIZED()
SIZED(64)

READ(read, (int fd, void *data, size_t size), -1, fd, data, size)
READ(__read_chk, (int fd, void *data, size_t size, size_t room), -1, fd, data, size, room)
OPEN(DIR *, NULL, opendir, (const char *path), AT_FDCWD, O_RDONLY, opened ? dirfd(opened) : -1, at)

PLACED(int, access, (const char *path, int mode), AT_FDCWD, at, mode)
PLACED(int, faccessat, (int folder, const char *path, int mode, int flags), folder, folder, at,
       mode, flags)
PLACED(int, euidaccess, (const char *path, int mode), AT_FDCWD, at, mode)
PLACED(int, eaccess, (const char *path, int mode), AT_FDCWD, at, mode)
PLACED(int, statx, (int folder, const char *path, int flags, unsigned mask, struct statx *found),
       folder, folder, at, flags, mask, found)
PLACED(ssize_t, readlink, (const char *path, char *target, size_t size), AT_FDCWD, at, target, size)
PLACED(ssize_t, readlinkat, (int folder, const char *path, char *target, size_t size), folder,
       folder, at, target, size)
PLACED(ssize_t, __readlink_chk, (const char *path, char *target, size_t size, size_t room),
       AT_FDCWD, at, target, size, room)
PLACED(ssize_t, __readlinkat_chk, (int folder, const char *path, char *target, size_t size,
       size_t room), folder, folder, at, target, size, room)
PLACED(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t size),
       AT_FDCWD, at, name, value, size)
PLACED(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t size),
       AT_FDCWD, at, name, value, size)
PLACED(ssize_t, listxattr, (const char *path, char *names, size_t size), AT_FDCWD, at, names, size)
PLACED(ssize_t, llistxattr, (const char *path, char *names, size_t size), AT_FDCWD, at, names, size)

int chdir(const char *path)
{
	FIND(AT_FDCWD, path);
	int failed = NEXT(chdir)(at);

	if (!failed)
		rw_note_entered(what & RW_THROUGH);
	return failed;
}

int fchdir(int folder)
{
	bool is_reached = rw_is_reached(folder);
	int failed = NEXT(fchdir)(folder);

	if (!failed)
		rw_note_entered(is_reached);
	return failed;
}

#define DUPLICATE(name, parameters, ...)                                                       \
	int name parameters                                                                    \
	{                                                                                      \
		int copy = NEXT(name)(__VA_ARGS__);                                            \
		rw_note_duplicate(fd, copy);                                                   \
		return copy;                                                                   \
	}

DUPLICATE(dup, (int fd), fd)
DUPLICATE(dup2, (int fd, int number), fd, number)
DUPLICATE(dup3, (int fd, int number, int flags), fd, number, flags)

/* Each command has one argument of the size of a pointer, or none. */
#define CONTROL(name)                                                                          \
	int name(int fd, int command, ...)                                                     \
	{                                                                                      \
		va_list arguments;                                                             \
		int result;                                                                    \
		va_start(arguments, command);                                                  \
		result = NEXT(name)(fd, command, va_arg(arguments, void *));                   \
		va_end(arguments);                                                             \
		if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)                          \
			rw_note_duplicate(fd, result);                                         \
		return result;                                                                 \
	}

CONTROL(fcntl)
CONTROL(fcntl64)

PLACED(int, posix_spawn_file_actions_addchdir_np, (posix_spawn_file_actions_t *actions,
       const char *path), AT_FDCWD, actions, at)
PLACED(int, posix_spawn_file_actions_addchdir, (posix_spawn_file_actions_t *actions,
       const char *path), AT_FDCWD, actions, at)

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
	char folder[PATH_MAX];

	if (rw_is_reached(AT_FDCWD) && rw_write_folder(folder, AT_FDCWD) && rw_public(folder))
		return copy_folder(folder, path, size);
	return NEXT(getcwd)(path, size);
}

/* The C library ends a program whose buffer is smaller than it says. */
char *__getcwd_chk(char *path, size_t size, size_t room)
{
	return size > room ? NEXT(__getcwd_chk)(path, size, room) : getcwd(path, size);
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

/* Start a program, whose variable PWD names its working directory if that is one of the tree. */
static int execute(typeof(execve) *next, const char *path, char *const *words, char *const *variables)
{
	char own[PATH_MAX + 4] = {'P', 'W', 'D', '='};
	size_t count = 0, kept = 0;
	bool is_named = !variables || !rw_is_reached(AT_FDCWD) ||
			!rw_write_folder(own + 4, AT_FDCWD) || !rw_public(own + 4);

	for (; !is_named && variables[count]; count++)
		is_named = strncmp(variables[count], own, 4) == 0 &&
			   rw_is_name_of_folder(variables[count] + 4);
	if (is_named)
		return next(path, words, variables);
	char *changed[count + 2];
	for (size_t i = 0; i < count; i++)
		if (strncmp(variables[i], own, 4) != 0)
			changed[kept++] = variables[i];
	changed[kept++] = own;
	changed[kept] = NULL;
	return next(path, words, changed);
}

#define EXECUTE(name, parameters, next, variables)                                             \
	int name parameters                                                                    \
	{                                                                                      \
		return execute(NEXT(next), path, words, variables);                            \
	}
#define WORDS const char *path, char *const words[]

EXECUTE(execve, (WORDS, char *const variables[]), execve, variables)
EXECUTE(execvpe, (WORDS, char *const variables[]), execvpe, variables)
EXECUTE(execv, (WORDS), execve, environ)
EXECUTE(execvp, (WORDS), execvpe, environ)

/* glob(3) does not call the functions here unless they are given to it. It has no type for folders,
 * whose pointers it passes on. */
#define GLOB(bits)                                                                             \
	int glob##bits(const char *pattern, int flags, int (*failed)(const char *, int),       \
		       glob##bits##_t *found)                                                  \
	{                                                                                      \
		int result;                                                                    \
		if (flags & GLOB_ALTDIRFUNC)                                                   \
			return NEXT(glob##bits)(pattern, flags, failed, found);                \
		found->gl_opendir = (void *)opendir;                                           \
		found->gl_readdir = (void *)readdir##bits;                                     \
		found->gl_closedir = (void *)closedir;                                         \
		found->gl_stat = stat##bits;                                                   \
		found->gl_lstat = lstat##bits;                                                 \
		result = NEXT(glob##bits)(pattern, flags | GLOB_ALTDIRFUNC, failed, found);    \
		found->gl_flags &= ~GLOB_ALTDIRFUNC;                                           \
		return result;                                                                 \
	}

GLOB()
GLOB(64)

/* The result names the path as programs know it, below /sys. */
static char *resolve(const char *path, char *resolved)
{
	FIND(AT_FDCWD, path);
	char found[PATH_MAX];

	if (!NEXT(realpath)(at, found))
		return NULL;
	if (what & RW_THROUGH)
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
	FIND(AT_FDCWD, path);

	if (room >= PATH_MAX)
		return resolve(path, resolved);
	return NEXT(__realpath_chk)(at, resolved, room);
}

char *canonicalize_file_name(const char *path)
{
	return resolve(path, NULL);
}
