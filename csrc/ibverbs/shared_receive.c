/* SPDX-License-Identifier: MIT
 * Shared receive queues, basic ones and those of XRC. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static struct rw_srq *new_srq(struct ibv_context *context, void *srq_context, struct ibv_pd *pd)
{
	struct rw_srq *srq = calloc(1, sizeof *srq);

	if (!srq)
		return NULL;
	srq->srq.context = context;
	srq->srq.srq_context = srq_context;
	srq->srq.pd = pd;
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	return srq;
}

static void free_srq(struct rw_srq *srq)
{
	pthread_mutex_destroy(&srq->srq.mutex);
	pthread_cond_destroy(&srq->srq.cond);
	free(srq);
}

/* Add `change` to the users of the objects that an SRQ uses. */
static void count_in_objects(struct rw_srq *srq, int change)
{
	rw_count(&rw_pd(srq->srq.pd)->users, change);
	rw_count(srq->cq ? &rw_cq(srq->cq)->users : NULL, change);
	rw_count(srq->xrcd ? &srq->xrcd->users : NULL, change);
}

static int check(const struct ibv_srq_init_attr_ex *wanted, enum ibv_srq_type type)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			       IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	const uint32_t xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;

	if (wanted->comp_mask & ~known || type > IBV_SRQT_XRC)
		return rw_refuse(EOPNOTSUPP, "ibv_create_srq_ex", "mask %#x, type %d",
				 wanted->comp_mask, type);
	if (!(wanted->comp_mask & IBV_SRQ_INIT_ATTR_PD) ||
	    (type == IBV_SRQT_XRC && (wanted->comp_mask & xrc) != xrc))
		return rw_refuse(EINVAL, "ibv_create_srq_ex", "no PD, XRC domain or CQ");
	return 0;
}

static int call_create(struct rw_context *context, const struct ibv_srq_init_attr_ex *wanted,
		       enum ibv_srq_type type, struct rw_create_srq_reply *reply)
{
	bool is_xrc = type == IBV_SRQT_XRC;

	return CALL(context, RW_CREATE_SRQ, create_srq, reply, .pd = wanted->pd->handle,
		    .srq_type = type, .max_wr = wanted->attr.max_wr,
		    .max_sge = wanted->attr.max_sge, .srq_limit = wanted->attr.srq_limit,
		    .xrcd = is_xrc ? ((struct rw_xrcd *)wanted->xrcd)->handle : 0,
		    .cq = is_xrc ? wanted->cq->handle : 0);
}

static void add_srq(struct rw_context *context, struct rw_srq *srq,
		    const struct rw_create_srq_reply *reply)
{
	srq->srq.handle = (uint32_t)reply->srq;
	srq->number = (uint32_t)reply->srq_num;
	srq->max_wr = (uint32_t)reply->max_wr;
	srq->max_sge = reply->max_sge < RW_MAX_SGE ? (uint32_t)reply->max_sge : RW_MAX_SGE;
	pthread_rwlock_wrlock(&context->objects);
	rw_insert(&context->srqs, &srq->node, srq->srq.handle);
	pthread_rwlock_unlock(&context->objects);
}

struct ibv_srq *rw_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *wanted)
{
	enum ibv_srq_type type =
		wanted->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? wanted->srq_type : IBV_SRQT_BASIC;
	struct rw_create_srq_reply reply;
	struct rw_srq *srq;

	if (check(wanted, type))
		return NULL;
	srq = new_srq(context, wanted->srq_context, wanted->pd);
	if (!srq)
		return NULL;
	if (call_create(rw_context(context), wanted, type, &reply)) {
		free_srq(srq);
		return NULL;
	}
	srq->type = type;
	srq->cq = type == IBV_SRQT_XRC ? wanted->cq : NULL;
	srq->xrcd = type == IBV_SRQT_XRC ? (struct rw_xrcd *)wanted->xrcd : NULL;
	count_in_objects(srq, 1);
	add_srq(rw_context(context), srq, &reply);
	wanted->attr.max_wr = srq->max_wr;
	wanted->attr.max_sge = srq->max_sge;
	return &srq->srq;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attributes)
{
	struct ibv_srq_init_attr_ex extended = {.srq_context = attributes->srq_context,
						.attr = attributes->attr,
						.comp_mask = IBV_SRQ_INIT_ATTR_PD,
						.pd = pd};
	struct ibv_srq *srq = rw_create_srq_ex(pd->context, &extended);

	if (srq)
		attributes->attr = extended.attr;
	return srq;
}

int rw_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	if (rw_srq(srq)->type != IBV_SRQT_XRC)
		return rw_refuse(EOPNOTSUPP, "ibv_get_srq_num", "not an XRC SRQ");
	*number = rw_srq(srq)->number;
	return 0;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attributes, int mask)
{
	struct rw_modify_srq_reply reply;
	int error = CALL(rw_context(srq->context), RW_MODIFY_SRQ, modify_srq, &reply,
			 .srq = srq->handle, .mask = (uint32_t)mask,
			 .max_wr = mask & IBV_SRQ_MAX_WR ? attributes->max_wr : 0,
			 .srq_limit = mask & IBV_SRQ_LIMIT ? attributes->srq_limit : 0);

	if (!error && mask & IBV_SRQ_MAX_WR)
		rw_srq(srq)->max_wr = attributes->max_wr;
	return error;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attributes)
{
	struct rw_query_srq_reply reply;
	int error = CALL(rw_context(srq->context), RW_QUERY_SRQ, query_srq, &reply,
			 .srq = srq->handle);

	if (!error)
		*attributes = (struct ibv_srq_attr){(uint32_t)reply.max_wr, (uint32_t)reply.max_sge,
						    (uint32_t)reply.srq_limit};
	return error;
}

int ibv_destroy_srq(struct ibv_srq *ibv_srq)
{
	struct rw_context *context = rw_context(ibv_srq->context);
	struct rw_srq *srq = rw_srq(ibv_srq);
	struct rw_destroy_srq_reply reply;
	int error = rw_check_unused(&srq->users, "ibv_destroy_srq");

	if (error)
		return error;
	error = CALL(context, RW_DESTROY_SRQ, destroy_srq, &reply, .srq = ibv_srq->handle);
	error = rw_destroyed(context, error);
	if (error)
		return error;
	count_in_objects(srq, -1);
	pthread_rwlock_wrlock(&context->objects);
	rw_remove(&context->srqs, &srq->node);
	pthread_rwlock_unlock(&context->objects);
	pthread_mutex_lock(&ibv_srq->mutex);
	while (ibv_srq->events_completed != srq->async_events)
		pthread_cond_wait(&ibv_srq->cond, &ibv_srq->mutex);
	pthread_mutex_unlock(&ibv_srq->mutex);
	free_srq(srq);
	return 0;
}
