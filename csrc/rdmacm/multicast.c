/* SPDX-License-Identifier: MIT
 * Multicast groups of ids. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "cm.h"

/* The caller holds the session's mutex. */
struct cm_group *cm_find_group(struct cm_id *id, uint32_t handle)
{
	struct cm_group *group = id->groups;

	while (group && group->handle != handle)
		group = group->next;
	return group;
}

static int join(struct rdma_cm_id *id, struct sockaddr *address, bool send_only, void *context)
{
	struct cm_id *own = cm_id(id);
	struct cm_group *group;
	struct rw_cm_join_reply reply;
	uint64_t family, gid[2], port;
	int error;

	if (!address || !cm_address(address, &family, gid, &port))
		return cm_fail(EINVAL);
	group = calloc(1, sizeof *group);
	if (!group)
		return cm_fail(ENOMEM);
	memcpy(&group->address, address, cm_address_size(address));
	memcpy(&group->gid, gid, sizeof group->gid);
	group->context = context;
	group->send_only = send_only;
	pthread_mutex_lock(&own->session->mutex);
	error = CM_CALL_LOCKED(own->session, RW_CM_JOIN, cm_join, &reply, .id = own->node.key,
			       .family = family, .gid0 = gid[0], .gid1 = gid[1]);
	if (!error) {
		group->handle = (uint32_t)reply.group;
		group->next = own->groups;
		own->groups = group;
	}
	pthread_mutex_unlock(&own->session->mutex);
	if (!error)
		return cm_complete(id);
	free(group);
	return cm_fail(error);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	return join(id, addr, false, context);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *mc_join_attr,
			   void *context)
{
	const uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	if (mc_join_attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED ||
	    (mc_join_attr->comp_mask & needed) != needed ||
	    mc_join_attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return cm_fail(EINVAL);
	return join(id, mc_join_attr->addr,
		    mc_join_attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context);
}

/* The group is joined: attach the queue pair. Returns a status as events have it. */
int cm_joined(struct cm_id *id, struct cm_group *group)
{
	int error;

	if (!id->id.qp || group->send_only)
		return 0;
	error = ibv_attach_mcast(id->id.qp, &group->gid, 0);
	group->attached = !error;
	return -error;
}

static void leave(struct cm_id *id, struct cm_group *group)
{
	struct rw_cm_leave_reply reply;

	if (group->attached && id->id.qp)
		ibv_detach_mcast(id->id.qp, &group->gid, 0);
	CM_CALL(id->session, RW_CM_LEAVE, cm_leave, &reply, .id = id->node.key,
		.group = group->handle);
	free(group);
}

static struct cm_group *take(struct cm_id *id, const struct sockaddr *address)
{
	struct cm_group **link = &id->groups, *found;

	pthread_mutex_lock(&id->session->mutex);
	while (*link && memcmp(&(*link)->address, address, cm_address_size(address)))
		link = &(*link)->next;
	found = *link;
	if (found)
		*link = found->next;
	pthread_mutex_unlock(&id->session->mutex);
	return found;
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct cm_group *group = addr ? take(cm_id(id), addr) : NULL;

	if (!group)
		return cm_fail(EADDRNOTAVAIL);
	leave(cm_id(id), group);
	return 0;
}

/* Leave all groups of an id that is destroyed. */
void cm_leave_all(struct cm_id *id)
{
	struct cm_group *group;

	while ((group = id->groups)) {
		id->groups = group->next;
		leave(id, group);
	}
}
