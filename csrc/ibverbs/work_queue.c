/* SPDX-License-Identifier: MIT
 * Receive side scaling: work queues, indirection tables, and the queue pairs that use them.
 *
 * A work queue is a raw packet queue pair that only receives; its number is that of the queue pair.
 * The service has no tables: it gets the work queues of one with each queue pair of RSS. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct rw_rwq_table {
	struct ibv_rwq_ind_table table;
	atomic_int qps;
	uint32_t count;
	struct rw_wq *wqs[RW_MAX_RSS_TABLE];
};

static struct rw_wq *self(struct ibv_wq *wq)
{
	return (struct rw_wq *)wq;
}

static int post_recv(struct ibv_wq *wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return rw_post_recv(&self(wq)->queue->qp.qp_base, wr, bad);
}

static int check_create(const struct ibv_wq_init_attr *wanted)
{
	if (wanted->wq_type != IBV_WQT_RQ || !wanted->max_wr ||
	    wanted->comp_mask & ~(uint32_t)IBV_WQ_INIT_ATTR_FLAGS)
		return rw_refuse(EINVAL, "ibv_create_wq", "type %d, max_wr %u, mask %#x",
				 wanted->wq_type, wanted->max_wr, wanted->comp_mask);
	if (wanted->comp_mask & IBV_WQ_INIT_ATTR_FLAGS && wanted->create_flags)
		return rw_refuse(EOPNOTSUPP, "ibv_create_wq", "flags %#x", wanted->create_flags);
	return 0;
}

struct ibv_wq *rw_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *wanted)
{
	struct ibv_qp_init_attr attributes = {
		.send_cq = wanted->cq,
		.recv_cq = wanted->cq,
		.cap = {.max_recv_wr = wanted->max_wr, .max_recv_sge = wanted->max_sge},
		.qp_type = IBV_QPT_RAW_PACKET,
	};
	struct rw_wq *wq = check_create(wanted) ? NULL : calloc(1, sizeof *wq);
	struct ibv_qp *queue = wq ? ibv_create_qp(wanted->pd, &attributes) : NULL;

	if (!queue) {
		free(wq);
		return NULL;
	}
	wq->queue = rw_qp(queue);
	wq->queue->wq = wq;
	wq->wq = (struct ibv_wq){.context = context,
				 .pd = wanted->pd,
				 .cq = wanted->cq,
				 .wq_num = queue->qp_num,
				 .handle = queue->handle,
				 .post_recv = post_recv};
	return &wq->wq;
}

/* Bring the queue pair of a work queue to the state that a state of the work queue means. */
static int set_state(struct rw_wq *wq, enum ibv_wq_state state)
{
	struct ibv_qp *queue = &wq->queue->qp.qp_base;
	struct ibv_qp_attr attributes = {.port_num = 1};
	int error = 0;

	if (state == IBV_WQS_RDY) {
		attributes.qp_state = IBV_QPS_INIT;
		error = ibv_modify_qp(queue, &attributes, IBV_QP_STATE | IBV_QP_PORT);
	}
	attributes.qp_state = state == IBV_WQS_RDY   ? IBV_QPS_RTR
			      : state == IBV_WQS_ERR ? IBV_QPS_ERR
						     : IBV_QPS_RESET;
	return error ? error : ibv_modify_qp(queue, &attributes, IBV_QP_STATE);
}

int rw_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *wanted)
{
	uint32_t mask = wanted->attr_mask;
	int error;

	if (mask & IBV_WQ_ATTR_FLAGS)
		return rw_refuse(EOPNOTSUPP, "ibv_modify_wq", "flags %#x", wanted->flags);
	if (mask & ~(uint32_t)(IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE) ||
	    (mask & IBV_WQ_ATTR_CURR_STATE && wanted->curr_wq_state != wq->state) ||
	    (mask & IBV_WQ_ATTR_STATE && wanted->wq_state > IBV_WQS_ERR))
		return rw_refuse(EINVAL, "ibv_modify_wq", "mask %#x, from state %d to %d", mask,
				 wanted->curr_wq_state, wanted->wq_state);
	if (!(mask & IBV_WQ_ATTR_STATE) || wanted->wq_state == wq->state)
		return 0;
	error = set_state(self(wq), wanted->wq_state);
	if (!error)
		wq->state = wanted->wq_state;
	return error;
}

int rw_destroy_wq(struct ibv_wq *wq)
{
	int error;

	if (atomic_load(&self(wq)->tables))
		return rw_refuse(EBUSY, "ibv_destroy_wq", "an indirection table has it");
	error = ibv_destroy_qp(&self(wq)->queue->qp.qp_base);
	if (!error)
		free(wq);
	return error;
}

struct ibv_rwq_ind_table *rw_create_rwq_ind_table(struct ibv_context *context,
						  struct ibv_rwq_ind_table_init_attr *wanted)
{
	struct rw_rwq_table *table;

	if (wanted->comp_mask || wanted->log_ind_tbl_size > 31 ||
	    1u << wanted->log_ind_tbl_size > RW_MAX_RSS_TABLE) {
		rw_refuse(EINVAL, "ibv_create_rwq_ind_table", "mask %#x, 2**%u entries, at most %u",
			  wanted->comp_mask, wanted->log_ind_tbl_size, RW_MAX_RSS_TABLE);
		return NULL;
	}
	table = calloc(1, sizeof *table);
	if (!table)
		return NULL;
	table->table.context = context;
	table->count = 1u << wanted->log_ind_tbl_size;
	for (uint32_t i = 0; i < table->count; i++) {
		table->wqs[i] = self(wanted->ind_tbl[i]);
		atomic_fetch_add(&table->wqs[i]->tables, 1);
	}
	return &table->table;
}

int rw_destroy_rwq_ind_table(struct ibv_rwq_ind_table *ibv_table)
{
	struct rw_rwq_table *table = (struct rw_rwq_table *)ibv_table;

	if (atomic_load(&table->qps))
		return rw_refuse(EBUSY, "ibv_destroy_rwq_ind_table", "a queue pair uses it");
	for (uint32_t i = 0; i < table->count; i++)
		atomic_fetch_sub(&table->wqs[i]->tables, 1);
	free(table);
	return 0;
}

static int check_rss(const struct ibv_qp_init_attr_ex *wanted)
{
	const uint32_t needed =
		IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE;
	const struct ibv_rx_hash_conf *hash = &wanted->rx_hash_conf;

	if ((wanted->comp_mask & needed) != needed || wanted->qp_type != IBV_QPT_RAW_PACKET ||
	    wanted->send_cq || wanted->recv_cq || wanted->srq || wanted->cap.max_send_wr ||
	    wanted->cap.max_recv_wr || hash->rx_hash_key_len != RW_RSS_KEY_BYTES)
		return rw_refuse(EINVAL, "ibv_create_qp_ex",
				 "RSS needs raw packets, a PD, a table, a key of %u bytes, and no"
				 " other queues",
				 RW_RSS_KEY_BYTES);
	return 0;
}

/* Ask the service for a queue pair of RSS. Returns an errno. */
int rw_create_rss_qp(struct rw_qp *qp, const struct ibv_qp_init_attr_ex *wanted,
		     struct rw_create_qp_reply *made)
{
	const struct ibv_rx_hash_conf *hash = &wanted->rx_hash_conf;
	struct rw_rwq_table *table = (struct rw_rwq_table *)wanted->rwq_ind_tbl;
	struct rw_create_rss_qp_request request = {.call = RW_CREATE_RSS_QP};
	struct rw_create_rss_qp_reply reply;
	int error = check_rss(wanted);

	if (error)
		return error;
	request.pd = wanted->pd->handle;
	request.function = hash->rx_hash_function;
	request.fields = hash->rx_hash_fields_mask;
	memcpy((uint8_t *)&request + offsetof(__typeof__(request), key0), hash->rx_hash_key,
	       RW_RSS_KEY_BYTES);
	for (request.wq_count = 0; request.wq_count < table->count; request.wq_count++)
		memcpy((uint8_t *)&request + offsetof(__typeof__(request), wqs0) +
			       request.wq_count * sizeof(uint32_t),
		       &table->wqs[request.wq_count]->wq.handle, sizeof(uint32_t));
	error = rw_control(rw_context(qp->qp.qp_base.context), "create_rss_qp", &request,
			   sizeof request, &reply, sizeof reply, NULL, 0, NULL);
	if (error)
		return error;
	atomic_fetch_add(&table->qps, 1);
	qp->users = &table->qps;
	*made = (struct rw_create_qp_reply){.qp = reply.qp, .qp_num = reply.qp_num};
	return 0;
}
