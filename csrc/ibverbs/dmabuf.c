/* SPDX-License-Identifier: MIT
 * Regions behind dma-bufs: the library maps them, and its copy thread copies for the service, which
 * names a region by its handle and bytes by their offset in the dma-buf. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

/* Map the pages of a range. Returns an errno. */
int rw_dmabuf_map(struct rw_mr *mr, int fd, uint64_t offset, size_t length)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	void *map;

	mr->map_offset = offset - offset % page;
	mr->map_length = length + offset % page;
	if (mr->map_length < length)
		return EINVAL;
	map = mmap(NULL, mr->map_length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   (off_t)mr->map_offset);
	if (map == MAP_FAILED)
		return rw_refuse(errno, "ibv_reg_dmabuf_mr", "the dma-buf cannot be mapped");
	mr->map = map;
	return 0;
}

/* Let the copy thread find a region by its handle. */
void rw_dmabuf_add(struct rw_context *context, struct rw_mr *mr)
{
	pthread_rwlock_wrlock(&context->objects);
	rw_insert(&context->dmabufs, &mr->node, mr->mr.handle);
	pthread_rwlock_unlock(&context->objects);
}

void rw_dmabuf_unmap(struct rw_context *context, struct rw_mr *mr)
{
	if (!mr->map)
		return;
	pthread_rwlock_wrlock(&context->objects);
	rw_remove(&context->dmabufs, &mr->node);
	pthread_rwlock_unlock(&context->objects);
	munmap(mr->map, mr->map_length);
}

/* Copy a range of a region. A part of it that the dma-buf lacks is EFAULT. The lock is held. */
static int copy_range(struct rw_mr *mr, void *buffer, const struct rw_copy_request *request)
{
	uint64_t start = request->address - mr->map_offset;

	if (request->address < mr->map_offset || start > mr->map_length ||
	    request->length > mr->map_length - start)
		return EFAULT;
	return rw_copy_host((uintptr_t)mr->map + start, buffer, request->length,
			    request->direction == RW_COPY_WRITE);
}

/* Returns an errno. */
int rw_dmabuf_copy(struct rw_context *context, const struct rw_copy_request *request)
{
	struct rw_node *node;
	int error = EINVAL;

	pthread_rwlock_rdlock(&context->objects);
	node = request->mr <= UINT32_MAX ? rw_find(&context->dmabufs, (uint32_t)request->mr) : NULL;
	if (node)
		error = copy_range(CONTAINER(node, struct rw_mr, node), context->copy.buffer,
				   request);
	pthread_rwlock_unlock(&context->objects);
	return error;
}
