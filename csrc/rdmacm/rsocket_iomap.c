/* SPDX-License-Identifier: MIT
 * Buffers that the peer of an rsocket writes to: riomap, riounmap and riowrite of rsocket(7).
 *
 * The peer has a list of buffers in its memory. An entry is written there before the next data. */
#include <byteswap.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rsocket_stream.h"

/* The first entry of the peer's list without a mapping, or -1 if all have one. */
static int unused_index(struct rs_stream *s)
{
	for (int index = 0; index < (int)s->peer_iomap_count; index++)
		if (!*RS_FIND(s->mappings, mapping, mapping->index == index))
			return index;
	return -1;
}

/* Register a buffer. Returns an errno. The caller has the mutex. */
static int map(struct rsocket *rs, void *buffer, size_t length, bool remote, off_t offset)
{
	struct rs_stream *s = rs->stream;
	int index = remote ? unused_index(s) : -1;
	struct rs_mapping *mapping;

	if (length > UINT32_MAX)
		return EINVAL;
	if (remote && index < 0)
		return ENOMEM;
	mapping = calloc(1, sizeof *mapping);
	if (!mapping)
		return ENOMEM;
	mapping->mr = ibv_reg_mr(rs->id->pd, buffer, length,
				 IBV_ACCESS_LOCAL_WRITE | (remote ? IBV_ACCESS_REMOTE_WRITE : 0));
	if (!mapping->mr) {
		free(mapping);
		return errno;
	}
	mapping->offset = (uint64_t)offset;
	mapping->index = index;
	mapping->pending = remote;
	mapping->next = s->mappings;
	s->mappings = mapping;
	s->iomaps_pending |= remote;
	return 0;
}

/* As rs_lock(), for an rsocket that has a connection; else null with errno. */
static struct rsocket *lock_connected(int socket)
{
	struct rsocket *rs = rs_lock(socket);

	if (!rs || (rs->stream && rs->state == RS_CONNECTED))
		return rs;
	rs_unlock(&rs);
	errno = EINVAL;
	return NULL;
}

off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	RS_LOCKED rs = lock_connected(socket);

	if (!rs)
		return -1;
	if (prot & ~PROT_WRITE || !len)
		return cm_fail(EINVAL);
	if (offset == -1)
		offset = (off_t)(uintptr_t)buf;
	return cm_fail(map(rs, buf, len, prot & PROT_WRITE, offset)) ? -1 : offset;
}

static int unmap(struct rs_stream *s, const void *buffer, size_t length)
{
	struct rs_mapping **link =
		RS_FIND(s->mappings, one, one->mr->addr == buffer && one->mr->length == length);
	struct rs_mapping *found = *link;

	if (!found)
		return EINVAL;
	*link = found->next;
	ibv_dereg_mr(found->mr);
	free(found);
	return 0;
}

int riounmap(int socket, void *buf, size_t len)
{
	RS_LOCKED rs = lock_connected(socket);

	return rs ? cm_fail(unmap(rs->stream, buf, len)) : -1;
}

/* Write one entry to the list of the peer. The caller may send a message. */
void rs_iomaps_send(struct rsocket *rs)
{
	struct rs_stream *s = rs->stream;
	struct rs_mapping *mapping = *RS_FIND(s->mappings, one, one->pending);
	struct rs_iomap entry;
	struct iovec iov = {&entry, sizeof entry};
	struct rs_cursor from = {.iov = &iov};
	uint32_t message;

	s->iomaps_pending = mapping;
	if (!mapping)
		return;
	mapping->pending = false;
	message = rs_message(RS_IOMAP, (uint32_t)mapping->index);
	entry = (struct rs_iomap){
		mapping->offset,
		{(uintptr_t)mapping->mr->addr, mapping->mr->rkey, (uint32_t)mapping->mr->length}};
	if (s->swap)
		entry = (struct rs_iomap){bswap_64(entry.offset),
					  {bswap_64(entry.memory.address),
					   bswap_32(entry.memory.key),
					   bswap_32(entry.memory.length)}};
	rs_stream_write(rs, &from, sizeof entry,
			s->peer_targets.address + s->peer_targets.length * sizeof(struct rs_sge) +
				(uint32_t)mapping->index * sizeof entry,
			s->peer_targets.key, &message);
}

void rs_iomaps_close(struct rs_stream *s)
{
	while (s->mappings)
		unmap(s, s->mappings->mr->addr, s->mappings->mr->length);
}

/* The buffer of the peer that has an offset, or null. */
static const struct rs_iomap *find(struct rs_stream *s, uint64_t offset)
{
	for (unsigned i = 0; i < s->iomap_count; i++)
		if (offset >= s->iomaps[i].offset &&
		    offset - s->iomaps[i].offset < s->iomaps[i].memory.length)
			return &s->iomaps[i];
	return NULL;
}

/* Write as much as there is room for. Returns an errno. */
static int write_part(struct rsocket *rs, struct rs_cursor *from, uint64_t offset, size_t *left)
{
	const struct rs_iomap *target = find(rs->stream, offset);
	uint32_t most, length;

	if (!target)
		return EINVAL;
	offset -= target->offset;
	most = MIN(rs->stream->send_free, target->memory.length - (uint32_t)offset);
	length = (uint32_t)MIN(MIN(*left, RS_TRANSFER), most);
	*left -= rs_stream_write(rs, from, length, target->memory.address + offset,
				 target->memory.key, NULL);
	return 0;
}

/* Returns the number of bytes written, or -1 with errno if there are none. */
size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	RS_LOCKED rs = lock_connected(socket);
	struct iovec iov = {(void *)buf, count};
	struct rs_cursor from = {.iov = &iov};
	size_t left = count;
	int error = 0;

	if (!rs)
		return (size_t)-1;
	while (left && !error) {
		error = rs_stream_wait_to_send(rs, flags);
		if (!error)
			error = write_part(rs, &from, (uint64_t)offset + (count - left), &left);
	}
	return error && left == count ? (size_t)cm_fail(error) : count - left;
}
