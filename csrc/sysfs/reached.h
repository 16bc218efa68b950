/* SPDX-License-Identifier: MIT
 * Which descriptors and working directories were reached through this library: by a name below /sys
 * or /dev that stands for one in the private tree, or from there. All functions keep errno. */
#pragma once

#include <stdbool.h>

/* Whether a descriptor, or the working directory for AT_FDCWD, was reached so. A program that is
 * started in such a directory knows it by the variable PWD, which shells and exec() here set. */
bool rw_is_reached(int folder);

/* Note how a descriptor (-1 for none) was opened. */
void rw_note_opened(int fd, bool is_reached);

/* Note that a descriptor (-1 for none) is another one for the same file. */
void rw_note_duplicate(int fd, int copy);

/* Note how the process came to its working directory. */
void rw_note_entered(bool is_reached);

/* Whether a path for which the private tree stands names the working directory. */
bool rw_is_name_of_folder(const char *path);

/* Whether rw_note_plain() noted the folder of a descriptor. This is faster than to find its path. */
bool rw_is_plain(int folder);

/* Note a descriptor of a folder in which no name is one of the private tree for another. */
void rw_note_plain(int folder);
