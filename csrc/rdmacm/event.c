/* SPDX-License-Identifier: MIT
 * Event channels and events. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "address.h"
#include "cm.h"

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_session *session = cm_hold_current();
	struct cm_channel *channel = session ? calloc(1, sizeof *channel) : NULL;
	struct rw_cm_create_channel_reply reply;

	if (channel && !CM_CALL_BY(cm_exchange, session, RW_CM_CREATE_CHANNEL, cm_create_channel,
				   &reply, &channel->channel.fd)) {
		channel->session = session;
		channel->handle = (uint32_t)reply.channel;
		return &channel->channel;
	}
	free(channel);
	if (session)
		cm_release(session);
	return NULL;
}

/* As with Linux, a thread that waits for events of the channel is not woken up: then its pipe and
 * the structure are not freed. */
void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct cm_channel *own = cm_channel(channel);
	struct rw_cm_destroy_channel_reply reply;

	if (atomic_load(&own->waiting)) {
		close(channel->fd);
		return;
	}
	CM_CALL(own->session, RW_CM_DESTROY_CHANNEL, cm_destroy_channel, &reply,
		.channel = own->handle);
	close(channel->fd);
	cm_release(own->session);
	free(own);
}

static void set_ud(struct rdma_ud_param *ud, const struct rw_cm_get_event_reply *reply)
{
	ud->qp_num = (uint32_t)reply->qp_num;
	ud->qkey = (uint32_t)reply->qkey;
	UNPACK_ADDRESS(&ud->ah_attr, reply, );
	ud->ah_attr.port_num = (uint8_t)reply->ah_port_num;
}

static void set_conn(struct rdma_conn_param *conn, const struct rw_cm_get_event_reply *reply)
{
	conn->responder_resources = (uint8_t)reply->responder_resources;
	conn->initiator_depth = (uint8_t)reply->initiator_depth;
	conn->flow_control = (uint8_t)reply->flow_control;
	conn->retry_count = (uint8_t)reply->retry_count;
	conn->rnr_retry_count = (uint8_t)reply->rnr_retry_count;
	conn->srq = (uint8_t)reply->srq;
	conn->qp_num = (uint32_t)reply->qp_num;
}

static void set_parameters(struct cm_event *made, const struct rw_cm_get_event_reply *reply,
			   bool datagrams)
{
	struct rdma_conn_param *conn = &made->event.param.conn;
	struct rdma_ud_param *ud = &made->event.param.ud;
	uint8_t length = reply->private_length <= RW_MAX_PRIVATE_DATA
				 ? (uint8_t)reply->private_length
				 : RW_MAX_PRIVATE_DATA;
	const void *data = length ? made->private_data : NULL;

	memcpy(made->private_data, &reply->private0, sizeof made->private_data);
	if (datagrams) {
		ud->private_data = data;
		ud->private_data_len = length;
		set_ud(ud, reply);
	} else {
		conn->private_data = data;
		conn->private_data_len = length;
		set_conn(conn, reply);
	}
}

/* Set the id of an event, and count the event, so that the id is not destroyed before the program
 * acknowledges it. A request gets a new id, and counts for the listening id. Returns an errno. The
 * caller holds the session's mutex. */
static int set_ids(struct cm_session *session, struct rdma_event_channel *channel,
		    struct cm_event *made, const struct rw_cm_get_event_reply *reply)
{
	bool request = made->event.event == RDMA_CM_EVENT_CONNECT_REQUEST;
	struct rw_node *node =
		rw_find(&session->ids, (uint32_t)(request ? reply->listener : reply->id));
	struct rw_cm_destroy_id_reply destroyed;
	struct cm_id *id;

	if (!node)
		return ENODATA;
	id = made->counted = CONTAINER(node, struct cm_id, node);
	if (request) {
		made->event.listen_id = &id->id;
		id = cm_add_id(session, channel, id->id.context, id->id.ps, id->id.qp_type,
			       (uint32_t)reply->id);
		if (!id) {
			CM_CALL_LOCKED(session, RW_CM_DESTROY_ID, cm_destroy_id, &destroyed,
				       .id = reply->id);
			return ENODATA;
		}
		id->responder_resources = (uint8_t)reply->responder_resources;
		id->initiator_depth = (uint8_t)reply->initiator_depth;
	}
	made->event.id = &id->id;
	made->counted->events_given++;
	return 0;
}

/* A status is an errno below zero, or a reason of 16 bits in a message of the peer. */
static int status_of(int64_t status)
{
	return status > -RW_BROKEN && status <= UINT16_MAX ? (int)status : -EIO;
}

/* An event that the program or this library has written: its status and argument are any. */
static void set_written(struct cm_event *made, const struct rw_cm_get_event_reply *reply)
{
	made->event.status = (int)reply->status;
	memcpy(&made->event.param, &reply->private0, sizeof(uint64_t));
	if ((unsigned)made->event.event == CM_EVENT_ADDRINFO_ERROR)
		made->counted->resolving = false;
}

/* The private data of an ADDR_ERROR is the reason, which RDMAWIRE_TRACE=1 prints; the program gets
 * none. */
static void trace_unresolved(const struct cm_event *made, const struct rw_cm_get_event_reply *reply)
{
	uint64_t length = reply->private_length;

	rw_keep_reason((const char *)&reply->private0,
		       length < RW_MAX_PRIVATE_DATA ? length : RW_MAX_PRIVATE_DATA);
	rw_trace_call(-made->event.status, "rdma_resolve_addr");
}

/* Take the oldest event of a channel. Returns an errno, ENODATA if its id is destroyed. */
static int take(struct rdma_event_channel *channel, struct cm_event *made, struct cm_group **group)
{
	struct cm_session *session = cm_channel(channel)->session;
	struct rw_cm_get_event_reply reply;
	bool join;
	int error;

	memset(made, 0, sizeof *made);
	*group = NULL;
	pthread_mutex_lock(&session->mutex);
	error = CM_CALL_LOCKED(session, RW_CM_GET_EVENT, cm_get_event, &reply,
			       .channel = cm_channel(channel)->handle);
	if (!error) {
		made->event.event = (enum rdma_cm_event_type)reply.event;
		made->event.status = status_of((int64_t)reply.status);
		error = set_ids(session, channel, made, &reply);
	}
	if (!error && (unsigned)made->event.event >= CM_EVENT_ADDRINFO_RESOLVED) {
		set_written(made, &reply);
	} else if (!error && made->event.event == RDMA_CM_EVENT_ADDR_ERROR) {
		trace_unresolved(made, &reply);
	} else if (!error) {
		join = made->event.event == RDMA_CM_EVENT_MULTICAST_JOIN;
		set_parameters(made, &reply, join || made->counted->id.qp_type == IBV_QPT_UD);
		if (join)
			*group = cm_find_group(made->counted, (uint32_t)reply.group);
	}
	pthread_mutex_unlock(&session->mutex);
	return error;
}

static void acknowledge(struct cm_event *event)
{
	struct cm_session *session = event->counted->session;

	pthread_mutex_lock(&session->mutex);
	event->counted->events_acknowledged++;
	pthread_cond_broadcast(&session->acknowledged);
	pthread_mutex_unlock(&session->mutex);
}

/* The peer has accepted: connect the id's queue pair, and send RTU. */
static void establish(struct cm_event *made)
{
	struct rdma_cm_id *id = made->event.id;

	if (!id->qp)
		return; /* the program does that, and calls rdma_establish */
	if (!cm_move_to_rtr(id, RDMA_MAX_RESP_RES) && !cm_move_to_rts(id, RDMA_MAX_INIT_DEPTH) &&
	    !rdma_establish(id)) {
		made->event.event = RDMA_CM_EVENT_ESTABLISHED;
		return;
	}
	made->event.event = RDMA_CM_EVENT_CONNECT_ERROR;
	made->event.status = errno ? -errno : -EIO;
	cm_id(id)->connect_failed = true;
	cm_move_to_err(id);
}

/* Show the result of a resolution in the id. If that fails, the event becomes one of an error. */
static void resolved(struct cm_event *made)
{
	int error = cm_query(made->event.id);

	if (!error)
		return;
	made->event.event = made->event.event == RDMA_CM_EVENT_ADDR_RESOLVED
				    ? RDMA_CM_EVENT_ADDR_ERROR
				    : RDMA_CM_EVENT_ROUTE_ERROR;
	made->event.status = -error;
}

/* Prepare the id of a request. If the listening id is synchronous, the new one gets a channel of
 * its own, too. Returns whether that succeeded. */
static bool accept_request(struct cm_event *made)
{
	if (!cm_query(made->event.id) &&
	    (!made->counted->synchronous || !rdma_migrate_id(made->event.id, NULL)))
		return true;
	rdma_destroy_id(made->event.id);
	return false;
}

/* Do what the library has to do for an event. Returns whether the program gets it. */
static bool handle(struct cm_event *made, struct cm_group *group)
{
	switch (made->event.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		resolved(made);
		return true;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return accept_request(made);
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		establish(made);
		return true;
	case RDMA_CM_EVENT_REJECTED:
		cm_move_to_err(made->event.id);
		return !made->counted->connect_failed;
	case RDMA_CM_EVENT_DISCONNECTED:
		return !made->counted->connect_failed;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		if (!group)
			return false;
		made->event.param.ud.private_data = group->context;
		made->event.status = cm_joined(made->counted, group);
		if (made->event.status)
			made->event.event = RDMA_CM_EVENT_MULTICAST_ERROR;
		return true;
	default:
		return true;
	}
}

/* Read the byte of an event; waits unless the program has made the descriptor non-blocking. Returns
 * an errno. */
static int wait_for_event(struct rdma_event_channel *channel)
{
	uint8_t byte;
	ssize_t done;
	int error;

	atomic_fetch_add(&cm_channel(channel)->waiting, 1);
	done = read(channel->fd, &byte, sizeof byte);
	error = done < 0 ? errno : 0;
	atomic_fetch_sub(&cm_channel(channel)->waiting, 1);
	return done ? error : EIO; /* the service is gone */
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct cm_event *made;
	struct cm_group *group;
	int error;

	if (!channel || !event)
		return cm_fail(EINVAL);
	made = calloc(1, sizeof *made);
	if (!made)
		return cm_fail(ENOMEM);
	while (!(error = wait_for_event(channel))) {
		error = take(channel, made, &group);
		if (error == ENODATA)
			continue;
		if (error)
			break;
		if (handle(made, group)) {
			*event = &made->event;
			return 0;
		}
		acknowledge(made);
	}
	free(made);
	return cm_fail(error);
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct cm_event *own = (struct cm_event *)event;

	if (!event)
		return cm_fail(EINVAL);
	acknowledge(own);
	free(own);
	return 0;
}

/* Put an event into the channel of an id. Returns an errno. */
int cm_write_event(struct rdma_cm_id *id, unsigned event, int status, uint64_t argument)
{
	struct rw_cm_write_event_reply reply;

	return CM_CALL(cm_id(id)->session, RW_CM_WRITE_EVENT, cm_write_event, &reply,
		       .id = cm_id(id)->node.key, .event = event, .status = (uint32_t)status,
		       .argument = argument);
}

int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
			uint64_t arg)
{
	if (!id || (unsigned)event != CM_EVENT_USER)
		return cm_fail(EINVAL);
	return cm_fail(cm_write_event(id, event, status, arg));
}

static const char *const NAMES[] = {
	[RDMA_CM_EVENT_ADDR_RESOLVED] = "RDMA_CM_EVENT_ADDR_RESOLVED",
	[RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
	[RDMA_CM_EVENT_ROUTE_RESOLVED] = "RDMA_CM_EVENT_ROUTE_RESOLVED",
	[RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
	[RDMA_CM_EVENT_CONNECT_REQUEST] = "RDMA_CM_EVENT_CONNECT_REQUEST",
	[RDMA_CM_EVENT_CONNECT_RESPONSE] = "RDMA_CM_EVENT_CONNECT_RESPONSE",
	[RDMA_CM_EVENT_CONNECT_ERROR] = "RDMA_CM_EVENT_CONNECT_ERROR",
	[RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
	[RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
	[RDMA_CM_EVENT_ESTABLISHED] = "RDMA_CM_EVENT_ESTABLISHED",
	[RDMA_CM_EVENT_DISCONNECTED] = "RDMA_CM_EVENT_DISCONNECTED",
	[RDMA_CM_EVENT_DEVICE_REMOVAL] = "RDMA_CM_EVENT_DEVICE_REMOVAL",
	[RDMA_CM_EVENT_MULTICAST_JOIN] = "RDMA_CM_EVENT_MULTICAST_JOIN",
	[RDMA_CM_EVENT_MULTICAST_ERROR] = "RDMA_CM_EVENT_MULTICAST_ERROR",
	[RDMA_CM_EVENT_ADDR_CHANGE] = "RDMA_CM_EVENT_ADDR_CHANGE",
	[RDMA_CM_EVENT_TIMEWAIT_EXIT] = "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	[CM_EVENT_ADDRINFO_RESOLVED] = "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
	[CM_EVENT_ADDRINFO_ERROR] = "RDMA_CM_EVENT_ADDRINFO_ERROR",
};

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	return (unsigned)event < LENGTH(NAMES) ? NAMES[event] : "UNKNOWN EVENT";
}
