/* SPDX-License-Identifier: MIT
 * Functions that are exported and refused. functions.py says which ones and what each returns. */
#pragma once

#include <errno.h>

#include "trace.h"

#define REFUSE_ERRNO(name)                                                                         \
	int rw_refused_ERRNO_##name(void);                                                         \
	__attribute__((used)) int rw_refused_ERRNO_##name(void)                                    \
	{                                                                                          \
		return rw_refuse(EOPNOTSUPP, #name, "this function is not implemented");           \
	}

#define REFUSE_MINUS_ONE(name)                                                                     \
	int rw_refused_MINUS_ONE_##name(void);                                                     \
	__attribute__((used)) int rw_refused_MINUS_ONE_##name(void)                                \
	{                                                                                          \
		rw_refuse(EOPNOTSUPP, #name, "this function is not implemented");                  \
		return -1;                                                                         \
	}

#define REFUSE_NULL(name)                                                                          \
	void *rw_refused_NULL_##name(void);                                                        \
	__attribute__((used)) void *rw_refused_NULL_##name(void)                                   \
	{                                                                                          \
		rw_refuse(EOPNOTSUPP, #name, "this function is not implemented");                  \
		return NULL;                                                                       \
	}

#define REFUSE_NOTHING(name)                                                                       \
	void rw_refused_NOTHING_##name(void);                                                      \
	__attribute__((used)) void rw_refused_NOTHING_##name(void) { rw_ignore(#name); }

#define REFUSE_DATA(name)                                                                          \
	extern char rw_refused_DATA_##name;                                                        \
	__attribute__((used)) char rw_refused_DATA_##name;
