/* SPDX-License-Identifier: MIT
 * Programs for sockets on rsockets: functions of the C library that take a descriptor, for
 * LD_PRELOAD.
 *
 * TCP and UDP sockets become rsockets. One that is bound to, or connected with, an address that no
 * device has becomes an ordinary socket again, with the same number. */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../rdmacm/newer.h"

enum {
	MAX_FDS = 1 << 20,
	PART = 1 << 16,		   /* bytes of a file that are sent at a time */
	ONLY_SET_CLOEXEC = 1 << 2, /* CLOSE_RANGE_CLOEXEC, which older headers do not have */
};
enum kind { ORDINARY, RSOCKET, SET };

static atomic_uchar kinds[MAX_FDS]; /* of descriptors, by their number */
static __thread int inside;	    /* the functions of librdmacm call those here */

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

/* Define a function that makes a call of librdmacm on a condition, else the next library's. */
#define EITHER(type, name, parameters, condition, call, ...)                                       \
	type name parameters                                                                       \
	{                                                                                          \
		return (condition) ? call : NEXT(name, __VA_ARGS__);                               \
	}

/* The same for a descriptor: librdmacm has a function of this name after an r. */
#define BY_KIND(type, name, parameters, ...)                                                       \
	EITHER(type, name, parameters, is_rsocket(fd), r##name(__VA_ARGS__), __VA_ARGS__)

/* The same: one whose address is no device's becomes an ordinary socket before a second call. */
#define BY_ADDRESS(type, name, parameters, is_elsewhere, ...)                                      \
	type name parameters                                                                       \
	{                                                                                          \
		type result = is_rsocket(fd) ? r##name(__VA_ARGS__) : -1;                          \
		if (is_rsocket(fd) && (result >= 0 || !is_elsewhere || make_ordinary(fd)))         \
			return result;                                                             \
		return NEXT(name, __VA_ARGS__);                                                    \
	}

static pid_t process;

static void note_process(void)
{
	process = getpid();
}

__attribute__((constructor)) static void prepare_for_fork(void)
{
	note_process();
	pthread_atfork(NULL, NULL, note_process);
}

/* Whether this is the process whose descriptors `kinds` has. A child of vfork(2) has the memory of
 * its parent, but descriptors of its own: what it closes stays open in the parent. */
static bool owns_kinds(void)
{
	return getpid() == process;
}

static enum kind kind_of(int fd)
{
	return fd >= 0 && fd < MAX_FDS ? (enum kind)atomic_load(&kinds[fd]) : ORDINARY;
}

static bool is_rsocket(int fd)
{
	return kind_of(fd) == RSOCKET;
}

/* Note the kind of a new descriptor; returns it. */
static int note(int fd, enum kind kind)
{
	if (fd >= 0 && fd < MAX_FDS && kind_of(fd) != kind && owns_kinds())
		atomic_store(&kinds[fd], (unsigned char)kind);
	return fd;
}

/* The sizes of queues that rdma-core's library takes from the environment. */
static void set_sizes(int fd)
{
	static const struct {
		const char *variable;
		int option;
	} sizes[] = {{"RS_SQ_SIZE", RDMA_SQSIZE},
		     {"RS_RQ_SIZE", RDMA_RQSIZE},
		     {"RS_INLINE", RDMA_INLINE}};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		const char *text = getenv(sizes[i].variable);
		int value = text ? atoi(text) : 0;

		if (text)
			rsetsockopt(fd, SOL_RDMA, sizes[i].option, &value, sizeof value);
	}
}

int socket(int domain, int type, int protocol)
{
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC), before = errno, fd = -1;

	if (!inside && (domain == AF_INET || domain == AF_INET6) &&
	    (kind == SOCK_STREAM || kind == SOCK_DGRAM) &&
	    (!protocol || protocol == (kind == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP)))
		fd = INSIDE(rsocket(domain, type, protocol));
	if (fd < 0) {
		errno = before;
		return note(NEXT(socket, domain, type, protocol), ORDINARY);
	}
	set_sizes(fd);
	return note(fd, RSOCKET);
}

static int option_of(int fd, int level, int name)
{
	int value = 0;
	socklen_t size = sizeof value;

	rgetsockopt(fd, level, name, &value, &size);
	return value;
}

/* Replace an rsocket by an ordinary socket with the same options. */
static int make_ordinary(int fd)
{
	static const int copied[][2] = {{SOL_SOCKET, SO_REUSEADDR},
					{SOL_SOCKET, SO_KEEPALIVE},
					{SOL_SOCKET, SO_BROADCAST},
					{IPPROTO_TCP, TCP_NODELAY},
					{IPPROTO_IPV6, IPV6_V6ONLY}};
	int cloexec = INSIDE(rfcntl(fd, F_GETFD)) & FD_CLOEXEC ? O_CLOEXEC : 0;
	int type = option_of(fd, SOL_SOCKET, SO_TYPE) |
		   (INSIDE(rfcntl(fd, F_GETFL)) & O_NONBLOCK ? SOCK_NONBLOCK : 0);
	int made = NEXT(socket, option_of(fd, SOL_SOCKET, SO_DOMAIN), type, 0);

	if (made < 0)
		return -1;
	for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
		int value = option_of(fd, copied[i][0], copied[i][1]);

		if (value)
			NEXT(setsockopt, made, copied[i][0], copied[i][1], &value, sizeof value);
	}
	close(fd);
	fd = NEXT(dup3, made, fd, cloexec);
	NEXT(close, made);
	return fd < 0 ? -1 : 0;
}

/* Whether a device has, or reaches, an address. */
static bool is_reachable(const struct sockaddr *address, int type)
{
	struct rdma_cm_id *id;
	bool reached;

	if (address->sa_family != AF_INET && address->sa_family != AF_INET6)
		return false;
	if (rdma_create_id(NULL, &id, NULL, type == SOCK_STREAM ? RDMA_PS_TCP : RDMA_PS_UDP))
		return false;
	reached = !rdma_resolve_addr(id, NULL, (struct sockaddr *)address, 2000);
	rdma_destroy_id(id);
	return reached;
}

/* Whether a call failed since its address is not that of a device. */
static bool is_elsewhere(const struct sockaddr *address, int type)
{
	return (errno == EADDRNOTAVAIL || errno == EHOSTUNREACH) && address &&
	       !is_reachable(address, type);
}

BY_ADDRESS(int, bind, (int fd, const struct sockaddr *address, socklen_t length),
	   is_elsewhere(address, SOCK_STREAM), fd, address, length)
BY_KIND(int, listen, (int fd, int backlog), fd, backlog)

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	int made;

	if (!is_rsocket(fd))
		return note(NEXT(accept4, fd, address, length, flags), ORDINARY);
	made = raccept(fd, address, length);
	if (made >= 0 && flags & SOCK_NONBLOCK)
		INSIDE(rfcntl(made, F_SETFL, O_NONBLOCK));
	if (made >= 0 && flags & SOCK_CLOEXEC)
		INSIDE(rfcntl(made, F_SETFD, FD_CLOEXEC));
	return note(made, RSOCKET);
}

int accept(int fd, struct sockaddr *address, socklen_t *length)
{
	if (!is_rsocket(fd))
		return note(NEXT(accept, fd, address, length), ORDINARY);
	return accept4(fd, address, length, 0);
}

/* Whether an address is that of the machine itself: rsockets take it for that of the first device.
 */
static bool is_loopback(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
	return *(const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr == IN_LOOPBACKNET;
}

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	int result;

	if (!is_rsocket(fd))
		return NEXT(connect, fd, address, length);
	if (address && length >= sizeof(struct sockaddr_in) &&
	    is_reachable(address, option_of(fd, SOL_SOCKET, SO_TYPE))) {
		result = rconnect(fd, address, length);
		if (!result || errno != ECONNREFUSED || !is_loopback(address))
			return result;
	}
	return make_ordinary(fd) ? -1 : NEXT(connect, fd, address, length);
}

BY_KIND(int, shutdown, (int fd, int how), fd, how)

int close(int fd)
{
	if (kind_of(fd) != ORDINARY && owns_kinds() && atomic_exchange(&kinds[fd], ORDINARY))
		return rclose(fd);
	return NEXT(close, fd);
}

static void close_kinds(unsigned first, unsigned last)
{
	for (unsigned fd = first; fd <= last && fd < MAX_FDS; fd++)
		if (kind_of((int)fd) != ORDINARY)
			close((int)fd);
}

int close_range(unsigned first, unsigned last, int flags)
{
	if (!(flags & ONLY_SET_CLOEXEC))
		close_kinds(first, last);
	return NEXT(close_range, first, last, flags);
}

void closefrom(int first)
{
	close_kinds(first < 0 ? 0 : (unsigned)first, UINT_MAX);
	NEXT(closefrom, first);
}

BY_KIND(ssize_t, recv, (int fd, void *data, size_t size, int flags), fd, data, size, flags)
BY_KIND(ssize_t, recvfrom, (int fd, void *data, size_t size, int flags, struct sockaddr *from,
	socklen_t *length), fd, data, size, flags, from, length)
BY_KIND(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), fd, message, flags)
BY_KIND(ssize_t, read, (int fd, void *data, size_t size), fd, data, size)
BY_KIND(ssize_t, readv, (int fd, const struct iovec *iov, int count), fd, iov, count)
BY_KIND(ssize_t, send, (int fd, const void *data, size_t size, int flags), fd, data, size, flags)
BY_ADDRESS(ssize_t, sendto, (int fd, const void *data, size_t size, int flags,
	   const struct sockaddr *to, socklen_t length), is_elsewhere(to, SOCK_DGRAM), fd, data,
	   size, flags, to, length)
BY_ADDRESS(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags),
	   is_elsewhere(message->msg_name, SOCK_DGRAM), fd, message, flags)
BY_KIND(ssize_t, write, (int fd, const void *data, size_t size), fd, data, size)
BY_KIND(ssize_t, writev, (int fd, const struct iovec *iov, int count), fd, iov, count)

BY_KIND(int, getpeername, (int fd, struct sockaddr *address, socklen_t *length), fd, address,
	length)
BY_KIND(int, getsockname, (int fd, struct sockaddr *address, socklen_t *length), fd, address,
	length)
BY_KIND(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *length), fd, level,
	name, value, length)
BY_KIND(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t length), fd,
	level, name, value, length)

static bool duplicates(int command)
{
	return command == F_DUPFD || command == F_DUPFD_CLOEXEC;
}

static int control_rsocket(int fd, int command, long value)
{
	int result = INSIDE(rfcntl(fd, command, (int)value));

	return duplicates(command) ? note(result, RSOCKET) : result;
}

/* The argument is a number or a pointer: both are passed on as a long number. */
#define CONTROL(name)                                                                              \
	int name(int fd, int command, ...)                                                         \
	{                                                                                          \
		va_list arguments;                                                                 \
		va_start(arguments, command);                                                      \
		long value = va_arg(arguments, long);                                              \
		va_end(arguments);                                                                 \
		if (!inside && is_rsocket(fd) && owns_kinds())                                     \
			return control_rsocket(fd, command, value);                                \
		int result = NEXT(name, fd, command, value);                                       \
		return inside || !duplicates(command) ? result : note(result, ORDINARY);           \
	}

CONTROL(fcntl)
CONTROL(fcntl64)

/* How many bytes can be read at once. */
static int readable(int fd)
{
	static const size_t most = 1 << 18;
	char *data = malloc(most);
	ssize_t length = data ? rrecv(fd, data, most, MSG_PEEK | MSG_DONTWAIT) : -1;

	free(data);
	return length < 0 ? 0 : (int)length;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	void *value;

	va_start(arguments, request);
	value = va_arg(arguments, void *);
	va_end(arguments);
	if (!is_rsocket(fd))
		return NEXT(ioctl, fd, request, value);
	if (request == FIONBIO)
		return control_rsocket(fd, F_SETFL, *(int *)value ? O_NONBLOCK : 0);
	if (request == FIONREAD) {
		*(int *)value = readable(fd);
		return 0;
	}
	errno = ENOTTY;
	return -1;
}

int dup(int fd)
{
	return is_rsocket(fd) && owns_kinds() ? control_rsocket(fd, F_DUPFD, 0)
					      : note(NEXT(dup, fd), ORDINARY);
}

int dup3(int fd, int number, int flags)
{
	int made;

	if (fd == number) {
		errno = EINVAL;
		return -1;
	}
	if (!owns_kinds())
		return NEXT(dup3, fd, number, flags);
	if (kind_of(number) != ORDINARY)
		close(number);
	if (!is_rsocket(fd))
		return NEXT(dup3, fd, number, flags);
	NEXT(close, number);
	made = control_rsocket(fd, flags & O_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, number);
	if (made < 0 || made == number)
		return made;
	close(made); /* another thread was given the number meanwhile */
	errno = EBUSY;
	return -1;
}

int dup2(int fd, int number)
{
	if (fd == number)
		return NEXT(dup2, fd, number);
	return dup3(fd, number, 0);
}

/* Send a part of a file. With an offset the file keeps its own. */
static ssize_t send_file(int to, int from, off64_t *offset, size_t count)
{
	char *data = malloc(PART);
	ssize_t got, sent, total = 0;

	if (!data)
		return -1;
	do {
		size_t part = count - (size_t)total < PART ? count - (size_t)total : PART;
		off64_t at = offset ? *offset : lseek64(from, 0, SEEK_CUR);

		got = pread64(from, data, part, at);
		sent = got > 0 ? rwrite(to, data, (size_t)got) : got;
		if (sent > 0) {
			total += sent;
			if (offset)
				*offset += sent;
			else
				lseek64(from, sent, SEEK_CUR);
		}
	} while (sent > 0 && sent == got && (size_t)total < count);
	free(data);
	return total ? total : sent;
}

EITHER(ssize_t, sendfile64, (int to, int from, off64_t *offset, size_t count), is_rsocket(to),
       send_file(to, from, offset, count), to, from, offset, count)

ssize_t sendfile(int to, int from, off_t *offset, size_t count)
{
	return sendfile64(to, from, (off64_t *)offset, count);
}

static bool has_rsocket(const struct pollfd *fds, nfds_t count)
{
	for (nfds_t i = 0; i < count; i++)
		if (is_rsocket(fds[i].fd))
			return true;
	return false;
}

EITHER(int, poll, (struct pollfd *fds, nfds_t count, int timeout), has_rsocket(fds, count),
       rpoll(fds, count, timeout), fds, count, timeout)

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

EITHER(int, ppoll, (struct pollfd *fds, nfds_t count, const struct timespec *timeout,
       const sigset_t *mask), has_rsocket(fds, count),
       MASKED(mask, rpoll(fds, count, milliseconds(timeout))), fds, count, timeout, mask)

static bool selects_rsocket(int count, const fd_set *in, const fd_set *out, const fd_set *except)
{
	for (int fd = 0; fd < count; fd++)
		if (is_rsocket(fd) && ((in && FD_ISSET(fd, in)) || (out && FD_ISSET(fd, out)) ||
				       (except && FD_ISSET(fd, except))))
			return true;
	return false;
}

static struct timeval *to_microseconds(const struct timespec *timeout, struct timeval *time)
{
	if (timeout)
		*time = (struct timeval){timeout->tv_sec, timeout->tv_nsec / 1000};
	return timeout ? time : NULL;
}

EITHER(int, select, (int count, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout),
       selects_rsocket(count, in, out, except), rselect(count, in, out, except, timeout), count, in,
       out, except, timeout)
EITHER(int, pselect, (int count, fd_set *in, fd_set *out, fd_set *except,
       const struct timespec *timeout, const sigset_t *mask),
       selects_rsocket(count, in, out, except), MASKED(mask, rselect(count, in, out, except,
       to_microseconds(timeout, &(struct timeval){0}))), count, in, out, except, timeout, mask)

/* A set of epoll(7) is one of librdmacm, which takes ordinary descriptors, too. */
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

static bool is_set(int fd)
{
	return !inside && kind_of(fd) == SET;
}

EITHER(int, epoll_ctl, (int set, int operation, int fd, struct epoll_event *event), is_set(set),
       INSIDE(repoll_ctl(set, operation, fd, event)), set, operation, fd, event)
EITHER(int, epoll_wait, (int set, struct epoll_event *events, int most, int timeout), is_set(set),
       INSIDE(repoll_wait(set, events, most, timeout)), set, events, most, timeout)
EITHER(int, epoll_pwait, (int set, struct epoll_event *events, int most, int timeout,
       const sigset_t *mask), is_set(set), MASKED(mask, epoll_wait(set, events, most, timeout)),
       set, events, most, timeout, mask)

/* Programs built with checks call these, which no header declares. The C library ends one that has
 * less room than it reads. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EITHER(ssize_t, __read_chk, (int fd, void *data, size_t size, size_t room), size <= room,
       read(fd, data, size), fd, data, size, room)
EITHER(ssize_t, __recv_chk, (int fd, void *data, size_t size, size_t room, int flags),
       size <= room, recv(fd, data, size, flags), fd, data, size, room, flags)
EITHER(ssize_t, __recvfrom_chk, (int fd, void *data, size_t size, size_t room, int flags,
       struct sockaddr *from, socklen_t *length), size <= room,
       recvfrom(fd, data, size, flags, from, length), fd, data, size, room, flags, from, length)
EITHER(int, __poll_chk, (struct pollfd *fds, nfds_t count, int timeout, size_t room),
       has_rsocket(fds, count), rpoll(fds, count, timeout), fds, count, timeout, room)

int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		const sigset_t *mask, size_t room)
{
	return ppoll(fds, count, timeout, mask);
}
