/* SPDX-License-Identifier: MIT
 * Buffers of ibv_alloc_buf: plain memory of whole pages. No device here is one of a confidential
 * guest, whose buffers are dma-bufs, so that no buffer has a descriptor. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "internal.h"

/* Programs get a pointer to it, and see none of its fields. */
struct ibv_buf {
	struct ibv_pd *pd;
	char *address;
	size_t size;
};

void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf)
{
	struct ibv_buf *made = calloc(1, sizeof *made);
	void *address = NULL;
	int error = made ? 0 : ENOMEM;

	if (!error)
		error = posix_memalign(&address, (size_t)sysconf(_SC_PAGESIZE), size);
	if (error) {
		free(made);
		rw_refuse(error, "ibv_alloc_buf", "%zu bytes", size);
		return NULL;
	}
	*made = (struct ibv_buf){.pd = pd, .address = address, .size = size};
	*buf = made;
	return address;
}

void ibv_free_buf(struct ibv_buf *buf)
{
	free(buf->address);
	free(buf);
}

int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf)
{
	rw_refuse(ENODATA, "ibv_export_buf_dmabuf_fd", "the buffer is no dma-buf");
	return -1;
}

/* Check a range that is registered through a buffer. Returns an errno. */
int rw_check_buf(const struct ibv_buf *buf, const struct ibv_pd *pd, const void *address,
		 size_t length)
{
	size_t offset = (uintptr_t)address - (uintptr_t)buf->address;

	if (pd != buf->pd)
		return rw_refuse(EINVAL, "ibv_reg_mr_ex", "the buffer is of another domain");
	if (offset > buf->size || length > buf->size - offset)
		return rw_refuse(EINVAL, "ibv_reg_mr_ex", "%zu bytes at %p exceed the buffer",
				 length, address);
	return 0;
}

struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *address, size_t length,
			      int access)
{
	if (rw_check_buf(buf, pd, address, length))
		return NULL;
	return ibv_reg_mr_iova2(pd, address, length, (uintptr_t)address, (unsigned int)access);
}
