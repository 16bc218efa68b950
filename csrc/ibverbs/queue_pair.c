/* SPDX-License-Identifier: MIT
 * Queue pairs: create, open, modify, query, destroy. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"
#include "internal.h"

static void free_qp(struct rw_qp *qp)
{
	if (qp->users)
		atomic_fetch_sub(qp->users, 1);
	rw_outstanding_free(&qp->sends);
	rw_outstanding_free(&qp->receives);
	free(qp->builder.records);
	pthread_mutex_destroy(&qp->builder.mutex);
	pthread_mutex_destroy(&qp->qp.qp_base.mutex);
	pthread_cond_destroy(&qp->qp.qp_base.cond);
	free(qp);
}

static struct rw_qp *new_qp(struct ibv_context *context, const struct ibv_qp_init_attr_ex *wanted)
{
	struct rw_qp *qp = calloc(1, sizeof *qp);
	struct ibv_qp *base = qp ? &qp->qp.qp_base : NULL;

	if (!qp)
		return NULL;
	base->context = context;
	base->qp_context = wanted->qp_context;
	base->pd = wanted->comp_mask & IBV_QP_INIT_ATTR_PD ? wanted->pd : NULL;
	base->send_cq = wanted->send_cq;
	base->recv_cq = wanted->recv_cq;
	base->srq = wanted->srq;
	base->qp_type = wanted->qp_type;
	base->state = IBV_QPS_RESET;
	qp->signal_all = wanted->sq_sig_all;
	pthread_mutex_init(&base->mutex, NULL);
	pthread_cond_init(&base->cond, NULL);
	pthread_mutex_init(&qp->builder.mutex, NULL);
	return qp;
}

static bool is_cap(const struct rw_create_qp_reply *cap)
{
	return cap->max_send_wr <= RW_MAX_QP_WR && cap->max_recv_wr <= RW_MAX_QP_WR &&
	       cap->max_send_sge <= RW_MAX_SGE && cap->max_recv_sge <= RW_MAX_SGE &&
	       cap->max_inline_data <= RW_MAX_INLINE_DATA;
}

/* Take over the numbers and the capabilities of a reply. Returns an errno. */
static int set_numbers(struct rw_qp *qp, const struct rw_create_qp_reply *reply)
{
	if (!is_cap(reply))
		return EIO;
	qp->qp.qp_base.handle = (uint32_t)reply->qp;
	qp->qp.qp_base.qp_num = (uint32_t)reply->qp_num;
	qp->cap = (struct ibv_qp_cap){.max_send_wr = (uint32_t)reply->max_send_wr,
				      .max_recv_wr = (uint32_t)reply->max_recv_wr,
				      .max_send_sge = (uint32_t)reply->max_send_sge,
				      .max_recv_sge = (uint32_t)reply->max_recv_sge,
				      .max_inline_data = (uint32_t)reply->max_inline_data};
	if (rw_outstanding_init(&qp->sends, qp->cap.max_send_wr))
		return ENOMEM;
	return rw_outstanding_init(&qp->receives, qp->cap.max_recv_wr);
}

static int check_create(const struct ibv_qp_init_attr_ex *wanted)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
			       IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
			       IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
	uint32_t mask = wanted->comp_mask;

	if (mask & ~known)
		return rw_refuse(EOPNOTSUPP, "ibv_create_qp_ex", "attribute mask %#x", mask);
	if (mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
	    wanted->create_flags & ~(uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)
		return rw_refuse(EOPNOTSUPP, "ibv_create_qp_ex", "flags %#x", wanted->create_flags);
	if (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	    wanted->send_ops_flags & ~rw_supported_send_ops(wanted->qp_type))
		return rw_refuse(EOPNOTSUPP, "ibv_create_qp_ex", "operations %#llx",
				 (unsigned long long)wanted->send_ops_flags);
	return 0;
}

/* Ask the service for a queue pair. Attributes that the mask leaves out are zero. */
static int call_create(struct rw_context *context, const struct ibv_qp_init_attr_ex *wanted,
		       struct rw_create_qp_reply *reply)
{
	uint32_t mask = wanted->comp_mask;
	struct ibv_pd *pd = mask & IBV_QP_INIT_ATTR_PD ? wanted->pd : NULL;
	struct ibv_xrcd *xrcd = mask & IBV_QP_INIT_ATTR_XRCD ? wanted->xrcd : NULL;
	const struct ibv_qp_cap *cap = &wanted->cap;

	return CALL(context, RW_CREATE_QP, create_qp, reply, .pd = pd ? pd->handle : 0,
		    .send_cq = wanted->send_cq ? wanted->send_cq->handle : 0,
		    .recv_cq = wanted->recv_cq ? wanted->recv_cq->handle : 0,
		    .srq = wanted->srq ? wanted->srq->handle : 0,
		    .xrcd = xrcd ? ((struct rw_xrcd *)xrcd)->handle : 0,
		    .qp_type = wanted->qp_type, .sq_sig_all = !!wanted->sq_sig_all,
		    .create_flags =
			    mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? wanted->create_flags : 0,
		    .max_send_wr = cap->max_send_wr, .max_recv_wr = cap->max_recv_wr,
		    .max_send_sge = cap->max_send_sge, .max_recv_sge = cap->max_recv_sge,
		    .max_inline_data = cap->max_inline_data);
}

/* Add `change` to the users of the objects that a queue pair uses. */
static void count_in_objects(struct rw_qp *qp, int change)
{
	struct ibv_qp *base = &qp->qp.qp_base;

	rw_count(base->pd ? &rw_pd(base->pd)->users : NULL, change);
	rw_count(base->send_cq ? &rw_cq(base->send_cq)->users : NULL, change);
	rw_count(base->recv_cq ? &rw_cq(base->recv_cq)->users : NULL, change);
	rw_count(base->srq ? &rw_srq(base->srq)->users : NULL, change);
	rw_count(qp->xrcd ? &qp->xrcd->users : NULL, change);
}

static void add_qp(struct rw_context *context, struct rw_qp *qp)
{
	count_in_objects(qp, 1);
	pthread_rwlock_wrlock(&context->objects);
	rw_insert(&context->qps, &qp->node, qp->qp.qp_base.qp_num);
	pthread_rwlock_unlock(&context->objects);
}

struct ibv_qp *rw_create_qp_ex(struct ibv_context *ibv_context, struct ibv_qp_init_attr_ex *wanted)
{
	struct rw_context *context = rw_context(ibv_context);
	struct rw_create_qp_reply reply;
	struct rw_qp *qp = check_create(wanted) ? NULL : new_qp(ibv_context, wanted);
	int error;

	if (!qp)
		return NULL;
	if (wanted->comp_mask & (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH))
		error = rw_create_rss_qp(qp, wanted, &reply);
	else
		error = call_create(context, wanted, &reply);
	if (error == EOPNOTSUPP && wanted->qp_type > IBV_QPT_XRC_RECV)
		rw_explain_vendor(error, "ibv_create_qp");
	if (!error && (error = set_numbers(qp, &reply)))
		rw_end(context, "the service made a queue pair of a wrong size");
	if (error) {
		free_qp(qp);
		errno = error;
		return NULL;
	}
	wanted->cap = qp->cap;
	if (wanted->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		rw_set_builders(qp);
	if (wanted->comp_mask & IBV_QP_INIT_ATTR_XRCD)
		qp->xrcd = (struct rw_xrcd *)wanted->xrcd;
	add_qp(context, qp);
	return &qp->qp.qp_base;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes)
{
	struct ibv_qp_init_attr_ex extended = {.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
	struct ibv_qp *qp;

	memcpy(&extended, attributes, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
	qp = rw_create_qp_ex(pd->context, &extended);
	if (qp)
		attributes->cap = extended.cap;
	return qp;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct rw_qp *self = rw_qp(qp);

	if (self->qp.wr_start)
		return &self->qp;
	rw_refuse(EOPNOTSUPP, "ibv_qp_to_qp_ex", "the QP was created without send_ops_flags");
	return NULL;
}

static int check_open(const struct ibv_qp_open_attr *wanted)
{
	const uint32_t needed =
		IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;

	if ((wanted->comp_mask & needed) == needed && wanted->qp_type == IBV_QPT_XRC_RECV)
		return 0;
	return rw_refuse(EINVAL, "ibv_open_qp", "mask %#x, type %d", wanted->comp_mask,
			 wanted->qp_type);
}

/* Share a queue pair of an XRC domain. */
struct ibv_qp *rw_open_qp(struct ibv_context *ibv_context, struct ibv_qp_open_attr *wanted)
{
	struct rw_context *context = rw_context(ibv_context);
	struct ibv_qp_init_attr_ex attributes = {.qp_type = wanted->qp_type};
	struct rw_open_qp_reply reply;
	struct rw_qp *qp;

	if (wanted->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		attributes.qp_context = wanted->qp_context;
	qp = check_open(wanted) ? NULL : new_qp(ibv_context, &attributes);
	if (!qp)
		return NULL;
	if (CALL(context, RW_OPEN_QP, open_qp, &reply,
		 .xrcd = ((struct rw_xrcd *)wanted->xrcd)->handle, .qp_num = wanted->qp_num,
		 .qp_type = wanted->qp_type)) {
		free_qp(qp);
		return NULL;
	}
	qp->shared = true;
	qp->qp.qp_base.handle = (uint32_t)reply.qp;
	qp->qp.qp_base.qp_num = (uint32_t)reply.qp_num;
	add_qp(context, qp);
	return &qp->qp.qp_base;
}

/* Copy the attributes of ibv_qp_attr that `mask` names; the others are zero. */
static void fill_modify(struct rw_modify_qp_request *request, const struct ibv_qp_attr *attr,
			uint32_t mask)
{
#define TAKE(bit, name) request->name = mask & bit ? attr->name : 0
	TAKE(IBV_QP_STATE, qp_state);
	TAKE(IBV_QP_CUR_STATE, cur_qp_state);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_PATH_MIG_STATE, path_mig_state);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_ALT_PATH, alt_pkey_index);
	TAKE(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_ALT_PATH, alt_port_num);
	TAKE(IBV_QP_ALT_PATH, alt_timeout);
	TAKE(IBV_QP_RATE_LIMIT, rate_limit);
#undef TAKE
	if (mask & IBV_QP_AV)
		PACK_ADDRESS(request, , &attr->ah_attr);
	if (mask & IBV_QP_AV)
		request->ah_port_num = attr->ah_attr.port_num;
	if (mask & IBV_QP_ALT_PATH)
		PACK_ADDRESS(request, alt_, &attr->alt_ah_attr);
}

/* Follow a queue pair to a new state. */
static void set_state(struct rw_qp *qp, uint64_t state)
{
	qp->qp.qp_base.state = state <= IBV_QPS_ERR ? (enum ibv_qp_state)state : IBV_QPS_UNKNOWN;
	if (state == IBV_QPS_RESET)
		rw_purge(qp);
	if (state == IBV_QPS_RTS)
		qp->failed = false; /* it may come from SQE */
}

/* Leave out attributes of the half that an XRC queue pair lacks, as Linux's uverbs does: programs
 * treat it like one of RC. */
static uint32_t mask_of_type(enum ibv_qp_type type, uint32_t mask)
{
	switch (type) {
	case IBV_QPT_XRC_SEND:
		return mask & ~(uint32_t)(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	case IBV_QPT_XRC_RECV:
		return mask & ~(uint32_t)(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT |
					  IBV_QP_RNR_RETRY);
	default:
		return mask;
	}
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
	struct rw_context *context = rw_context(qp->context);
	uint32_t named = mask_of_type(qp->qp_type, (uint32_t)mask);
	struct rw_modify_qp_request request = {.call = RW_MODIFY_QP,
					       .qp = qp->handle,
					       .mask = named};
	struct rw_modify_qp_reply reply;
	int error;

	if (mask & IBV_QP_CAP)
		return rw_refuse(EOPNOTSUPP, "ibv_modify_qp", "queues cannot be resized");
	fill_modify(&request, attributes, named);
	error = rw_control(context, "modify_qp", &request, sizeof request, &reply, sizeof reply,
			   NULL, 0, NULL);
	if (!error && mask & IBV_QP_STATE)
		set_state(rw_qp(qp), reply.qp_state);
	return error;
}

/* Show the attributes of a reply. ibv_qp_attr of old programs ends before rate_limit. */
static void show_attributes(struct ibv_qp_attr *attr, const struct rw_query_qp_reply *reply)
{
#define SHOW(name) attr->name = (__typeof__(attr->name))reply->name
	SHOW(qp_state);
	SHOW(cur_qp_state);
	SHOW(path_mtu);
	SHOW(path_mig_state);
	SHOW(qkey);
	SHOW(rq_psn);
	SHOW(sq_psn);
	SHOW(dest_qp_num);
	SHOW(qp_access_flags);
	SHOW(pkey_index);
	SHOW(alt_pkey_index);
	SHOW(en_sqd_async_notify);
	SHOW(sq_draining);
	SHOW(max_rd_atomic);
	SHOW(max_dest_rd_atomic);
	SHOW(min_rnr_timer);
	SHOW(port_num);
	SHOW(timeout);
	SHOW(retry_cnt);
	SHOW(rnr_retry);
	SHOW(alt_port_num);
	SHOW(alt_timeout);
#undef SHOW
	UNPACK_ADDRESS(&attr->ah_attr, reply, );
	attr->ah_attr.port_num = (uint8_t)reply->ah_port_num;
	UNPACK_ADDRESS(&attr->alt_ah_attr, reply, alt_);
	attr->alt_ah_attr.port_num = (uint8_t)reply->alt_port_num;
}

static void show_init(struct ibv_qp_init_attr *init, const struct rw_qp *qp)
{
	const struct ibv_qp *base = &qp->qp.qp_base;

	*init = (struct ibv_qp_init_attr){.qp_context = base->qp_context,
					  .send_cq = base->send_cq,
					  .recv_cq = base->recv_cq,
					  .srq = base->srq,
					  .cap = qp->cap,
					  .qp_type = base->qp_type,
					  .sq_sig_all = qp->signal_all};
}

int ibv_query_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attributes, int mask,
		 struct ibv_qp_init_attr *init)
{
	struct rw_qp *qp = rw_qp(ibv_qp);
	struct rw_query_qp_reply reply;
	int error = CALL(rw_context(ibv_qp->context), RW_QUERY_QP, query_qp, &reply,
			 .qp = ibv_qp->handle);

	if (error)
		return error;
	memset(attributes, 0, offsetof(struct ibv_qp_attr, rate_limit));
	show_attributes(attributes, &reply);
	attributes->cap = qp->cap;
	if (mask & IBV_QP_RATE_LIMIT)
		attributes->rate_limit = (uint32_t)reply.rate_limit;
	ibv_qp->state = attributes->qp_state;
	show_init(init, qp);
	return 0;
}

/* Only the rate can be set: the engine has no bursts. */
int rw_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *wanted)
{
	struct ibv_qp_attr attributes = {.rate_limit = wanted->rate_limit};

	if (wanted->comp_mask || wanted->max_burst_sz || wanted->typical_pkt_sz)
		return rw_refuse(EINVAL, "ibv_modify_qp_rate_limit",
				 "mask %#x, a burst or a packet size", wanted->comp_mask);
	return ibv_modify_qp(qp, &attributes, IBV_QP_RATE_LIMIT);
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t flags)
{
	return 0; /* the bytes of a packet are copied in no promised order */
}

int ibv_destroy_qp(struct ibv_qp *ibv_qp)
{
	struct rw_context *context = rw_context(ibv_qp->context);
	struct rw_qp *qp = rw_qp(ibv_qp);
	struct rw_destroy_qp_reply reply;
	int error = CALL(context, RW_DESTROY_QP, destroy_qp, &reply, .qp = ibv_qp->handle);

	error = rw_destroyed(context, error);
	if (error)
		return error;
	if (!qp->shared)
		rw_purge(qp);
	count_in_objects(qp, -1);
	pthread_rwlock_wrlock(&context->objects);
	rw_remove(&context->qps, &qp->node);
	pthread_rwlock_unlock(&context->objects);
	pthread_mutex_lock(&ibv_qp->mutex);
	while (ibv_qp->events_completed != qp->async_events)
		pthread_cond_wait(&ibv_qp->cond, &ibv_qp->mutex);
	pthread_mutex_unlock(&ibv_qp->mutex);
	free_qp(qp);
	return 0;
}
