/* SPDX-License-Identifier: MIT
 * Lines on stderr for the user: RDMAWIRE_TRACE=1 prints failed and refused calls, 2 every call. */
#include "trace.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"

static int level;
static _Thread_local char kept_reason[RW_MAX_REASON + 1];

__attribute__((constructor)) static void read_level(void)
{
	const char *text = getenv("RDMAWIRE_TRACE");

	level = text ? atoi(text) : 0;
}

/* Print one line at once, so that lines of several processes do not mix. */
static void print(const char *subject, const char *cause, va_list arguments)
{
	char line[512], text[384];

	vsnprintf(text, sizeof text, cause, arguments);
	snprintf(line, sizeof line, "rdmawire[%d]: %s%s%s\n", (int)getpid(), subject,
		 *subject ? ": " : "", text);
	if (write(STDERR_FILENO, line, strlen(line)) < 0)
		return; /* stderr is closed */
}

/* A full queue is normal for a program that polls and posts again: only level 2 prints it. */
int rw_refuse(int error, const char *function, const char *cause, ...)
{
	va_list arguments;

	if (level >= (error == ENOMEM ? 2 : 1)) {
		va_start(arguments, cause);
		print(function, cause, arguments);
		va_end(arguments);
	}
	errno = error;
	return error;
}

__attribute__((format(printf, 2, 3))) static void print_line(const char *subject, const char *text,
							      ...)
{
	va_list arguments;

	va_start(arguments, text);
	print(subject, text, arguments);
	va_end(arguments);
}

void rw_keep_reason(const char *reason, size_t size)
{
	if (size > RW_MAX_REASON)
		size = RW_MAX_REASON;
	memcpy(kept_reason, reason, size);
	kept_reason[size] = 0;
}

int rw_trace_call(int error, const char *call)
{
	if (error && level >= 1)
		print_line(call, "%s%s%s", kept_reason, *kept_reason ? ": " : "", strerror(error));
	else if (level >= 2)
		print_line(call, "done");
	*kept_reason = 0;
	if (error)
		errno = error;
	return error;
}

void rw_ignore(const char *function)
{
	if (level >= 2)
		print_line(function, "ignored");
}

void rw_warn(const char *message, ...)
{
	va_list arguments;

	va_start(arguments, message);
	print("", message, arguments);
	va_end(arguments);
}

void rw_explain_vendor(int error, const char *function)
{
	static atomic_flag explained = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&explained))
		rw_warn("%s: there are no queue pairs of a vendor, such as DC and SRD; the section"
			" 'DC and SRD' of 'Run verbs programs' says what to use", function);
	errno = error;
}
