/* SPDX-License-Identifier: MIT
 * Options of rsockets: rsetsockopt and rgetsockopt. */
#include <endian.h>
#include <errno.h>
#include <infiniband/sa.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "rsocket.h"

/* An option that is kept as it is. `size` is that of its value, `least` the smallest one. */
struct option {
	int level, name;
	size_t offset, size;
	int least;
};

#define NUMBER(level, name, member, least)                                                         \
	{level, name, offsetof(struct rs_options, member), sizeof(int), least}
#define VALUE(level, name, member)                                                                 \
	{level, name, offsetof(struct rs_options, member), sizeof((struct rs_options *)0)->member, \
	 0}

static const struct option OPTIONS[] = {
	NUMBER(SOL_SOCKET, SO_REUSEADDR, reuse, INT32_MIN),
	NUMBER(SOL_SOCKET, SO_KEEPALIVE, keepalive, INT32_MIN),
	NUMBER(SOL_SOCKET, SO_OOBINLINE, oob_inline, INT32_MIN),
	NUMBER(SOL_SOCKET, SO_BROADCAST, broadcast, INT32_MIN),
	NUMBER(SOL_SOCKET, SO_RCVBUF, receive_buffer, 0),
	NUMBER(SOL_SOCKET, SO_SNDBUF, send_buffer, 0),
	VALUE(SOL_SOCKET, SO_LINGER, linger),
	VALUE(SOL_SOCKET, SO_RCVTIMEO, receive_timeout),
	VALUE(SOL_SOCKET, SO_SNDTIMEO, send_timeout),
	NUMBER(IPPROTO_IP, IP_TOS, tos, 0),
	NUMBER(IPPROTO_IPV6, IPV6_V6ONLY, only_ipv6, INT32_MIN),
	NUMBER(IPPROTO_TCP, TCP_NODELAY, no_delay, INT32_MIN),
	NUMBER(IPPROTO_TCP, TCP_MAXSEG, max_segment, 0),
	NUMBER(IPPROTO_TCP, TCP_KEEPIDLE, idle, 1),
	NUMBER(IPPROTO_TCP, TCP_KEEPINTVL, interval, 1),
	NUMBER(IPPROTO_TCP, TCP_KEEPCNT, count, 1),
	NUMBER(SOL_RDMA, RDMA_SQSIZE, send_queue, 0),
	NUMBER(SOL_RDMA, RDMA_RQSIZE, receive_queue, 0),
	NUMBER(SOL_RDMA, RDMA_INLINE, inline_data, 0),
	NUMBER(SOL_RDMA, RDMA_IOMAPSIZE, iomaps, 0),
};

static const struct option *find(int level, int name)
{
	for (size_t i = 0; i < LENGTH(OPTIONS); i++)
		if (OPTIONS[i].level == level && OPTIONS[i].name == name)
			return &OPTIONS[i];
	return NULL;
}

/* Have an id keep an option. The service has those that concern its addresses. */
static int set_of_id(struct rsocket *rs, int name, const void *value, size_t size)
{
	if (!rs->id || rs->state != RS_IDLE)
		return 0;
	return rdma_set_option(rs->id, RDMA_OPTION_ID, name, (void *)value, size) ? errno : 0;
}

/* Do what an option is for beside being kept. Returns an errno. */
static int apply(struct rsocket *rs, const struct option *option, const void *value)
{
	struct rs_options *options = &rs->options;
	int *number = (int *)((char *)options + option->offset);
	uint8_t tos = (uint8_t)options->tos;

	if (number == &options->reuse)
		return set_of_id(rs, RDMA_OPTION_ID_REUSEADDR, value, sizeof(int));
	if (number == &options->only_ipv6)
		return set_of_id(rs, RDMA_OPTION_ID_AFONLY, value, sizeof(int));
	if (number == &options->tos)
		return set_of_id(rs, RDMA_OPTION_ID_TOS, &tos, sizeof tos);
	if (number == &options->receive_buffer || number == &options->send_buffer)
		*number *= *number > INT32_MAX / 2 ? 1 : 2; /* as Linux */
	if (number == &options->iomaps)
		*number = rs_iomap_count(*number);
	rs->keepalive_due = options->keepalive && rs->type == SOCK_STREAM
				    ? rs_now() + options->idle * INT64_C(1000000000)
				    : 0;
	return 0;
}

/* Set an option. Returns an errno. The caller has the mutex. */
static int set(struct rsocket *rs, int level, int name, const void *value, socklen_t length)
{
	const struct option *option = find(level, name);
	int number = 0;

	if (level == IPPROTO_TCP && name == TCP_CONGESTION)
		return 0; /* the name of an algorithm of TCP: there is none */
	if (!option)
		return rw_refuse(ENOPROTOOPT, "rsetsockopt", "level %d, option %d", level, name);
	if (!value || length < option->size)
		return EINVAL;
	memcpy(&number, value, sizeof number);
	if (option->size == sizeof number && number < option->least)
		return EINVAL;
	if (level == SOL_RDMA && rs->state >= RS_CONNECTING)
		return EINVAL;
	memcpy((char *)&rs->options + option->offset, value, option->size);
	return apply(rs, option, value);
}

int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen)
{
	RS_LOCKED rs = rs_lock(socket);
	int error = rs ? set(rs, level, optname, optval, optlen) : EBADF;

	if (rs && rs->keepalive_due)
		rs_wake_thread();
	return cm_fail(error);
}

/* The numbers that are not set but found out; -1 for another option. */
static int state_of(struct rsocket *rs, int name)
{
	switch (name) {
	case SO_ERROR:
		return rs_take_error(rs);
	case SO_TYPE:
		return rs->type;
	case SO_DOMAIN:
		return rs->domain;
	case SO_PROTOCOL:
		return rs->type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
	case SO_ACCEPTCONN:
		return rs->state == RS_LISTENING;
	default:
		return -1;
	}
}

static void copy(void *value, socklen_t *length, const void *from, size_t size)
{
	*length = (socklen_t)MIN(*length, size);
	memcpy(value, from, *length);
}

/* The path of a connection, as an IB path record: RDMA_ROUTE. */
static int copy_route(struct rsocket *rs, void *value, socklen_t *length)
{
	const struct ibv_sa_path_rec *found = rs->id ? rs->id->route.path_rec : NULL;
	struct ibv_path_data data = {0};

	if (*length < sizeof data)
		return EINVAL;
	if (!found) {
		*length = 0;
		return 0;
	}
	data.path.dgid = found->dgid;
	data.path.sgid = found->sgid;
	data.path.dlid = found->dlid;
	data.path.slid = found->slid;
	data.path.flowlabel_hoplimit = htobe32(be32toh(found->flow_label) << 8 | found->hop_limit);
	data.path.tclass = found->traffic_class;
	data.path.reversible_numpath = (uint8_t)(found->reversible << 7 | 1);
	data.path.pkey = found->pkey;
	data.path.mtu = found->mtu | 2 << 6; /* exactly */
	data.path.rate = found->rate | 2 << 6;
	data.path.packetlifetime = found->packet_life_time | 2 << 6;
	copy(value, length, &data, sizeof data);
	return 0;
}

/* Get an option. Returns an errno. The caller has the mutex. */
static int get(struct rsocket *rs, int level, int name, void *value, socklen_t *length)
{
	const struct option *option = find(level, name);
	struct tcp_info info = {.tcpi_state = rs->state == RS_CONNECTED ? TCP_ESTABLISHED
									: TCP_CLOSE};
	int number = level == SOL_SOCKET ? state_of(rs, name) : -1;

	if (number >= 0)
		copy(value, length, &number, sizeof number);
	else if (option)
		copy(value, length, (char *)&rs->options + option->offset, option->size);
	else if (level == SOL_RDMA && name == RDMA_ROUTE)
		return copy_route(rs, value, length);
	else if (level == IPPROTO_TCP && name == TCP_INFO)
		copy(value, length, &info, sizeof info);
	else if (level == IPPROTO_TCP && name == TCP_CONGESTION)
		copy(value, length, "rdma", sizeof "rdma");
	else
		return rw_refuse(ENOPROTOOPT, "rgetsockopt", "level %d, option %d", level, name);
	return 0;
}

int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	RS_LOCKED rs = rs_lock(socket);

	return rs ? cm_fail(get(rs, level, optname, optval, optlen)) : -1;
}
