/* SPDX-License-Identifier: MIT
 * Whether memory can be registered: a kernel pins its pages, for writing if the device may write.
 *
 * The service could write to any page by /proc/PID/mem, so that is checked here, once. The pages
 * become present, as with a kernel. Before Linux 5.14, which cannot do that, only the permissions
 * of the maps are compared. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* Make pages present. Returns an errno. */
static int populate(uintptr_t start, size_t length, bool writing)
{
	int advice = writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	return madvise((void *)start, length, advice) ? errno : 0;
}

/* Whether maps of the process cover a range without a hole, with the permission. */
static bool is_permitted(uintptr_t at, uintptr_t end, bool writing)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long first, last;
	char permissions[5];

	if (!maps)
		return true; /* the service finds memory that is not mapped */
	while (at < end &&
	       fscanf(maps, "%lx-%lx %4s%*[^\n]", &first, &last, permissions) == 3) {
		if (last <= at)
			continue;
		if (first > at || permissions[writing] != (writing ? 'w' : 'r'))
			break;
		at = last;
	}
	fclose(maps);
	return at >= end;
}

/* Make the pages of a range present, for writing or for reading alone. Returns 0, or EFAULT if
 * there are holes, pages that the program may not access like that, or pages behind the end of a
 * mapped file. */
int rw_make_present(const void *address, size_t length, bool writing)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (uintptr_t)address + length;
	uintptr_t start = (uintptr_t)address & ~(page - 1), here = (uintptr_t)&page & ~(page - 1);
	int error = populate(start, end - start, writing);

	if (error == EINVAL && populate(here, page, false) == EINVAL)
		return is_permitted(start, end, writing) ? 0 : EFAULT;
	return error ? EFAULT : 0;
}
