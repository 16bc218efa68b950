/* SPDX-License-Identifier: MIT
 * Scenarios that run on ordinary sockets and on rsockets, and must have the same results; and what
 * only rsockets have. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include "../rdmacm/newer.h"
#include "check.h"

enum { PORT = 17000, BIG = 1 << 20, LARGEST = 300000, MANY = 40 };

static int repoll_create1(int flags)
{
	return repoll_create(flags);
}

/* Functions of sockets; those of rsockets have an r before the name. */
#define EACH_CALL(CALL)                                                                            \
	CALL(socket) CALL(bind) CALL(listen) CALL(accept) CALL(connect) CALL(shutdown) CALL(close) \
	CALL(recv) CALL(recvfrom) CALL(recvmsg) CALL(send) CALL(sendto) CALL(sendmsg)              \
	CALL(read) CALL(readv) CALL(write) CALL(writev) CALL(poll) CALL(select)                    \
	CALL(getpeername) CALL(getsockname) CALL(setsockopt) CALL(getsockopt) CALL(fcntl)          \
	CALL(epoll_create1) CALL(epoll_ctl) CALL(epoll_wait)

#define DECLARED(name) __typeof__(r##name) *name;
#define ORDINARY_ONE(name) .name = name,
#define RSOCKETS_ONE(name) .name = r##name,
static struct calls {
	const char *address;
	EACH_CALL(DECLARED)
} ORDINARY = {.address = "127.0.0.1", EACH_CALL(ORDINARY_ONE)},
  RSOCKETS = {.address = "10.0.0.1", EACH_CALL(RSOCKETS_ONE)}, on;

static FILE *results;

/* Note the result of a call, with errno if it failed. */
#define NOTE(call)                                                                                 \
	({                                                                                         \
		long result_ = (long)(call);                                                       \
		fprintf(results, "%s:%d %s = %ld %s\n", __func__, __LINE__, #call, result_,        \
			result_ < 0 ? strerror(errno) : "");                                       \
		result_;                                                                           \
	})

static char data[BIG], got[BIG];

static struct sockaddr_in address(int port)
{
	struct sockaddr_in made = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	inet_pton(AF_INET, on.address, &made.sin_addr);
	return made;
}

/* The arguments of a call for an address. */
#define AT(where) (struct sockaddr *)&(where), sizeof(where)

static int made(int type)
{
	int one = 1, fd = on.socket(AF_INET, type, 0);

	CHECK(fd >= 0);
	CHECK(!on.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	return fd;
}

static int listening(int port)
{
	struct sockaddr_in where = address(port);
	int fd = made(SOCK_STREAM);

	CHECK(!on.bind(fd, AT(where)));
	CHECK(!on.listen(fd, MANY));
	return fd;
}

static int port_of(int fd)
{
	struct sockaddr_in found = {0};
	socklen_t size = sizeof found;

	CHECK(!on.getsockname(fd, (struct sockaddr *)&found, &size));
	CHECK(size == sizeof found && found.sin_family == AF_INET);
	return ntohs(found.sin_port);
}

static int connected(int port)
{
	struct sockaddr_in where = address(port);
	int fd = made(SOCK_STREAM);

	CHECK(!on.connect(fd, AT(where)));
	return fd;
}

struct pair {
	int listener, client, server;
};

static struct pair new_pair(void)
{
	struct pair pair = {.listener = listening(0)};
	struct sockaddr_in its = {0};
	socklen_t size = sizeof its;

	pair.client = connected(port_of(pair.listener));
	pair.server = on.accept(pair.listener, (struct sockaddr *)&its, &size);
	CHECK(pair.server >= 0 && ntohs(its.sin_port) == port_of(pair.client));
	CHECK(!on.getpeername(pair.client, (struct sockaddr *)&its, &size));
	CHECK(ntohs(its.sin_port) == port_of(pair.listener));
	return pair;
}

static void close_pair(struct pair pair)
{
	NOTE(on.close(pair.client));
	NOTE(on.close(pair.server));
	NOTE(on.close(pair.listener));
}

static void send_all(int fd, size_t length)
{
	for (size_t sent = 0; sent < length;) {
		ssize_t part = on.send(fd, data + sent, length - sent, MSG_NOSIGNAL);

		CHECK(part > 0);
		sent += (size_t)part;
	}
}

static void receive_all(int fd, size_t length)
{
	memset(got, 0, length);
	CHECK(on.recv(fd, got, length, MSG_WAITALL) == (ssize_t)length);
	CHECK(!memcmp(got, data, length));
}

static void *echo(void *argument)
{
	int fd = *(int *)argument;
	char *buffer = malloc(BIG);
	ssize_t length;

	while ((length = on.read(fd, buffer, BIG)) > 0)
		for (ssize_t sent = 0, part; sent < length; sent += part)
			CHECK((part = on.write(fd, buffer + sent, (size_t)(length - sent))) > 0);
	free(buffer);
	CHECK(!length && !on.shutdown(fd, SHUT_WR));
	return NULL;
}

SCENARIO(sizes)
{
	struct pair pair = new_pair();
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, echo, &pair.server));
	for (size_t length = 1; length < LARGEST; length = length * 3 + 1) {
		send_all(pair.client, length);
		receive_all(pair.client, length);
	}
	NOTE(on.shutdown(pair.client, SHUT_WR));
	NOTE(on.recv(pair.client, got, 10, 0));
	pthread_join(thread, NULL);
	close_pair(pair);
}

static void *write_many(void *fd)
{
	for (int i = 0; i < 4; i++)
		send_all(*(int *)fd, BIG);
	return NULL;
}

SCENARIO(both_directions)
{
	struct pair pair = new_pair();
	pthread_t threads[2];

	CHECK(!pthread_create(&threads[0], NULL, write_many, &pair.client));
	CHECK(!pthread_create(&threads[1], NULL, write_many, &pair.server));
	for (int i = 0; i < 4; i++) {
		receive_all(pair.client, BIG);
		receive_all(pair.server, BIG);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	close_pair(pair);
}

SCENARIO(parts)
{
	struct pair pair = new_pair();
	struct iovec out[3] = {{data, 3}, {data + 3, 0}, {data + 3, 200}},
		     in[2] = {{got, 7}, {got + 7, 300}};
	struct msghdr sent = {.msg_iov = out, .msg_iovlen = 3},
		      taken = {.msg_iov = in, .msg_iovlen = 2};

	NOTE(on.writev(pair.client, out, 3));
	NOTE(on.recv(pair.server, got, 10, MSG_PEEK));
	NOTE(on.readv(pair.server, in, 2));
	CHECK(!memcmp(got, data, 203));
	NOTE(on.sendmsg(pair.client, &sent, 0));
	NOTE(on.recvmsg(pair.server, &taken, 0));
	NOTE(taken.msg_flags);
	NOTE(on.send(pair.client, data, 0, 0));
	NOTE(on.recv(pair.server, got, 10, MSG_DONTWAIT));
	for (int i = 0; i < 8; i++)
		NOTE(on.shutdown(pair.client, SHUT_RDWR));
	NOTE(on.recv(pair.server, got, 10, 0));
	close_pair(pair);
}

static short ready(int fd, short events, int timeout)
{
	struct pollfd one = {.fd = fd, .events = events};

	CHECK(on.poll(&one, 1, timeout) >= 0);
	return one.revents;
}

SCENARIO(not_blocking)
{
	struct sockaddr_in where;
	int listener = listening(0), client = made(SOCK_STREAM | SOCK_NONBLOCK), server, error = -1;
	size_t sent = 0, received = 0;
	socklen_t size = sizeof error;
	ssize_t length;

	where = address(port_of(listener));
	NOTE(on.fcntl(client, F_GETFL) & O_NONBLOCK);
	NOTE(on.fcntl(listener, F_SETFL, O_NONBLOCK));
	NOTE(on.accept(listener, NULL, NULL));
	NOTE(on.connect(client, AT(where)));
	NOTE(ready(client, POLLOUT, -1));
	NOTE(on.getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &size));
	NOTE(error);
	NOTE(ready(listener, POLLIN, -1));
	server = on.accept(listener, NULL, NULL);
	NOTE(on.fcntl(server, F_GETFL) & O_NONBLOCK);
	NOTE(on.recv(client, got, 1, 0));
	NOTE(ready(client, POLLIN | POLLOUT, 0));
	while ((length = on.send(client, data, LARGEST, 0)) > 0)
		sent += (size_t)length;
	CHECK(errno == EAGAIN);
	while (received < sent && (length = on.recv(server, got, BIG, 0)) > 0)
		received += (size_t)length;
	NOTE(received == sent);
	NOTE(ready(client, POLLOUT, -1));
	close_pair((struct pair){listener, client, server});
}

SCENARIO(failures)
{
	struct sockaddr_in nobody = address(1), where = address(PORT);
	struct pair pair = new_pair();
	int fd = made(SOCK_STREAM), other = made(SOCK_STREAM), none = 0;
	socklen_t size = sizeof where;

	NOTE(on.connect(fd, AT(nobody)));
	where.sin_port = htons((uint16_t)port_of(pair.listener));
	NOTE(on.connect(fd, AT(where))); /* it may try again */
	NOTE(on.connect(fd, AT(where)));
	NOTE(on.close(fd));
	NOTE(on.setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &none, sizeof none));
	NOTE(on.bind(other, AT(where)));
	NOTE(on.bind(other, (struct sockaddr *)&where, 3));
	NOTE(on.recv(other, got, 1, 0));
	NOTE(on.accept(other, NULL, NULL));
	NOTE(on.getpeername(other, (struct sockaddr *)&where, &size));
	NOTE(on.shutdown(other, SHUT_WR));
	NOTE(on.getsockopt(other, SOL_SOCKET, 9999, &none, &size));
	NOTE(on.close(other));
	NOTE(on.close(other));
	NOTE(on.recv(other, got, 1, 0));
	NOTE(on.shutdown(pair.client, SHUT_WR));
	NOTE(on.send(pair.client, data, 1, MSG_NOSIGNAL));
	NOTE(on.recv(pair.server, got, 1, 0));
	NOTE(on.send(pair.server, data, 5, 0));
	NOTE(on.recv(pair.client, got, 9, 0));
	close_pair(pair);
	NOTE(on.socket(AF_INET, 99, 0) < 0);
}

/* A connection from a child, which sends, and ends itself by an exit or is killed. */
static void send_and_end(struct pair pair, size_t length, bool exits)
{
	int port = port_of(pair.listener), server, status;
	pid_t child = fork();

	if (!child) {
		send_all(connected(port), length);
		if (exits)
			exit(0);
		pause();
	}
	server = on.accept(pair.listener, NULL, NULL);
	receive_all(server, length);
	if (!exits)
		kill(child, SIGKILL);
	NOTE(on.recv(server, got, 1, 0));
	CHECK(waitpid(child, &status, 0) == child);
	NOTE(status);
	NOTE(on.close(server));
}

/* What was sent before close or exit arrives. */
SCENARIO(last_words)
{
	struct pair pair = new_pair();

	send_all(pair.client, 100000);
	NOTE(on.close(pair.client));
	receive_all(pair.server, 100000);
	NOTE(on.recv(pair.server, got, 1, 0));
	NOTE(ready(pair.server, POLLIN, -1) & POLLIN);
	send_and_end(pair, 100000, true);
	send_and_end(pair, 1, false);
	NOTE(on.close(pair.server));
	NOTE(on.close(pair.listener));
}

/* Without a free descriptor calls wait as ever; a connection is accepted once there is one. */
SCENARIO(scarce)
{
	struct timeval limit = {.tv_usec = 1000};
	struct pair pair = new_pair();
	int other = connected(port_of(pair.listener)), open[64], count = 0, server;
	struct rlimit before, few = {.rlim_cur = 0};

	CHECK(ready(pair.listener, POLLIN, -1) == POLLIN);
	CHECK(!on.setsockopt(pair.client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	CHECK(!getrlimit(RLIMIT_NOFILE, &before));
	few.rlim_cur = (rlim_t)(open[0] = dup(0)) + 16;
	few.rlim_max = before.rlim_max;
	CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	while (open[count] >= 0)
		open[++count] = dup(0);
	NOTE(on.recv(pair.client, got, 1, 0));
	NOTE(ready(pair.client, POLLIN, 1));
	NOTE(on.accept(pair.listener, NULL, NULL));
	send_all(pair.server, 1);
	NOTE(ready(pair.client, POLLIN, -1));
	receive_all(pair.client, 1);
	while (count)
		close(open[--count]);
	CHECK(!setrlimit(RLIMIT_NOFILE, &before));
	server = on.accept(pair.listener, NULL, NULL);
	send_all(other, 1);
	receive_all(server, 1);
	NOTE(on.close(server));
	NOTE(on.close(other));
	close_pair(pair);
}

SCENARIO(options)
{
	static const int names[][3] = {
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{SOL_SOCKET, SO_RCVBUF, 20000},
		{SOL_SOCKET, SO_SNDBUF, 20000},
		{SOL_SOCKET, SO_TYPE, 0},
		{SOL_SOCKET, SO_DOMAIN, 0},
		{SOL_SOCKET, SO_PROTOCOL, 0},
		{SOL_SOCKET, SO_ACCEPTCONN, 0},
		{IPPROTO_TCP, 1 /* TCP_NODELAY */, 1},
		{IPPROTO_TCP, 4 /* TCP_KEEPIDLE */, 100},
		{IPPROTO_IP, 1 /* IP_TOS */, 16},
	};
	struct timeval limit = {.tv_usec = 1000};
	struct pair pair = new_pair();
	int fd = made(SOCK_STREAM);

	for (size_t i = 0; i < LENGTH(names); i++) {
		int value = names[i][2];
		socklen_t size = sizeof value;

		if (value)
			NOTE(on.setsockopt(fd, names[i][0], names[i][1], &value, size));
		NOTE(on.getsockopt(fd, names[i][0], names[i][1], &value, &size));
		NOTE(value);
	}
	NOTE(on.close(fd));
	NOTE(on.setsockopt(pair.client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	NOTE(on.recv(pair.client, got, 1, 0));
	close_pair(pair);
}

/* Rsockets beside a pipe in poll, select and epoll. */
SCENARIO(waiting)
{
	struct pair pair = new_pair();
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = 1}, events[4];
	struct timeval no_time = {0};
	struct pollfd fds[3];
	fd_set in, out;
	int ends[2], set = on.epoll_create1(0), most, reports;

	CHECK(!pipe(ends));
	fds[0] = (struct pollfd){.fd = pair.server, .events = POLLIN};
	fds[1] = (struct pollfd){.fd = ends[0], .events = POLLIN};
	fds[2] = (struct pollfd){.fd = -1};
	NOTE(on.poll(fds, 3, 0));
	NOTE(on.epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event));
	NOTE(on.epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event));
	event.data.u32 = 2;
	NOTE(on.epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
	NOTE(on.epoll_wait(set, events, 4, 0));
	send_all(pair.client, 5);
	NOTE(on.epoll_wait(set, events, 4, -1));
	NOTE(events[0].data.u32);
	NOTE(on.poll(fds, 3, -1));
	NOTE(fds[0].revents);
	CHECK(write(ends[1], "x", 1) == 1);
	NOTE(on.poll(fds, 3, -1));
	NOTE(on.epoll_wait(set, events, 4, -1));
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(pair.server, &in);
	FD_SET(pair.client, &in);
	FD_SET(ends[0], &in);
	FD_SET(pair.client, &out);
	most = pair.server > pair.client ? pair.server : pair.client;
	most = ends[0] > most ? ends[0] : most;
	NOTE(on.select(most + 1, &in, &out, NULL, &no_time));
	NOTE(FD_ISSET(pair.client, &in));
	NOTE(FD_ISSET(pair.client, &out));
	receive_all(pair.server, 5);
	event = (struct epoll_event){.events = EPOLLIN | EPOLLET, .data.u32 = 3};
	NOTE(on.epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL));
	NOTE(on.epoll_ctl(set, EPOLL_CTL_MOD, pair.server, &event));
	send_all(pair.client, 1);
	NOTE(on.epoll_wait(set, events, 4, -1));
	for (reports = 1; reports < 100 && on.epoll_wait(set, events, 4, 0); reports++)
		; /* each change is reported once, though there is something to read */
	NOTE(reports < 100);
	NOTE(on.close(pair.client));
	NOTE(on.epoll_wait(set, events, 4, -1));
	NOTE(events[0].events & EPOLLIN);
	NOTE(on.close(pair.server));
	NOTE(on.epoll_wait(set, events, 4, 0));
	NOTE(on.epoll_ctl(set, EPOLL_CTL_DEL, pair.listener, NULL));
	NOTE(on.close(set));
	NOTE(on.close(pair.listener));
	close(ends[0]);
	close(ends[1]);
}

SCENARIO(many)
{
	int listener = listening(0), clients[MANY], servers[MANY];

	for (int i = 0; i < MANY; i++)
		clients[i] = connected(port_of(listener));
	for (int i = 0; i < MANY; i++)
		servers[i] = on.accept(listener, NULL, NULL);
	for (int i = 0; i < MANY; i++)
		send_all(clients[i], 1000 + (size_t)i);
	for (int i = 0; i < MANY; i++)
		receive_all(servers[i], 1000 + (size_t)i);
	for (int i = 0; i < MANY; i++)
		CHECK(!on.close(clients[i]) && !on.close(servers[i]));
	NOTE(on.close(listener));
}

SCENARIO(numbers)
{
	struct pair pair = new_pair();
	int copy = on.fcntl(pair.client, F_DUPFD, 100);

	NOTE(copy);
	NOTE(on.close(pair.client));
	send_all(copy, 10);
	receive_all(pair.server, 10);
	NOTE(on.recv(pair.client, got, 1, 0));
	NOTE(on.close(copy));
	NOTE(on.recv(pair.server, got, 1, 0));
	NOTE(on.close(pair.server));
	NOTE(on.close(pair.listener));
}

SCENARIO(datagrams)
{
	struct sockaddr_in any = address(0), to, from;
	int server = made(SOCK_DGRAM), client = made(SOCK_DGRAM);
	socklen_t size = sizeof from;
	struct iovec iov = {got, 4};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	NOTE(on.send(client, data, 1, 0));
	NOTE(on.bind(server, AT(any)));
	to = address(port_of(server));
	NOTE(on.recvfrom(server, got, 10, MSG_DONTWAIT, NULL, NULL));
	for (size_t length = 1; length <= 900; length += 200) {
		NOTE(on.sendto(client, data, length, 0, AT(to)));
		memset(got, 0, length);
		NOTE(on.recvfrom(server, got, BIG, MSG_PEEK, NULL, NULL));
		NOTE(on.recvfrom(server, got, BIG, 0, (struct sockaddr *)&from, &size));
		CHECK(!memcmp(got, data, length) && size == sizeof from);
		NOTE(on.sendto(server, data, length, 0, AT(from)));
		NOTE(on.recv(client, got, BIG, 0));
	}
	NOTE(on.connect(client, AT(to)));
	NOTE(on.send(client, data, 0, 0));
	NOTE(on.send(client, data, 10, 0));
	NOTE(ready(server, POLLIN, -1));
	NOTE(on.recv(server, got, 10, 0));
	NOTE(on.recvmsg(server, &message, 0));
	NOTE(message.msg_flags);
	NOTE(on.listen(client, 1));
	NOTE(on.close(server));
	NOTE(on.close(client));
}

/* An address that waits for the first datagram is asked for once; nobody there is no error. */
SCENARIO(many_datagrams)
{
	struct sockaddr_in any = address(0), to;
	int server = made(SOCK_DGRAM), client = made(SOCK_DGRAM);

	CHECK(!on.bind(server, AT(any)));
	to = address(port_of(server));
	for (int i = 0; i < 20; i++)
		CHECK(on.sendto(client, data, 100 + (size_t)i, 0, AT(to)) > 0);
	for (int i = 0; i < 20; i++)
		NOTE(on.recv(server, got, BIG, 0));
	NOTE(on.close(server));
	NOTE(on.close(client));
}

/* Close a pair of a scenario that ordinary sockets do not have. */
static void close_rsockets(struct pair pair)
{
	CHECK(!rclose(pair.client) && !rclose(pair.server) && !rclose(pair.listener));
}

/* Only rsockets: buffers that the peer writes to. */
SCENARIO(mapped)
{
	static char buffer[LARGEST], small[8];
	struct sockaddr_in where = address(PORT + 1);
	struct pair pair;
	int count = 2, inline_data = 0;
	socklen_t size = sizeof count;

	if (on.socket != rsocket)
		return;
	pair.listener = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(!rsetsockopt(pair.listener, SOL_RDMA, RDMA_IOMAPSIZE, &count, sizeof count));
	CHECK(!rsetsockopt(pair.listener, SOL_RDMA, RDMA_INLINE, &inline_data, sizeof inline_data));
	CHECK(!rbind(pair.listener, AT(where)));
	CHECK(!rlisten(pair.listener, 1));
	pair.client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(!rsetsockopt(pair.client, SOL_RDMA, RDMA_IOMAPSIZE, &count, sizeof count));
	CHECK(!rgetsockopt(pair.client, SOL_RDMA, RDMA_IOMAPSIZE, &count, &size) && count == 2);
	CHECK(!rconnect(pair.client, AT(where)));
	pair.server = raccept(pair.listener, NULL, NULL);
	CHECK(riowrite(pair.client, data, 10, 500, 0) == (size_t)-1 && errno == EINVAL);
	CHECK(riomap(pair.server, buffer, sizeof buffer, PROT_WRITE, 0, 500) == 500);
	CHECK(riomap(pair.server, small, sizeof small, PROT_WRITE, 0, -1) ==
	      (off_t)(uintptr_t)small);
	CHECK(riomap(pair.server, small, sizeof small, PROT_WRITE, 0, 7) == -1 && errno == ENOMEM);
	send_all(pair.server, 1); /* the entries go before it */
	receive_all(pair.client, 1);
	CHECK(riowrite(pair.client, data, sizeof buffer, 500, 0) == sizeof buffer);
	CHECK(riowrite(pair.client, data, 8, (off_t)(uintptr_t)small, 0) == 8);
	CHECK(riowrite(pair.client, data, 9, 500 + sizeof buffer - 3, 0) == 3);
	send_all(pair.client, 1);
	receive_all(pair.server, 1);
	CHECK(!memcmp(buffer, data, sizeof buffer - 3) && !memcmp(small, data, 8));
	CHECK(!memcmp(buffer + sizeof buffer - 3, data, 3));
	CHECK(!riounmap(pair.server, small, sizeof small));
	CHECK(riounmap(pair.server, small, sizeof small) == -1 && errno == EINVAL);
	close_rsockets(pair);
}

/* Only rsockets: those that connect without being rsockets are refused, others are served. */
SCENARIO(strangers)
{
	static const char offers[][40] = {{2, 2, 1, 0}, {1, 2, 1, 0}, {0}};
	struct sockaddr_in where;
	struct pair pair;

	if (on.socket != rsocket)
		return;
	pair.listener = listening(0);
	where = address(port_of(pair.listener));
	for (size_t i = 0; i < 4; i++) {
		struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
		struct rdma_conn_param param = {.private_data = offers[i % 3],
						.private_data_len = i < 3 ? 40 : 39};
		struct rdma_cm_id *id;

		CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
		CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&where, 1000));
		CHECK(!rdma_resolve_route(id, 1000) && !rdma_create_qp(id, NULL, &init));
		CHECK(rdma_connect(id, &param) == -1 && errno == ECONNREFUSED);
		rdma_destroy_qp(id);
		CHECK(!rdma_destroy_id(id));
	}
	CHECK(rpoll(&(struct pollfd){.fd = pair.listener, .events = POLLIN}, 1, 0) == 0);
	pair.client = connected(port_of(pair.listener));
	pair.server = on.accept(pair.listener, NULL, NULL);
	send_all(pair.client, 10);
	receive_all(pair.server, 10);
	close_rsockets(pair);
}

/* Only rsockets: no peer can make a program have any number of connections. */
SCENARIO(crowd)
{
	enum { MOST = 64 };
	int listener, clients[MOST + 1], server, count = 0;
	struct sockaddr_in where;

	if (on.socket != rsocket)
		return;
	listener = listening(0);
	where = address(port_of(listener));
	while (count < MOST)
		clients[count++] = connected(ntohs(where.sin_port));
	clients[MOST] = made(SOCK_STREAM);
	CHECK(rconnect(clients[MOST], AT(where)) == -1 &&
	      errno == ECONNREFUSED);
	server = raccept(listener, NULL, NULL);
	CHECK(server >= 0 && !rclose(server));
	CHECK(!rconnect(clients[MOST], AT(where)));
	while (count >= 0)
		CHECK(!rclose(clients[count--]));
	CHECK(!rclose(listener));
}

static atomic_bool ended;

static void *keep_sending(void *fd)
{
	while (!ended)
		CHECK(rsend(*(int *)fd, data, 1000, 0) > 0);
	return NULL;
}

static void *keep_receiving(void *fd)
{
	while (rrecv(*(int *)fd, got, sizeof got, 0) > 0)
		;
	return NULL;
}

static void *keep_making(void *nothing)
{
	while (!ended)
		CHECK(!rclose(made(SOCK_STREAM)));
	return nothing;
}

/* What the child of a fork can do with a connection of its parent. */
static void check_inherited(int fd, bool is_connected)
{
	struct pollfd polled = {.fd = fd, .events = POLLIN};
	int yes = 1;

	alarm(HANG);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes));
	CHECK(rpoll(&polled, 1, -1) == 1 && polled.revents & POLLERR);
	if (is_connected)
		CHECK(rrecv(fd, data, 1, 0) == -1 && errno == EIO);
	else
		CHECK(raccept(fd, NULL, NULL) == -1 && errno == EIO);
	CHECK(!rclose(fd));
}

/* Only rsockets: those of the parent have failed in the child of a fork, whatever the threads of
 * the parent were doing with them. */
SCENARIO(inherited)
{
	struct pair pair;
	pthread_t sender, receiver, maker;
	int status;

	if (on.socket != rsocket)
		return;
	pair = new_pair();
	CHECK(!pthread_create(&sender, NULL, keep_sending, &pair.client));
	CHECK(!pthread_create(&receiver, NULL, keep_receiving, &pair.server));
	CHECK(!pthread_create(&maker, NULL, keep_making, NULL));
	for (int i = 0; i < MANY; i++) {
		pid_t child = fork();

		if (!child) {
			check_inherited(pair.client, true);
			check_inherited(pair.server, true);
			check_inherited(pair.listener, false);
			CHECK(!rclose(made(SOCK_STREAM)));
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && !status);
	}
	ended = true;
	CHECK(!pthread_join(sender, NULL) && !pthread_join(maker, NULL));
	CHECK(!rshutdown(pair.client, SHUT_WR));
	CHECK(!pthread_join(receiver, NULL));
	close_rsockets(pair);
}

/* Run a scenario, and return its results, each on a line. */
static char *results_of(void (*scenario)(void), const struct calls *calls)
{
	char *text;
	size_t size;

	on = *calls;
	results = open_memstream(&text, &size);
	scenario();
	fclose(results);
	return text;
}

/* Print the lines that differ. */
static int compare(char *expected, char *found)
{
	char *rest[2] = {expected, found}, *line[2];
	int differing = 0;

	do {
		for (int i = 0; i < 2; i++)
			line[i] = strsep(&rest[i], "\n");
		if (line[0] && line[1] && strcmp(line[0], line[1])) {
			differing++;
			fprintf(stderr, "sockets:  %s\nrsockets: %s\n", line[0], line[1]);
		}
	} while (line[0] && line[1]);
	return differing + (line[0] != line[1]);
}

int main(int count, char **arguments)
{
	bool only_ordinary = count > 2 && !strcmp(arguments[1], "--print"), ran = false;
	int differing = 0;

	alarm(HANG);
	for (size_t i = 0; i < BIG; i++)
		data[i] = (char)(i * 7 + i / 251);
	if (only_ordinary) /* which librspreload.so may have turned into rsockets */
		ORDINARY.address = arguments[2];
	for (; scenarios; scenarios = scenarios->next) {
		char *expected, *found;

		if (count == 2 && strcmp(arguments[1], scenarios->name))
			continue;
		fprintf(stderr, "%s\n", scenarios->name);
		ran = true;
		expected = results_of(scenarios->run, &ORDINARY);
		if (only_ordinary) {
			printf("%s", expected);
		} else {
			found = results_of(scenarios->run, &RSOCKETS);
			differing += compare(expected, found);
			free(found);
		}
		free(expected);
	}
	return differing || !ran;
}
