/* SPDX-License-Identifier: MIT
 * Files of sysfs, below the folder that RDMAWIRE_SYSFS names, else /sys. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "internal.h"

const char *ibv_get_sysfs_path(void)
{
	const char *root = getenv("RDMAWIRE_SYSFS");

	return root && *root ? root : "/sys";
}

/* Read a file without its newline. Returns the length of the text, which ends with a zero byte if
 * there is room, or -1. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[PATH_MAX];
	ssize_t length;
	int fd;

	snprintf(path, sizeof path, "%s/%s", dir, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	length = read(fd, buf, size);
	close(fd);
	if (length > 0 && buf[length - 1] == '\n')
		length--;
	if (length >= 0 && (size_t)length < size)
		buf[length] = 0;
	return (int)length;
}
