/* SPDX-License-Identifier: MIT
 * The rsockets of the process by number, and how calls wait for a change of them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rsocket_stream.h"

enum { PAGES = 1024, PAGE = 1024 };

FORK_SAFE_MUTEX
static struct rsocket **pages[PAGES];

/* Have an rsocket of the parent be a failed one of this process, the child of a fork. A thread of
 * the parent may have its mutex, and be in the middle of a change. */
static void inherit(struct rsocket *rs)
{
	pthread_mutex_init(&rs->mutex, NULL);
	rs->pid = getpid();
	rs->waiters = NULL;
	rs->established |= rs->datagrams || rs->state >= RS_CONNECTED;
	rs->stream = NULL;
	rs->datagrams = NULL;
	rs->id = NULL;
	rs->children = NULL;
	rs->keepalive_due = 0;
	rs->armed = false;
	if (rs->type != RS_SET)
		rs_fail(rs, EIO);
}

static void inherit_all(void)
{
	for (int page = 0; page < PAGES; page++)
		for (int i = 0; pages[page] && i < PAGE; i++)
			if (pages[page][i])
				inherit(pages[page][i]);
}

__attribute__((constructor)) static void prepare_to_inherit(void)
{
	pthread_atfork(NULL, NULL, inherit_all);
}

/* Make an rsocket without a number, with one reference. Returns null without memory. */
struct rsocket *rs_new(int domain, int type, int flags)
{
	struct rsocket *rs = calloc(1, sizeof *rs);

	if (!rs)
		return NULL;
	rs->number = -1;
	rs->domain = domain;
	rs->type = type;
	rs->status_flags = O_RDWR | (flags & SOCK_NONBLOCK ? O_NONBLOCK : 0);
	rs->fd_flags = flags & SOCK_CLOEXEC ? FD_CLOEXEC : 0;
	rs->pid = getpid();
	rs->references = 1;
	pthread_mutex_init(&rs->mutex, NULL);
	return rs;
}

/* The caller has the mutex. */
static struct rsocket **place(int number, bool make)
{
	struct rsocket ***page;

	if (number < 0 || number >= PAGES * PAGE)
		return NULL;
	page = &pages[number / PAGE];
	if (!*page && make)
		*page = calloc(PAGE, sizeof **page);
	return *page ? *page + number % PAGE : NULL;
}

/* Name an rsocket by an open descriptor, a new one if it is -1. Returns the number, or -1 with
 * errno. */
int rs_number(struct rsocket *rs, int number)
{
	struct rsocket **at;

	if (number < 0)
		number = eventfd(0, rs->fd_flags & FD_CLOEXEC ? EFD_CLOEXEC : 0);
	if (number < 0)
		return -1;
	lock();
	at = place(number, true);
	if (at) {
		*at = rs;
		rs->numbers++;
		rs->references++;
		if (rs->number < 0)
			rs->number = number;
	}
	unlock();
	if (at)
		return number;
	close(number);
	return cm_fail(EMFILE);
}

/* The rsocket of a number, which the caller releases by rs_put; null with EBADF. */
struct rsocket *rs_get(int number)
{
	struct rsocket **at, *rs;

	lock();
	at = place(number, false);
	rs = at ? *at : NULL;
	if (rs)
		rs->references++;
	unlock();
	if (!rs)
		errno = EBADF;
	return rs;
}

/* The same, and null for a set: it is polled as the epoll set that it has. */
struct rsocket *rs_get_member(int number)
{
	struct rsocket *rs = rs_get(number);

	if (!rs || rs->type != RS_SET)
		return rs;
	rs_put(rs);
	return NULL;
}

/* As rs_get() with its mutex, for a variable of RS_LOCKED. */
struct rsocket *rs_lock(int number)
{
	struct rsocket *rs = rs_get(number);

	if (rs)
		pthread_mutex_lock(&rs->mutex);
	return rs;
}

void rs_unlock(struct rsocket **rs)
{
	int before = errno;

	if (!*rs)
		return;
	pthread_mutex_unlock(&(*rs)->mutex);
	rs_put(*rs);
	errno = before;
}

/* The rsocket with the next number from `*number` on, for which the caller calls rs_put; null after
 * the last. */
struct rsocket *rs_next(int *number)
{
	struct rsocket *rs = NULL;

	lock();
	while (!rs && *number < PAGES * PAGE) {
		if (!pages[*number / PAGE])
			*number += PAGE - *number % PAGE;
		else
			rs = *place((*number)++, false);
	}
	if (rs)
		rs->references++;
	unlock();
	return rs;
}

/* Take a number from the table. Returns its rsocket, with the reference of the number. */
static struct rsocket *take(int number, bool *last)
{
	struct rsocket **at, *rs;

	lock();
	at = place(number, false);
	rs = at ? *at : NULL;
	if (rs) {
		*at = NULL;
		*last = --rs->numbers == 0;
	}
	unlock();
	return rs;
}

/* Free an rsocket. Its thread may be handling an event of it: this waits for that at its ids and
 * CQs, and what events use is freed behind them. */
void rs_destroy(struct rsocket *rs)
{
	pthread_mutex_lock(&rs->mutex);
	rs->closed = true;
	rs->state = RS_FAILED;
	pthread_mutex_unlock(&rs->mutex);
	if (rs->pid == getpid()) { /* else the parent has its connection, ids and threads */
		if (rs->id)
			rdma_destroy_id(rs->id);
		rs_destroy_children(rs);
		if (rs->set)
			rs_set_close(rs);
		if (rs->datagrams)
			rs_datagrams_close(rs);
		if (rs->stream)
			rs_stream_close(rs->stream);
	}
	pthread_mutex_destroy(&rs->mutex);
	free(rs);
}

void rs_put(struct rsocket *rs)
{
	bool last;

	lock();
	last = --rs->references == 0;
	unlock();
	if (last)
		rs_destroy(rs);
}

int rclose(int socket)
{
	bool last;
	struct rsocket *rs = take(socket, &last);

	if (!rs)
		return cm_fail(EBADF);
	if (last && rs->pid == getpid()) {
		pthread_mutex_lock(&rs->mutex);
		rs_stream_linger(rs);
		rs->closed = true;
		rs_wake(rs);
		pthread_mutex_unlock(&rs->mutex);
	}
	close(socket);
	rs_put(rs);
	return 0;
}

/* What a program sent before it ends arrives, as with sockets. A signal handler may end it in the
 * middle of a call, which keeps the mutex. */
__attribute__((destructor)) static void close_all(void)
{
	struct timespec soon;
	struct rsocket *rs;
	int number = 0;

	while ((rs = rs_next(&number))) {
		clock_gettime(CLOCK_REALTIME, &soon);
		soon.tv_sec++;
		if (rs->stream && rs->pid == getpid() &&
		    !pthread_mutex_timedlock(&rs->mutex, &soon)) {
			rs_stream_linger(rs);
			pthread_mutex_unlock(&rs->mutex);
		}
		rs_put(rs);
	}
}

int64_t rs_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* How long a call of poll(2) waits for a time in ns, of which 0 is never. */
int rs_milliseconds(int64_t deadline)
{
	int64_t left = (deadline - rs_now() + 999999) / 1000000;

	return deadline ? (int)MAX(0, MIN(left, INT32_MAX)) : -1;
}

/* Write to the eventfd of threads that wait. */
void rs_notify(int fd)
{
	const uint64_t one = 1;

	if (write(fd, &one, sizeof one) < 0)
		rw_warn("rsocket: a waiting thread was not woken: %s", strerror(errno));
}

void rs_wake(struct rsocket *rs)
{
	for (struct rs_waiter *waiter = rs->waiters; waiter; waiter = waiter->next) {
		atomic_store(&waiter->changed, true);
		rs_notify(waiter->fd);
	}
}

void rs_add_waiter(struct rsocket *rs, struct rs_waiter *waiter)
{
	waiter->next = rs->waiters;
	rs->waiters = waiter;
}

void rs_remove_waiter(struct rsocket *rs, struct rs_waiter *waiter)
{
	struct rs_waiter **link = RS_FIND(rs->waiters, one, one == waiter);

	if (*link)
		*link = waiter->next;
}

/* Wait for a byte, or the deadline. As with sockets, a signal ends the wait with EINTR, unless its
 * handler has SA_RESTART and there is no deadline. Returns an errno. */
static int wait_for(int fd, int64_t deadline)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};
	uint64_t count;
	int got;

	if (!deadline)
		return read(fd, &count, sizeof count) < 0 ? errno : 0;
	got = poll(&pollfd, 1, rs_milliseconds(deadline));
	return got < 0 ? errno : got ? 0 : EAGAIN;
}

/* Wait for a moment: a process without a free descriptor looks again and again. Returns an errno.
 */
static int wait_a_moment(int64_t deadline)
{
	const struct timespec moment = {.tv_nsec = RS_MOMENT};

	if (nanosleep(&moment, NULL))
		return errno;
	return deadline && rs_now() >= deadline ? EAGAIN : 0;
}

/* Wait for a change. Returns an errno. The caller has the mutex, which is released meanwhile. */
static int wait_for_change(struct rsocket *rs, int64_t deadline)
{
	struct rs_waiter waiter = {.fd = eventfd(0, EFD_CLOEXEC)};
	int error;

	if (waiter.fd >= 0)
		rs_add_waiter(rs, &waiter);
	pthread_mutex_unlock(&rs->mutex);
	error = waiter.fd >= 0 ? wait_for(waiter.fd, deadline) : wait_a_moment(deadline);
	pthread_mutex_lock(&rs->mutex);
	if (waiter.fd >= 0) {
		rs_remove_waiter(rs, &waiter);
		close(waiter.fd);
	}
	return error;
}

/* Wait until `ready`. Returns an errno: EAGAIN after the timeout, of which 0 is none, and at once
 * with MSG_DONTWAIT or O_NONBLOCK. The caller has the mutex. */
int rs_wait_until(struct rsocket *rs, bool (*ready)(struct rsocket *rs), int flags,
		  const struct timeval *timeout)
{
	int64_t time = timeout->tv_sec * INT64_C(1000000000) + timeout->tv_usec * INT64_C(1000);
	int64_t deadline = time ? rs_now() + time : 0;
	bool nonblocking = rs->status_flags & O_NONBLOCK || flags & MSG_DONTWAIT;
	int error = 0;

	while (!error) {
		rs_poll(rs);
		if (ready(rs))
			return 0;
		if (rs->closed)
			return EBADF;
		if (nonblocking)
			return EAGAIN;
		if (!rs_arm(rs))
			error = wait_for_change(rs, deadline);
	}
	return error;
}

/* Have the thread poll the CQs at their next completion. Returns whether they have to be polled
 * once more now. */
bool rs_arm(struct rsocket *rs)
{
	if (rs->armed || !(rs->stream || rs->datagrams))
		return false;
	rs->armed = true;
	if (rs->stream)
		ibv_req_notify_cq(rs->stream->cq, 0);
	else
		rs_datagrams_arm(rs);
	return true;
}

void rs_poll(struct rsocket *rs)
{
	if (rs->stream)
		rs_stream_poll(rs);
	else if (rs->datagrams)
		rs_datagrams_poll(rs);
}

void rs_fail(struct rsocket *rs, int error)
{
	rs->state = RS_FAILED;
	rs->error = error;
	rs->reading = rs->writing = false;
	rs_wake(rs);
}

/* SO_ERROR, which is returned once. */
int rs_take_error(struct rsocket *rs)
{
	int error = rs->error;

	rs->error = 0;
	return error;
}

/* Copy bytes between the memory of a program and `own`: to the program if it `fills`. */
static void copy(struct rs_cursor *cursor, char *own, size_t length, bool fills)
{
	while (length) {
		char *place = (char *)cursor->iov->iov_base + cursor->offset;
		size_t part = MIN(length, cursor->iov->iov_len - cursor->offset);

		if (part)
			memcpy(fills ? place : own, fills ? own : place, part);
		own += part;
		length -= part;
		cursor->offset += part;
		if (cursor->offset == cursor->iov->iov_len) {
			cursor->iov++;
			cursor->offset = 0;
		}
	}
}

void rs_copy(void *to, struct rs_cursor *from, size_t length)
{
	copy(from, to, length, false);
}

void rs_fill(struct rs_cursor *to, const void *from, size_t length)
{
	copy(to, (char *)from, length, true);
}

size_t rs_length(const struct iovec *iov, size_t count)
{
	size_t length = 0;

	for (size_t i = 0; i < count; i++)
		length += iov[i].iov_len;
	return length;
}
