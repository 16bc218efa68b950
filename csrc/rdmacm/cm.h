/* SPDX-License-Identifier: MIT
 * The objects of librdmacm, and what its files offer to each other.
 *
 * A process has one session with the service for all of its channels and ids. Its mutex guards the
 * socket, the ids by handle, and the counts of events of each id; it is never held while anything
 * is waited for but a reply. */
#pragma once

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "internal.h"
#include "newer.h"

struct cm_session {
	pthread_mutex_t mutex;
	pthread_cond_t acknowledged;
	unsigned number; /* of this process's sessions: each is with another service */
	int socket;
	pid_t pid;
	bool gone;
	struct rw_table ids;
	unsigned references; /* channels, ids, and being the process's session */
};

struct cm_channel {
	struct rdma_event_channel channel;
	struct cm_session *session;
	uint32_t handle;
	atomic_uint waiting; /* number of threads in rdma_get_cm_event */
};

/* A device that ids use: opened once, and never closed. */
struct cm_device {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd; /* of ids that name no other, opened when it is first needed */
	unsigned service; /* the number of the session in which it was opened */
	uint8_t max_responder_resources, max_initiator_depth;
};

struct cm_group {
	struct cm_group *next;
	struct sockaddr_storage address;
	void *context;
	uint32_t handle;
	union ibv_gid gid;
	bool attached, send_only;
};

struct cm_id {
	struct rdma_cm_id id;
	struct rw_node node; /* in the session's ids */
	struct cm_session *session;
	struct cm_device *device;
	bool synchronous; /* without a channel of the program: calls wait for their events */
	bool connect_failed;
	uint8_t responder_resources, initiator_depth;
	uint32_t events_given, events_acknowledged;
	struct ibv_qp_init_attr *accepted_qp; /* of rdma_create_ep: what requests get */
	struct cm_group *groups;
	bool resolving; /* by rdma_resolve_addrinfo; guarded by the session's mutex */
	struct rdma_addrinfo *resolved;
};

struct cm_event {
	struct rdma_cm_event event;
	struct cm_id *counted; /* the id whose destruction waits for the acknowledgement */
	uint8_t private_data[RW_MAX_PRIVATE_DATA];
};

static inline struct cm_id *cm_id(struct rdma_cm_id *id)
{
	return (struct cm_id *)id;
}

static inline struct cm_channel *cm_channel(struct rdma_event_channel *channel)
{
	return (struct cm_channel *)channel;
}

/* The size of an address of IPv4 or IPv6. */
static inline socklen_t cm_address_size(const void *address)
{
	const struct sockaddr *any = address;

	return any->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

/* session.c */
int cm_fail(int error);
struct cm_session *cm_hold_current(void);
void cm_release(struct cm_session *session);
int cm_exchange(struct cm_session *session, const char *name, const void *request,
		size_t request_size, void *reply, size_t reply_size, int *fds, unsigned fd_count);
int cm_exchange_locked(struct cm_session *session, const char *name, const void *request,
		       size_t request_size, void *reply, size_t reply_size, int *fds,
		       unsigned fd_count);

/* Ask the service. They return an errno, which they also set. */
#define CM_CALL_BY(exchange, session, NUMBER, name, reply, fds, ...)                               \
	exchange(session, #name, &(struct rw_##name##_request){.call = NUMBER, ##__VA_ARGS__},     \
		 sizeof(struct rw_##name##_request), reply, sizeof(struct rw_##name##_reply), fds, \
		 NUMBER##_REPLY_FDS)
#define CM_CALL(session, NUMBER, name, reply, ...)                                                 \
	CM_CALL_BY(cm_exchange, session, NUMBER, name, reply, NULL, ##__VA_ARGS__)
#define CM_CALL_LOCKED(session, NUMBER, name, reply, ...)                                          \
	CM_CALL_BY(cm_exchange_locked, session, NUMBER, name, reply, NULL, ##__VA_ARGS__)

/* device.c */
struct cm_device *cm_device(struct cm_session *session, uint32_t index);
struct ibv_xrcd *cm_xrcd(struct cm_device *device);
void cm_renew_device_lock(void);

/* id.c */
struct cm_id *cm_add_id(struct cm_session *session, struct rdma_event_channel *channel,
			void *context, enum rdma_port_space ps, enum ibv_qp_type qp_type,
			uint32_t handle);
int cm_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		 enum rdma_port_space ps, enum ibv_qp_type qp_type);
void cm_ack_event(struct rdma_cm_id *id);
int cm_complete(struct rdma_cm_id *id);

/* event.c */
int cm_write_event(struct rdma_cm_id *id, unsigned event, int status, uint64_t argument);

/* address.c */
int cm_query(struct rdma_cm_id *id);
bool cm_address(const struct sockaddr *address, uint64_t *family, uint64_t *gid, uint64_t *port);

/* queue_pair.c */
int cm_move_to_rtr(struct rdma_cm_id *id, uint8_t responder_resources);
int cm_move_to_rts(struct rdma_cm_id *id, uint8_t initiator_depth);
int cm_move_to_err(struct rdma_cm_id *id);

/* multicast.c */
struct cm_group *cm_find_group(struct cm_id *id, uint32_t handle);
int cm_joined(struct cm_id *id, struct cm_group *group);
void cm_leave_all(struct cm_id *id);
