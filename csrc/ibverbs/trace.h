/* SPDX-License-Identifier: MIT
 * Lines on stderr for the user: RDMAWIRE_TRACE=1 prints failed and refused calls, 2 every call. */
#pragma once

#include <stddef.h>

/* Set errno to error, print the cause if the user asked for it, and return error. */
int rw_refuse(int error, const char *function, const char *cause, ...)
	__attribute__((format(printf, 3, 4), cold));

/* Keep the service's reason of a refusal, of `size` bytes, until this thread calls rw_trace_call. */
void rw_keep_reason(const char *reason, size_t size);

/* As rw_refuse, for the result of a call of the service: the cause is the reason that was kept. */
int rw_trace_call(int error, const char *call);

/* Print at level 2 that a function was called that does nothing. */
void rw_ignore(const char *function);

/* Print a line at every level: the program's devices no longer work. */
void rw_warn(const char *message, ...) __attribute__((format(printf, 1, 2), cold));

/* Set errno to error, and print once in a process that queue pairs of a vendor are refused. */
void rw_explain_vendor(int error, const char *function);
