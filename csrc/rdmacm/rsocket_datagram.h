/* SPDX-License-Identifier: MIT
 * The queue pairs of datagram rsockets, and datagrams in their memory. */
#pragma once

#include "rsocket.h"

enum {
	GRH = sizeof(struct ibv_grh),
	SLOT = RS_LOW_WATER, /* bytes of a datagram with its header */
};

struct ds_header {
	uint8_t version, length;
	__be16 port;
	union {
		__be32 ipv4;
		struct {
			__be32 flow;
			uint8_t address[16];
		} ipv6;
	};
};

struct slot {
	struct slot *next;
	struct endpoint *endpoint;
	uint32_t length; /* received, without the GRH */
	bool received;
	uint8_t *data;
};

struct endpoint {
	struct endpoint *next;
	struct sockaddr_storage address;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct ds_header header;
	uint32_t most;		 /* bytes of a datagram with its header */
	unsigned received, sent; /* numbers of slots */
	struct slot *slots, *free;
};

/* rsocket_endpoint.c */
bool rs_is_same(const void *one, const void *other, bool with_port);
bool rs_slot_source(const struct slot *slot, struct sockaddr_storage *source);
int rs_slot_post(struct slot *slot);
struct endpoint *rs_endpoint_of(struct rsocket *rs, struct endpoint **endpoints,
				struct rdma_cm_id *id);
void rs_endpoint_free(struct endpoint *endpoint);
