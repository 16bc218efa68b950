/* SPDX-License-Identifier: MIT
 * Work requests without a completion: they fill a queue, and are flushed when the service ends.
 *
 * A successful completion of a send retires everything up to the oldest signaled entry. The first
 * failed one retires everything up to the entry with its wr_id; after it each work request has a
 * completion of its own. Each receive always has one. */
#include <errno.h>
#include <stdlib.h>

#include "internal.h"

int rw_outstanding_init(struct rw_outstanding *queue, uint32_t limit)
{
	uint32_t size = 1;

	while (size < limit)
		size *= 2;
	queue->limit = limit;
	queue->mask = size - 1;
	queue->entries = calloc(size, sizeof *queue->entries);
	return queue->entries ? 0 : ENOMEM;
}

void rw_outstanding_free(struct rw_outstanding *queue)
{
	free(queue->entries);
}

/* Remove all entries: the queue pair is reset or destroyed. */
void rw_outstanding_clear(struct rw_outstanding *queue)
{
	atomic_store(&queue->retired, atomic_load(&queue->posted));
}

static uint32_t held(struct rw_outstanding *queue)
{
	return atomic_load_explicit(&queue->posted, memory_order_acquire) -
	       atomic_load_explicit(&queue->retired, memory_order_acquire);
}

uint32_t rw_outstanding_room(struct rw_outstanding *queue)
{
	return queue->limit - held(queue);
}

void rw_outstanding_add(struct rw_outstanding *queue, uint64_t wr_id, bool signaled)
{
	uint32_t posted = atomic_load_explicit(&queue->posted, memory_order_relaxed);

	queue->entries[posted & queue->mask] = (struct rw_entry){wr_id, signaled};
	atomic_store_explicit(&queue->posted, posted + 1, memory_order_release);
}

static struct rw_entry *entry(struct rw_outstanding *queue, uint32_t index)
{
	return &queue->entries[(atomic_load(&queue->retired) + index) & queue->mask];
}

static void retire(struct rw_outstanding *queue, uint32_t count)
{
	atomic_fetch_add_explicit(&queue->retired, count, memory_order_release);
}

/* Retire the oldest entry. Returns false if there is none. */
bool rw_outstanding_take(struct rw_outstanding *queue, uint64_t *wr_id)
{
	if (!held(queue))
		return false;
	*wr_id = entry(queue, 0)->wr_id;
	retire(queue, 1);
	return true;
}

/* The number of entries that a completion of a send retires. */
static uint32_t completed_sends(struct rw_qp *qp, const struct rw_completion *done)
{
	uint32_t count = held(&qp->sends);

	if (done->status != IBV_WC_SUCCESS && qp->failed)
		return count ? 1 : 0;
	for (uint32_t i = 0; i < count; i++) {
		struct rw_entry *sent = entry(&qp->sends, i);

		if (done->status == IBV_WC_SUCCESS ? sent->signaled : sent->wr_id == done->wr_id)
			return i + 1;
	}
	return count ? 1 : 0;
}

static void retire_sends(struct rw_qp *qp, const struct rw_completion *done)
{
	retire(&qp->sends, completed_sends(qp, done));
	if (done->status != IBV_WC_SUCCESS)
		qp->failed = true;
}

static struct rw_srq *srq_of(struct rw_node *node)
{
	return CONTAINER(node, struct rw_srq, node);
}

/* An XRC SRQ that completes to `cq` and has receives, or null. */
static struct rw_srq *find_xrc_srq(struct rw_context *context, struct rw_cq *cq)
{
	for (unsigned i = 0; i < RW_BUCKETS; i++)
		for (struct rw_node *node = context->srqs.buckets[i]; node; node = node->next)
			if (srq_of(node)->cq == &cq->cq && atomic_load(&srq_of(node)->outstanding))
				return srq_of(node);
	return NULL;
}

/* Retire a receive of an SRQ, by its handle; 0 for an XRC SRQ that the service does not know. */
static void retire_shared(struct rw_context *context, uint32_t handle, struct rw_cq *cq)
{
	struct rw_node *node = handle ? rw_find(&context->srqs, handle) : NULL;
	struct rw_srq *srq = node ? srq_of(node) : handle ? NULL : find_xrc_srq(context, cq);

	if (srq && atomic_load(&srq->outstanding))
		atomic_fetch_sub(&srq->outstanding, 1);
}

/* Whether receives of a queue pair come from XRC SRQs; true for one that the context lacks. */
static bool is_xrc_target(struct rw_qp *qp)
{
	return !qp || qp->qp.qp_base.qp_type == IBV_QPT_XRC_RECV;
}

/* Retire what a completion completes. The mutex of the CQ and the lock of the objects are held. */
void rw_retire(struct rw_context *context, struct rw_cq *cq, const struct rw_completion *done)
{
	bool received = done->opcode & IBV_WC_RECV;
	uint64_t wr_id;
	struct rw_node *node;
	struct rw_qp *qp;

	node = rw_find(&context->qps, done->qp_num);
	qp = node ? CONTAINER(node, struct rw_qp, node) : NULL;
	if (received && (done->srq || is_xrc_target(qp))) {
		retire_shared(context, done->srq, cq);
		return;
	}
	if (!qp || (received ? qp->qp.qp_base.recv_cq : qp->qp.qp_base.send_cq) != &cq->cq)
		return;
	if (received)
		rw_outstanding_take(&qp->receives, &wr_id);
	else
		retire_sends(qp, done);
}

/* Flush the oldest work request of a queue pair that completes to `cq`. */
static bool flush_queue_pair(struct rw_qp *qp, struct rw_cq *cq, struct rw_completion *done)
{
	*done = (struct rw_completion){.status = IBV_WC_WR_FLUSH_ERR, .qp_num = qp->node.key};
	if (qp->qp.qp_base.send_cq == &cq->cq && rw_outstanding_take(&qp->sends, &done->wr_id))
		return true;
	done->opcode = IBV_WC_RECV;
	return qp->qp.qp_base.recv_cq == &cq->cq &&
	       rw_outstanding_take(&qp->receives, &done->wr_id);
}

/* Make the completion of a work request that the service, now gone, did not complete. Returns false
 * when there is none. The mutex of the CQ and the lock of the objects are held. */
bool rw_flush_one(struct rw_context *context, struct rw_cq *cq, struct rw_completion *done)
{
	for (unsigned i = 0; i < RW_BUCKETS; i++)
		for (struct rw_node *node = context->qps.buckets[i]; node; node = node->next)
			if (flush_queue_pair(CONTAINER(node, struct rw_qp, node), cq, done))
				return true;
	return false;
}
