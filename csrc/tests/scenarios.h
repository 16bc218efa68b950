/* SPDX-License-Identifier: MIT
 * The main function of a program of scenarios: it runs the one that the command line names. */
#pragma once

#include "check.h"

int main(int argc, char **argv)
{
	for (; scenarios; scenarios = scenarios->next)
		if (argc == 2 && !strcmp(scenarios->name, argv[1])) {
			scenarios->run();
			return 0;
		}
	fprintf(stderr, "no such scenario\n");
	return 2;
}
