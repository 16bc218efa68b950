/* SPDX-License-Identifier: MIT
 * Addresses of ids: binding, resolving, and what the service knows of them. */
#include <errno.h>
#include <infiniband/sa.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "cm.h"

static const uint8_t MAPPED[12] = {[10] = 0xff, [11] = 0xff};

/* An address as calls have it. Returns false for one of another family. */
bool cm_address(const struct sockaddr *address, uint64_t *family, uint64_t *gid, uint64_t *port)
{
	const struct sockaddr_in *sin = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)address;
	uint8_t *bytes = (uint8_t *)gid;

	if (address->sa_family == AF_INET) {
		*family = 4;
		memcpy(bytes, MAPPED, sizeof MAPPED);
		memcpy(bytes + sizeof MAPPED, &sin->sin_addr, sizeof sin->sin_addr);
		*port = ntohs(sin->sin_port);
		return true;
	}
	if (address->sa_family != AF_INET6)
		return false;
	*family = IN6_IS_ADDR_V4MAPPED(&sin6->sin6_addr) ? 4 : 6;
	memcpy(bytes, &sin6->sin6_addr, sizeof sin6->sin6_addr);
	*port = ntohs(sin6->sin6_port);
	return true;
}

static void set_address(struct sockaddr_storage *address, uint64_t family, const uint64_t *gid,
			uint64_t port)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)address;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)address;

	if (!family)
		return;
	memset(address, 0, sizeof *address);
	if (family == 4) {
		sin->sin_family = AF_INET;
		memcpy(&sin->sin_addr, (const uint8_t *)gid + sizeof MAPPED, sizeof sin->sin_addr);
		sin->sin_port = htons((uint16_t)port);
		return;
	}
	sin6->sin6_family = AF_INET6;
	memcpy(&sin6->sin6_addr, gid, sizeof sin6->sin6_addr);
	sin6->sin6_port = htons((uint16_t)port);
}

/* Describe the path as a subnet administrator would: some programs read its MTU. */
static int set_path(struct rdma_cm_id *id, const struct rw_cm_query_reply *reply)
{
	enum { EXACTLY = 2, PACKET_LIFE = 16 };
	struct ibv_sa_path_rec *path = id->route.path_rec;

	if (!reply->dst_family)
		return 0;
	if (!path)
		path = id->route.path_rec = calloc(1, sizeof *path);
	if (!path)
		return ENOMEM;
	*path = (struct ibv_sa_path_rec){
		.hop_limit = (uint8_t)reply->hop_limit,
		.traffic_class = (uint8_t)reply->traffic_class,
		.reversible = 1,
		.numb_path = 1,
		.pkey = htons((uint16_t)reply->pkey),
		.mtu_selector = EXACTLY,
		.mtu = (uint8_t)reply->mtu,
		.rate_selector = EXACTLY,
		.rate = IBV_RATE_100_GBPS,
		.packet_life_time_selector = EXACTLY,
		.packet_life_time = PACKET_LIFE,
	};
	memcpy(&path->sgid, &reply->src0, sizeof path->sgid);
	memcpy(&path->dgid, &reply->dst0, sizeof path->dgid);
	id->route.num_paths = 1;
	return 0;
}

/* Take over what the service knows of an id. Returns an errno. */
int cm_query(struct rdma_cm_id *id)
{
	struct cm_id *own = cm_id(id);
	struct rdma_addr *address = &id->route.addr;
	struct rw_cm_query_reply reply;
	int error = CM_CALL(own->session, RW_CM_QUERY, cm_query, &reply, .id = own->node.key);

	if (error)
		return error;
	set_address(&address->src_storage, reply.src_family, &reply.src0, reply.src_port);
	set_address(&address->dst_storage, reply.dst_family, &reply.dst0, reply.dst_port);
	memcpy(&address->addr.ibaddr.sgid, &reply.src0, sizeof address->addr.ibaddr.sgid);
	memcpy(&address->addr.ibaddr.dgid, &reply.dst0, sizeof address->addr.ibaddr.dgid);
	address->addr.ibaddr.pkey = htons((uint16_t)reply.pkey);
	if (reply.device && !id->verbs) {
		own->device = cm_device(own->session, (uint32_t)reply.device - 1);
		if (!own->device)
			return errno;
		id->verbs = own->device->verbs;
		id->port_num = 1;
		if (!id->pd)
			id->pd = own->device->pd;
	}
	return set_path(id, &reply);
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct rw_cm_bind_reply reply;
	uint64_t family, gid[2], port;
	int error;

	if (!addr || !cm_address(addr, &family, gid, &port))
		return cm_fail(EINVAL);
	error = CM_CALL(cm_id(id)->session, RW_CM_BIND, cm_bind, &reply, .id = cm_id(id)->node.key,
			.family = family, .gid0 = gid[0], .gid1 = gid[1], .port = port);
	return cm_fail(error ? error : cm_query(id));
}

/* The timeout is not used: the service knows its neighbours, or does not. */
int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr, struct sockaddr *dst_addr,
		      int timeout_ms)
{
	struct rw_cm_resolve_addr_reply reply;
	uint64_t src_family = 0, src[2] = {0}, src_port = 0, dst_family, dst[2], dst_port;
	int error;

	if (!dst_addr || !cm_address(dst_addr, &dst_family, dst, &dst_port) ||
	    (src_addr && src_addr->sa_family && !cm_address(src_addr, &src_family, src, &src_port)))
		return cm_fail(EINVAL);
	memcpy(&id->route.addr.dst_storage, dst_addr, cm_address_size(dst_addr));
	error = CM_CALL(cm_id(id)->session, RW_CM_RESOLVE_ADDR, cm_resolve_addr, &reply,
			.id = cm_id(id)->node.key, .src_family = src_family, .src0 = src[0],
			.src1 = src[1], .src_port = src_port, .dst_family = dst_family,
			.dst0 = dst[0], .dst1 = dst[1], .dst_port = dst_port);
	return error ? cm_fail(error) : cm_complete(id);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct rw_cm_resolve_route_reply reply;
	int error = CM_CALL(cm_id(id)->session, RW_CM_RESOLVE_ROUTE, cm_resolve_route, &reply,
			    .id = cm_id(id)->node.key);

	return error ? cm_fail(error) : cm_complete(id);
}

static __be16 port_of(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return ((const struct sockaddr_in *)address)->sin_port;
	if (address->sa_family == AF_INET6)
		return ((const struct sockaddr_in6 *)address)->sin6_port;
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.src_addr);
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.dst_addr);
}
