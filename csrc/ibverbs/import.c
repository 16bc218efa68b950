/* SPDX-License-Identifier: MIT
 * Devices that another process has opened, and protection domains and regions of theirs. */
#include <errno.h>
#include <stdlib.h>

#include "internal.h"

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	struct rw_import_pd_reply reply;
	struct rw_pd *pd;

	if (CALL(rw_context(context), RW_IMPORT_PD, import_pd, &reply, .pd = handle))
		return NULL;
	pd = calloc(1, sizeof *pd);
	if (!pd)
		return NULL;
	pd->pd.context = context;
	pd->pd.handle = handle;
	return &pd->pd;
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
	free(pd);
}

/* The address is one of the process that registered the region: the result has none. */
struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct rw_import_mr_reply reply;
	struct ibv_mr *mr;

	if (CALL(rw_context(pd->context), RW_IMPORT_MR, import_mr, &reply, .mr = handle))
		return NULL;
	mr = rw_new_mr(pd, NULL, reply.length);
	return rw_fixed_mr(rw_finish_mr(mr, mr ? 0 : ENOMEM, handle, reply.lkey, reply.rkey));
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	free(mr);
}
