/* SPDX-License-Identifier: MIT
 * Lanes: each is a pair of queue pairs with memory of its own, and posted receives. */
#pragma once

#include "check.h"
#include "data.h"

enum {
	SLOTS = 4,    /* messages of a lane that are in flight */
	RECEIVES = 6, /* posted receives: more than messages in flight */
	LARGEST = 1 << 16,
	LARGEST_DATAGRAM = 1024,
	GRH = 40,
	PLACE = LARGEST + 4 * GUARD, /* bytes for one message */
	REGION = (SLOTS + RECEIVES) * PLACE,
};

#define RECEIVE (UINT64_C(1) << 63) /* in the wr_id of a receive, above its index */

/* One side of the program: a device with what lanes share. */
struct side {
	struct end end;
	struct ibv_comp_channel *channel;
};

struct message {
	struct data data; /* its number is 0 if there is no message */
	enum ibv_wr_opcode opcode;
	char *from, *to;
	uint64_t compare_add, swap, before;
	bool sent, arrived, is_lost;
};

struct lane {
	enum ibv_qp_type type;
	struct side *from, *to;
	struct ibv_qp *sender, *receiver;
	char *source, *sink; /* memory of both sides */
	struct ibv_mr *source_mr, *sink_mr;
	struct ibv_ah *ah;
	struct message messages[SLOTS];
	uint64_t posted, life; /* number of the last message so far; that of the lane's last one */
	uint64_t arrived;      /* number of the last message that used a receive */
	bool is_fenced; /* the fence is acknowledged */
	uint64_t fence; /* number of the last message before a fence that is in flight, else 0 */
};

/* The place of a message in the memory of a lane, at any alignment. */
static inline char *place_of(char *memory, size_t index, bool is_word)
{
	char *start = memory + index * PLACE;

	memset(start, UNTOUCHED, PLACE);
	return start + GUARD + (is_word ? 0 : random_below(GUARD));
}

/* Lanes. */

static inline void post_receive_at(struct lane *lane, uint64_t index)
{
	char *start = lane->sink + (SLOTS + index) * PLACE;
	uint32_t size = LARGEST + (lane->type == IBV_QPT_UD ? GRH : 0), first = 0;
	struct ibv_sge sges[2];
	struct ibv_recv_wr *bad, wr = {.wr_id = RECEIVE | index, .sg_list = sges};

	memset(start, UNTOUCHED, PLACE);
	if (random_below(2)) {
		first = (uint32_t)random_below(LARGEST);
		sges[wr.num_sge++] = (struct ibv_sge){(uintptr_t)start + GUARD, first,
						      lane->sink_mr->lkey};
	}
	sges[wr.num_sge++] = (struct ibv_sge){(uintptr_t)start + GUARD + first, size - first,
					      lane->sink_mr->lkey};
	CHECK(!ibv_post_recv(lane->receiver, &wr, &bad));
}

static inline struct ibv_qp *make_qp(struct side *side, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {.send_cq = side->end.cq,
					.recv_cq = side->end.cq,
					.cap = {SLOTS + 2, RECEIVES, 3, 2, INLINE},
					.qp_type = type};
	struct ibv_qp *qp = ibv_create_qp(side->end.pd, &init);

	CHECK(qp);
	to_init(qp);
	return qp;
}

/* Bring a queue pair without acknowledgements to RTS: those of UD have no peer. */
static inline void to_rts_unreliably(struct ibv_qp *qp, struct end *peer, uint32_t remote_qpn)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = remote_qpn,
				   .ah_attr = {.is_global = 1, .port_num = 1}};
	int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	CHECK(!ibv_query_gid(peer->context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | (qp->qp_type == IBV_QPT_UC ? path : 0)));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static inline void connect_lane(struct lane *lane)
{
	struct end *from = &lane->from->end, *to = &lane->to->end;
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};

	if (lane->type == IBV_QPT_RC) {
		to_rts(lane->sender, to, lane->receiver->qp_num);
		to_rts(lane->receiver, from, lane->sender->qp_num);
		return;
	}
	to_rts_unreliably(lane->sender, to, lane->receiver->qp_num);
	to_rts_unreliably(lane->receiver, from, lane->sender->qp_num);
	CHECK(!ibv_query_gid(to->context, 1, 0, &attr.grh.dgid));
	lane->ah = ibv_create_ah(from->pd, &attr);
	CHECK(lane->ah);
}

static inline enum ibv_qp_type any_type(void)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC,
						 IBV_QPT_UD};

	return types[random_below(LENGTH(types))];
}

/* Open a lane for `life` messages. */
static inline void open_lane(struct lane *lane, enum ibv_qp_type type, struct side *from,
			     struct side *to, uint64_t life)
{
	*lane = (struct lane){.type = type,
			      .from = from,
			      .to = to,
			      .life = life};
	lane->source = malloc(REGION);
	lane->sink = malloc(REGION);
	lane->source_mr = ibv_reg_mr(lane->from->end.pd, lane->source, REGION, ALL_ACCESS);
	lane->sink_mr = ibv_reg_mr(lane->to->end.pd, lane->sink, REGION, ALL_ACCESS);
	CHECK(lane->source_mr && lane->sink_mr);
	lane->sender = make_qp(lane->from, lane->type);
	lane->receiver = make_qp(lane->to, lane->type);
	connect_lane(lane);
	for (uint64_t i = 0; i < RECEIVES; i++)
		post_receive_at(lane, i);
}

static inline void close_lane(struct lane *lane)
{
	CHECK(!lane->sender || !ibv_destroy_qp(lane->sender));
	CHECK(!lane->receiver || !ibv_destroy_qp(lane->receiver));
	CHECK(!lane->ah || !ibv_destroy_ah(lane->ah));
	CHECK(!ibv_dereg_mr(lane->source_mr) && !ibv_dereg_mr(lane->sink_mr));
	free(lane->source);
	free(lane->sink);
	*lane = (struct lane){0};
}
