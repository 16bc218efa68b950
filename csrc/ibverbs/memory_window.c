/* SPDX-License-Identifier: MIT
 * Memory windows. */
#include <errno.h>
#include <stdlib.h>

#include "internal.h"

struct ibv_mw *rw_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = calloc(1, sizeof *mw);
	struct rw_alloc_mw_reply reply;

	if (!mw)
		return NULL;
	if (CALL(rw_context(pd->context), RW_ALLOC_MW, alloc_mw, &reply, .pd = pd->handle,
		 .type = type)) {
		free(mw);
		return NULL;
	}
	mw->context = pd->context;
	mw->pd = pd;
	mw->type = type;
	mw->handle = (uint32_t)reply.mw;
	mw->rkey = (uint32_t)reply.rkey;
	rw_count(&rw_pd(pd)->users, 1);
	return mw;
}

int rw_dealloc_mw(struct ibv_mw *mw)
{
	struct rw_context *context = rw_context(mw->context);
	struct rw_dealloc_mw_reply reply;
	int error = CALL(context, RW_DEALLOC_MW, dealloc_mw, &reply, .mw = mw->handle);

	error = rw_destroyed(context, error);
	if (error)
		return error;
	rw_count(&rw_pd(mw->pd)->users, -1);
	free(mw);
	return 0;
}

/* The key of a window of type 1 after a bind: the adapter chooses its lowest byte. */
static uint32_t next_key(uint32_t rkey)
{
	return (rkey & ~0xffu) | ((rkey + RW_WINDOW_KEY_STEP) & 0xff);
}

/* Bind a window of type 1. An empty range unbinds it. */
int rw_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr *bad, wr = {.wr_id = bind->wr_id,
				       .opcode = IBV_WR_BIND_MW,
				       .send_flags = bind->send_flags,
				       .bind_mw = {.mw = mw,
						   .rkey = next_key(mw->rkey),
						   .bind_info = bind->bind_info}};
	int error = rw_post_send(qp, &wr, &bad);

	if (!error)
		mw->rkey = wr.bind_mw.rkey;
	return error;
}
