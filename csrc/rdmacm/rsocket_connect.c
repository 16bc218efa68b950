/* SPDX-License-Identifier: MIT
 * Connections of rsockets: addresses, requests and answers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rsocket.h"

enum { RESOLVE_TIMEOUT = 2000, RETRIES = 7 }; /* ms; retries of ACK and RNR NAK: 7 is no limit */

static const struct rs_options DEFAULTS = {
	.send_queue = 384,
	.receive_queue = 384,
	.inline_data = 64,
	.receive_buffer = 1 << 17,
	.send_buffer = 1 << 17,
	.idle = 7200, /* s: tcp(7) */
	.interval = 75,
	.count = 9,
	.max_segment = 2048,
};

int rsocket(int domain, int type, int protocol)
{
	int kind = type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK), number = -1;
	bool stream = kind == SOCK_STREAM;
	struct rsocket *rs;

	if ((domain != AF_INET && domain != AF_INET6) || (!stream && kind != SOCK_DGRAM) ||
	    (protocol && protocol != (stream ? IPPROTO_TCP : IPPROTO_UDP)))
		return cm_fail(rw_refuse(ENOTSUP, "rsocket", "only TCP and UDP of IPv4 and IPv6"));
	rs = rs_new(domain, kind, type);
	if (!rs)
		return cm_fail(ENOMEM);
	rs->options = DEFAULTS;
	if (!(stream ? rs_create_id(rs, RDMA_PS_TCP) : rs_datagrams_open(rs)))
		number = rs_number(rs, -1);
	rs_put(rs);
	return number;
}

static bool is_address(const struct sockaddr *address, socklen_t length)
{
	return address && length >= sizeof address->sa_family && length >= cm_address_size(address);
}

static int bind_to(struct rsocket *rs, const struct sockaddr *address)
{
	if (rs->datagrams)
		return rs_datagrams_bind(rs, address);
	if (rs->bound || rs->state != RS_IDLE)
		return EINVAL;
	if (rdma_bind_addr(rs->id, (struct sockaddr *)address))
		return errno;
	rs->bound = true;
	return 0;
}

int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	RS_LOCKED rs = rs_lock(socket);

	return rs ? cm_fail(is_address(addr, addrlen) ? bind_to(rs, addr) : EINVAL) : -1;
}

static int start_listening(struct rsocket *rs, int backlog)
{
	if (rs->type != SOCK_STREAM)
		return EOPNOTSUPP;
	if (rs->state == RS_LISTENING)
		return 0;
	if (rs->state != RS_IDLE)
		return EINVAL;
	if (rdma_listen(rs->id, backlog > 0 ? backlog : 1))
		return errno;
	rs->state = RS_LISTENING;
	rs->backlog = MAX(backlog, RS_BACKLOG);
	return 0;
}

int rlisten(int socket, int backlog)
{
	RS_LOCKED rs = rs_lock(socket);

	return rs ? cm_fail(start_listening(rs, backlog)) : -1;
}

/* Where a pointer to the first connection is that can be accepted. */
static struct rsocket **first_established(struct rsocket *listener)
{
	return RS_FIND(listener->children, child, child->established);
}

bool rs_has_connection(struct rsocket *rs)
{
	return *first_established(rs) || rs->state != RS_LISTENING;
}

/* Wait for a connection, and take it. Returns null with errno. */
static struct rsocket *take_connection(int socket)
{
	RS_LOCKED rs = rs_lock(socket);
	struct rsocket **link, *taken;
	int error = 0;

	if (!rs)
		return NULL;
	if (rs->state != RS_LISTENING)
		error = rs->type != SOCK_STREAM ? EOPNOTSUPP : rs->error ? rs->error : EINVAL;
	else
		error = rs_wait_until(rs, rs_has_connection, 0, &rs->options.receive_timeout);
	link = first_established(rs);
	taken = error ? NULL : *link;
	if (taken) {
		*link = taken->next;
		rs->child_count--;
		taken->listener = NULL;
	} else {
		errno = error ? error : rs->error ? rs->error : EINVAL;
	}
	return taken;
}

/* The number is made first: without one the connection can be accepted later. */
int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	int number = eventfd(0, 0);
	struct rsocket *taken = number < 0 ? NULL : take_connection(socket);

	if (!taken) {
		if (number >= 0)
			close(number);
		return -1;
	}
	if (addr && addrlen)
		rs_copy_address(&taken->peer, addr, addrlen);
	number = rs_number(taken, number);
	rs_put(taken);
	return number;
}

void rs_destroy_children(struct rsocket *listener)
{
	struct rsocket *child;

	do {
		pthread_mutex_lock(&listener->mutex);
		child = listener->children;
		if (child)
			listener->children = child->next;
		pthread_mutex_unlock(&listener->mutex);
		if (child)
			rs_destroy(child);
	} while (child);
}

static bool is_decided(struct rsocket *rs)
{
	return rs->state != RS_CONNECTING;
}

static int connect_to(struct rsocket *rs, const struct sockaddr *address)
{
	int error;

	if (rs->datagrams)
		return rs_datagrams_connect(rs, address);
	if (rs->state != RS_IDLE)
		return rs->state == RS_CONNECTING  ? EALREADY
		       : rs->state == RS_CONNECTED ? EISCONN
						   : EINVAL;
	memcpy(&rs->peer, address, cm_address_size(address));
	if (rdma_resolve_addr(rs->id, NULL, (struct sockaddr *)address, RESOLVE_TIMEOUT))
		return errno;
	rs->state = RS_CONNECTING;
	error = rs_wait_until(rs, is_decided, 0, &rs->options.send_timeout);
	if (error)
		return error == EAGAIN ? EINPROGRESS : error;
	error = rs_take_error(rs);
	return rs->state == RS_FAILED ? error : 0;
}

/* As with sockets, a program may try again after a failure, with another id. */
static int renew(struct rsocket *rs)
{
	struct rdma_cm_id *id = NULL;
	struct rs_stream *stream = NULL;

	pthread_mutex_lock(&rs->mutex);
	if (rs->state == RS_FAILED && !rs->established) {
		id = rs->id;
		stream = rs->stream;
		rs->id = NULL;
		rs->stream = NULL;
		rs->armed = false;
		rs->state = rs_create_id(rs, RDMA_PS_TCP) ? RS_FAILED : RS_IDLE;
	}
	pthread_mutex_unlock(&rs->mutex);
	if (id)
		rdma_destroy_id(id);
	if (stream)
		rs_stream_close(stream);
	return rs->id ? 0 : -1;
}

int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	struct rsocket *rs = rs_get(socket);
	int error = is_address(addr, addrlen) ? 0 : EINVAL;

	if (!rs)
		return -1;
	if (!error && !rs->datagrams && renew(rs))
		error = errno;
	if (!error) {
		pthread_mutex_lock(&rs->mutex);
		error = connect_to(rs, addr);
		pthread_mutex_unlock(&rs->mutex);
	}
	rs_put(rs);
	return cm_fail(error);
}

/* Ask the peer for a connection. Returns -1 with errno. */
static int request(struct rsocket *rs)
{
	struct rs_conn_data offer;
	struct rdma_conn_param param = {
		.private_data = &offer,
		.private_data_len = sizeof offer,
		.flow_control = 1,
		.retry_count = RETRIES,
		.rnr_retry_count = RETRIES,
	};

	if (rs_stream_open(rs))
		return -1;
	rs_stream_offer(rs, &offer);
	return rdma_connect(rs->id, &param);
}

/* Accept a request. Returns -1 with errno. */
static int answer(struct rsocket *child, const struct rdma_conn_param *asked)
{
	struct rs_conn_data offer;
	struct rdma_conn_param param = *asked;

	if (rs_stream_open(child) ||
	    rs_stream_start(child, asked->private_data, asked->private_data_len))
		return -1;
	rs_stream_offer(child, &offer);
	param.private_data = &offer;
	param.private_data_len = sizeof offer;
	return rdma_accept(child->id, &param);
}

/* Returns whether there is room: peers could make any number of connections. */
static bool add_child(struct rsocket *listener, struct rsocket *child)
{
	bool has_room;

	pthread_mutex_lock(&listener->mutex);
	has_room = listener->child_count < listener->backlog;
	if (has_room) {
		listener->child_count++;
		*RS_FIND(listener->children, one, false) = child;
	}
	pthread_mutex_unlock(&listener->mutex);
	return has_room;
}

static bool remove_child(struct rsocket *listener, struct rsocket *child)
{
	struct rsocket **link;
	bool found;

	pthread_mutex_lock(&listener->mutex);
	link = RS_FIND(listener->children, one, one == child);
	found = *link;
	if (found) {
		*link = child->next;
		listener->child_count--;
	}
	pthread_mutex_unlock(&listener->mutex);
	return found;
}

/* Make the rsocket of a request, which the listening one accepts when it is established. */
static void requested(struct rsocket *listener, struct rdma_cm_event *event)
{
	struct rsocket *child = rs_new(listener->domain, SOCK_STREAM, 0);

	if (!child) {
		rdma_reject(event->id, NULL, 0);
		rdma_destroy_id(event->id);
		return;
	}
	child->options = listener->options;
	child->listener = listener;
	child->state = RS_CONNECTING;
	child->id = event->id;
	child->id->context = child;
	memcpy(&child->peer, &child->id->route.addr.dst_storage, sizeof child->peer);
	if (!add_child(listener, child) ||
	    (answer(child, &event->param.conn) && remove_child(listener, child))) {
		rdma_reject(child->id, NULL, 0);
		rs_destroy(child);
	}
}

/* The connection works. That of a listening rsocket can be accepted. */
static void established(struct rsocket *rs, struct rdma_cm_event *event)
{
	const struct rdma_conn_param *answered = &event->param.conn;
	struct rsocket *listener = rs->listener;

	pthread_mutex_lock(&rs->mutex);
	if (!listener && rs_stream_start(rs, answered->private_data, answered->private_data_len)) {
		rs_fail(rs, errno);
	} else if (rs->state == RS_CONNECTING) {
		rs->state = RS_CONNECTED;
		rs_poll(rs);
	}
	if (!listener)
		rs->established = true;
	rs_wake(rs);
	pthread_mutex_unlock(&rs->mutex);
	if (!listener)
		return;
	pthread_mutex_lock(&listener->mutex);
	rs->established = true;
	rs_wake(listener);
	pthread_mutex_unlock(&listener->mutex);
}

static int error_of(const struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return ECONNREFUSED;
	return event->status < 0 ? -event->status : ECONNABORTED;
}

/* There is no connection. Returns one that was to be accepted, for destruction. */
static struct rsocket *failed(struct rsocket *rs, int error)
{
	struct rsocket *listener = rs->listener;

	if (listener)
		return remove_child(listener, rs) ? rs : NULL;
	pthread_mutex_lock(&rs->mutex);
	if (rs->state < RS_DISCONNECTED)
		rs_fail(rs, error);
	pthread_mutex_unlock(&rs->mutex);
	return NULL;
}

/* The peer has ended the connection. What it sent before can still be read. */
static void disconnected(struct rsocket *rs)
{
	pthread_mutex_lock(&rs->mutex);
	rs_poll(rs);
	if (rs->state == RS_CONNECTED) {
		rs->state = RS_DISCONNECTED;
		rs->reading = rs->writing = false;
	} else if (rs->state == RS_CONNECTING) {
		rs_fail(rs, ECONNRESET);
	}
	rdma_disconnect(rs->id);
	rs_wake(rs);
	pthread_mutex_unlock(&rs->mutex);
}

/* Handle an event of a stream. Returns an rsocket that is destroyed then, or null. */
struct rsocket *rs_stream_event(struct rsocket *rs, struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return rdma_resolve_route(rs->id, RESOLVE_TIMEOUT) ? failed(rs, errno) : NULL;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return request(rs) ? failed(rs, errno) : NULL;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		requested(rs, event);
		return NULL;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(rs, event);
		return NULL;
	case RDMA_CM_EVENT_DISCONNECTED:
		disconnected(rs);
		return NULL;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return NULL;
	default:
		return failed(rs, error_of(event));
	}
}

void rs_copy_address(const void *from, struct sockaddr *to, socklen_t *length)
{
	socklen_t size = cm_address_size(from);

	memcpy(to, from, MIN(*length, size));
	*length = size;
}

int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	RS_LOCKED rs = rs_lock(socket);
	bool is_connected;

	if (!rs)
		return -1;
	is_connected = rs->type == SOCK_DGRAM || rs->state == RS_CONNECTED ||
		       rs->state == RS_DISCONNECTED;
	if (!is_connected || !rs->peer.ss_family)
		return cm_fail(ENOTCONN);
	rs_copy_address(&rs->peer, addr, addrlen);
	return 0;
}

int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	RS_LOCKED rs = rs_lock(socket);
	struct sockaddr_storage name = {0};

	if (!rs)
		return -1;
	name.ss_family = (sa_family_t)rs->domain;
	if (rs->id && rs->id->route.addr.src_addr.sa_family)
		name = rs->id->route.addr.src_storage;
	rs_copy_address(&name, addr, addrlen);
	return 0;
}
