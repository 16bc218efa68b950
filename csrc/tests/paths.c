/* SPDX-License-Identifier: MIT
 * Paths and roots of any length and kind, for the rules of the preload library. Arguments: a seed and
 * a folder that exists. */
#include "../sysfs/paths.c"
#include "../sysfs/reached.c"

#include "check.h"

enum { ROUNDS = 20000, LONGEST = 2 * PATH_MAX, FOLDER = 9 };

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

static void lengthen(char *text, size_t length)
{
	size_t before = strlen(text);

	if (before < length) {
		memset(text + before, 'a', length - before);
		text[length] = 0;
	}
}

static void fill_with_parts(char *text, const char *folder)
{
	static const char *const parts[] = {
		"/",  "/sys", "/sys/", "sys/", "/dev/infiniband", "dev/infiniband", "..", "/../",
		"../", "./",  "//",    "\n",   "/class/infiniband", "uverbs0",	    "rw0",
	};

	for (unsigned i = below(6); i; i--)
		append(text, below(8) ? parts[below(LENGTH(parts))] : folder);
	if (below(8) == 0)
		lengthen(text, PATH_MAX - 20 + below(40)); /* around the limit */
}

/* As that of the library, whose file needs a service. */
bool rw_is_in_counters(const char *path)
{
	return strstr(path, "counters/") != NULL;
}

/* Paths relative to the working directory, to descriptors 0 and 9, and to none. */
static int any_folder(void)
{
	static const int folders[] = {AT_FDCWD, 0, FOLDER, -1};

	return folders[below(LENGTH(folders))];
}

static void check_find(const char *path)
{
	char *buffer = malloc(PATH_MAX); /* on the heap: accesses behind it are found */
	const char *at;
	unsigned found;

	errno = 7;
	at = rw_find(any_folder(), path, buffer, &found);
	CHECK(errno == 7 && (at == path || (at == buffer && strlen(at) < PATH_MAX)));
	free(buffer);
}

static void check_public(const char *path)
{
	char *copy = malloc(PATH_MAX);

	if (strlen(path) < PATH_MAX) {
		strcpy(copy, path);
		errno = 7;
		if (rw_public(copy))
			CHECK(strlen(copy) <= strlen(path) && copy[0] == '/');
		else
			CHECK(!strcmp(copy, path));
		CHECK(errno == 7);
	}
	free(copy);
}

int main(int argc, char **argv)
{
	static char path[LONGEST + 1], root[LONGEST + 1];

	CHECK(argc == 3);
	srand((unsigned)atoi(argv[1]));
	CHECK(chdir(argv[2]) == 0 && dup2(open("class/infiniband", O_PATH), FOLDER) == FOLDER);
	for (int i = 0; i < ROUNDS; i++) {
		path[0] = root[0] = 0;
		fill_with_parts(root, argv[2]);
		fill_with_parts(path, below(2) ? argv[2] : root);
		rw_note_opened(FOLDER, below(2));
		rw_note_entered(below(2));
		if (below(10))
			setenv("RDMAWIRE_SYSFS", below(3) ? argv[2] : root, 1);
		else
			unsetenv("RDMAWIRE_SYSFS");
		check_find(below(50) ? path : NULL);
		check_public(path);
	}
	return 0;
}
