/* SPDX-License-Identifier: MIT
 * Programs for sockets on rsockets: functions of the C library that take a descriptor, for
 * LD_PRELOAD.
 *
 * TCP and UDP sockets become rsockets. One that is bound to, or connected with, an address that no
 * device has becomes an ordinary socket again, with the same number. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include "calls.h"

/* Programs built with checks call these. */
ssize_t __read_chk(int fd, void *data, size_t size, size_t room);
ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *data, size_t size, size_t room, int flags,
		       struct sockaddr *from, socklen_t *length);

enum { PART = 1 << 16 }; /* bytes of a file that are sent at a time */

static atomic_uchar kinds[MAX_FDS]; /* of descriptors, by their number */
__thread int inside;

enum kind kind_of(int fd)
{
	return fd >= 0 && fd < MAX_FDS ? (enum kind)atomic_load(&kinds[fd]) : ORDINARY;
}

bool is_rsocket(int fd)
{
	return kind_of(fd) == RSOCKET;
}

int note(int fd, enum kind kind)
{
	if (fd >= 0 && fd < MAX_FDS)
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

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
	int result;

	if (!is_rsocket(fd))
		return NEXT(bind, fd, address, length);
	result = rbind(fd, address, length);
	if (!result || errno != EADDRNOTAVAIL || is_reachable(address, SOCK_STREAM) ||
	    make_ordinary(fd))
		return result;
	return NEXT(bind, fd, address, length);
}

int listen(int fd, int backlog)
{
	return is_rsocket(fd) ? rlisten(fd, backlog) : NEXT(listen, fd, backlog);
}

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

int shutdown(int fd, int how)
{
	return is_rsocket(fd) ? rshutdown(fd, how) : NEXT(shutdown, fd, how);
}

int close(int fd)
{
	if (kind_of(fd) != ORDINARY && atomic_exchange(&kinds[fd], ORDINARY))
		return rclose(fd);
	return NEXT(close, fd);
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
	return is_rsocket(fd) ? rrecv(fd, data, size, flags) : NEXT(recv, fd, data, size, flags);
}

ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags)
{
	return is_rsocket(fd) && size <= room ? rrecv(fd, data, size, flags)
					      : NEXT(__recv_chk, fd, data, size, room, flags);
}

ssize_t recvfrom(int fd, void *restrict data, size_t size, int flags,
		 struct sockaddr *restrict from, socklen_t *restrict length)
{
	return is_rsocket(fd) ? rrecvfrom(fd, data, size, flags, from, length)
			      : NEXT(recvfrom, fd, data, size, flags, from, length);
}

ssize_t __recvfrom_chk(int fd, void *data, size_t size, size_t room, int flags,
		       struct sockaddr *from, socklen_t *length)
{
	return is_rsocket(fd) && size <= room
		       ? rrecvfrom(fd, data, size, flags, from, length)
		       : NEXT(__recvfrom_chk, fd, data, size, room, flags, from, length);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	return is_rsocket(fd) ? rrecvmsg(fd, message, flags) : NEXT(recvmsg, fd, message, flags);
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
	return is_rsocket(fd) ? rsend(fd, data, size, flags) : NEXT(send, fd, data, size, flags);
}

/* Whether a datagram failed since its address is not that of a device. */
static bool goes_elsewhere(const struct sockaddr *to)
{
	return (errno == EHOSTUNREACH || errno == EADDRNOTAVAIL) && to &&
	       !is_reachable(to, SOCK_DGRAM);
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to,
	       socklen_t length)
{
	ssize_t sent;

	if (!is_rsocket(fd))
		return NEXT(sendto, fd, data, size, flags, to, length);
	sent = rsendto(fd, data, size, flags, to, length);
	if (sent >= 0 || !goes_elsewhere(to) || make_ordinary(fd))
		return sent;
	return NEXT(sendto, fd, data, size, flags, to, length);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t sent;

	if (!is_rsocket(fd))
		return NEXT(sendmsg, fd, message, flags);
	sent = rsendmsg(fd, message, flags);
	if (sent >= 0 || !goes_elsewhere(message->msg_name) || make_ordinary(fd))
		return sent;
	return NEXT(sendmsg, fd, message, flags);
}

ssize_t read(int fd, void *data, size_t size)
{
	return is_rsocket(fd) ? rread(fd, data, size) : NEXT(read, fd, data, size);
}

ssize_t __read_chk(int fd, void *data, size_t size, size_t room)
{
	return is_rsocket(fd) && size <= room ? rread(fd, data, size)
					      : NEXT(__read_chk, fd, data, size, room);
}

ssize_t readv(int fd, const struct iovec *iov, int count)
{
	return is_rsocket(fd) ? rreadv(fd, iov, count) : NEXT(readv, fd, iov, count);
}

ssize_t write(int fd, const void *data, size_t size)
{
	return is_rsocket(fd) ? rwrite(fd, data, size) : NEXT(write, fd, data, size);
}

ssize_t writev(int fd, const struct iovec *iov, int count)
{
	return is_rsocket(fd) ? rwritev(fd, iov, count) : NEXT(writev, fd, iov, count);
}

int getpeername(int fd, struct sockaddr *restrict address, socklen_t *restrict length)
{
	return is_rsocket(fd) ? rgetpeername(fd, address, length)
			      : NEXT(getpeername, fd, address, length);
}

int getsockname(int fd, struct sockaddr *restrict address, socklen_t *restrict length)
{
	return is_rsocket(fd) ? rgetsockname(fd, address, length)
			      : NEXT(getsockname, fd, address, length);
}

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict length)
{
	return is_rsocket(fd) ? rgetsockopt(fd, level, name, value, length)
			      : NEXT(getsockopt, fd, level, name, value, length);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
	return is_rsocket(fd) ? rsetsockopt(fd, level, name, value, length)
			      : NEXT(setsockopt, fd, level, name, value, length);
}

static bool duplicates(int command)
{
	return command == F_DUPFD || command == F_DUPFD_CLOEXEC;
}

static int control_rsocket(int fd, int command, long value)
{
	int result = INSIDE(rfcntl(fd, command, (int)value));

	return duplicates(command) ? note(result, RSOCKET) : result;
}

/* The argument of fcntl is a number or a pointer: both are passed on as a long number. */
#define CONTROL(name, fd, command)                                                                 \
	({                                                                                         \
		va_list arguments_;                                                                \
		va_start(arguments_, command);                                                     \
		long value_ = va_arg(arguments_, long);                                            \
		va_end(arguments_);                                                                \
		bool own_ = !inside && is_rsocket(fd);                                             \
		int result_ = own_ ? control_rsocket(fd, command, value_)                          \
				   : NEXT(name, fd, command, value_);                              \
		if (!own_ && !inside && duplicates(command))                                       \
			note(result_, ORDINARY);                                                   \
		result_;                                                                           \
	})

int fcntl(int fd, int command, ...)
{
	return CONTROL(fcntl, fd, command);
}

int fcntl64(int fd, int command, ...)
{
	return CONTROL(fcntl64, fd, command);
}

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
	return is_rsocket(fd) ? control_rsocket(fd, F_DUPFD, 0) : note(NEXT(dup, fd), ORDINARY);
}

int dup3(int fd, int number, int flags)
{
	int made;

	if (fd == number) {
		errno = EINVAL;
		return -1;
	}
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

ssize_t sendfile64(int to, int from, off64_t *offset, size_t count)
{
	return is_rsocket(to) ? send_file(to, from, offset, count)
			      : NEXT(sendfile64, to, from, offset, count);
}

ssize_t sendfile(int to, int from, off_t *offset, size_t count)
{
	return sendfile64(to, from, (off64_t *)offset, count);
}
