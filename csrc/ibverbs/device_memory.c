/* SPDX-License-Identifier: MIT
 * Device memory, which the service has and the library maps, regions of it, and null regions. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

enum {
	GRANULE = 4, /* bytes to which offsets and lengths of copies are aligned, as with libmlx5 */
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED,
};

struct rw_dm {
	struct ibv_dm dm;
	char *map;
	size_t length;
	int fd;
	pid_t owner; /* the process that allocated or imported it */
	atomic_int users;
};

static struct rw_dm *rw_dm(struct ibv_dm *dm)
{
	return CONTAINER(dm, struct rw_dm, dm);
}

static int check_copy(const struct rw_dm *dm, uint64_t offset, size_t length)
{
	if (offset > dm->length || length > dm->length - offset)
		return EFAULT;
	return offset % GRANULE || length % GRANULE ? EINVAL : 0;
}

static int copy_to(struct ibv_dm *dm, uint64_t offset, const void *data, size_t length)
{
	int error = check_copy(rw_dm(dm), offset, length);

	if (error)
		return rw_refuse(error, "ibv_memcpy_to_dm", "%zu bytes at %#llx", length,
				 (unsigned long long)offset);
	memcpy(rw_dm(dm)->map + offset, data, length);
	return 0;
}

static int copy_from(void *data, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	int error = check_copy(rw_dm(dm), offset, length);

	if (error)
		return rw_refuse(error, "ibv_memcpy_from_dm", "%zu bytes at %#llx", length,
				 (unsigned long long)offset);
	memcpy(data, rw_dm(dm)->map + offset, length);
	return 0;
}

static void free_memory(struct rw_dm *dm)
{
	if (dm->map)
		munmap(dm->map, dm->length);
	close(dm->fd);
	free(dm);
}

/* Make device memory of a reply's descriptor, which it keeps. */
static struct ibv_dm *make_dm(struct ibv_context *context, uint64_t handle, size_t length, int fd)
{
	struct rw_dm *dm = calloc(1, sizeof *dm);
	int copy = dm ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;

	if (copy < 0) {
		close(fd);
		free(dm);
		return NULL;
	}
	dm->dm = (struct ibv_dm){.context = context,
				 .memcpy_to_dm = copy_to,
				 .memcpy_from_dm = copy_from,
				 .comp_mask = IBV_DM_MASK_HANDLE,
				 .handle = (uint32_t)handle};
	dm->map = rw_map(fd, length);
	dm->length = length;
	dm->fd = copy;
	dm->owner = getpid();
	if (dm->map)
		return &dm->dm;
	free_memory(dm);
	errno = EIO;
	return NULL;
}

static int free_handle(struct ibv_context *context, uint64_t handle)
{
	struct rw_free_dm_reply reply;

	return CALL(rw_context(context), RW_FREE_DM, free_dm, &reply, .dm = handle);
}

struct ibv_dm *rw_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *wanted)
{
	struct rw_alloc_dm_reply reply;
	struct ibv_dm *dm;
	int fd;

	if (wanted->comp_mask) {
		rw_refuse(EINVAL, "ibv_alloc_dm", "mask %#x", wanted->comp_mask);
		return NULL;
	}
	if (CALL_FDS(rw_context(context), RW_ALLOC_DM, alloc_dm, &reply, &fd, NULL,
		     .length = wanted->length, .log_alignment = wanted->log_align_req))
		return NULL;
	dm = make_dm(context, reply.dm, wanted->length, fd);
	if (!dm)
		free_handle(context, reply.dm);
	return dm;
}

/* The child of a fork frees none of its parent's. */
int rw_free_dm(struct ibv_dm *dm)
{
	int error;

	if (rw_dm(dm)->owner != getpid())
		return rw_refuse(EIO, "ibv_free_dm", "it is of another process");
	error = rw_check_unused(&rw_dm(dm)->users, "ibv_free_dm");
	if (error)
		return error;
	error = rw_destroyed(rw_context(dm->context), free_handle(dm->context, dm->handle));
	if (!error)
		free_memory(rw_dm(dm));
	return error;
}

/* A new descriptor of the memory, for ibv_reg_dmabuf_mr of another device or process. */
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm)
{
	return fcntl(rw_dm(dm)->fd, F_DUPFD_CLOEXEC, 0);
}

struct ibv_mr *rw_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			    unsigned int access)
{
	struct rw_reg_dm_mr_reply reply = {0};
	struct ibv_mr *mr = NULL;
	int error;

	if (rw_check_access(&access, ACCESS))
		return NULL;
	mr = rw_new_mr(pd, NULL, length);
	error = mr ? CALL(rw_context(pd->context), RW_REG_DM_MR, reg_dm_mr, &reply,
			  .pd = pd->handle, .dm = dm->handle, .offset = offset, .length = length,
			  .access = access)
		   : ENOMEM;
	mr = rw_finish_mr(mr, error, reply.mr, reply.lkey, reply.rkey);
	if (!mr)
		return NULL;
	((struct rw_mr *)mr)->dm_users = &rw_dm(dm)->users;
	rw_count(&rw_dm(dm)->users, 1);
	return rw_fixed_mr(mr);
}

struct ibv_mr *rw_alloc_null_mr(struct ibv_pd *pd)
{
	struct rw_alloc_null_mr_reply reply = {0};
	struct ibv_mr *mr = rw_new_mr(pd, NULL, SIZE_MAX);
	int error = mr ? CALL(rw_context(pd->context), RW_ALLOC_NULL_MR, alloc_null_mr, &reply,
			      .pd = pd->handle)
		       : ENOMEM;

	return rw_fixed_mr(rw_finish_mr(mr, error, reply.mr, reply.lkey, 0));
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	struct rw_import_dm_reply reply;
	int fd;

	if (CALL_FDS(rw_context(context), RW_IMPORT_DM, import_dm, &reply, &fd, NULL, .dm = handle))
		return NULL;
	return make_dm(context, handle, reply.length, fd);
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
	free_memory(rw_dm(dm));
}
