/* SPDX-License-Identifier: MIT
 * Datagram rsockets: UD queue pairs, one for each address of a device that is used.
 *
 * Before the data is a header with the address and port of the sender, that of rdma-core's
 * docs/rsocket. There the number of a peer's queue pair is asked for by UDP. The addresses of
 * emulated devices are not those of a network interface, so it is asked for by SIDR, by the ids of
 * RDMA_PS_UDP; also, it is learned from each datagram that is received. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsocket_datagram.h"

enum {
	QUEUED = 64,		/* datagrams that wait for the number of a queue pair, at most */
	MAX_PEERS = 4096,	/* that are learned */
	RESOLVE_TIMEOUT = 2000, /* ms */
};
static const int64_t CONFIRMED = 1000000000; /* ns for which a peer is not asked for again */

struct queued {
	struct queued *next;
	size_t length;
	uint8_t data[];
};

struct peer {
	struct peer *next;
	struct sockaddr_storage address;
	struct endpoint *endpoint;
	struct ibv_ah *ah;
	uint32_t qpn;
	struct rdma_cm_id *id; /* while it is asked for */
	int64_t confirmed;     /* ns */
	struct queued *queue;
};

struct rs_datagrams {
	struct endpoint *endpoints;
	struct peer *peers, *connected;
	unsigned peer_count, queued;
	struct slot *arrived, **last;
};

int rs_datagrams_open(struct rsocket *rs)
{
	if (!rs_event_channel())
		return -1;
	rs->datagrams = calloc(1, sizeof *rs->datagrams);
	if (!rs->datagrams)
		return cm_fail(ENOMEM);
	rs->datagrams->last = &rs->datagrams->arrived;
	rs->reading = rs->writing = true;
	return 0;
}

/* Listen at an address for those that ask for queue pairs. Returns an errno. */
int rs_datagrams_bind(struct rsocket *rs, const struct sockaddr *address)
{
	int error, reuse = rs->options.reuse, only_ipv6 = rs->options.only_ipv6;

	if (rs->bound)
		return EINVAL;
	if (rs_create_id(rs, RDMA_PS_UDP))
		return errno;
	rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof reuse);
	rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only_ipv6,
			sizeof only_ipv6);
	if (!rdma_bind_addr(rs->id, (struct sockaddr *)address) && !rdma_listen(rs->id, 0)) {
		rs->bound = true;
		return 0;
	}
	error = errno;
	rdma_destroy_id(rs->id);
	rs->id = NULL;
	return error;
}

static int bind_anywhere(struct rsocket *rs)
{
	struct sockaddr_storage any = {.ss_family = (sa_family_t)rs->domain};

	return rs->bound ? 0 : rs_datagrams_bind(rs, (struct sockaddr *)&any);
}

static struct peer *find_peer(struct rs_datagrams *d, const void *address)
{
	return *RS_FIND(d->peers, peer, rs_is_same(&peer->address, address, true));
}

static struct peer *add_peer(struct rs_datagrams *d, const void *address)
{
	struct peer *peer = calloc(1, sizeof *peer);

	if (!peer)
		return NULL;
	memcpy(&peer->address, address, cm_address_size(address));
	peer->next = d->peers;
	d->peers = peer;
	d->peer_count++;
	return peer;
}

/* Use an address handle and a number of a queue pair for a peer. */
static void confirm(struct peer *peer, struct endpoint *endpoint, struct ibv_ah *ah, uint32_t qpn)
{
	if (peer->ah)
		ibv_destroy_ah(peer->ah);
	peer->ah = ah;
	peer->endpoint = endpoint;
	peer->qpn = qpn;
	peer->confirmed = rs_now();
}

/* Send a datagram to a peer whose queue pair is known. Returns an errno. There is a free slot. */
static int send_to(struct peer *peer, struct rs_cursor *from, size_t length)
{
	struct endpoint *endpoint = peer->endpoint;
	struct slot *slot = endpoint->free;
	uint32_t before = endpoint->header.length;
	struct ibv_sge part = {(uintptr_t)slot->data, before + (uint32_t)length,
			       endpoint->mr->lkey};
	struct ibv_send_wr *bad, request = {
		.wr_id = (uintptr_t)slot,
		.sg_list = &part,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.wr.ud = {peer->ah, peer->qpn, RDMA_UDP_QKEY},
	};
	int error;

	memcpy(slot->data, &endpoint->header, before);
	rs_copy(slot->data + before, from, length);
	error = ibv_post_send(endpoint->qp, &request, &bad);
	if (!error)
		endpoint->free = slot->next;
	return error;
}

/* Send what waited for the number of the queue pair, or drop it. */
static void empty_queue(struct rs_datagrams *d, struct peer *peer)
{
	struct queued *queued;

	while ((queued = peer->queue)) {
		struct iovec iov = {queued->data, queued->length};
		struct rs_cursor from = {.iov = &iov};

		if (peer->ah && peer->endpoint->free)
			send_to(peer, &from, queued->length);
		peer->queue = queued->next;
		d->queued--;
		free(queued);
	}
}

/* Ask for the queue pair of a peer. The answer is an event. Returns an errno. */
static int ask(struct rsocket *rs, struct peer *peer)
{
	struct sockaddr_storage from = rs->id->route.addr.src_storage;
	bool anywhere = !rs->id->verbs;
	struct rdma_event_channel *channel = rs_event_channel();
	struct rdma_conn_param param = {0};
	struct endpoint *endpoint;
	struct rdma_cm_id *id;
	int error;

	((struct sockaddr_in *)&from)->sin_port = 0;
	if (!channel || rdma_create_id(NULL, &id, rs, RDMA_PS_UDP))
		return errno;
	if (!rdma_resolve_addr(id, anywhere ? NULL : (struct sockaddr *)&from,
			       (struct sockaddr *)&peer->address, RESOLVE_TIMEOUT) &&
	    !rdma_resolve_route(id, RESOLVE_TIMEOUT) &&
	    (endpoint = rs_endpoint_of(rs, &rs->datagrams->endpoints, id)) &&
	    !rdma_migrate_id(id, channel)) {
		if (!peer->ah)
			peer->endpoint = endpoint;
		param.qp_num = endpoint->qp->qp_num;
		peer->id = id;
		if (!rdma_connect(id, &param))
			return 0;
	}
	error = errno;
	peer->id = NULL;
	rdma_destroy_id(id);
	return error;
}

/* Find or make the peer of an address; ask for its queue pair now and then. Returns an errno. */
static int get_peer(struct rsocket *rs, const struct sockaddr *address, struct peer **found)
{
	struct peer *peer = find_peer(rs->datagrams, address);
	int error = bind_anywhere(rs);

	if (!error && !peer && !(peer = add_peer(rs->datagrams, address)))
		error = ENOMEM;
	if (!error && !peer->id && rs_now() - peer->confirmed > CONFIRMED) {
		peer->confirmed = rs_now();
		error = ask(rs, peer);
	}
	*found = peer;
	return error;
}

int rs_datagrams_connect(struct rsocket *rs, const struct sockaddr *address)
{
	struct peer *peer;
	int error = get_peer(rs, address, &peer);

	if (error)
		return error;
	rs->datagrams->connected = peer;
	rs->peer = peer->address;
	return 0;
}

/* Another rsocket asks for the queue pair of an address. */
static void answer(struct rsocket *rs, struct rdma_cm_id *id)
{
	struct endpoint *endpoint = rs_endpoint_of(rs, &rs->datagrams->endpoints, id);
	struct rdma_conn_param param = {0};

	if (endpoint)
		param.qp_num = endpoint->qp->qp_num;
	if (!endpoint || rdma_accept(id, &param))
		rdma_reject(id, NULL, 0);
}

/* A peer has answered, or does not answer. */
static void answered(struct rsocket *rs, struct peer *peer, struct rdma_cm_event *event)
{
	struct rdma_ud_param *ud = &event->param.ud;
	struct ibv_ah *ah = NULL;

	peer->id = NULL;
	if (event->event == RDMA_CM_EVENT_ESTABLISHED)
		ah = ibv_create_ah(peer->endpoint->pd, &ud->ah_attr);
	else if (peer == rs->datagrams->connected && !peer->ah)
		rs->error = ECONNREFUSED;
	confirm(peer, peer->endpoint, ah, ud->qp_num);
	empty_queue(rs->datagrams, peer);
	rs_wake(rs);
}

/* Handle an event. Returns whether its id is done with. */
bool rs_datagrams_event(struct rsocket *rs, struct rdma_cm_event *event)
{
	struct peer *peer;

	pthread_mutex_lock(&rs->mutex);
	peer = *RS_FIND(rs->datagrams->peers, one, one->id == event->id);
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		answer(rs, event->id);
	else if (peer)
		answered(rs, peer, event);
	pthread_mutex_unlock(&rs->mutex);
	return event->event == RDMA_CM_EVENT_CONNECT_REQUEST || peer;
}

static void free_peers(struct rsocket *rs)
{
	struct rs_datagrams *d = rs->datagrams;
	struct peer *peer;

	while ((peer = d->peers)) {
		struct rdma_cm_id *id;

		pthread_mutex_lock(&rs->mutex);
		d->peers = peer->next;
		id = peer->id;
		confirm(peer, NULL, NULL, 0);
		empty_queue(d, peer);
		pthread_mutex_unlock(&rs->mutex);
		if (id)
			rdma_destroy_id(id);
		free(peer);
	}
}

/* Free what a datagram rsocket has. Its id is destroyed: nobody asks for its endpoints. */
void rs_datagrams_close(struct rsocket *rs)
{
	struct endpoint *endpoint;

	free_peers(rs);
	while ((endpoint = rs->datagrams->endpoints)) {
		rs->datagrams->endpoints = endpoint->next;
		rs_endpoint_free(endpoint);
	}
	free(rs->datagrams);
}

/* Note from where a datagram came: its sender is reached there. */
static void learn(struct rs_datagrams *d, struct slot *slot, struct ibv_wc *done,
		  const struct sockaddr_storage *source)
{
	struct endpoint *endpoint = slot->endpoint;
	struct peer *peer = find_peer(d, source);
	struct ibv_ah *ah;

	if (peer && peer->ah && peer->qpn == done->src_qp && peer->endpoint == endpoint) {
		peer->confirmed = rs_now();
		return;
	}
	if (!peer && d->peer_count < MAX_PEERS)
		peer = add_peer(d, source);
	ah = peer ? ibv_create_ah_from_wc(endpoint->pd, done, (struct ibv_grh *)slot->data, 1)
		  : NULL;
	if (ah)
		confirm(peer, endpoint, ah, done->src_qp);
}

/* Keep a datagram that arrived, unless it is invalid, or not from the peer that is connected. */
static void arrived(struct rs_datagrams *d, struct slot *slot, struct ibv_wc *done)
{
	struct sockaddr_storage source;
	bool is_valid;

	slot->length = done->byte_len > GRH ? done->byte_len - GRH : 0;
	if (done->status != IBV_WC_SUCCESS)
		return;
	is_valid = rs_slot_source(slot, &source);
	if (is_valid)
		learn(d, slot, done, &source);
	if (!is_valid || (d->connected && !rs_is_same(&d->connected->address, &source, true))) {
		rs_slot_post(slot);
		return;
	}
	slot->next = NULL;
	*d->last = slot;
	d->last = &slot->next;
}

/* Handle completions. The caller has the mutex. */
void rs_datagrams_poll(struct rsocket *rs)
{
	struct rs_datagrams *d = rs->datagrams;
	struct ibv_wc done;

	for (struct endpoint *endpoint = d->endpoints; endpoint; endpoint = endpoint->next)
		while (ibv_poll_cq(endpoint->cq, 1, &done) > 0) {
			struct slot *slot = (struct slot *)(uintptr_t)done.wr_id;

			if (slot->received) {
				arrived(d, slot, &done);
			} else {
				slot->next = endpoint->free;
				endpoint->free = slot;
			}
		}
}

void rs_datagrams_arm(struct rsocket *rs)
{
	for (struct endpoint *one = rs->datagrams->endpoints; one; one = one->next)
		ibv_req_notify_cq(one->cq, 0);
}

static bool can_receive(struct rsocket *rs)
{
	return rs->datagrams->arrived || rs->error;
}

/* Whether a datagram to anywhere can be sent. */
static bool can_send(struct rsocket *rs)
{
	return !*RS_FIND(rs->datagrams->endpoints, endpoint, !endpoint->free) &&
	       rs->datagrams->queued < QUEUED;
}

short rs_datagrams_events(struct rsocket *rs)
{
	return (short)((can_receive(rs) ? POLLIN | POLLRDNORM : 0) |
		       (can_send(rs) ? POLLOUT | POLLWRNORM : 0) | (rs->error ? POLLERR : 0));
}

/* Keep a datagram until the queue pair of its peer is known. */
static int enqueue(struct rs_datagrams *d, struct peer *peer, struct rs_cursor *from, size_t length)
{
	struct queued *queued = malloc(sizeof *queued + length);

	if (!queued)
		return ENOMEM;
	queued->next = NULL;
	queued->length = length;
	rs_copy(queued->data, from, length);
	*RS_FIND(peer->queue, one, false) = queued;
	d->queued++;
	return 0;
}

static int send_datagram(struct rsocket *rs, const struct iovec *iov, size_t length, int flags,
			 const struct sockaddr *to)
{
	struct rs_datagrams *d = rs->datagrams;
	struct rs_cursor from = {.iov = iov};
	struct peer *peer;
	int error = rs_take_error(rs);

	if (error)
		return error;
	if (!to && !d->connected)
		return EDESTADDRREQ;
	error = get_peer(rs, to ? to : (struct sockaddr *)&d->connected->address, &peer);
	if (!error)
		error = rs_wait_until(rs, can_send, flags, &rs->options.send_timeout);
	if (error)
		return error;
	if (peer->endpoint && length > peer->endpoint->most - peer->endpoint->header.length)
		return EMSGSIZE;
	if (!peer->ah && !peer->id)
		return 0; /* nobody is there: as with UDP, a later call may get ECONNREFUSED */
	return peer->ah ? send_to(peer, &from, length) : enqueue(d, peer, &from, length);
}

/* Send a datagram to an address, or to that of rconnect. The caller has the mutex. */
ssize_t rs_datagrams_send(struct rsocket *rs, const struct iovec *iov, size_t count, int flags,
			  const struct sockaddr *to)
{
	size_t length = rs_length(iov, count);
	int error = send_datagram(rs, iov, length, flags, to);

	return error ? cm_fail(error) : (ssize_t)length;
}

/* Copy the oldest datagram. Returns its length, also of what does not fit. */
static size_t take(struct rs_datagrams *d, struct msghdr *message, bool peek)
{
	struct slot *slot = d->arrived;
	const uint8_t *data = slot->data + GRH;
	uint32_t before = ((const struct ds_header *)data)->length, length = slot->length - before;
	size_t room = rs_length(message->msg_iov, message->msg_iovlen);
	struct rs_cursor to = {.iov = message->msg_iov};
	struct sockaddr_storage source;

	rs_fill(&to, data + before, MIN(length, room));
	message->msg_flags = length > room ? MSG_TRUNC : 0;
	if (message->msg_name && rs_slot_source(slot, &source))
		rs_copy_address(&source, message->msg_name, &message->msg_namelen);
	if (peek)
		return length;
	d->arrived = slot->next;
	if (!d->arrived)
		d->last = &d->arrived;
	rs_slot_post(slot);
	return length;
}

/* Receive a datagram. The caller has the mutex. */
ssize_t rs_datagrams_receive(struct rsocket *rs, struct msghdr *message, int flags)
{
	size_t length, room = rs_length(message->msg_iov, message->msg_iovlen);
	int error = rs_wait_until(rs, can_receive, flags, &rs->options.receive_timeout);

	if (!error && !rs->datagrams->arrived)
		error = rs_take_error(rs);
	if (error)
		return cm_fail(error);
	length = take(rs->datagrams, message, flags & MSG_PEEK);
	return (ssize_t)(length > room && !(flags & MSG_TRUNC) ? room : length);
}
