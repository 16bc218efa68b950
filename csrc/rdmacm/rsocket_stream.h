/* SPDX-License-Identifier: MIT
 * The data of a connected rsocket. */
#pragma once

#include "rsocket.h"

/* Messages, in the upper three bits of immediate data. */
enum rs_message { RS_DATA, RS_GRANT = 4, RS_IOMAP = 6, RS_CONTROL_MESSAGE };

static inline uint32_t rs_message(enum rs_message kind, uint32_t value)
{
	return (uint32_t)kind << 29 | value;
}

/* Work requests, in the lower byte of their id; the other bytes are what they have of the send
 * buffer. */
enum rs_request { RS_RECEIVED, RS_SENT, RS_CONTROL };

/* A mapped buffer as the peer writes to it: offsets from `offset` on are at `memory`. */
struct rs_iomap {
	uint64_t offset;
	struct rs_sge memory;
};

/* A buffer that riomap has registered. `index` is its entry in the list of the peer, or -1. */
struct rs_mapping {
	struct rs_mapping *next;
	struct ibv_mr *mr;
	uint64_t offset;
	int index;
	bool pending; /* the peer does not know it */
};

enum { RS_POSTED = 32 }; /* receives that are posted at a time */

struct rs_stream {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *remote_mr, *local_mr;
	uint8_t *memory;
	uint32_t max_inline;
	bool swap; /* the peer has the other order of bytes */
	bool shut; /* this side has ended what it sends */

	/* Sending: a ring of bytes, of which the work requests are outstanding. */
	uint8_t *sent;
	uint32_t send_size, send_free, send_offset;
	uint32_t data_requests, requests_free, controls_free;
	uint16_t messages_sent, send_limit;
	struct rs_sge *targets, target; /* the peer writes the list; the one in use */
	unsigned next_target;

	/* Receiving: a ring of bytes in two halves. */
	uint8_t *received;
	uint32_t receive_size, receive_offset, ready;
	uint32_t consumed, offered; /* bytes read and not offered again; offset of the next offer */
	uint32_t credits, unposted; /* receives to be posted, a number of them at a time */
	uint16_t messages, granted;
	struct rs_sge peer_targets, *updates;
	unsigned peer_target, update;

	struct rs_iomap *iomaps; /* the peer writes the list */
	unsigned iomap_count, peer_iomap_count;
	struct rs_mapping *mappings;
	bool iomaps_pending;
};

/* rsocket_stream_open.c */
int rs_stream_post_receives(struct rs_stream *s, unsigned count);

/* rsocket_stream.c */
uint32_t rs_stream_write(struct rsocket *rs, struct rs_cursor *from, uint32_t length,
			 uint64_t address, uint32_t key, const uint32_t *message);
int rs_stream_wait_to_send(struct rsocket *rs, int flags);

/* rsocket_iomap.c */
void rs_iomaps_send(struct rsocket *rs);
void rs_iomaps_close(struct rs_stream *s);
