/* SPDX-License-Identifier: MIT
 * Memory that the library and the service share. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

/* Map `size` bytes and close the descriptor. Returns null for less memory than that. */
void *rw_map(int fd, size_t size)
{
	struct stat status;
	void *memory = NULL;

	if (!fstat(fd, &status) && status.st_size >= (off_t)size) {
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (memory == MAP_FAILED)
			memory = NULL;
	}
	close(fd);
	return memory;
}
