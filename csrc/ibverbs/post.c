/* SPDX-License-Identifier: MIT
 * Posting work requests: each is checked as providers check it, and becomes a record in the ring.
 *
 * What only the service can find (keys, addresses, the state of the connection) becomes a
 * completion with an error. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "internal.h"

#define BIT(opcode) (1u << (opcode))

enum {
	SENDS = BIT(IBV_WR_SEND) | BIT(IBV_WR_SEND_WITH_IMM),
	WRITES = BIT(IBV_WR_RDMA_WRITE) | BIT(IBV_WR_RDMA_WRITE_WITH_IMM),
	ATOMICS = BIT(IBV_WR_ATOMIC_CMP_AND_SWP) | BIT(IBV_WR_ATOMIC_FETCH_AND_ADD),
	LOCAL = BIT(IBV_WR_LOCAL_INV) | BIT(IBV_WR_BIND_MW),
	PLACEMENT = BIT(RW_WR_FLUSH) | BIT(RW_WR_ATOMIC_WRITE),
	RELIABLE = SENDS | WRITES | ATOMICS | LOCAL | PLACEMENT | BIT(IBV_WR_RDMA_READ) |
		   BIT(IBV_WR_SEND_WITH_INV),
	INLINE = SENDS | WRITES | BIT(IBV_WR_SEND_WITH_INV) | BIT(RW_WR_ATOMIC_WRITE),
	INVALIDATES = BIT(IBV_WR_LOCAL_INV) | BIT(IBV_WR_SEND_WITH_INV),
	FLAGS = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE,
};

/* The operations of a type of queue pair, as bits. */
static uint32_t operations(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return RELIABLE;
	case IBV_QPT_UC:
		return SENDS | WRITES | LOCAL | BIT(IBV_WR_SEND_WITH_INV);
	case IBV_QPT_UD:
		return SENDS;
	case IBV_QPT_RAW_PACKET:
		return BIT(IBV_WR_SEND);
	default:
		return 0;
	}
}

uint32_t rw_record_size(uint32_t payload)
{
	return (uint32_t)(sizeof(struct rw_work_request) + payload + 7) & ~7u;
}

static int check_length(struct rw_qp *qp, const struct rw_work_request *record)
{
	const char *name = rw_ibv_wr_opcode_str((enum ibv_wr_opcode)record->opcode);

	if (record->sge_count > qp->cap.max_send_sge)
		return rw_refuse(EINVAL, name, "%u SGEs, max_send_sge is %u", record->sge_count,
				 qp->cap.max_send_sge);
	if (!(record->flags & IBV_SEND_INLINE) || record->opcode == RW_WR_ATOMIC_WRITE)
		return 0;
	if (record->inline_length > qp->cap.max_inline_data)
		return rw_refuse(EINVAL, name, "%u bytes of inline data, max_inline_data is %u",
				 record->inline_length, qp->cap.max_inline_data);
	return 0;
}

/* Check a send work request. Returns an errno. */
int rw_check_send(struct rw_qp *qp, const struct rw_work_request *record)
{
	enum ibv_qp_type type = qp->qp.qp_base.qp_type;
	enum ibv_qp_state state = qp->qp.qp_base.state;
	uint32_t bit = record->opcode < 32 ? BIT(record->opcode) : 0;

	if (state < IBV_QPS_RTS)
		return rw_refuse(EINVAL, "ibv_post_send", "QP %#x is in state %d, below RTS",
				 qp->qp.qp_base.qp_num, state);
	if (!(bit & operations(type)))
		return rw_refuse(EINVAL, "ibv_post_send", "%s is not for queue pairs of type %d",
				 rw_ibv_wr_opcode_str((enum ibv_wr_opcode)record->opcode), type);
	if (record->flags & ~FLAGS || (record->flags & IBV_SEND_INLINE && !(bit & INLINE)))
		return rw_refuse(EINVAL, "ibv_post_send", "flags %#x", record->flags);
	if (type == IBV_QPT_UD && !record->ah)
		return rw_refuse(EINVAL, "ibv_post_send", "no address handle");
	return check_length(qp, record);
}

static uint32_t inline_length(const struct ibv_send_wr *wr)
{
	uint64_t length = 0;

	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	return length > UINT32_MAX ? UINT32_MAX : (uint32_t)length;
}

static void fill_target(struct rw_work_request *record, const struct ibv_send_wr *wr)
{
	bool atomic = record->opcode < 32 && BIT(record->opcode) & ATOMICS;

	record->remote_address = atomic ? wr->wr.atomic.remote_addr : wr->wr.rdma.remote_addr;
	record->rkey = atomic ? wr->wr.atomic.rkey : wr->wr.rdma.rkey;
	if (!atomic)
		return;
	record->compare_add = wr->wr.atomic.compare_add;
	record->swap = wr->wr.atomic.swap;
}

static void fill_datagram(struct rw_work_request *record, const struct ibv_send_wr *wr)
{
	record->ah = wr->wr.ud.ah ? wr->wr.ud.ah->handle : 0;
	record->remote_qpn = wr->wr.ud.remote_qpn;
	record->remote_qkey = wr->wr.ud.remote_qkey;
}

static void fill_bind(struct rw_work_request *record, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;

	record->mw = wr->bind_mw.mw ? wr->bind_mw.mw->handle : 0;
	record->mr = info->mr ? info->mr->handle : 0;
	record->rkey = wr->bind_mw.rkey;
	record->mw_access = info->mw_access_flags;
	record->bind_address = info->addr;
	record->bind_length = info->length;
}

/* Make the record of a work request, without its payload. */
static struct rw_work_request make_record(struct rw_qp *qp, const struct ibv_send_wr *wr)
{
	bool is_inline = wr->send_flags & IBV_SEND_INLINE;
	enum ibv_qp_type type = qp->qp.qp_base.qp_type;
	struct rw_work_request record = {.kind = RW_POST_SEND,
					 .queue = qp->qp.qp_base.qp_num,
					 .opcode = wr->opcode,
					 .wr_id = wr->wr_id,
					 .flags = wr->send_flags,
					 .sge_count = is_inline ? 0 : (uint32_t)wr->num_sge,
					 .inline_length = is_inline ? inline_length(wr) : 0};
	bool invalidates = record.opcode < 32 && BIT(record.opcode) & INVALIDATES;

	record.imm = invalidates ? wr->invalidate_rkey : ntohl(wr->imm_data);
	if (wr->opcode == IBV_WR_BIND_MW)
		fill_bind(&record, wr);
	else if (type == IBV_QPT_UD)
		fill_datagram(&record, wr);
	else if (type != IBV_QPT_RAW_PACKET)
		fill_target(&record, wr);
	if (type == IBV_QPT_XRC_SEND)
		record.remote_srqn = wr->qp_type.xrc.remote_srqn;
	return record;
}

static void copy_inline(uint8_t *to, const struct ibv_sge *sges, int count)
{
	for (int i = 0; i < count; to += sges[i++].length)
		if (sges[i].length)
			memcpy(to, (const void *)(uintptr_t)sges[i].addr, sges[i].length);
}

/* Copy SGEs to a record: ibv_sge has the fields of a record's. */
static void copy_sges(struct rw_work_request *record, const struct ibv_sge *sges)
{
	_Static_assert(sizeof(struct ibv_sge) == sizeof(struct rw_sge), "an SGE is 16 bytes");
	if (record->sge_count)
		memcpy(record + 1, sges, record->sge_count * sizeof *sges);
}

static int post_one_send(struct rw_context *context, struct rw_qp *qp, struct ibv_send_wr *wr)
{
	struct rw_work_request record = make_record(qp, wr), *place;
	int error = wr->num_sge < 0 ? EINVAL : rw_check_send(qp, &record);

	if (error)
		return error;
	if (!rw_outstanding_room(&qp->sends))
		return rw_refuse(ENOMEM, "ibv_post_send",
				 "QP %#x: the send queue is full: poll its CQ", record.queue);
	record.size = rw_record_size(record.sge_count * sizeof(struct rw_sge) +
				     record.inline_length);
	place = rw_claim(context, record.size);
	if (!place)
		return EIO;
	*place = record;
	if (record.flags & IBV_SEND_INLINE)
		copy_inline((uint8_t *)(place + 1), wr->sg_list, wr->num_sge);
	else
		copy_sges(place, wr->sg_list);
	rw_outstanding_add(&qp->sends, wr->wr_id,
			   qp->signal_all || wr->send_flags & IBV_SEND_SIGNALED);
	rw_commit(context, record.size);
	return 0;
}

int rw_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct rw_context *context = rw_context(qp->context);
	int error = 0;

	pthread_mutex_lock(&context->ring.mutex);
	for (; wr && !error; wr = error ? wr : wr->next)
		error = post_one_send(context, rw_qp(qp), wr);
	pthread_mutex_unlock(&context->ring.mutex);
	if (error)
		*bad = wr;
	rw_ring_doorbell(context);
	return error;
}

/* Write the record of a receive. Returns an errno. */
static int write_receive(struct rw_context *context, struct rw_work_request record,
			 const struct ibv_recv_wr *wr)
{
	struct rw_work_request *place;

	record.wr_id = wr->wr_id;
	record.sge_count = (uint32_t)wr->num_sge;
	record.size = rw_record_size(record.sge_count * sizeof(struct rw_sge));
	place = rw_claim(context, record.size);
	if (!place)
		return EIO;
	*place = record;
	copy_sges(place, wr->sg_list);
	return 0;
}

static int check_receive(const struct ibv_recv_wr *wr, uint32_t max_sge, uint32_t room)
{
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max_sge)
		return rw_refuse(EINVAL, "ibv_post_recv", "%d SGEs, at most %u", wr->num_sge,
				 max_sge);
	if (!room)
		return rw_refuse(ENOMEM, "ibv_post_recv", "the queue is full: poll its CQ");
	return 0;
}

static int post_one_receive(struct rw_context *context, struct rw_qp *qp, struct ibv_recv_wr *wr)
{
	struct rw_work_request record = {.kind = RW_POST_RECV, .queue = qp->qp.qp_base.qp_num};
	int error = check_receive(wr, qp->cap.max_recv_sge, rw_outstanding_room(&qp->receives));

	if (!error)
		error = write_receive(context, record, wr);
	if (error)
		return error;
	rw_outstanding_add(&qp->receives, wr->wr_id, true);
	rw_commit(context, rw_record_size((uint32_t)wr->num_sge * sizeof(struct rw_sge)));
	return 0;
}

int rw_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct rw_context *context = rw_context(qp->context);
	int error = 0;

	if (wr && (qp->state == IBV_QPS_RESET || qp->srq || !rw_qp(qp)->receives.limit)) {
		*bad = wr;
		return rw_refuse(EINVAL, "ibv_post_recv", "QP %#x is in RESET or has no receives",
				 qp->qp_num);
	}
	pthread_mutex_lock(&context->ring.mutex);
	for (; wr && !error; wr = error ? wr : wr->next)
		error = post_one_receive(context, rw_qp(qp), wr);
	pthread_mutex_unlock(&context->ring.mutex);
	if (error)
		*bad = wr;
	rw_ring_doorbell(context);
	return error;
}

static int post_one_shared(struct rw_context *context, struct rw_srq *srq, struct ibv_recv_wr *wr)
{
	struct rw_work_request record = {.kind = RW_POST_SRQ_RECV, .queue = srq->srq.handle};
	uint32_t held = atomic_load(&srq->outstanding);
	int error = check_receive(wr, srq->max_sge, held < srq->max_wr);

	if (!error)
		error = write_receive(context, record, wr);
	if (error)
		return error;
	atomic_fetch_add(&srq->outstanding, 1);
	rw_commit(context, rw_record_size((uint32_t)wr->num_sge * sizeof(struct rw_sge)));
	return 0;
}

int rw_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct rw_context *context = rw_context(srq->context);
	int error = 0;

	pthread_mutex_lock(&context->ring.mutex);
	for (; wr && !error; wr = error ? wr : wr->next)
		error = post_one_shared(context, rw_srq(srq), wr);
	pthread_mutex_unlock(&context->ring.mutex);
	if (error)
		*bad = wr;
	rw_ring_doorbell(context);
	return error;
}
