/* SPDX-License-Identifier: MIT
 * The functions that those of this library stand before. */
#pragma once

#include <dlfcn.h>
#include <stdatomic.h>

/* The next library's function of this name, which a header declares. It is looked up once. */
#define NEXT(name)                                                                             \
	({                                                                                     \
		static typeof(name) *_Atomic kept;                                             \
		typeof(name) *next = atomic_load_explicit(&kept, memory_order_relaxed);        \
		if (!next) {                                                                   \
			next = (typeof(name) *)dlsym(RTLD_NEXT, #name);                        \
			atomic_store_explicit(&kept, next, memory_order_relaxed);              \
		}                                                                              \
		next;                                                                          \
	})
