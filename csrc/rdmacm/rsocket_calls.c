/* SPDX-License-Identifier: MIT
 * The calls of rsocket(7) that send and receive, rshutdown and rfcntl. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "rsocket.h"

/* As for sendmsg(2). */
static ssize_t send_message(int socket, const struct msghdr *message, int flags)
{
	RS_LOCKED rs = rs_lock(socket);

	if (!rs || rs->type == RS_SET)
		return rs ? cm_fail(EINVAL) : -1;
	if (rs->datagrams)
		return rs_datagrams_send(rs, message->msg_iov, message->msg_iovlen, flags,
					 message->msg_name);
	return rs_stream_send(rs, message->msg_iov, message->msg_iovlen, flags);
}

/* As for recvmsg(2). */
static ssize_t receive_message(int socket, struct msghdr *message, int flags)
{
	RS_LOCKED rs = rs_lock(socket);

	if (!rs || rs->type == RS_SET)
		return rs ? cm_fail(EINVAL) : -1;
	message->msg_flags = 0;
	if (rs->datagrams)
		return rs_datagrams_receive(rs, message, flags);
	message->msg_namelen = 0;
	return rs_stream_receive(rs, message->msg_iov, message->msg_iovlen, flags);
}

ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
		const struct sockaddr *dest_addr, socklen_t addrlen)
{
	struct iovec iov = {(void *)buf, len};
	struct msghdr message = {.msg_name = (void *)dest_addr, .msg_iov = &iov, .msg_iovlen = 1};

	if (dest_addr && addrlen < cm_address_size(dest_addr))
		return cm_fail(EINVAL);
	return send_message(socket, &message, flags);
}

ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	return rsendto(socket, buf, len, flags, NULL, 0);
}

ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return rsendto(socket, buf, count, 0, NULL, 0);
}

ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	struct msghdr message = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)iovcnt};

	return iovcnt < 0 ? cm_fail(EINVAL) : send_message(socket, &message, 0);
}

/* Control messages are not supported. */
ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	if (msg->msg_control && msg->msg_controllen)
		return cm_fail(rw_refuse(EOPNOTSUPP, "rsendmsg", "control messages are not sent"));
	return send_message(socket, msg, flags);
}

ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
		  socklen_t *addrlen)
{
	struct iovec iov = {buf, len};
	struct msghdr message = {
		.msg_name = addrlen ? src_addr : NULL, .msg_iov = &iov, .msg_iovlen = 1};
	ssize_t got;

	message.msg_namelen = message.msg_name ? *addrlen : 0;
	got = receive_message(socket, &message, flags);
	if (got >= 0 && message.msg_name)
		*addrlen = message.msg_namelen;
	return got;
}

ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	return rrecvfrom(socket, buf, len, flags, NULL, NULL);
}

ssize_t rread(int socket, void *buf, size_t count)
{
	return rrecvfrom(socket, buf, count, 0, NULL, NULL);
}

ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	struct msghdr message = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)iovcnt};

	return iovcnt < 0 ? cm_fail(EINVAL) : receive_message(socket, &message, 0);
}

/* There are no control messages. */
ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	msg->msg_controllen = 0;
	return receive_message(socket, msg, flags);
}

int rshutdown(int socket, int how)
{
	RS_LOCKED rs = rs_lock(socket);

	if (!rs || rs->type == SOCK_STREAM)
		return rs ? cm_fail(rs_stream_shutdown(rs, how)) : -1;
	return cm_fail(rs->peer.ss_family ? 0 : ENOTCONN);
}

static int control(struct rsocket *rs, int socket, int command, int value)
{
	const int changed = O_NONBLOCK | O_APPEND | O_ASYNC;

	switch (command) {
	case F_GETFL:
		return rs->status_flags;
	case F_SETFL:
		rs->status_flags = (rs->status_flags & ~changed) | (value & changed);
		return 0;
	case F_GETFD:
		return rs->fd_flags;
	case F_SETFD:
		rs->fd_flags = value;
		return fcntl(socket, F_SETFD, value);
	case F_DUPFD: /* a further number, the first unused one from `value` on */
	case F_DUPFD_CLOEXEC:
		value = fcntl(socket, command, value);
		return value < 0 ? -1 : rs_number(rs, value);
	default:
		return cm_fail(rw_refuse(EOPNOTSUPP, "rfcntl", "command %d", command));
	}
}

/* F_GETFL, F_SETFL, F_GETFD, F_SETFD, F_DUPFD and F_DUPFD_CLOEXEC of fcntl(2). */
int rfcntl(int socket, int cmd, ...)
{
	RS_LOCKED rs = rs_lock(socket);
	va_list arguments;
	int value;

	va_start(arguments, cmd);
	value = cmd == F_GETFL || cmd == F_GETFD ? 0 : va_arg(arguments, int);
	va_end(arguments);
	return rs ? control(rs, socket, cmd, value) : -1;
}
