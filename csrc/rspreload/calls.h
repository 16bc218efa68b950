/* SPDX-License-Identifier: MIT
 * What the files of this library share: the kinds of descriptors, and calls of other libraries. */
#pragma once

#include <dlfcn.h>
#include <stdbool.h>

enum { MAX_FDS = 1 << 20 };
enum kind { ORDINARY, RSOCKET, SET };

extern __thread int inside; /* the functions of librdmacm call those here */

enum kind kind_of(int fd);
bool is_rsocket(int fd);

/* Note the kind of a new descriptor; returns it. */
int note(int fd, enum kind kind);

/* Call the next library's function of this name. */
#define NEXT(name, ...)                                                                            \
	({                                                                                         \
		static __typeof__(&name) next_;                                                    \
		if (!next_)                                                                        \
			next_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                        \
		next_(__VA_ARGS__);                                                                \
	})

/* Call a function of librdmacm that calls functions here with descriptors of rsockets. */
#define INSIDE(call)                                                                               \
	({                                                                                         \
		inside++;                                                                          \
		__typeof__(call) result_ = call;                                                   \
		inside--;                                                                          \
		result_;                                                                           \
	})
