/* SPDX-License-Identifier: MIT
 * Paths and roots of any length and kind, for the rules of the preload library. Arguments: a seed and
 * a folder that exists. */
#include "../sysfs/paths.c"

#include "check.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

enum { ROUNDS = 20000, LONGEST = 2 * PATH_MAX };

static unsigned below(unsigned limit)
{
	return (unsigned)rand() % limit;
}

/* Append a part to a text of at most LONGEST bytes. */
static void append(char *text, const char *part)
{
	if (strlen(text) + strlen(part) < LONGEST)
		strcat(text, part);
}

static void fill_with_parts(char *text, const char *folder)
{
	static const char *const parts[] = {"/",	  "/sys",	 "/sys/", "sys/",
					    "/dev/infiniband", "dev/infiniband", "..",	  "/../",
					    "/class/infiniband",	 "uverbs0",	 "//",	  "\n"};

	for (unsigned i = below(6); i; i--)
		append(text, below(8) ? parts[below(LENGTH(parts))] : folder);
	if (below(8) == 0) /* around the limit */
		for (unsigned i = PATH_MAX - 20 + below(40); strlen(text) < i;)
			append(text, "a");
}

static void check_private(const char *path, enum rw_use use)
{
	char buffer[PATH_MAX];
	int folder = (int)below(3) - 1;
	const char *found;

	errno = 7;
	found = rw_private(path, use, buffer);
	CHECK(errno == 7 && (found == path || (found == buffer && strlen(found) < PATH_MAX)));
	found = rw_private_at(below(2) ? AT_FDCWD : folder, path, use, buffer);
	CHECK(errno == 7 && (found == path || (found == buffer && strlen(found) < PATH_MAX)));
}

static void check_public(const char *path)
{
	char *copy = malloc(PATH_MAX); /* on the heap: accesses behind it are found */

	if (strlen(path) < PATH_MAX) {
		strcpy(copy, path);
		rw_public(copy);
		CHECK(!strcmp(copy, path) || (strlen(copy) <= strlen(path) && copy[0] == '/'));
	}
	free(copy);
}

int main(int argc, char **argv)
{
	static char path[LONGEST + 1], root[LONGEST + 1];

	CHECK(argc == 3);
	srand((unsigned)atoi(argv[1]));
	for (int i = 0; i < ROUNDS; i++) {
		path[0] = root[0] = 0;
		fill_with_parts(root, argv[2]);
		fill_with_parts(path, below(2) ? argv[2] : root);
		if (below(10))
			setenv("RDMAWIRE_SYSFS", below(3) ? argv[2] : root, 1);
		else
			unsetenv("RDMAWIRE_SYSFS");
		check_private(below(50) ? path : NULL, below(2) ? RW_FILE : RW_LIST);
		check_public(path);
	}
	return 0;
}
