/* SPDX-License-Identifier: MIT
 * Memory regions: of host memory, of CUDA devices, and behind dma-bufs. */
#include <errno.h>
#include <stdlib.h>

#include "internal.h"

enum {
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
		 IBV_ACCESS_HUGETLB | 3 << 8, /* and the two of FLUSH */
	ON_DEMAND = ACCESS | IBV_ACCESS_ON_DEMAND,
	REMOTE_CHANGES = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	WRITING = IBV_ACCESS_LOCAL_WRITE | REMOTE_CHANGES | IBV_ACCESS_MW_BIND,
};

/* Fields of ibv_mr_init_attr, which <infiniband/verbs.h> has since rdma-core 58. */
struct mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	struct ibv_dmah *dmah; /* since 59 */
	struct ibv_buf *buf;   /* since 64 */
};

enum {
	MASK_IOVA = 1,
	MASK_ADDR = 2,
	MASK_FD = 4,
	MASK_FD_OFFSET = 8,
	MASK_DMAH = 16,
	MASK_BUF = 32,
	MASKS = 63,
};

/* Remove the optional access flags, which devices may ignore, and check that the others are some of
 * `allowed`. Returns an errno. */
int rw_check_access(unsigned int *access, unsigned int allowed)
{
	*access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
	if (*access & ~allowed)
		return rw_refuse(EINVAL, "ibv_reg_mr", "access flags %#x", *access);
	return 0;
}

/* Check that host memory can be pinned for an access. That on demand is not: the copy thread copies
 * it, with the rights that the program has to the pages then. Returns an errno; 0 for invalid
 * arguments, which the service refuses. */
static int check_pages(struct rw_context *context, const void *address, size_t length,
		       unsigned int access)
{
	bool overflows = length > UINTPTR_MAX - (uintptr_t)address;

	if (access & IBV_ACCESS_ON_DEMAND)
		return rw_copy_thread_start(context);
	if (!length || length == SIZE_MAX || overflows ||
	    (access & REMOTE_CHANGES && !(access & IBV_ACCESS_LOCAL_WRITE)))
		return 0;
	if (!rw_make_present(address, length, access & WRITING))
		return 0;
	return rw_refuse(EFAULT, "ibv_reg_mr", "%zu bytes at %p: not mapped%s", length, address,
			 access & WRITING ? ", or not writable" : ", or not readable");
}

struct ibv_mr *rw_new_mr(struct ibv_pd *pd, void *address, size_t length)
{
	struct rw_mr *mr = calloc(1, sizeof *mr);

	if (!mr)
		return NULL;
	mr->mr.context = pd->context;
	mr->mr.pd = pd;
	mr->mr.addr = address;
	mr->mr.length = length;
	return &mr->mr;
}

/* Set the handle and the keys of a region, or free it after an error. */
struct ibv_mr *rw_finish_mr(struct ibv_mr *mr, int error, uint64_t handle, uint64_t lkey,
			    uint64_t rkey)
{
	if (error) {
		free(mr);
		errno = error;
		return NULL;
	}
	mr->handle = (uint32_t)handle;
	mr->lkey = (uint32_t)lkey;
	mr->rkey = (uint32_t)rkey;
	rw_count(&rw_pd(mr->pd)->users, 1);
	return mr;
}

/* Mark a region that ibv_rereg_mr refuses. */
struct ibv_mr *rw_fixed_mr(struct ibv_mr *mr)
{
	if (mr)
		((struct rw_mr *)mr)->is_fixed = true;
	return mr;
}

static struct ibv_mr *register_range(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
				     unsigned int access, uint64_t memory)
{
	struct rw_context *context = rw_context(pd->context);
	struct ibv_mr *mr = rw_new_mr(pd, address, length);
	struct rw_reg_mr_reply reply = {0};
	int error = mr ? 0 : ENOMEM;

	if (!error && memory == RW_MEMORY_OF_GPU)
		error = rw_copy_thread_start(context);
	else if (!error)
		error = check_pages(context, address, length, access);
	if (!error)
		error = CALL(context, RW_REG_MR, reg_mr, &reply, .pd = pd->handle,
			     .address = (uintptr_t)address, .length = length, .iova = iova,
			     .access = access, .memory = memory);
	mr = rw_finish_mr(mr, error, reply.mr, reply.lkey, reply.rkey);
	if (mr)
		((struct rw_mr *)mr)->access = access;
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
				unsigned int access)
{
	bool is_gpu = rw_gpu_is_address(address);
	uint64_t memory = is_gpu ? RW_MEMORY_OF_GPU : RW_MEMORY_OF_HOST;

	if (rw_check_access(&access, is_gpu ? ACCESS : ON_DEMAND))
		return NULL;
	return register_range(pd, address, length, iova, access, memory);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, address, length, (uintptr_t)address, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
			       int access)
{
	return ibv_reg_mr_iova2(pd, address, length, iova, (unsigned int)access);
}

/* Register a range of a dma-buf that can be mapped. */
static struct ibv_mr *register_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t length,
				      uint64_t iova, int fd, unsigned int access)
{
	struct rw_context *context = rw_context(pd->context);
	struct rw_reg_dmabuf_mr_reply reply = {0};
	struct ibv_mr *mr = rw_new_mr(pd, NULL, length);
	int error = mr ? rw_dmabuf_map((struct rw_mr *)mr, fd, offset, length) : ENOMEM;

	if (!error)
		error = rw_copy_thread_start(context);
	if (!error)
		error = CALL_FDS(context, RW_REG_DMABUF_MR, reg_dmabuf_mr, &reply, NULL, &fd,
				 .pd = pd->handle, .offset = offset, .length = length, .iova = iova,
				 .access = access);
	if (error && mr)
		rw_dmabuf_unmap(context, (struct rw_mr *)mr);
	mr = rw_finish_mr(mr, error, reply.mr, reply.lkey, reply.rkey);
	if (mr)
		rw_dmabuf_add(context, (struct rw_mr *)mr);
	return rw_fixed_mr(mr);
}

/* A dma-buf of a CUDA device cannot be mapped; the region's virtual address is then that of the
 * device memory, by which CUDA copies. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access_flags)
{
	unsigned int access = (unsigned int)access_flags;
	void *address = (void *)(uintptr_t)iova;

	if (rw_check_access(&access, ACCESS))
		return NULL;
	if (rw_gpu_is_address(address))
		return register_range(pd, address, length, iova, access, RW_MEMORY_OF_GPU);
	return register_dmabuf(pd, offset, length, iova, fd, access);
}

/* Check which attributes there are, and their buffer. Returns an errno. */
static int check_attributes(struct ibv_pd *pd, const struct mr_init_attr *wanted)
{
	uint64_t mask = wanted->comp_mask, with_fd = mask & (MASK_FD | MASK_FD_OFFSET);
	bool is_range = mask & MASK_ADDR && !with_fd;
	bool is_dmabuf = mask & MASK_FD && mask & MASK_IOVA && !(mask & MASK_BUF);

	if (mask & ~(uint64_t)MASKS)
		return rw_refuse(EOPNOTSUPP, "ibv_reg_mr_ex", "mask %#llx",
				 (unsigned long long)mask);
	if (!is_range && !is_dmabuf)
		return rw_refuse(EINVAL, "ibv_reg_mr_ex", "mask %#llx", (unsigned long long)mask);
	if (mask & MASK_DMAH && wanted->access & IBV_ACCESS_ON_DEMAND)
		return rw_refuse(EOPNOTSUPP, "ibv_reg_mr_ex", "a DMA handle and on-demand paging");
	return mask & MASK_BUF ? rw_check_buf(wanted->buf, pd, wanted->addr, wanted->length) : 0;
}

struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attributes)
{
	const struct mr_init_attr *wanted = (const struct mr_init_attr *)attributes;
	uint64_t mask = wanted->comp_mask;
	uint64_t iova = mask & MASK_IOVA ? wanted->iova : (uintptr_t)wanted->addr;
	struct ibv_mr *mr;

	if (check_attributes(pd, wanted))
		return NULL;
	if (mask & MASK_FD)
		mr = ibv_reg_dmabuf_mr(pd, mask & MASK_FD_OFFSET ? wanted->fd_offset : 0,
				       wanted->length, iova, wanted->fd, wanted->access);
	else
		mr = ibv_reg_mr_iova2(pd, wanted->addr, wanted->length, iova,
				      (unsigned int)wanted->access);
	if (mr && mask & MASK_DMAH)
		((struct rw_mr *)mr)->dmah = rw_hold_dmah(wanted->dmah);
	return mr;
}

static int call_rereg(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t length,
		      unsigned int access)
{
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	struct rw_rereg_mr_reply reply;
	int error = CALL(rw_context(mr->context), RW_REREG_MR, rereg_mr, &reply, .mr = mr->handle,
			 .flags = (uint32_t)flags,
			 .pd = flags & IBV_REREG_MR_CHANGE_PD ? pd->handle : 0,
			 .address = moves ? (uintptr_t)address : 0, .length = moves ? length : 0,
			 .access = flags & IBV_REREG_MR_CHANGE_ACCESS ? access : 0);

	if (error)
		return error;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		((struct rw_mr *)mr)->access = access;
	mr->lkey = (uint32_t)reply.lkey;
	mr->rkey = (uint32_t)reply.rkey;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		rw_count(&rw_pd(mr->pd)->users, -1);
		rw_count(&rw_pd(pd)->users, 1);
		mr->pd = pd;
	}
	if (moves)
		mr->addr = address;
	if (moves)
		mr->length = length;
	return 0;
}

/* Check the pages of a region's new translation, or of its present one for new access. Returns an
 * errno. */
static int check_rereg(struct ibv_mr *mr, int flags, const void *address, size_t length,
		       unsigned int access)
{
	struct rw_context *context = rw_context(mr->context);
	struct rw_mr *own = (struct rw_mr *)mr;
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;

	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = own->access;
	else if (!moves && (own->map || rw_gpu_is_address(mr->addr)))
		return 0;
	else if (!moves)
		return check_pages(context, mr->addr, mr->length, access);
	return moves ? check_pages(context, address, length, access) : 0;
}

/* Returns 0 or a value of ibv_rereg_mr_err_code, with errno. */
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t length,
		 int access_flags)
{
	unsigned int access = (unsigned int)access_flags;
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;

	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED ||
	    (flags & IBV_REREG_MR_CHANGE_PD && !pd) || (moves && (!address || !length))) {
		rw_refuse(EINVAL, "ibv_rereg_mr", "flags %#x", flags);
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (((struct rw_mr *)mr)->is_fixed) {
		rw_refuse(EINVAL, "ibv_rereg_mr", "the region is not one of ibv_reg_mr");
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (rw_check_access(&access, ON_DEMAND))
		return IBV_REREG_MR_ERR_INPUT;
	if (moves && rw_gpu_is_address(address)) {
		rw_refuse(EOPNOTSUPP, "ibv_rereg_mr", "device memory");
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (check_rereg(mr, flags, address, length, access) ||
	    call_rereg(mr, flags, pd, address, length, access))
		return IBV_REREG_MR_ERR_CMD;
	return 0;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct rw_context *context = rw_context(mr->context);
	struct rw_dereg_mr_reply reply;
	int error = CALL(context, RW_DEREG_MR, dereg_mr, &reply, .mr = mr->handle);

	error = rw_destroyed(context, error);
	if (error)
		return error;
	rw_dmabuf_unmap(context, (struct rw_mr *)mr);
	rw_release_dmah(((struct rw_mr *)mr)->dmah);
	rw_count(((struct rw_mr *)mr)->dm_users, -1);
	rw_count(&rw_pd(mr->pd)->users, -1);
	free(mr);
	return 0;
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

/* Bring the pages of a range into memory. Returns an errno: without FLUSH the program does not wait
 * for the pages, and missing ones are no error. */
static int prefetch(const struct ibv_sge *sge, bool writing, bool flush)
{
	const void *address = (void *)(uintptr_t)sge->addr;

	if (!rw_make_present(address, sge->length, writing) || !flush)
		return 0;
	return rw_refuse(EFAULT, "ibv_advise_mr", "%u bytes at %p are not mapped", sge->length,
			 address);
}

int rw_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		 struct ibv_sge *sges, uint32_t count)
{
	struct rw_advise_mr_reply reply;
	int error = 0;

	for (uint32_t i = 0; i < count && !error; i++) {
		error = CALL(rw_context(pd->context), RW_ADVISE_MR, advise_mr, &reply,
			     .pd = pd->handle, .advice = advice, .flags = flags,
			     .address = sges[i].addr, .length = sges[i].length,
			     .lkey = sges[i].lkey);
		if (!error && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
			error = prefetch(&sges[i], advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
					 flags & IBV_ADVISE_MR_FLAG_FLUSH);
	}
	return error;
}
