/* SPDX-License-Identifier: MIT
 * Protection domains, parent domains, thread domains and XRC domains.
 *
 * A thread domain says that its objects are used by one thread; it has no effect here. A parent
 * domain has the handle of its protection domain. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "internal.h"

/* IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC of rdma-core 64: memory that a confidential
 * guest shares with its host may be allocated. Here no host is one, and it has no effect. */
enum { ALLOW_CC_UNPROTECTED_ALLOC = 1 << 2 };

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct rw_pd *pd = calloc(1, sizeof *pd);
	struct rw_alloc_pd_reply reply;

	if (!pd)
		return NULL;
	if (CALL(rw_context(context), RW_ALLOC_PD, alloc_pd, &reply)) {
		free(pd);
		return NULL;
	}
	pd->pd.context = context;
	pd->pd.handle = (uint32_t)reply.pd;
	return &pd->pd;
}

/* A domain of another process that shares the open device. */
struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	struct rw_import_pd_reply reply;
	struct rw_pd *pd;

	if (CALL(rw_context(context), RW_IMPORT_PD, import_pd, &reply, .pd = handle))
		return NULL;
	pd = calloc(1, sizeof *pd);
	if (!pd)
		return NULL;
	pd->pd = (struct ibv_pd){context, handle};
	return &pd->pd;
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
	free(pd);
}

int ibv_dealloc_pd(struct ibv_pd *ibv_pd)
{
	struct rw_context *context = rw_context(ibv_pd->context);
	struct rw_pd *pd = rw_pd(ibv_pd);
	struct rw_dealloc_pd_reply reply;
	int error = rw_check_unused(&pd->users, "ibv_dealloc_pd");

	if (error)
		return error;
	if (pd->parent_of)
		rw_count(&pd->parent_of->users, -1);
	else
		error = CALL(context, RW_DEALLOC_PD, dealloc_pd, &reply, .pd = ibv_pd->handle);
	error = rw_destroyed(context, error);
	if (!error)
		free(pd);
	return error;
}

struct ibv_pd *rw_alloc_parent_domain(struct ibv_context *context,
				      struct ibv_parent_domain_init_attr *wanted)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			       IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT | ALLOW_CC_UNPROTECTED_ALLOC;
	struct rw_pd *parent;

	if (!wanted->pd || rw_pd(wanted->pd)->parent_of || wanted->comp_mask & ~known) {
		rw_refuse(EINVAL, "ibv_alloc_parent_domain", "mask %#x", wanted->comp_mask);
		return NULL;
	}
	parent = calloc(1, sizeof *parent);
	if (!parent)
		return NULL;
	parent->pd = *wanted->pd;
	parent->parent_of = rw_pd(wanted->pd);
	rw_count(&parent->parent_of->users, 1);
	return &parent->pd;
}

struct ibv_td *rw_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *wanted)
{
	struct ibv_td *td = NULL;

	if (wanted->comp_mask)
		rw_refuse(EINVAL, "ibv_alloc_td", "mask %#x", wanted->comp_mask);
	else
		td = calloc(1, sizeof *td);
	if (td)
		td->context = context;
	return td;
}

int rw_dealloc_td(struct ibv_td *td)
{
	free(td);
	return 0;
}

/* The file that a domain is shared by: its device and inode, or zeros for a private domain. */
static int shared_file(const struct ibv_xrcd_init_attr *wanted, struct stat *file)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;

	*file = (struct stat){0};
	if ((wanted->comp_mask & needed) != needed)
		return EINVAL;
	return wanted->fd < 0 || !fstat(wanted->fd, file) ? 0 : errno;
}

struct ibv_xrcd *rw_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *wanted)
{
	struct rw_open_xrcd_reply reply;
	struct stat file;
	int error = shared_file(wanted, &file);
	struct rw_xrcd *xrcd;

	if (error) {
		rw_refuse(error, "ibv_open_xrcd", "mask %#x, fd %d", wanted->comp_mask, wanted->fd);
		return NULL;
	}
	xrcd = calloc(1, sizeof *xrcd);
	if (!xrcd)
		return NULL;
	if (CALL(rw_context(context), RW_OPEN_XRCD, open_xrcd, &reply, .file_device = file.st_dev,
		 .file_inode = file.st_ino, .flags = (uint32_t)wanted->oflags)) {
		free(xrcd);
		return NULL;
	}
	xrcd->xrcd.context = context;
	xrcd->handle = (uint32_t)reply.xrcd;
	return &xrcd->xrcd;
}

int rw_close_xrcd(struct ibv_xrcd *xrcd)
{
	struct rw_context *context = rw_context(xrcd->context);
	struct rw_xrcd *own = (struct rw_xrcd *)xrcd;
	struct rw_close_xrcd_reply reply;
	int error = rw_check_unused(&own->users, "ibv_close_xrcd");

	if (error)
		return error;
	error = CALL(context, RW_CLOSE_XRCD, close_xrcd, &reply, .xrcd = own->handle);
	error = rw_destroyed(context, error);
	if (!error)
		free(xrcd);
	return error;
}
