/* SPDX-License-Identifier: MIT
 * Memory that the library and the service share. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

/* Whether the memory cannot shrink: an access to truncated memory would be a SIGBUS. */
static bool is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && seals & F_SEAL_SHRINK;
}

/* Map `size` bytes and close the descriptor. Null if the memory is smaller, or not sealed. */
void *rw_map(int fd, size_t size)
{
	struct stat status;
	void *memory = NULL;

	if (is_sealed(fd) && !fstat(fd, &status) && status.st_size >= (off_t)size) {
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (memory == MAP_FAILED)
			memory = NULL;
	}
	close(fd);
	return memory;
}
