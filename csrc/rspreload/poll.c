/* SPDX-License-Identifier: MIT
 * Functions of the C library that wait for descriptors, rsockets among them. A set of epoll(7) is
 * one of librdmacm, which takes ordinary descriptors, too. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "calls.h"

/* An older <rdma/rsocket.h> does not declare these. */
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

/* Programs built with checks call these. */
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		const sigset_t *mask, size_t room);

static bool has_rsocket(const struct pollfd *fds, nfds_t count)
{
	for (nfds_t i = 0; i < count; i++)
		if (is_rsocket(fds[i].fd))
			return true;
	return false;
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
	return has_rsocket(fds, count) ? rpoll(fds, count, timeout)
				       : NEXT(poll, fds, count, timeout);
}

int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
	return has_rsocket(fds, count) ? rpoll(fds, count, timeout)
				       : NEXT(__poll_chk, fds, count, timeout, room);
}

/* Call a function of librdmacm with a mask of signals. */
#define MASKED(mask, call)                                                                         \
	({                                                                                         \
		sigset_t before_;                                                                  \
		if (mask)                                                                          \
			pthread_sigmask(SIG_SETMASK, mask, &before_);                              \
		int result_ = call;                                                                \
		if (mask)                                                                          \
			pthread_sigmask(SIG_SETMASK, &before_, NULL);                              \
		result_;                                                                           \
	})

static int milliseconds(const struct timespec *timeout)
{
	return timeout ? (int)(timeout->tv_sec * 1000 + (timeout->tv_nsec + 999999) / 1000000) : -1;
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	if (!has_rsocket(fds, count))
		return NEXT(ppoll, fds, count, timeout, mask);
	return MASKED(mask, rpoll(fds, count, milliseconds(timeout)));
}

int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		const sigset_t *mask, size_t room)
{
	return ppoll(fds, count, timeout, mask);
}

static bool selects_rsocket(int count, const fd_set *in, const fd_set *out, const fd_set *except)
{
	for (int fd = 0; fd < count; fd++)
		if (is_rsocket(fd) && ((in && FD_ISSET(fd, in)) || (out && FD_ISSET(fd, out)) ||
				       (except && FD_ISSET(fd, except))))
			return true;
	return false;
}

int select(int count, fd_set *restrict in, fd_set *restrict out, fd_set *restrict except,
	   struct timeval *restrict timeout)
{
	return selects_rsocket(count, in, out, except)
		       ? rselect(count, in, out, except, timeout)
		       : NEXT(select, count, in, out, except, timeout);
}

int pselect(int count, fd_set *restrict in, fd_set *restrict out, fd_set *restrict except,
	    const struct timespec *restrict timeout, const sigset_t *restrict mask)
{
	struct timeval time = {0};

	if (!selects_rsocket(count, in, out, except))
		return NEXT(pselect, count, in, out, except, timeout, mask);
	if (timeout)
		time = (struct timeval){timeout->tv_sec, timeout->tv_nsec / 1000};
	return MASKED(mask, rselect(count, in, out, except, timeout ? &time : NULL));
}

int epoll_create1(int flags)
{
	if (inside)
		return NEXT(epoll_create1, flags);
	return note(INSIDE(repoll_create(flags)), SET);
}

int epoll_create(int size)
{
	if (size > 0)
		return epoll_create1(0);
	errno = EINVAL;
	return -1;
}

int epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
	if (inside || kind_of(set) != SET)
		return NEXT(epoll_ctl, set, operation, fd, event);
	return INSIDE(repoll_ctl(set, operation, fd, event));
}

int epoll_wait(int set, struct epoll_event *events, int most, int timeout)
{
	if (inside || kind_of(set) != SET)
		return NEXT(epoll_wait, set, events, most, timeout);
	return INSIDE(repoll_wait(set, events, most, timeout));
}

int epoll_pwait(int set, struct epoll_event *events, int most, int timeout, const sigset_t *mask)
{
	if (inside || kind_of(set) != SET)
		return NEXT(epoll_pwait, set, events, most, timeout, mask);
	return MASKED(mask, epoll_wait(set, events, most, timeout));
}
