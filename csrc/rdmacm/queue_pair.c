/* SPDX-License-Identifier: MIT
 * Queue pairs and shared receive queues of ids. */
#include <errno.h>
#include <string.h>

#include "address.h"
#include "cm.h"

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr, int *qp_attr_mask)
{
	struct cm_id *own = cm_id(id);
	enum ibv_qp_state state = qp_attr->qp_state;
	struct rw_cm_init_qp_attr_reply reply;
	int error = CM_CALL(own->session, RW_CM_INIT_QP_ATTR, cm_init_qp_attr, &reply,
			    .id = own->node.key, .qp_state = state);

	if (error)
		return cm_fail(error);
	memset(qp_attr, 0, sizeof *qp_attr);
	qp_attr->qp_state = state;
	qp_attr->path_mtu = (enum ibv_mtu)reply.path_mtu;
	qp_attr->qkey = (uint32_t)reply.qkey;
	qp_attr->rq_psn = (uint32_t)reply.rq_psn;
	qp_attr->sq_psn = (uint32_t)reply.sq_psn;
	qp_attr->dest_qp_num = (uint32_t)reply.dest_qp_num;
	qp_attr->qp_access_flags = (unsigned)reply.qp_access_flags;
	qp_attr->pkey_index = (uint16_t)reply.pkey_index;
	qp_attr->max_rd_atomic = (uint8_t)reply.max_rd_atomic;
	qp_attr->max_dest_rd_atomic = (uint8_t)reply.max_dest_rd_atomic;
	qp_attr->min_rnr_timer = (uint8_t)reply.min_rnr_timer;
	qp_attr->port_num = (uint8_t)reply.port_num;
	qp_attr->timeout = (uint8_t)reply.timeout;
	qp_attr->retry_cnt = (uint8_t)reply.retry_cnt;
	qp_attr->rnr_retry = (uint8_t)reply.rnr_retry;
	UNPACK_ADDRESS(&qp_attr->ah_attr, &reply, );
	qp_attr->ah_attr.port_num = (uint8_t)reply.ah_port_num;
	*qp_attr_mask = (int)reply.mask;
	return 0;
}

/* Move a queue pair to a state. A `depth` other than -1 replaces the connection's RDMA depth. */
static int move(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state, int depth)
{
	struct ibv_qp_attr attributes = {.qp_state = state};
	int mask;

	if (rdma_init_qp_attr(id, &attributes, &mask))
		return -1;
	if (depth >= 0 && state == IBV_QPS_RTR)
		attributes.max_dest_rd_atomic = (uint8_t)depth;
	if (depth >= 0 && state == IBV_QPS_RTS)
		attributes.max_rd_atomic = (uint8_t)depth;
	return cm_fail(ibv_modify_qp(qp, &attributes, mask));
}

/* Move the id's queue pair to RTR, if it has one. It is moved to INIT again before: the connection
 * determines its access rights. */
int cm_move_to_rtr(struct rdma_cm_id *id, uint8_t responder_resources)
{
	int depth = responder_resources == RDMA_MAX_RESP_RES ? -1 : responder_resources;

	if (!id->qp)
		return 0;
	if (move(id, id->qp, IBV_QPS_INIT, -1))
		return -1;
	return move(id, id->qp, IBV_QPS_RTR, depth);
}

int cm_move_to_rts(struct rdma_cm_id *id, uint8_t initiator_depth)
{
	int depth = initiator_depth == RDMA_MAX_INIT_DEPTH ? -1 : initiator_depth;

	return id->qp ? move(id, id->qp, IBV_QPS_RTS, depth) : 0;
}

int cm_move_to_err(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};

	return id->qp ? cm_fail(ibv_modify_qp(id->qp, &attributes, IBV_QP_STATE)) : 0;
}

/* Move a new queue pair to INIT, one of UD to RTS. */
static int initialize(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	if (move(id, qp, IBV_QPS_INIT, -1))
		return -1;
	if (id->qp_type != IBV_QPT_UD)
		return 0;
	return move(id, qp, IBV_QPS_RTR, -1) ? -1 : move(id, qp, IBV_QPS_RTS, -1);
}

/* Destroy the CQs and channels of an id, except those of an XRC SRQ, which stay with it. */
static void destroy_cqs(struct rdma_cm_id *id)
{
	if (id->srq && id->qp_type == IBV_QPT_XRC_RECV)
		return;
	if (id->send_cq && id->send_cq != id->recv_cq)
		ibv_destroy_cq(id->send_cq);
	if (id->recv_cq)
		ibv_destroy_cq(id->recv_cq);
	if (id->send_cq_channel && id->send_cq_channel != id->recv_cq_channel)
		ibv_destroy_comp_channel(id->send_cq_channel);
	if (id->recv_cq_channel)
		ibv_destroy_comp_channel(id->recv_cq_channel);
	id->send_cq = id->recv_cq = NULL;
	id->send_cq_channel = id->recv_cq_channel = NULL;
}

static int create_cq(struct rdma_cm_id *id, uint32_t size, struct ibv_comp_channel **channel,
		     struct ibv_cq **cq)
{
	if (!size || *cq)
		return 0;
	*channel = ibv_create_comp_channel(id->verbs);
	if (*channel)
		*cq = ibv_create_cq(id->verbs, (int)size, id, *channel, 0);
	return *cq ? 0 : -1;
}

/* Use the PD and the XRC domain of the id where the program names none, and check what it names.
 * Returns an errno. */
static int complete_domains(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	if (attr->pd->context != id->verbs ||
	    (id->recv_cq && attr->recv_cq && id->recv_cq != attr->recv_cq) ||
	    (id->send_cq && attr->send_cq && id->send_cq != attr->send_cq))
		return EINVAL;
	if (id->qp_type != IBV_QPT_XRC_RECV ||
	    (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD && attr->xrcd))
		return 0;
	attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	attr->xrcd = cm_xrcd(cm_id(id)->device);
	return attr->xrcd ? 0 : errno;
}

/* Use the CQs of the id, which are created first, and its SRQ where the program names none. Returns
 * an errno. */
static int complete_queues(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	if ((!attr->send_cq &&
	     create_cq(id, attr->cap.max_send_wr, &id->send_cq_channel, &id->send_cq)) ||
	    (!attr->recv_cq &&
	     create_cq(id, attr->cap.max_recv_wr, &id->recv_cq_channel, &id->recv_cq)))
		return errno;
	if (!attr->send_cq)
		attr->send_cq = id->send_cq;
	if (!attr->recv_cq)
		attr->recv_cq = id->recv_cq;
	if (!attr->srq && id->qp_type != IBV_QPT_XRC_RECV)
		attr->srq = id->srq;
	return 0;
}

/* Create the queue pair of an id, in its first state. Returns an errno. */
static int create_qp(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp = ibv_create_qp_ex(id->verbs, attr);
	int error;

	if (!qp)
		return errno;
	if (initialize(id, qp)) {
		error = errno;
		ibv_destroy_qp(qp);
		return error;
	}
	id->pd = qp->pd;
	id->qp = qp;
	return 0;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	int error;

	if (id->qp || !id->verbs)
		return cm_fail(EINVAL);
	error = complete_domains(id, attr);
	if (error)
		return cm_fail(error);
	error = complete_queues(id, attr);
	if (!error)
		error = create_qp(id, attr);
	if (error)
		destroy_cqs(id);
	return cm_fail(error);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
{
	struct ibv_qp_init_attr_ex extended = {0};
	int result;

	memcpy(&extended, qp_init_attr, sizeof *qp_init_attr);
	extended.comp_mask = IBV_QP_INIT_ATTR_PD;
	extended.pd = pd ? pd : id->pd;
	result = rdma_create_qp_ex(id, &extended);
	memcpy(qp_init_attr, &extended, sizeof *qp_init_attr);
	return result;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (id->qp)
		ibv_destroy_qp(id->qp);
	id->qp = NULL;
	destroy_cqs(id);
}

/* Use the XRC domain and receive CQ of the id for an SRQ of XRC where the program names none. */
static int complete_xrc_srq(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd)
		attr->xrcd = cm_xrcd(cm_id(id)->device);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !attr->cq) {
		if (create_cq(id, attr->attr.max_wr, &id->recv_cq_channel, &id->recv_cq))
			return -1;
		attr->cq = id->recv_cq;
	}
	attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	return attr->xrcd ? 0 : -1;
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq *srq;

	if (!id->verbs)
		return cm_fail(EINVAL);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	if (attr->srq_type == IBV_SRQT_XRC && complete_xrc_srq(id, attr))
		return -1;
	srq = ibv_create_srq_ex(id->verbs, attr);
	if (!srq)
		return -1;
	if (!id->pd)
		id->pd = attr->pd;
	id->srq = srq;
	return 0;
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex extended = {0};
	int result;

	memcpy(&extended, attr, sizeof *attr);
	extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	extended.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
	extended.pd = pd ? pd : id->pd;
	result = rdma_create_srq_ex(id, &extended);
	memcpy(attr, &extended, sizeof *attr);
	return result;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
	if (!id->qp)
		destroy_cqs(id);
}
