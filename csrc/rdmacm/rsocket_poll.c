/* SPDX-License-Identifier: MIT
 * rpoll and rselect: rsockets and other descriptors together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rsocket.h"

/* The conditions of an rsocket that poll(2) reports. The caller has the mutex. */
short rs_events(struct rsocket *rs, short wanted)
{
	int events;

	rs_poll(rs);
	if (rs->datagrams)
		events = rs_datagrams_events(rs);
	else if (rs->state == RS_LISTENING)
		events = rs_has_connection(rs) ? POLLIN | POLLRDNORM : 0;
	else if (rs->state == RS_CONNECTING)
		events = 0;
	else if (rs->stream)
		events = rs_stream_events(rs);
	else
		events = POLLOUT | POLLWRNORM | POLLHUP |
			 (rs->state == RS_FAILED ? POLLIN | POLLERR : 0);
	return (short)(events & (wanted | POLLERR | POLLHUP));
}

/* A call of rpoll: its descriptors, of which those of rsockets are waited for by the last one. */
struct poll_call {
	struct pollfd *fds, *others;
	nfds_t count;
	struct member {
		struct rsocket *rs; /* or null */
		struct rs_waiter waiter;
	} *members;
	bool any; /* of its descriptors is an rsocket */
	bool waiting, blind; /* blind: there is no descriptor by which to wait for rsockets */
};

static int begin(struct poll_call *call)
{
	call->others = calloc(call->count + 1, sizeof *call->others);
	call->members = calloc(call->count + 1, sizeof *call->members);
	if (!call->others || !call->members)
		return ENOMEM;
	for (nfds_t i = 0; i < call->count; i++) {
		call->others[i] = call->fds[i];
		call->members[i].rs = rs_get_member(call->fds[i].fd);
		if (call->members[i].rs)
			call->others[i].fd = -1;
		call->any |= call->members[i].rs != NULL;
	}
	call->others[call->count] = (struct pollfd){.fd = -1, .events = POLLIN};
	if (call->any)
		call->others[call->count].fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	call->blind = call->any && call->others[call->count].fd < 0;
	return 0;
}

static void finish(struct poll_call *call)
{
	for (nfds_t i = 0; call->members && i < call->count; i++) {
		struct rsocket *rs = call->members[i].rs;

		if (!rs)
			continue;
		if (call->waiting) {
			pthread_mutex_lock(&rs->mutex);
			rs_remove_waiter(rs, &call->members[i].waiter);
			pthread_mutex_unlock(&rs->mutex);
		}
		rs_put(rs);
	}
	if (call->others && call->others[call->count].fd >= 0)
		close(call->others[call->count].fd);
	free(call->others);
	free(call->members);
}

/* Look at the rsockets, and, from the second time on, have changes reported. Returns how many have
 * events. */
static int look(struct poll_call *call, bool wait)
{
	int ready = 0;

	wait &= !call->blind;
	for (nfds_t i = 0; i < call->count; i++) {
		struct rsocket *rs = call->members[i].rs;
		struct pollfd *fd = &call->fds[i];

		if (!rs)
			continue;
		pthread_mutex_lock(&rs->mutex);
		if (wait && !call->waiting) {
			call->members[i].waiter.fd = call->others[call->count].fd;
			rs_add_waiter(rs, &call->members[i].waiter);
		}
		fd->revents = rs_events(rs, fd->events);
		if (wait && !fd->revents && rs_arm(rs))
			fd->revents = rs_events(rs, fd->events);
		pthread_mutex_unlock(&rs->mutex);
		ready += fd->revents != 0;
	}
	call->waiting |= wait;
	return ready;
}

/* Wait for the other descriptors, and for a change of an rsocket. Returns how many of the others
 * have events, or -1 with errno. */
static int poll_others(struct poll_call *call, const struct timespec *timeout)
{
	struct pollfd *change = &call->others[call->count];
	int ready = ppoll(call->others, call->count + 1, timeout, NULL);
	uint64_t count;

	if (ready < 0)
		return ready;
	if (change->fd >= 0 && change->revents) {
		ready--;
		if (read(change->fd, &count, sizeof count) < 0 && errno != EAGAIN)
			return -1;
	}
	for (nfds_t i = 0; i < call->count; i++)
		if (!call->members[i].rs)
			call->fds[i].revents = call->others[i].revents;
	return ready;
}

/* Whether the service and both programs may have a processor each. It is asked for once: sysconf(3)
 * reads a file. */
static bool has_processors(void)
{
	static atomic_long processors;

	if (!processors)
		processors = sysconf(_SC_NPROCESSORS_ONLN);
	return processors > 3;
}

/* Look at the rsockets until one has events, at most for the time (ns) of a round trip: to sleep
 * takes longer. */
static int look_a_while(struct poll_call *call, int64_t left)
{
	int ready = look(call, false);
	int64_t end;

	if (ready || left <= 0 || !call->any || !has_processors())
		return ready;
	end = rs_now() + MIN(left, 50000);
	while (!ready && rs_now() < end)
		ready = look(call, false);
	return ready;
}

/* As ppoll(2). */
static int poll_until(struct pollfd *fds, nfds_t count, const struct timespec *timeout)
{
	struct poll_call call = {.fds = fds, .count = count};
	int64_t deadline =
		timeout ? rs_now() + timeout->tv_sec * INT64_C(1000000000) + timeout->tv_nsec : 0;
	int error = begin(&call), ready = 0, others = 0;
	bool wait = false, is_over = false;

	while (!error && !is_over) {
		int64_t left = timeout ? deadline - rs_now() : INT64_C(1000000000) * 3600;
		struct timespec time = {0};

		ready = wait ? look(&call, true) : look_a_while(&call, left);
		is_over = ready || left <= 0;
		if (call.blind && left > RS_MOMENT)
			left = RS_MOMENT;
		if (!is_over && wait)
			time = (struct timespec){left / 1000000000, left % 1000000000};
		others = poll_others(&call, &time);
		if (others < 0)
			error = errno;
		is_over |= others > 0;
		wait = true;
	}
	finish(&call);
	return error ? cm_fail(error) : ready + others;
}

int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	struct timespec time = {timeout / 1000, timeout % 1000 * 1000000};

	return poll_until(fds, nfds, timeout < 0 ? NULL : &time);
}

static bool is_in(int fd, const fd_set *set)
{
	return set && FD_ISSET(fd, set);
}

static void set_ready(struct pollfd *fd, fd_set *set, short events, int *count)
{
	if (!is_in(fd->fd, set))
		return;
	FD_CLR(fd->fd, set);
	if (fd->revents & events) {
		FD_SET(fd->fd, set);
		++*count;
	}
}

/* As select(2), whose three sets are those of these conditions. */
int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
	struct pollfd *fds = nfds >= 0 ? calloc((size_t)nfds + 1, sizeof *fds) : NULL;
	struct timespec time = {0};
	int used = 0, count = 0, result;

	if (!fds)
		return cm_fail(nfds < 0 ? EINVAL : ENOMEM);
	for (int fd = 0; fd < nfds; fd++) {
		int events = (is_in(fd, readfds) ? POLLIN : 0) |
			     (is_in(fd, writefds) ? POLLOUT : 0) |
			     (is_in(fd, exceptfds) ? POLLPRI : 0);

		if (events)
			fds[used++] = (struct pollfd){.fd = fd, .events = (short)events};
	}
	if (timeout)
		time = (struct timespec){timeout->tv_sec, timeout->tv_usec * 1000};
	result = poll_until(fds, (nfds_t)used, timeout ? &time : NULL);
	for (int i = 0; i < used && result >= 0; i++) {
		if (fds[i].revents & POLLNVAL)
			result = cm_fail(EBADF);
		set_ready(&fds[i], readfds, POLLIN | POLLHUP | POLLERR, &count);
		set_ready(&fds[i], writefds, POLLOUT | POLLERR, &count);
		set_ready(&fds[i], exceptfds, POLLPRI, &count);
	}
	free(fds);
	return result < 0 ? result : count;
}
