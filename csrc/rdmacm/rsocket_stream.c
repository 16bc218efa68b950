/* SPDX-License-Identifier: MIT
 * The data of connected rsockets, by the protocol of rdma-core's docs/rsocket, version 1.
 *
 * Data is written to the receive buffer of the peer, each message by an RDMA WRITE with immediate
 * data: its length. The peer offers one half of its buffer at a time: it writes the address of the
 * half to one of the two entries of a list in our memory, `targets`. When its program has read half
 * of the buffer, it writes the next entry, and sends the number of messages that it can take, also
 * in immediate data. Both ends do so. */
#include <byteswap.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "rsocket_stream.h"

enum { DISCONNECT, KEEPALIVE, SHUTDOWN }; /* control messages */
enum { POLLED = 16 };			  /* completions at a time */
enum { KEPT_FOR_SHUTDOWN = 2, LINGER = 10 /* s */ };

#define VALUE(message) ((message) & 0x1fffffff)

/* Post a send request. Its completion frees `bytes` of the send buffer. Returns whether it is
 * posted; else the rsocket has failed. */
static bool post(struct rsocket *rs, struct ibv_send_wr *request, enum rs_request kind,
		 uint32_t bytes)
{
	struct rs_stream *s = rs->stream;
	struct ibv_send_wr *bad;
	int error;

	request->wr_id = (uint64_t)bytes << 8 | kind;
	if (kind == RS_CONTROL)
		s->controls_free--;
	else
		s->requests_free--;
	s->send_free -= bytes;
	error = ibv_post_send(s->qp, request, &bad);
	if (error)
		rs_fail(rs, error);
	return !error;
}

static void post_control(struct rsocket *rs, uint32_t message)
{
	struct ibv_send_wr request = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				      .imm_data = htobe32(message)};

	post(rs, &request, RS_CONTROL, 0);
}

/* Write bytes of the program to the peer's memory, by way of the send buffer, which has room,
 * unless they are few. Returns their number, or 0 if the rsocket has failed. */
uint32_t rs_stream_write(struct rsocket *rs, struct rs_cursor *from, uint32_t length,
			 uint64_t address, uint32_t key, const uint32_t *message)
{
	struct rs_stream *s = rs->stream;
	uint8_t few[RS_MAX_INLINE];
	uint32_t first = MIN(s->send_size - s->send_offset, length);
	struct ibv_sge parts[2] = {{(uintptr_t)few, length, 0}};
	struct ibv_send_wr request = {
		.sg_list = parts,
		.num_sge = 1,
		.opcode = message ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
		.wr.rdma = {address, key},
	};

	if (message) {
		request.imm_data = htobe32(*message);
		s->messages_sent++;
	}
	if (length <= s->max_inline) {
		rs_copy(few, from, length);
		request.send_flags = IBV_SEND_INLINE;
		return post(rs, &request, RS_SENT, 0) ? length : 0;
	}
	rs_copy(s->sent + s->send_offset, from, first);
	rs_copy(s->sent, from, length - first);
	parts[0] = (struct ibv_sge){(uintptr_t)s->sent + s->send_offset, first, s->local_mr->lkey};
	parts[1] = (struct ibv_sge){(uintptr_t)s->sent, length - first, s->local_mr->lkey};
	request.num_sge = first < length ? 2 : 1;
	s->send_offset = (s->send_offset + length) % s->send_size;
	return post(rs, &request, RS_SENT, length) ? length : 0;
}

/* Offer the half of the receive buffer that was read, in the next target of the peer. */
static void offer_half(struct rsocket *rs, uint32_t message)
{
	struct rs_stream *s = rs->stream;
	struct rs_sge *update = &s->updates[s->update++ % RS_CONTROLS];
	struct ibv_sge part = {(uintptr_t)update, sizeof *update, s->local_mr->lkey};
	struct ibv_send_wr request = {
		.sg_list = &part,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htobe32(message),
		.send_flags = s->max_inline >= sizeof *update ? IBV_SEND_INLINE : 0,
		.wr.rdma = {s->peer_targets.address + s->peer_target * sizeof *update,
			    s->peer_targets.key},
	};
	uint32_t half = s->receive_size / 2;

	*update = (struct rs_sge){(uintptr_t)s->received + s->offered, s->remote_mr->rkey, half};
	if (s->swap)
		*update = (struct rs_sge){bswap_64(update->address), bswap_32(update->key),
					  bswap_32(update->length)};
	s->consumed -= half;
	s->offered = s->offered ? 0 : half;
	s->peer_target = (s->peer_target + 1) % s->peer_targets.length;
	post(rs, &request, RS_CONTROL, 0);
}

/* Tell the peer that it may send more, if that is worth a message. */
static void grant(struct rsocket *rs)
{
	struct rs_stream *s = rs->stream;
	uint32_t message = rs_message(RS_GRANT, s->messages + s->credits);
	bool half = s->consumed >= s->receive_size / 2;

	if (rs->state != RS_CONNECTED || s->controls_free <= KEPT_FOR_SHUTDOWN ||
	    (!half && (uint16_t)(s->messages - s->granted) < s->credits / 2))
		return;
	s->granted = s->messages;
	if (half)
		offer_half(rs, message);
	else
		post_control(rs, message);
}

static void disconnect(struct rsocket *rs)
{
	if (rs->state != RS_CONNECTED && rs->state != RS_CONNECTING)
		return;
	rs->state = RS_DISCONNECTED;
	rs->reading = rs->writing = false;
}

/* A message of the peer has arrived. */
static void received(struct rsocket *rs, uint32_t message)
{
	struct rs_stream *s = rs->stream;
	uint32_t value = VALUE(message);

	switch (message >> 29) {
	case RS_DATA:
		s->messages++;
		if (value > s->receive_size - s->ready)
			rs_fail(rs, EPROTO);
		else
			s->ready += value;
		break;
	case RS_IOMAP:
		s->messages++;
		break;
	case RS_GRANT:
		s->send_limit = (uint16_t)value;
		break;
	case RS_CONTROL_MESSAGE:
		if (value == SHUTDOWN)
			rs->reading = false;
		if (value == DISCONNECT || (value == SHUTDOWN && !rs->writing))
			disconnect(rs);
		break;
	}
}

static int error_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return ETIMEDOUT;
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return ECONNRESET;
	default:
		return EIO;
	}
}

/* A request of this side is complete. */
static void sent(struct rsocket *rs, const struct ibv_wc *done)
{
	struct rs_stream *s = rs->stream;

	if ((done->wr_id & 0xff) == RS_CONTROL)
		s->controls_free++;
	else
		s->requests_free++;
	s->send_free += (uint32_t)(done->wr_id >> 8);
	if (done->status != IBV_WC_SUCCESS && rs->state == RS_CONNECTED)
		rs_fail(rs, error_of(done->status));
}

/* Whether all that was sent has arrived. */
static bool is_sent(struct rsocket *rs)
{
	struct rs_stream *s = rs->stream;

	return rs->state != RS_CONNECTED ||
	       (s->requests_free == s->data_requests && s->controls_free == RS_CONTROLS);
}

/* Handle completions, and answer them. The caller has the mutex. */
void rs_stream_poll(struct rsocket *rs)
{
	struct rs_stream *s = rs->stream;
	struct ibv_wc done[POLLED];
	int count;

	while ((count = ibv_poll_cq(s->cq, POLLED, done)) > 0)
		for (int i = 0; i < count; i++) {
			if (done[i].wr_id != RS_RECEIVED)
				sent(rs, &done[i]);
			else if (done[i].status == IBV_WC_SUCCESS && ++s->unposted)
				received(rs, be32toh(done[i].imm_data));
		}
	if (s->unposted >= RS_POSTED && rs->state < RS_DISCONNECTED) {
		if (rs_stream_post_receives(s, s->unposted))
			rs_fail(rs, errno);
		s->unposted = 0;
	}
	if (count < 0 && rs->state < RS_DISCONNECTED)
		rs_fail(rs, EIO);
	grant(rs);
}

/* Use the next target if it was written. Its key and length are read at once, after which the
 * address is there, too: the peer's write may be under way. */
static bool has_target(struct rs_stream *s)
{
	struct rs_sge *next = &s->targets[s->next_target], found;
	uint64_t *tail = (uint64_t *)&next->key, read;

	if (s->target.length)
		return true;
	read = __atomic_load_n(tail, __ATOMIC_ACQUIRE);
	memcpy(&found.key, &read, sizeof read);
	if (!found.length)
		return false;
	found.address = next->address;
	s->target = found;
	__atomic_store_n(tail, 0, __ATOMIC_RELEASE);
	s->next_target = (s->next_target + 1) % RS_TARGETS;
	return true;
}

/* Whether a message can be sent. */
static bool can_send(struct rsocket *rs)
{
	struct rs_stream *s = rs->stream;

	return rs->writing && s->requests_free && s->send_free >= RS_LOW_WATER &&
	       s->messages_sent != s->send_limit && has_target(s);
}

/* Whether a call that sends has something to do, or an error to return. */
static bool may_send(struct rsocket *rs)
{
	return rs->state != RS_CONNECTING && (!rs->writing || can_send(rs));
}

/* Why nothing can be sent; 0 if something can. */
static int send_error(struct rsocket *rs)
{
	int error = rs_take_error(rs);

	if (error || rs->writing)
		return error;
	if (rs->state == RS_IDLE || rs->state == RS_LISTENING)
		return ENOTCONN;
	return rs->stream && rs->stream->shut ? EPIPE : ECONNRESET;
}

/* Send a message, of as much as there is room for. Returns its length, or 0 after a failure. */
static uint32_t send_message(struct rsocket *rs, struct rs_cursor *from, size_t left)
{
	struct rs_sge *target = &rs->stream->target;
	uint32_t most = MIN(rs->stream->send_free, target->length);
	uint32_t length = (uint32_t)MIN(MIN(left, RS_TRANSFER), most);
	uint64_t address = target->address;
	uint32_t message = rs_message(RS_DATA, length);

	target->address += length;
	target->length -= length;
	return rs_stream_write(rs, from, length, address, target->key, &message);
}

static int wait_for_room(struct rsocket *rs, int flags)
{
	int error = rs_wait_until(rs, may_send, flags, &rs->options.send_timeout);

	return error ? error : send_error(rs);
}

/* Wait until data can be sent, which the entries of mapped buffers go before. Returns an errno. */
int rs_stream_wait_to_send(struct rsocket *rs, int flags)
{
	int error = wait_for_room(rs, flags);

	while (!error && rs->stream->iomaps_pending) {
		rs_iomaps_send(rs);
		error = wait_for_room(rs, flags);
	}
	return error;
}

/* Send bytes of a program: all, unless it does not want to wait. The caller has the mutex. */
ssize_t rs_stream_send(struct rsocket *rs, const struct iovec *iov, size_t count, int flags)
{
	size_t length = rs_length(iov, count), left = length;
	struct rs_cursor from = {.iov = iov};
	int error = flags & MSG_OOB ? EOPNOTSUPP : 0;

	if (!error && !length)
		error = rs->state == RS_CONNECTED ? 0 : send_error(rs);
	while (!error && left) {
		error = rs_stream_wait_to_send(rs, flags);
		if (!error)
			left -= send_message(rs, &from, left);
	}
	return left < length || !error ? (ssize_t)(length - left) : cm_fail(error);
}

/* Whether a call that receives has something to do, or an error to return. */
static bool may_receive(struct rsocket *rs)
{
	return rs->state != RS_CONNECTING && (!rs->reading || rs->stream->ready);
}

/* Copy what has arrived to the program, up to `most` bytes, and free its place unless `peek`. */
static size_t take(struct rsocket *rs, struct rs_cursor *to, size_t most, bool peek)
{
	struct rs_stream *s = rs->stream;
	uint32_t length = (uint32_t)MIN(most, s->ready);
	uint32_t first = MIN(s->receive_size - s->receive_offset, length);

	rs_fill(to, s->received + s->receive_offset, first);
	rs_fill(to, s->received, length - first);
	if (peek)
		return length;
	s->receive_offset = (s->receive_offset + length) % s->receive_size;
	s->ready -= length;
	s->consumed += length;
	grant(rs);
	return length;
}

/* Why nothing is received; 0 at the end of the stream. */
static int receive_error(struct rsocket *rs)
{
	int error = rs_take_error(rs);

	return error || rs->state >= RS_CONNECTED ? error : ENOTCONN;
}

/* Receive into the memory of a program. The caller has the mutex. */
ssize_t rs_stream_receive(struct rsocket *rs, const struct iovec *iov, size_t count, int flags)
{
	size_t length = rs_length(iov, count), got = 0;
	struct rs_cursor to = {.iov = iov};
	bool all = flags & MSG_WAITALL && !(flags & MSG_PEEK), ended = false;
	int error = flags & MSG_OOB ? EINVAL : 0;

	if (!length)
		return 0;
	while (!error && !ended && (!got || (all && got < length))) {
		error = rs_wait_until(rs, may_receive, flags, &rs->options.receive_timeout);
		ended = !error && !(rs->stream && rs->stream->ready);
		if (ended)
			error = receive_error(rs);
		else if (!error)
			got += take(rs, &to, length - got, flags & MSG_PEEK);
	}
	return got || !error ? (ssize_t)got : cm_fail(error);
}

/* Conditions of poll(2). */
short rs_stream_events(struct rsocket *rs)
{
	struct rs_stream *s = rs->stream;
	int events = 0;

	if (!rs->reading || s->ready)
		events |= POLLIN | POLLRDNORM;
	if (!rs->reading)
		events |= POLLRDHUP;
	if (!rs->writing || can_send(rs))
		events |= POLLOUT | POLLWRNORM;
	if (rs->state >= RS_DISCONNECTED && !s->ready) /* some programs take it for an error */
		events |= POLLHUP;
	if (rs->state == RS_FAILED)
		events |= POLLERR;
	return (short)events;
}

/* End a direction, or both. What was sent before arrives. Returns an errno. */
int rs_stream_shutdown(struct rsocket *rs, int how)
{
	bool wrote = rs->writing, was_open = rs->reading || rs->writing;

	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return EINVAL;
	if (rs->state != RS_CONNECTED)
		return ENOTCONN;
	rs_poll(rs);
	if (how != SHUT_WR)
		rs->reading = false;
	if (how != SHUT_RD)
		rs->writing = false;
	rs->stream->shut |= how != SHUT_RD;
	if (rs->state == RS_CONNECTED && was_open && !rs->writing && !rs->reading)
		post_control(rs, rs_message(RS_CONTROL_MESSAGE, DISCONNECT));
	else if (rs->state == RS_CONNECTED && wrote && !rs->writing)
		post_control(rs, rs_message(RS_CONTROL_MESSAGE, SHUTDOWN));
	rs_wake(rs);
	return 0;
}

/* Before an rsocket is closed: end both directions, and wait until all that was sent has arrived,
 * for 10 s at most, or as SO_LINGER says. */
void rs_stream_linger(struct rsocket *rs)
{
	const struct linger *linger = &rs->options.linger;
	struct timeval limit = {.tv_sec = linger->l_onoff ? linger->l_linger : LINGER};

	if (rs->state != RS_CONNECTED || !limit.tv_sec)
		return;
	if (rs->reading || rs->writing)
		rs_stream_shutdown(rs, SHUT_RDWR);
	rs->status_flags &= ~O_NONBLOCK;
	while (rs_wait_until(rs, is_sent, 0, &limit) == EINTR)
		;
}

/* Keep a connection alive: a peer that is gone does not answer. */
void rs_stream_keepalive(struct rsocket *rs)
{
	struct ibv_send_wr request = {.opcode = IBV_WR_RDMA_WRITE};

	if (rs->state == RS_CONNECTED && rs->stream->controls_free > KEPT_FOR_SHUTDOWN)
		post(rs, &request, RS_CONTROL, 0);
}
