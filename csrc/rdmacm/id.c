/* SPDX-License-Identifier: MIT
 * Ids: creation, destruction, options, and ids without a channel of the program. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cm.h"

static int size_of_option(int optname)
{
	return optname == RDMA_OPTION_ID_TOS || optname == RDMA_OPTION_ID_ACK_TIMEOUT ? 1 : 4;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen)
{
	struct rw_cm_set_option_reply reply;
	uint8_t byte = 0;
	int number = 0;

	if (level == RDMA_OPTION_ID) {
		if (!optval || optlen != (size_t)size_of_option(optname))
			return cm_fail(EINVAL);
		memcpy(optlen == 1 ? (void *)&byte : (void *)&number, optval, optlen);
	}
	return cm_fail(CM_CALL(cm_id(id)->session, RW_CM_SET_OPTION, cm_set_option, &reply,
			       .id = cm_id(id)->node.key, .level = (uint64_t)level,
			       .option = (uint64_t)optname, .value = (uint32_t)number | byte));
}

/* Make the structure of an id that the service has. Returns null without memory. The caller holds
 * the session's mutex. */
struct cm_id *cm_add_id(struct cm_session *session, struct rdma_event_channel *channel,
			void *context, enum rdma_port_space ps, enum ibv_qp_type qp_type,
			uint32_t handle)
{
	struct cm_id *id = calloc(1, sizeof *id);

	if (!id)
		return NULL;
	id->id.channel = channel;
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = qp_type;
	id->session = session;
	session->references++;
	rw_insert(&session->ids, &id->node, handle);
	return id;
}

static int make_id(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
		   enum ibv_qp_type qp_type, struct cm_id **made)
{
	struct cm_session *session = cm_channel(channel)->session;
	struct rw_cm_create_id_reply reply;
	struct rw_cm_destroy_id_reply destroyed;
	int error;

	pthread_mutex_lock(&session->mutex);
	error = CM_CALL_LOCKED(session, RW_CM_CREATE_ID, cm_create_id, &reply,
			       .channel = cm_channel(channel)->handle, .port_space = ps,
			       .qp_type = qp_type);
	if (!error) {
		*made = cm_add_id(session, channel, context, ps, qp_type, (uint32_t)reply.id);
		if (!*made) {
			CM_CALL_LOCKED(session, RW_CM_DESTROY_ID, cm_destroy_id, &destroyed,
				       .id = reply.id);
			error = ENOMEM;
		}
	}
	pthread_mutex_unlock(&session->mutex);
	return error;
}

/* Without a channel the id gets one of its own, and calls wait for their events. */
int cm_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		 enum rdma_port_space ps, enum ibv_qp_type qp_type)
{
	struct rdma_event_channel *own = channel ? NULL : rdma_create_event_channel();
	struct cm_id *made;
	int error;

	if (!channel && !own)
		return -1;
	error = make_id(channel ? channel : own, context, ps, qp_type, &made);
	if (error) {
		if (own)
			rdma_destroy_event_channel(own);
		return cm_fail(error);
	}
	made->synchronous = !channel;
	*id = &made->id;
	return 0;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps)
{
	bool datagrams = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB;

	return cm_create_id(channel, id, context, ps, datagrams ? IBV_QPT_UD : IBV_QPT_RC);
}

/* Acknowledge the event that a synchronous id keeps, if it has one. */
void cm_ack_event(struct rdma_cm_id *id)
{
	if (id->event)
		rdma_ack_cm_event(id->event);
	id->event = NULL;
}

/* Wait until the program has acknowledged all events that it got of an id. */
static void wait_for_acknowledgements(struct cm_id *id)
{
	while (id->events_acknowledged != id->events_given)
		pthread_cond_wait(&id->session->acknowledged, &id->session->mutex);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct cm_id *own = cm_id(id);
	struct cm_session *session = own->session;
	struct rw_cm_destroy_id_reply reply;
	int error;

	cm_ack_event(id);
	cm_leave_all(own);
	pthread_mutex_lock(&session->mutex);
	error = CM_CALL_LOCKED(session, RW_CM_DESTROY_ID, cm_destroy_id, &reply,
			       .id = own->node.key);
	if (error && !session->gone) {
		pthread_mutex_unlock(&session->mutex);
		return cm_fail(error);
	}
	rw_remove(&session->ids, &own->node);
	wait_for_acknowledgements(own);
	pthread_mutex_unlock(&session->mutex);
	if (own->synchronous)
		rdma_destroy_event_channel(id->channel);
	free(id->route.path_rec);
	rdma_freeaddrinfo(own->resolved);
	free(own->accepted_qp);
	free(own);
	cm_release(session);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct cm_id *own = cm_id(id);
	struct rdma_event_channel *made = NULL, *before = id->channel;
	struct rw_cm_migrate_id_reply reply;
	bool was_synchronous = own->synchronous;
	int error;

	if (was_synchronous && !channel)
		return cm_fail(EINVAL);
	if (!channel && !(channel = made = rdma_create_event_channel()))
		return -1;
	error = cm_channel(channel)->session == own->session
			? CM_CALL(own->session, RW_CM_MIGRATE_ID, cm_migrate_id, &reply,
				  .id = own->node.key, .channel = cm_channel(channel)->handle)
			: EIO;
	if (error) {
		if (made)
			rdma_destroy_event_channel(made);
		return cm_fail(error);
	}
	if (was_synchronous)
		cm_ack_event(id);
	pthread_mutex_lock(&own->session->mutex);
	own->synchronous = made != NULL;
	id->channel = channel;
	if (!made)
		wait_for_acknowledgements(own);
	pthread_mutex_unlock(&own->session->mutex);
	if (was_synchronous)
		rdma_destroy_event_channel(before);
	return 0;
}

/* Finish a call: wait for its event if the id is synchronous. Returns 0, or -1 with errno. */
int cm_complete(struct rdma_cm_id *id)
{
	int error;

	if (!cm_id(id)->synchronous)
		return 0;
	cm_ack_event(id);
	if (rdma_get_cm_event(id->channel, &id->event))
		return -1;
	error = id->event->status;
	if (id->event->event == RDMA_CM_EVENT_REJECTED)
		error = ECONNREFUSED;
	return cm_fail(error < 0 ? -error : error);
}

/* Enhanced connection establishment is for queue pairs of some vendors: there is none here. */
int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	return cm_fail(rw_refuse(EOPNOTSUPP, "rdma_set_local_ece", "devices have no ECE"));
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (!id || id->qp || !ece)
		return cm_fail(EINVAL);
	memset(ece, 0, sizeof *ece);
	return 0;
}
