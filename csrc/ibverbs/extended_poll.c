/* SPDX-License-Identifier: MIT
 * Extended completion queues (ibv_create_cq_ex): polling by start_poll, next_poll and end_poll.
 *
 * The mutex of the CQ is held from a start_poll that found a completion to end_poll. */
#include <arpa/inet.h>
#include <errno.h>

#include "internal.h"

enum {
	SUPPORTED = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
		    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_FLOW_TAG,
};

static struct rw_cq *self(struct ibv_cq_ex *cq)
{
	return CONTAINER(cq, struct rw_cq, extended);
}

static int show_next(struct rw_cq *cq)
{
	if (!rw_next_completion(cq, &cq->current))
		return ENOENT;
	cq->extended.wr_id = cq->current.wr_id;
	cq->extended.status = (enum ibv_wc_status)cq->current.status;
	return 0;
}

static void end_poll(struct ibv_cq_ex *cq)
{
	if (!self(cq)->single_threaded)
		pthread_mutex_unlock(&self(cq)->mutex);
}

static int start_poll(struct ibv_cq_ex *ibv_cq, struct ibv_poll_cq_attr *attributes)
{
	struct rw_cq *cq = self(ibv_cq);
	int error;

	if (attributes->comp_mask)
		return EINVAL;
	if (atomic_load(&rw_context(ibv_cq->context)->state) == RW_FORKED)
		return EIO;
	if (!cq->single_threaded)
		pthread_mutex_lock(&cq->mutex);
	error = show_next(cq);
	if (!error) {
		atomic_store_explicit(&cq->empty_polls, 0, memory_order_relaxed);
		return 0;
	}
	end_poll(ibv_cq);
	rw_idle(cq);
	return error;
}

static int next_poll(struct ibv_cq_ex *cq)
{
	return show_next(self(cq));
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
	return (enum ibv_wc_opcode)self(cq)->current.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq)
{
	return self(cq)->current.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return self(cq)->current.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *cq)
{
	return self(cq)->current.imm_data;
}

/* Completions of raw packets have the tag in place of immediate data. */
static uint32_t read_flow_tag(struct ibv_cq_ex *cq)
{
	return ntohl(self(cq)->current.imm_data);
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq)
{
	return self(cq)->current.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq)
{
	return self(cq)->current.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq)
{
	return self(cq)->current.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *cq)
{
	return self(cq)->current.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *cq)
{
	return self(cq)->current.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return self(cq)->current.dlid_path_bits;
}

/* The device's clock is CLOCK_REALTIME in nanoseconds. */
static uint64_t read_timestamp(struct ibv_cq_ex *cq)
{
	return self(cq)->current.timestamp;
}

static void set_functions(struct ibv_cq_ex *cq)
{
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_vendor_err;
	cq->read_byte_len = read_byte_len;
	cq->read_imm_data = read_imm_data;
	cq->read_flow_tag = read_flow_tag;
	cq->read_qp_num = read_qp_num;
	cq->read_src_qp = read_src_qp;
	cq->read_wc_flags = read_wc_flags;
	cq->read_slid = read_slid;
	cq->read_sl = read_sl;
	cq->read_dlid_path_bits = read_dlid_path_bits;
	cq->read_completion_ts = read_timestamp;
	cq->read_completion_wallclock_ns = read_timestamp;
}

static int check(struct ibv_context *context, const struct ibv_cq_init_attr_ex *wanted)
{
	const uint32_t flags =
		IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

	if (wanted->comp_mask & ~(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
		return rw_refuse(EINVAL, "ibv_create_cq_ex", "mask %#x", wanted->comp_mask);
	if (!wanted->cqe || wanted->comp_vector >= (uint32_t)context->num_comp_vectors)
		return rw_refuse(EINVAL, "ibv_create_cq_ex", "%u entries, vector %u", wanted->cqe,
				 wanted->comp_vector);
	if (wanted->wc_flags & ~(uint64_t)SUPPORTED)
		return rw_refuse(EOPNOTSUPP, "ibv_create_cq_ex", "completion fields %#llx",
				 (unsigned long long)wanted->wc_flags);
	if (wanted->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && wanted->flags & ~flags)
		return rw_refuse(EOPNOTSUPP, "ibv_create_cq_ex", "flags %#x", wanted->flags);
	return 0;
}

struct ibv_cq_ex *rw_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *wanted)
{
	struct rw_cq *cq;

	if (check(context, wanted))
		return NULL;
	cq = rw_create_cq(context, wanted->cqe, wanted->cq_context, wanted->channel,
			  wanted->comp_vector);
	if (!cq)
		return NULL;
	cq->single_threaded = wanted->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
			      wanted->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	set_functions(&cq->extended);
	return &cq->extended;
}
