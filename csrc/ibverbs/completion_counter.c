/* SPDX-License-Identifier: MIT
 * Counters of completions, which the service has. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Structures that <infiniband/verbs.h> has since rdma-core 65. */
struct counter {
	struct ibv_context *context;
	uint32_t handle;
};

struct init_attr {
	uint32_t comp_mask, type, flags;
};

struct attach_attr {
	uint32_t comp_mask, op_mask;
};

struct caps {
	uint64_t max_value;
	uint32_t max_counters, supported_qp_attach_ops;
};

enum { MAX_COUNTERS = 1 << 16 }; /* that a program can rely on */

int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps,
			      size_t size)
{
	struct caps all = {UINT64_MAX, MAX_COUNTERS, RW_COUNTED_OPERATIONS};

	memset(caps, 0, size);
	memcpy(caps, &all, size < sizeof all ? size : sizeof all);
	return 0;
}

struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context,
					   struct ibv_comp_cntr_init_attr *attributes)
{
	const struct init_attr *wanted = (const struct init_attr *)attributes;
	struct counter *counter = NULL;
	struct rw_create_comp_cntr_reply reply;

	if (wanted->comp_mask || wanted->flags)
		rw_refuse(EINVAL, "ibv_create_comp_cntr", "mask %#x, flags %#x", wanted->comp_mask,
			  wanted->flags);
	else
		counter = calloc(1, sizeof *counter);
	if (counter && CALL(rw_context(context), RW_CREATE_COMP_CNTR, create_comp_cntr, &reply,
			    .type = wanted->type)) {
		free(counter);
		return NULL;
	}
	if (counter)
		*counter = (struct counter){context, (uint32_t)reply.counter};
	return (struct ibv_comp_cntr *)counter;
}

int ibv_destroy_comp_cntr(struct ibv_comp_cntr *comp_cntr)
{
	struct counter *counter = (struct counter *)comp_cntr;
	struct rw_context *context = rw_context(counter->context);
	struct rw_destroy_comp_cntr_reply reply;
	int error = CALL(context, RW_DESTROY_COMP_CNTR, destroy_comp_cntr, &reply,
			 .counter = counter->handle);

	error = rw_destroyed(context, error);
	if (!error)
		free(counter);
	return error;
}

#define CHANGE(name, errors, addition)                                                             \
	int name(struct ibv_comp_cntr *comp_cntr, uint64_t amount)                                 \
	{                                                                                          \
		struct counter *counter = (struct counter *)comp_cntr;                             \
		struct rw_change_comp_cntr_reply reply;                                            \
                                                                                                   \
		return CALL(rw_context(counter->context), RW_CHANGE_COMP_CNTR, change_comp_cntr,   \
			    &reply, .counter = counter->handle, .of_errors = errors,               \
			    .adds = addition, .value = amount);                                    \
	}
CHANGE(ibv_set_comp_cntr, 0, 0)
CHANGE(ibv_set_err_comp_cntr, 1, 0)
CHANGE(ibv_inc_comp_cntr, 0, 1)
CHANGE(ibv_inc_err_comp_cntr, 1, 1)

#define READ(name, member)                                                                         \
	int name(struct ibv_comp_cntr *comp_cntr, uint64_t *value)                                 \
	{                                                                                          \
		struct counter *counter = (struct counter *)comp_cntr;                             \
		struct rw_read_comp_cntr_reply reply;                                              \
		int error = CALL(rw_context(counter->context), RW_READ_COMP_CNTR, read_comp_cntr,  \
				 &reply, .counter = counter->handle);                              \
                                                                                                   \
		*value = error ? *value : reply.member;                                            \
		return error;                                                                      \
	}
READ(ibv_read_comp_cntr, completions)
READ(ibv_read_err_comp_cntr, errors)

int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *comp_cntr,
			    struct ibv_qp_attach_comp_cntr_attr *attributes)
{
	const struct attach_attr *wanted = (const struct attach_attr *)attributes;
	struct counter *counter = (struct counter *)comp_cntr;
	struct rw_attach_comp_cntr_reply reply;

	if (wanted->comp_mask)
		return rw_refuse(EINVAL, "ibv_qp_attach_comp_cntr", "mask %#x", wanted->comp_mask);
	return CALL(rw_context(qp->context), RW_ATTACH_COMP_CNTR, attach_comp_cntr, &reply,
		    .qp = qp->handle, .counter = counter->handle, .operations = wanted->op_mask);
}
