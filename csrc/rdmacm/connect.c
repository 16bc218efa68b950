/* SPDX-License-Identifier: MIT
 * Connections: requests, answers, and their end. */
#include <errno.h>
#include <string.h>

#include "cm.h"

static uint8_t smaller(uint8_t one, uint8_t other)
{
	return one < other ? one : other;
}

/* Programs may leave out the parameters if the id has a queue pair. */
static bool is_valid(struct cm_id *id, const struct rdma_conn_param *param)
{
	if (!id->device || (!id->id.qp && !param))
		return false;
	if (!param)
		return true;
	if (param->private_data && param->private_data_len > RW_MAX_PRIVATE_DATA)
		return false;
	if (id->id.qp_type == IBV_QPT_UD)
		return true;
	return (param->responder_resources == RDMA_MAX_RESP_RES ||
		param->responder_resources <= id->device->max_responder_resources) &&
	       (param->initiator_depth == RDMA_MAX_INIT_DEPTH ||
		param->initiator_depth <= id->device->max_initiator_depth);
}

/* Requests of connect and accept have the same members. */
#define SET_PARAMETERS(request, own, param)                                                        \
	do {                                                                                       \
		struct ibv_qp *qp = (own)->id.qp;                                                  \
		(request)->id = (own)->node.key;                                                   \
		(request)->qp_num = qp ? qp->qp_num : (param)->qp_num;                             \
		(request)->srq = qp ? qp->srq != NULL : (param)->srq != 0;                         \
		(request)->responder_resources = (own)->responder_resources;                       \
		(request)->initiator_depth = (own)->initiator_depth;                               \
		(request)->flow_control = (param) && (param)->flow_control;                        \
		(request)->retry_count = (param) ? (param)->retry_count & 7 : 7;                   \
		(request)->rnr_retry_count = (param) ? (param)->rnr_retry_count & 7 : 7;           \
		if ((param) && (param)->private_data) {                                            \
			(request)->private_length = (param)->private_data_len;                     \
			memcpy(&(request)->private0, (param)->private_data,                        \
			       (param)->private_data_len);                                         \
		}                                                                                  \
	} while (0)

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	struct cm_id *own = cm_id(id);
	struct rw_cm_connect_request request = {.call = RW_CM_CONNECT};
	struct rw_cm_connect_reply reply;
	int error;

	if (!is_valid(own, conn_param))
		return cm_fail(EINVAL);
	own->responder_resources = own->device->max_responder_resources;
	own->initiator_depth = own->device->max_initiator_depth;
	if (conn_param && conn_param->responder_resources != RDMA_MAX_RESP_RES)
		own->responder_resources = conn_param->responder_resources;
	if (conn_param && conn_param->initiator_depth != RDMA_MAX_INIT_DEPTH)
		own->initiator_depth = conn_param->initiator_depth;
	SET_PARAMETERS(&request, own, conn_param);
	error = cm_exchange(own->session, "cm_connect", &request, sizeof request, &reply,
			    sizeof reply, NULL, 0);
	return error ? cm_fail(error) : cm_complete(id);
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct rw_cm_listen_reply reply;
	int error = CM_CALL(cm_id(id)->session, RW_CM_LISTEN, cm_listen, &reply,
			    .id = cm_id(id)->node.key,
			    .backlog = backlog > 0 ? (uint64_t)backlog : 0);

	return cm_fail(error ? error : cm_query(id));
}

/* The answer to a datagram request causes no event: a synchronous id does not wait for one. */
static int finish_accept(struct rdma_cm_id *id)
{
	if (id->qp_type != IBV_QPT_UD)
		return cm_complete(id);
	if (cm_id(id)->synchronous)
		cm_ack_event(id);
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	struct cm_id *own = cm_id(id);
	struct rw_cm_accept_request request = {.call = RW_CM_ACCEPT};
	struct rw_cm_accept_reply reply;
	int error;

	if (!is_valid(own, conn_param))
		return cm_fail(EINVAL);
	own->responder_resources =
		conn_param && conn_param->responder_resources != RDMA_MAX_RESP_RES
			? conn_param->responder_resources
			: smaller(own->responder_resources, own->device->max_responder_resources);
	own->initiator_depth =
		conn_param && conn_param->initiator_depth != RDMA_MAX_INIT_DEPTH
			? conn_param->initiator_depth
			: smaller(own->initiator_depth, own->device->max_initiator_depth);
	if (id->qp_type != IBV_QPT_UD && (cm_move_to_rtr(id, own->responder_resources) ||
					  cm_move_to_rts(id, own->initiator_depth)))
		return -1;
	SET_PARAMETERS(&request, own, conn_param);
	error = cm_exchange(own->session, "cm_accept", &request, sizeof request, &reply,
			    sizeof reply, NULL, 0);
	if (!error)
		return finish_accept(id);
	cm_move_to_err(id);
	return cm_fail(error);
}

static int reject(struct rdma_cm_id *id, const void *private_data, uint8_t length, uint64_t reason)
{
	struct rw_cm_reject_request request = {
		.call = RW_CM_REJECT, .id = cm_id(id)->node.key, .reason = reason};
	struct rw_cm_reject_reply reply;

	if (private_data && length > RW_MAX_PRIVATE_DATA)
		return cm_fail(EINVAL);
	if (private_data) {
		request.private_length = length;
		memcpy(&request.private0, private_data, length);
	}
	return cm_fail(cm_exchange(cm_id(id)->session, "cm_reject", &request, sizeof request, &reply,
				   sizeof reply, NULL, 0));
}

enum { CONSUMER_REJECT = 28, VENDOR_OPTION_NOT_SUPPORTED = 35 }; /* of REJ: IBA 12.6.7.2 */

int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	return reject(id, private_data, private_data_len, CONSUMER_REJECT);
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	return reject(id, private_data, private_data_len, VENDOR_OPTION_NOT_SUPPORTED);
}

#define SIMPLE_CALL(id, NUMBER, name, ...)                                                         \
	({                                                                                         \
		struct rw_##name##_reply reply_;                                                   \
		CM_CALL(cm_id(id)->session, NUMBER, name, &reply_, .id = cm_id(id)->node.key,      \
			##__VA_ARGS__);                                                            \
	})

int rdma_establish(struct rdma_cm_id *id)
{
	return cm_fail(SIMPLE_CALL(id, RW_CM_ESTABLISH, cm_establish));
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	return cm_fail(SIMPLE_CALL(id, RW_CM_NOTIFY, cm_notify, .event = event));
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	int error;

	if (!id->verbs)
		return cm_fail(EINVAL);
	if (cm_move_to_err(id))
		return -1;
	error = SIMPLE_CALL(id, RW_CM_DISCONNECT, cm_disconnect);
	return error ? cm_fail(error) : cm_complete(id);
}

/* Check the event of a request, and create its id's queue pair if rdma_create_ep got attributes.
 * Returns an errno. */
static int prepare_request(struct rdma_cm_id *listen, struct rdma_cm_event *event)
{
	struct cm_id *own = cm_id(listen);
	struct ibv_qp_init_attr attributes;

	if (event->status)
		return event->status < 0 ? -event->status : event->status;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return EINVAL;
	if (!own->accepted_qp)
		return 0;
	attributes = *own->accepted_qp;
	return rdma_create_qp(event->id, listen->pd, &attributes) ? errno : 0;
}

int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	int error;

	if (!cm_id(listen)->synchronous)
		return cm_fail(EINVAL);
	cm_ack_event(listen);
	if (rdma_get_cm_event(listen->channel, &event))
		return -1;
	error = prepare_request(listen, event);
	if (error) {
		listen->event = event;
		return cm_fail(error);
	}
	*id = event->id;
	(*id)->event = event;
	return 0;
}
