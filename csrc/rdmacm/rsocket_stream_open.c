/* SPDX-License-Identifier: MIT
 * What a connected rsocket is made of: queue pair, CQ, buffers, and the private data that tells the
 * peer of them. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsocket_stream.h"

enum { VERSION = 1, FLAG_BIG_ENDIAN = 1, FLAG_IOMAPS = 2 };

static const bool BIG_ENDIAN_HOST = __BYTE_ORDER == __BIG_ENDIAN;

/* Queues of at least 16 entries, and at most what the device has. */
static uint32_t queue_size(int wanted, const struct ibv_device_attr *device)
{
	int most = MIN(device->max_qp_wr - RS_CONTROLS, RS_MAX_QUEUE);

	return (uint32_t)MAX(RS_MIN_QUEUE, MIN(wanted, most));
}

static int create_qp(struct rsocket *rs, struct rs_stream *s)
{
	struct ibv_device_attr device;
	struct ibv_comp_channel *channel = rs_comp_channel(rs->id->verbs);
	struct ibv_qp_init_attr attributes = {.qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	int error = ibv_query_device(rs->id->verbs, &device);

	if (error)
		return cm_fail(error);
	s->data_requests = queue_size(rs->options.send_queue, &device) - RS_CONTROLS;
	s->credits = queue_size(rs->options.receive_queue, &device);
	attributes.cap = (struct ibv_qp_cap){
		.max_send_wr = s->data_requests + RS_CONTROLS,
		.max_recv_wr = s->credits + RS_CONTROLS + RS_POSTED,
		.max_send_sge = 2,
		.max_recv_sge = 1,
		.max_inline_data = (uint32_t)rs->options.inline_data,
	};
	if (channel)
		s->cq = ibv_create_cq(
			rs->id->verbs,
			(int)(attributes.cap.max_send_wr + attributes.cap.max_recv_wr), rs, channel,
			0);
	if (!s->cq)
		return -1;
	attributes.send_cq = attributes.recv_cq = s->cq;
	if (rdma_create_qp(rs->id, NULL, &attributes))
		return -1;
	s->qp = rs->id->qp;
	s->max_inline = MIN(attributes.cap.max_inline_data, RS_MAX_INLINE);
	return 0;
}

/* Memory of a connection: the targets and the entries of mapped buffers, the receive buffer, and,
 * in a region of its own, the send buffer and the entries that are written to the peer. */
static int create_buffers(struct rsocket *rs, struct rs_stream *s)
{
	size_t lists = sizeof *s->targets * RS_TARGETS + sizeof *s->iomaps * s->iomap_count;
	size_t written = lists + s->receive_size;
	size_t sent = s->send_size + sizeof *s->updates * RS_CONTROLS;

	s->memory = calloc(1, written + sent);
	if (!s->memory)
		return -1;
	s->targets = (struct rs_sge *)s->memory;
	s->iomaps = (struct rs_iomap *)(s->targets + RS_TARGETS);
	s->received = s->memory + lists;
	s->sent = s->memory + written;
	s->updates = (struct rs_sge *)(s->sent + s->send_size);
	s->remote_mr = ibv_reg_mr(rs->id->pd, s->memory, written,
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	s->local_mr = s->remote_mr ? ibv_reg_mr(rs->id->pd, s->sent, sent, IBV_ACCESS_LOCAL_WRITE)
				   : NULL;
	return s->local_mr ? 0 : -1;
}

/* Post receives: messages need no memory. Returns -1 with errno. */
int rs_stream_post_receives(struct rs_stream *s, unsigned count)
{
	struct ibv_recv_wr requests[RS_POSTED], *bad;
	int error = 0;

	while (count && !error) {
		unsigned part = MIN(count, RS_POSTED);

		for (unsigned i = 0; i < part; i++)
			requests[i] = (struct ibv_recv_wr){.wr_id = RS_RECEIVED,
							   .next = i + 1 < part ? &requests[i + 1]
										: NULL};
		error = ibv_post_recv(s->qp, requests, &bad);
		count -= part;
	}
	return cm_fail(error);
}

static uint32_t buffer_size(int wanted, uint32_t least)
{
	return wanted < (int)least ? least : ((uint32_t)wanted + 7) & ~7u;
}

/* Free a stream whose id is destroyed. */
void rs_stream_close(struct rs_stream *s)
{
	if (s->qp)
		ibv_destroy_qp(s->qp);
	if (s->cq)
		ibv_destroy_cq(s->cq);
	rs_iomaps_close(s);
	if (s->remote_mr)
		ibv_dereg_mr(s->remote_mr);
	if (s->local_mr)
		ibv_dereg_mr(s->local_mr);
	free(s->memory);
	free(s);
}

/* Make the queue pair and the buffers of an rsocket whose id has a device. Returns -1 with errno.
 */
int rs_stream_open(struct rsocket *rs)
{
	struct rs_stream *s = calloc(1, sizeof *s);
	int error;

	if (!s)
		return cm_fail(ENOMEM);
	s->receive_size = buffer_size(rs->options.receive_buffer, 2 * sizeof(uint64_t));
	s->send_size = buffer_size(rs->options.send_buffer, 2 * RS_LOW_WATER);
	s->iomap_count = (unsigned)rs->options.iomaps;
	if (create_qp(rs, s) || create_buffers(rs, s) ||
	    rs_stream_post_receives(s, s->credits + RS_CONTROLS + RS_POSTED)) {
		error = errno;
		rs->id->qp = NULL;
		rs_stream_close(s);
		return cm_fail(error);
	}
	s->send_free = s->send_size;
	s->requests_free = s->data_requests;
	s->controls_free = RS_CONTROLS;
	s->consumed = s->offered = s->receive_size / 2; /* the offer is of the first half */
	pthread_mutex_lock(&rs->mutex);
	rs->stream = s;
	pthread_mutex_unlock(&rs->mutex);
	return 0;
}

/* Numbers of iomaps have 8 bits: above 128 they are multiples of 256. */
static uint8_t scaled(unsigned value)
{
	return (uint8_t)(value <= 128 ? value : 128 | value >> 8);
}

static unsigned unscaled(uint8_t value)
{
	return value <= 128 ? value : (value & 127u) << 8;
}

/* A number of mapped buffers that the private data can express. */
int rs_iomap_count(int wanted)
{
	return (int)unscaled(scaled((unsigned)MIN(wanted, 0x7fff)));
}

/* The private data of a request and of an answer. */
void rs_stream_offer(struct rsocket *rs, struct rs_conn_data *data)
{
	struct rs_stream *s = rs->stream;

	*data = (struct rs_conn_data){
		.version = VERSION,
		.flags = FLAG_IOMAPS | (BIG_ENDIAN_HOST ? FLAG_BIG_ENDIAN : 0),
		.credits = htobe16((uint16_t)s->credits),
		.iomaps = scaled(s->iomap_count),
		.targets = {htobe64((uintptr_t)s->targets), htobe32(s->remote_mr->rkey),
			    htobe32(RS_TARGETS)},
		.buffer = {htobe64((uintptr_t)s->received), htobe32(s->remote_mr->rkey),
			   htobe32(s->receive_size / 2)},
	};
}

/* Use the private data of the peer. Returns -1 with errno if it is of another protocol. */
int rs_stream_start(struct rsocket *rs, const void *private, size_t length)
{
	struct rs_stream *s = rs->stream;
	struct rs_conn_data data;

	if (!private || length < sizeof data || *(const uint8_t *)private != VERSION)
		return cm_fail(rw_refuse(EPROTONOSUPPORT, "rsocket", "the peer is no rsocket"));
	memcpy(&data, private, sizeof data);
	rs->reading = rs->writing = true;
	s->swap = !(data.flags & FLAG_BIG_ENDIAN) == BIG_ENDIAN_HOST;
	s->send_limit = be16toh(data.credits);
	s->peer_targets = (struct rs_sge){be64toh(data.targets.address), be32toh(data.targets.key),
					  be32toh(data.targets.length)};
	s->peer_target = 1;
	s->target = (struct rs_sge){be64toh(data.buffer.address), be32toh(data.buffer.key),
				    be32toh(data.buffer.length)};
	s->next_target = 1;
	if (data.flags & FLAG_IOMAPS)
		s->peer_iomap_count = unscaled(data.iomaps);
	if (s->peer_targets.length < RS_TARGETS)
		return cm_fail(rw_refuse(EPROTO, "rsocket", "the peer has %u targets",
					 s->peer_targets.length));
	return 0;
}
