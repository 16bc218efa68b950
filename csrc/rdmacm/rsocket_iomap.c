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
	for (unsigned index = 0; index < s->peer_iomap_count; index++) {
		struct rs_mapping *mapping = s->mappings;

		while (mapping && mapping->index != (int)index)
			mapping = mapping->next;
		if (!mapping)
			return (int)index;
	}
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

/* The rsocket of a number, locked, if it has a connection; null with errno. */
static struct rsocket *lock_connected(int socket)
{
	struct rsocket *rs = rs_get(socket);

	if (!rs)
		return NULL;
	pthread_mutex_lock(&rs->mutex);
	if (rs->stream && rs->state == RS_CONNECTED)
		return rs;
	pthread_mutex_unlock(&rs->mutex);
	rs_put(rs);
	errno = EINVAL;
	return NULL;
}

static int unlock(struct rsocket *rs, int error)
{
	pthread_mutex_unlock(&rs->mutex);
	rs_put(rs);
	return cm_fail(error);
}

off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	struct rsocket *rs;

	if (prot & ~PROT_WRITE || !len)
		return cm_fail(EINVAL);
	rs = lock_connected(socket);
	if (!rs)
		return -1;
	if (offset == -1)
		offset = (off_t)(uintptr_t)buf;
	return unlock(rs, map(rs, buf, len, prot & PROT_WRITE, offset)) ? -1 : offset;
}

static int unmap(struct rs_stream *s, const void *buffer, size_t length)
{
	struct rs_mapping **link = &s->mappings, *found;

	while (*link && ((*link)->mr->addr != buffer || (*link)->mr->length != length))
		link = &(*link)->next;
	found = *link;
	if (!found)
		return EINVAL;
	*link = found->next;
	ibv_dereg_mr(found->mr);
	free(found);
	return 0;
}

int riounmap(int socket, void *buf, size_t len)
{
	struct rsocket *rs = lock_connected(socket);

	return rs ? unlock(rs, unmap(rs->stream, buf, len)) : -1;
}

/* Write one entry to the list of the peer. Returns an errno. The caller may send a message. */
int rs_iomaps_send(struct rsocket *rs)
{
	struct rs_stream *s = rs->stream;
	struct rs_mapping *mapping = s->mappings;
	struct rs_iomap entry;
	struct iovec iov = {&entry, sizeof entry};
	struct rs_cursor from = {.iov = &iov};
	uint32_t message;

	while (mapping && !mapping->pending)
		mapping = mapping->next;
	s->iomaps_pending = mapping;
	if (!mapping)
		return 0;
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
	s->messages_sent++;
	return rs_stream_write(s, &from, sizeof entry,
			       s->peer_targets.address +
				       s->peer_targets.length * sizeof(struct rs_sge) +
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
static int write_part(struct rs_stream *s, struct rs_cursor *from, uint64_t offset, size_t left,
		      uint32_t *written)
{
	const struct rs_iomap *target = find(s, offset);
	uint64_t end = target ? target->offset + target->memory.length : 0;

	if (!target)
		return EINVAL;
	*written = left < RS_TRANSFER ? (uint32_t)left : RS_TRANSFER;
	if (*written > s->send_free)
		*written = s->send_free;
	if (*written > end - offset)
		*written = (uint32_t)(end - offset);
	return rs_stream_write(s, from, *written, target->memory.address + offset - target->offset,
			       target->memory.key, NULL);
}

/* Returns the number of bytes written, or -1 with errno if there are none. */
size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	struct rsocket *rs = lock_connected(socket);
	struct iovec iov = {(void *)buf, count};
	struct rs_cursor from = {.iov = &iov};
	size_t left = count;
	int error = 0;

	if (!rs)
		return (size_t)-1;
	while (left && !error) {
		uint32_t written = 0;

		error = rs_stream_wait_to_send(rs, flags);
		if (!error && rs->stream->iomaps_pending)
			error = rs_iomaps_send(rs);
		else if (!error)
			error = write_part(rs->stream, &from, (uint64_t)offset + (count - left),
					   left, &written);
		left -= error ? 0 : written;
	}
	if (left < count)
		error = 0;
	return unlock(rs, error) ? (size_t)-1 : count - left;
}
