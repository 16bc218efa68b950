/* SPDX-License-Identifier: MIT
 * Posting by ibv_wr_start, ibv_wr_* and ibv_wr_complete.
 *
 * The records are made in a buffer of the queue pair as the functions are called, with inline data
 * copied at once, and go to the ring together. The first error is kept for ibv_wr_complete. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum {
	MAX_PAYLOAD = RW_MAX_INLINE_DATA > RW_MAX_SGE * 16 ? RW_MAX_INLINE_DATA : RW_MAX_SGE * 16,
	MAX_RECORD = sizeof(struct rw_work_request) + MAX_PAYLOAD,
};

static struct rw_qp *self(struct ibv_qp_ex *qp)
{
	return (struct rw_qp *)qp;
}

/* Make room for one more record of any size. */
static bool reserve(struct rw_builder *builder)
{
	size_t room = builder->room ? builder->room : MAX_RECORD;
	uint8_t *grown;

	while (room < builder->length + MAX_RECORD)
		room *= 2;
	if (room == builder->room)
		return true;
	grown = realloc(builder->records, room);
	if (!grown)
		return false;
	builder->records = grown;
	builder->room = room;
	return true;
}

/* Begin a record. After an error it is one that is never posted, for the functions that fill it. */
static struct rw_work_request *begin(struct ibv_qp_ex *qp, uint32_t opcode)
{
	static _Thread_local uint64_t nowhere[(MAX_RECORD + 7) / 8];
	struct rw_builder *builder = &self(qp)->builder;

	if (builder->last && !builder->error)
		builder->length += builder->last->size;
	if (!builder->error && !reserve(builder))
		builder->error = ENOMEM;
	builder->last = builder->error ? (struct rw_work_request *)nowhere
				       : (void *)(builder->records + builder->length);
	*builder->last = (struct rw_work_request){.size = rw_record_size(0),
						  .kind = RW_POST_SEND,
						  .queue = qp->qp_base.qp_num,
						  .opcode = opcode,
						  .wr_id = qp->wr_id,
						  .flags = qp->wr_flags};
	return builder->last;
}

static void fail(struct ibv_qp_ex *qp, int error)
{
	if (!self(qp)->builder.error)
		self(qp)->builder.error = error;
}

static struct rw_work_request *begin_remote(struct ibv_qp_ex *qp, uint32_t opcode, uint32_t rkey,
					    uint64_t address)
{
	struct rw_work_request *record = begin(qp, opcode);

	record->rkey = rkey;
	record->remote_address = address;
	return record;
}

static void wr_send(struct ibv_qp_ex *qp)
{
	begin(qp, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm_data)
{
	begin(qp, IBV_WR_SEND_WITH_IMM)->imm = ntohl(imm_data);
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	begin(qp, IBV_WR_SEND_WITH_INV)->imm = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	begin(qp, IBV_WR_LOCAL_INV)->imm = rkey;
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
	begin_remote(qp, IBV_WR_RDMA_WRITE, rkey, address);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address,
			      __be32 imm_data)
{
	begin_remote(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address)->imm = ntohl(imm_data);
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
	begin_remote(qp, IBV_WR_RDMA_READ, rkey, address);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address,
			      uint64_t compare, uint64_t swap)
{
	struct rw_work_request *record =
		begin_remote(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address);

	record->compare_add = compare;
	record->swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, uint64_t add)
{
	begin_remote(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address)->compare_add = add;
}

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct rw_work_request *record = begin(qp, IBV_WR_BIND_MW);

	record->mw = mw->handle;
	record->mr = info->mr ? info->mr->handle : 0;
	record->rkey = rkey;
	record->mw_access = info->mw_access_flags;
	record->bind_address = info->addr;
	record->bind_length = info->length;
}

/* Make `length` bytes of inline data the payload. Returns where they go, or null. */
static uint8_t *inline_place(struct ibv_qp_ex *qp, size_t length)
{
	struct rw_work_request *record = self(qp)->builder.last;

	if (!record || length > RW_MAX_INLINE_DATA) {
		fail(qp, EINVAL);
		return NULL;
	}
	record->flags |= IBV_SEND_INLINE;
	record->sge_count = 0;
	record->inline_length = (uint32_t)length;
	record->size = rw_record_size(record->inline_length);
	return (uint8_t *)(record + 1);
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *address, size_t length)
{
	uint8_t *place = inline_place(qp, length);

	if (place && length)
		memcpy(place, address, length);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t count,
				    const struct ibv_data_buf *buffers)
{
	size_t length = 0;
	uint8_t *place;

	for (size_t i = 0; i < count && length <= RW_MAX_INLINE_DATA; i++)
		length += buffers[i].length;
	place = inline_place(qp, length);
	for (size_t i = 0; place && i < count; place += buffers[i++].length)
		if (buffers[i].length)
			memcpy(place, buffers[i].addr, buffers[i].length);
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *sges)
{
	struct rw_work_request *record = self(qp)->builder.last;

	if (!record || count > RW_MAX_SGE) {
		fail(qp, EINVAL);
		return;
	}
	record->flags &= ~(uint32_t)IBV_SEND_INLINE;
	record->inline_length = 0;
	record->sge_count = (uint32_t)count;
	record->size = rw_record_size(record->sge_count * sizeof *sges);
	if (count)
		memcpy(record + 1, sges, count * sizeof *sges);
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address, uint32_t length)
{
	struct ibv_sge sge = {address, length, lkey};

	wr_set_sge_list(qp, 1, &sge);
}

static void wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address,
			    const void *value)
{
	begin_remote(qp, RW_WR_ATOMIC_WRITE, rkey, address);
	wr_set_inline_data(qp, (void *)value, sizeof(uint64_t));
}

/* The length and the fields of the FETH have no place of their own in a record. IBA A19.4. */
static void wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, size_t length,
		     uint8_t type, uint8_t level)
{
	struct rw_work_request *record = begin_remote(qp, RW_WR_FLUSH, rkey, address);

	record->bind_length = length;
	record->mw_access = (uint32_t)type | (uint32_t)level << 8;
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct rw_work_request *record = self(qp)->builder.last;

	if (!record) {
		fail(qp, EINVAL);
		return;
	}
	record->ah = ah->handle;
	record->remote_qpn = qpn;
	record->remote_qkey = qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t srqn)
{
	if (self(qp)->builder.last)
		self(qp)->builder.last->remote_srqn = srqn;
	else
		fail(qp, EINVAL);
}

static void wr_start(struct ibv_qp_ex *qp)
{
	struct rw_builder *builder = &self(qp)->builder;

	pthread_mutex_lock(&builder->mutex);
	builder->length = 0;
	builder->last = NULL;
	builder->error = 0;
}

static void wr_abort(struct ibv_qp_ex *qp)
{
	pthread_mutex_unlock(&self(qp)->builder.mutex);
}

/* The record after `record`, or the first one. Null at the end. */
static struct rw_work_request *next_record(struct rw_builder *builder,
					   struct rw_work_request *record)
{
	uint8_t *next = record ? (uint8_t *)record + record->size : builder->records;

	return next < builder->records + builder->length ? (void *)next : NULL;
}

/* Check all records and the room for them. Returns an errno. */
static int check(struct rw_qp *qp)
{
	struct rw_work_request *record = NULL;
	uint32_t count = 0;
	int error = qp->builder.error;

	while (!error && (record = next_record(&qp->builder, record))) {
		error = rw_check_send(qp, record);
		count++;
	}
	if (!error && count > rw_outstanding_room(&qp->sends))
		error = rw_refuse(ENOMEM, "ibv_wr_complete", "the send queue is full: poll its CQ");
	return error;
}

/* Move the records to the ring. Returns an errno. */
static int post(struct rw_context *context, struct rw_qp *qp)
{
	struct rw_work_request *record = NULL, *place;

	while ((record = next_record(&qp->builder, record))) {
		place = rw_claim(context, record->size);
		if (!place)
			return EIO;
		memcpy(place, record, record->size);
		rw_outstanding_add(&qp->sends, record->wr_id,
				   qp->signal_all || record->flags & IBV_SEND_SIGNALED);
		rw_commit(context, record->size);
	}
	return 0;
}

static int wr_complete(struct ibv_qp_ex *ibv_qp)
{
	struct rw_context *context = rw_context(ibv_qp->qp_base.context);
	struct rw_qp *qp = self(ibv_qp);
	int error;

	if (qp->builder.last && !qp->builder.error)
		qp->builder.length += qp->builder.last->size;
	pthread_mutex_lock(&context->ring.mutex);
	error = check(qp);
	if (!error)
		error = post(context, qp);
	pthread_mutex_unlock(&context->ring.mutex);
	pthread_mutex_unlock(&qp->builder.mutex);
	rw_ring_doorbell(context);
	return error;
}

/* The bits of ibv_qp_create_send_ops_flags that a type of queue pair has. */
uint64_t rw_supported_send_ops(enum ibv_qp_type type)
{
	const uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	const uint64_t writes = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	const uint64_t local = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;

	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return sends | writes | local | IBV_QP_EX_WITH_RDMA_READ |
		       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
		       IBV_QP_EX_WITH_SEND_WITH_INV | RW_QP_EX_WITH_FLUSH |
		       RW_QP_EX_WITH_ATOMIC_WRITE;
	case IBV_QPT_UC:
		return sends | writes | local | IBV_QP_EX_WITH_SEND_WITH_INV;
	case IBV_QPT_UD:
		return sends;
	case IBV_QPT_RAW_PACKET:
		return IBV_QP_EX_WITH_SEND;
	default:
		return 0;
	}
}

/* Set the function that is `index` places behind wr_abort: an older header ends there. */
static void set_late(struct rw_qp *qp, unsigned index, void *function)
{
	size_t offset = offsetof(struct ibv_qp_ex, wr_abort) + index * sizeof function;

	memcpy((char *)qp + offset, &function, sizeof function);
}

void rw_set_builders(struct rw_qp *qp)
{
	struct ibv_qp_ex *extended = &qp->qp;

	extended->wr_start = wr_start;
	extended->wr_complete = wr_complete;
	extended->wr_abort = wr_abort;
	extended->wr_send = wr_send;
	extended->wr_send_imm = wr_send_imm;
	extended->wr_send_inv = wr_send_inv;
	extended->wr_local_inv = wr_local_inv;
	extended->wr_bind_mw = wr_bind_mw;
	extended->wr_rdma_write = wr_rdma_write;
	extended->wr_rdma_write_imm = wr_rdma_write_imm;
	extended->wr_rdma_read = wr_rdma_read;
	extended->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	extended->wr_atomic_fetch_add = wr_atomic_fetch_add;
	set_late(qp, 1, (void *)wr_atomic_write);
	set_late(qp, 2, (void *)wr_flush);
	extended->wr_set_sge = wr_set_sge;
	extended->wr_set_sge_list = wr_set_sge_list;
	extended->wr_set_inline_data = wr_set_inline_data;
	extended->wr_set_inline_data_list = wr_set_inline_data_list;
	extended->wr_set_ud_addr = wr_set_ud_addr;
	extended->wr_set_xrc_srqn = wr_set_xrc_srqn;
}
