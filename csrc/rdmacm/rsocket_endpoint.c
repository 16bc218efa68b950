/* SPDX-License-Identifier: MIT
 * UD queue pairs of datagram rsockets with their memory, and the header of a datagram. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsocket_datagram.h"

enum { HEADER_4 = 8, HEADER_6 = 24 };

/* Whether two addresses with ports are the same. */
bool rs_is_same(const void *one, const void *other, bool with_port)
{
	const struct sockaddr_in *a = one, *b = other;
	const struct sockaddr_in6 *a6 = one, *b6 = other;

	if (a->sin_family != b->sin_family || (with_port && a->sin_port != b->sin_port))
		return false;
	if (a->sin_family == AF_INET)
		return a->sin_addr.s_addr == b->sin_addr.s_addr;
	return !memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr);
}

static void set_header(struct ds_header *header, const struct sockaddr_storage *address,
		       __be16 port)
{
	const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)address;

	*header = (struct ds_header){.version = 4, .length = HEADER_4, .port = port};
	header->ipv4 = ((const struct sockaddr_in *)address)->sin_addr.s_addr;
	if (address->ss_family == AF_INET)
		return;
	header->version = 6;
	header->length = HEADER_6;
	header->ipv6.flow = sin6->sin6_flowinfo;
	memcpy(header->ipv6.address, &sin6->sin6_addr, sizeof header->ipv6.address);
}

/* The source of a datagram. Returns false for one that is invalid. */
bool rs_slot_source(const struct slot *slot, struct sockaddr_storage *source)
{
	const struct ds_header *header = (const struct ds_header *)(slot->data + GRH);
	struct sockaddr_in *sin = (struct sockaddr_in *)source;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)source;

	memset(source, 0, sizeof *source);
	if (slot->length < HEADER_4 || slot->length < header->length)
		return false;
	sin->sin_port = header->port;
	if (header->version == 4 && header->length == HEADER_4) {
		sin->sin_family = AF_INET;
		sin->sin_addr.s_addr = header->ipv4;
		return true;
	}
	sin6->sin6_family = AF_INET6;
	memcpy(&sin6->sin6_addr, header->ipv6.address, sizeof sin6->sin6_addr);
	return header->version == 6 && header->length == HEADER_6;
}

/* The queue pair of an id moves to RTS when it is created; then the endpoint has it. */
static int create_qp(struct rsocket *rs, struct rdma_cm_id *id, struct endpoint *endpoint)
{
	struct ibv_comp_channel *channel = rs_comp_channel(id->verbs);
	struct ibv_qp_init_attr attributes = {
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.cap = {endpoint->sent, endpoint->received, 1, 1, 0},
	};
	struct ibv_port_attr port;

	if (channel)
		endpoint->cq = ibv_create_cq(id->verbs, (int)(endpoint->sent + endpoint->received),
					     rs, channel, 0);
	if (!endpoint->cq || ibv_query_port(id->verbs, 1, (struct _compat_ibv_port_attr *)&port))
		return errno;
	endpoint->most = MIN(128u << port.active_mtu, SLOT);
	attributes.send_cq = attributes.recv_cq = endpoint->cq;
	if (rdma_create_qp(id, NULL, &attributes))
		return errno;
	endpoint->qp = id->qp;
	id->qp = NULL;
	return 0;
}

int rs_slot_post(struct slot *slot)
{
	struct ibv_sge part = {(uintptr_t)slot->data, GRH + SLOT, slot->endpoint->mr->lkey};
	struct ibv_recv_wr request = {.wr_id = (uintptr_t)slot, .sg_list = &part, .num_sge = 1},
			   *bad;

	return ibv_post_recv(slot->endpoint->qp, &request, &bad);
}

static int create_slots(struct endpoint *endpoint)
{
	unsigned count = endpoint->sent + endpoint->received;
	int error = 0;

	endpoint->slots = calloc(count, sizeof *endpoint->slots);
	endpoint->memory = calloc(count, GRH + SLOT);
	if (!endpoint->slots || !endpoint->memory)
		return ENOMEM;
	endpoint->mr = ibv_reg_mr(endpoint->pd, endpoint->memory, (size_t)count * (GRH + SLOT),
				  IBV_ACCESS_LOCAL_WRITE);
	if (!endpoint->mr)
		return errno;
	for (unsigned i = 0; i < count && !error; i++) {
		struct slot *slot = &endpoint->slots[i];

		*slot = (struct slot){.endpoint = endpoint, .received = i < endpoint->received};
		slot->data = endpoint->memory + (size_t)i * (GRH + SLOT);
		if (slot->received) {
			error = rs_slot_post(slot);
		} else {
			slot->next = endpoint->free;
			endpoint->free = slot;
		}
	}
	return error;
}

void rs_endpoint_free(struct endpoint *endpoint)
{
	if (endpoint->qp)
		ibv_destroy_qp(endpoint->qp);
	if (endpoint->cq)
		ibv_destroy_cq(endpoint->cq);
	if (endpoint->mr)
		ibv_dereg_mr(endpoint->mr);
	free(endpoint->memory);
	free(endpoint->slots);
	free(endpoint);
}

static unsigned slot_count(int queue, int buffer)
{
	return (unsigned)MAX(2, MIN(buffer / SLOT, queue));
}

/* The endpoint of an id with a local address, made if there is none. Returns null with errno. The
 * caller has the mutex. */
struct endpoint *rs_endpoint_of(struct rsocket *rs, struct endpoint **endpoints,
				struct rdma_cm_id *id)
{
	const struct sockaddr_storage *address = &id->route.addr.src_storage;
	struct endpoint *endpoint =
		*RS_FIND(*endpoints, one, rs_is_same(&one->address, address, false));
	int error;

	if (endpoint)
		return endpoint;
	endpoint = calloc(1, sizeof *endpoint);
	if (!endpoint)
		return NULL;
	endpoint->pd = id->pd;
	endpoint->address = *address;
	endpoint->sent = slot_count(rs->options.send_queue, rs->options.send_buffer);
	endpoint->received = slot_count(rs->options.receive_queue, rs->options.receive_buffer);
	set_header(&endpoint->header, address, rdma_get_src_port(rs->id));
	error = create_qp(rs, id, endpoint);
	if (!error)
		error = create_slots(endpoint);
	if (error) {
		rs_endpoint_free(endpoint);
		errno = error;
		return NULL;
	}
	endpoint->next = *endpoints;
	*endpoints = endpoint;
	if (rs->armed)
		ibv_req_notify_cq(endpoint->cq, 0);
	return endpoint;
}
