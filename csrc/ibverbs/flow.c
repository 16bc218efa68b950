/* SPDX-License-Identifier: MIT
 * Flow steering: flows to raw packet queue pairs, and their counters.
 *
 * The specifications of a flow go to the service as they are, which checks them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct rw_counters {
	struct ibv_counters counters;
	uint32_t handle;
	uint32_t index[IBV_COUNTER_BYTES + 1]; /* where ibv_read_counters shows each */
	bool attached[IBV_COUNTER_BYTES + 1];
};

static struct rw_counters *self(struct ibv_counters *counters)
{
	return (struct rw_counters *)counters;
}

/* Put the handle of counters in place of their address. Returns an errno. */
static int replace_pointer(uint8_t *spec, size_t size)
{
	uint8_t *place = spec + offsetof(struct ibv_flow_spec_counter_action, counters);
	struct ibv_counters *counters;
	uint64_t handle;

	if (size < sizeof(struct ibv_flow_spec_counter_action))
		return EINVAL;
	memcpy(&counters, place, sizeof counters);
	handle = counters ? self(counters)->handle : 0;
	memcpy(place, &handle, sizeof handle);
	return 0;
}

/* Copy the specifications behind `attr`, which are not aligned. Returns an errno. */
static int copy_specs(struct rw_create_flow_request *request, const struct ibv_flow_attr *attr)
{
	const uint8_t *from = (const uint8_t *)(attr + 1);
	uint8_t *to = (uint8_t *)request + offsetof(struct rw_create_flow_request, specs0);
	struct {
		enum ibv_flow_spec_type type;
		uint16_t size;
	} head;
	int error = 0;

	for (unsigned i = 0; i < attr->num_of_specs && !error; i++) {
		memcpy(&head, from + request->size, sizeof head);
		if (request->size + head.size > RW_MAX_FLOW_SPEC_BYTES)
			return rw_refuse(EINVAL, "ibv_create_flow",
					 "specification %u has %u bytes, at most %u in all", i,
					 head.size, RW_MAX_FLOW_SPEC_BYTES);
		memcpy(to + request->size, from + request->size, head.size);
		if (head.type == IBV_FLOW_SPEC_ACTION_COUNT)
			error = replace_pointer(to + request->size, head.size);
		request->size += head.size;
	}
	return error;
}

struct ibv_flow *rw_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	struct rw_create_flow_request request = {.call = RW_CREATE_FLOW,
						 .qp = qp->handle,
						 .type = attr->type,
						 .priority = attr->priority,
						 .port = attr->port,
						 .flags = attr->flags,
						 .count = attr->num_of_specs};
	struct rw_create_flow_reply reply;
	struct ibv_flow *flow = calloc(1, sizeof *flow);
	int error = flow ? copy_specs(&request, attr) : ENOMEM;

	if (!error)
		error = rw_control(rw_context(qp->context), "create_flow", &request, sizeof request,
				   &reply, sizeof reply, NULL, 0, NULL);
	if (error) {
		free(flow);
		errno = error;
		return NULL;
	}
	flow->context = qp->context;
	flow->handle = (uint32_t)reply.flow;
	return flow;
}

int rw_destroy_flow(struct ibv_flow *flow)
{
	struct rw_context *context = rw_context(flow->context);
	struct rw_destroy_flow_reply reply;
	int error = CALL(context, RW_DESTROY_FLOW, destroy_flow, &reply, .flow = flow->handle);

	error = rw_destroyed(context, error);
	if (!error)
		free(flow);
	return error;
}

struct ibv_counters *rw_create_counters(struct ibv_context *context,
					struct ibv_counters_init_attr *attributes)
{
	struct rw_create_counters_reply reply;
	struct rw_counters *counters;

	if (attributes->comp_mask) {
		rw_refuse(EOPNOTSUPP, "ibv_create_counters", "mask %#x", attributes->comp_mask);
		return NULL;
	}
	counters = calloc(1, sizeof *counters);
	if (!counters)
		return NULL;
	if (CALL(rw_context(context), RW_CREATE_COUNTERS, create_counters, &reply)) {
		free(counters);
		return NULL;
	}
	counters->counters.context = context;
	counters->handle = (uint32_t)reply.counters;
	return &counters->counters;
}

int rw_destroy_counters(struct ibv_counters *ibv_counters)
{
	struct rw_context *context = rw_context(ibv_counters->context);
	struct rw_destroy_counters_reply reply;
	int error = CALL(context, RW_DESTROY_COUNTERS, destroy_counters, &reply,
			 .counters = self(ibv_counters)->handle);

	error = rw_destroyed(context, error);
	if (!error)
		free(self(ibv_counters));
	return error;
}

/* Say at which index ibv_read_counters shows a counter. Only the specification of a new flow
 * attaches counters to it, as with mlx5. */
int rw_attach_counters(struct ibv_counters *ibv_counters, struct ibv_counter_attach_attr *attr,
		       struct ibv_flow *flow)
{
	struct rw_counters *counters = self(ibv_counters);

	if (flow || attr->comp_mask || attr->counter_desc > IBV_COUNTER_BYTES)
		return rw_refuse(EOPNOTSUPP, "ibv_attach_counters_point_flow",
				 "counter %d, mask %#x, or an existing flow", attr->counter_desc,
				 attr->comp_mask);
	counters->index[attr->counter_desc] = attr->index;
	counters->attached[attr->counter_desc] = true;
	return 0;
}

int rw_read_counters(struct ibv_counters *ibv_counters, uint64_t *values, uint32_t count,
		     uint32_t flags)
{
	struct rw_counters *counters = self(ibv_counters);
	struct rw_read_flow_counters_reply reply;
	int error;

	if (flags & ~(uint32_t)IBV_READ_COUNTERS_ATTR_PREFER_CACHED)
		return rw_refuse(EINVAL, "ibv_read_counters", "flags %#x", flags);
	error = CALL(rw_context(ibv_counters->context), RW_READ_FLOW_COUNTERS, read_flow_counters,
		     &reply, .counters = counters->handle);
	if (error)
		return error;
	for (unsigned i = 0; i < LENGTH(counters->index); i++) {
		if (counters->attached[i] && counters->index[i] >= count)
			return rw_refuse(EINVAL, "ibv_read_counters", "%u values, index %u", count,
					 counters->index[i]);
		if (counters->attached[i])
			values[counters->index[i]] =
				i == IBV_COUNTER_BYTES ? reply.bytes : reply.packets;
	}
	return 0;
}
