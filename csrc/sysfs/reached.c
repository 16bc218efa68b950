/* SPDX-License-Identifier: MIT
 * A descriptor, or a working directory, is noted with its file: a note does not hold for another
 * file that has the number later. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "paths.h"
#include "reached.h"

enum {
	MAX_FDS = 1 << 16, /* higher descriptors are as those of files reached by their own path */
	MAX_FOLDERS = 16,
	MAX_PLAIN = 256,
};

/* Keys of files, 0 for none. A child made by vfork() writes to the memory of its parent when it
 * changes its directory: hence there are several for working directories. */
static _Atomic uint64_t opened[MAX_FDS], entered[MAX_FOLDERS];
static atomic_uint next_entered;
static _Atomic uint64_t plain[MAX_PLAIN]; /* by bits of the key */

/* Make a number of a file that is not 0, or 0 if there is no file. Bit 0 is 0. */
static uint64_t key_of(int folder, const char *path)
{
	const uint64_t prime = 0x9e3779b97f4a7c15;
	struct stat found;
	int before = errno;
	bool exists = syscall(SYS_newfstatat, folder, path, &found, *path ? 0 : AT_EMPTY_PATH) == 0;

	errno = before;
	return exists ? ((found.st_ino * prime) ^ found.st_dev) << 2 | 2 : 0;
}

/* The note of a working directory: bit 0 of its value says whether it was reached. */
static _Atomic uint64_t *note_of(uint64_t key)
{
	for (unsigned i = 0; i < MAX_FOLDERS; i++)
		if ((entered[i] | 1) == (key | 1))
			return &entered[i];
	return NULL;
}

bool rw_is_reached(int folder)
{
	_Atomic uint64_t *note;
	uint64_t key;

	if (folder == AT_FDCWD) {
		note = next_entered ? note_of(key_of(AT_FDCWD, ".")) : NULL;
		return note && *note & 1;
	}
	key = folder >= 0 && folder < MAX_FDS ? opened[folder] : 0;
	return key && key == key_of(folder, "");
}

void rw_note_opened(int fd, bool is_reached)
{
	if (fd >= 0 && fd < MAX_FDS && (is_reached || opened[fd]))
		opened[fd] = is_reached ? key_of(fd, "") : 0;
}

void rw_note_duplicate(int fd, int copy)
{
	if (fd != copy)
		rw_note_opened(copy, copy >= 0 && rw_is_reached(fd));
}

/* Directories that were not reached through this library are noted only if they were before. */
void rw_note_entered(bool is_reached)
{
	uint64_t key = is_reached || next_entered ? key_of(AT_FDCWD, ".") : 0;
	_Atomic uint64_t *note = key ? note_of(key) : NULL;

	if (!note && key && is_reached)
		note = &entered[next_entered++ % MAX_FOLDERS];
	if (note)
		*note = key | is_reached;
}

static _Atomic uint64_t *plain_of(uint64_t key)
{
	return &plain[(key >> 32) % MAX_PLAIN];
}

bool rw_is_plain(int folder)
{
	uint64_t key = folder == AT_FDCWD ? 0 : key_of(folder, "");

	return key && *plain_of(key) == key;
}

void rw_note_plain(int folder)
{
	uint64_t key = folder == AT_FDCWD ? 0 : key_of(folder, "");

	if (key)
		*plain_of(key) = key;
}

bool rw_is_name_of_folder(const char *path)
{
	char buffer[PATH_MAX];
	unsigned found = 0;
	const char *at = *path == '/' ? rw_find(AT_FDCWD, path, buffer, &found) : path;

	return found & RW_THROUGH && key_of(AT_FDCWD, at) == key_of(AT_FDCWD, ".");
}

__attribute__((constructor)) static void note_first_folder(void)
{
	const char *named = getenv("PWD");

	if (named && rw_is_name_of_folder(named))
		rw_note_entered(true);
}
