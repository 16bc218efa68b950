/* SPDX-License-Identifier: MIT
 * Counters of ports: their files are refreshed whenever a program reads them. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Whether the last folder of a path has the name of those of counters. */
bool rw_is_in_counters(const char *path);

/* Let the service write the counters of all ports to their files. Returns when it has, or at once if
 * it is gone, or after a second if it does not answer. Keeps errno. */
void rw_refresh_counters(void);

/* Note whether an opened descriptor (-1 for none) is that of a counter. */
void rw_note_counter(int fd, bool is_counter);

/* Refresh the counters before a read that begins at the start of a counter's file, as sysfs makes
 * the text of a file then. `offset` is -1 for the position of the descriptor. Keeps errno. */
void rw_before_read(int fd, off_t offset);
