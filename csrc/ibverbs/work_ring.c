/* SPDX-License-Identifier: MIT
 * The ring of work requests of a context. Its mutex is held by the callers. */
#include <unistd.h>

#include "internal.h"

enum { YIELDS_PER_CHECK = 256 };

static _Atomic(uint64_t) *counter(struct rw_context *context, unsigned offset)
{
	return (_Atomic(uint64_t) *)(context->ring.memory + offset);
}

/* Wait until `size` bytes are free. Returns false when the service is gone. */
static bool wait_for_room(struct rw_context *context, uint32_t size)
{
	unsigned yields = 0;

	for (;;) {
		uint64_t tail = atomic_load_explicit(counter(context, RW_TAIL),
						     memory_order_acquire);
		uint64_t used = context->ring.head - tail;

		if (used > RW_WORK_RING_BYTES)
			rw_end(context, "the service moved the tail of its work ring wrongly");
		else if (used + size <= RW_WORK_RING_BYTES)
			return true;
		if (++yields % YIELDS_PER_CHECK == 0)
			rw_check_alive(context);
		if (!rw_is_alive(context))
			return false;
		rw_ring_doorbell(context);
		rw_yield();
	}
}

/* The place for a record of `size` bytes, or null when the service is gone. A record does not wrap:
 * the rest of the ring before it is skipped. */
struct rw_work_request *rw_claim(struct rw_context *context, uint32_t size)
{
	uint8_t *records = context->ring.memory + RW_RING_HEADER;
	uint32_t at = context->ring.head % RW_WORK_RING_BYTES, left = RW_WORK_RING_BYTES - at;

	if (!rw_is_alive(context))
		return NULL;
	if (size > left) {
		if (!wait_for_room(context, left))
			return NULL;
		((uint32_t *)(records + at))[0] = left; /* a record may be shorter than its type */
		((uint32_t *)(records + at))[1] = RW_PAD;
		rw_commit(context, left);
		at = 0;
	}
	return wait_for_room(context, size) ? (struct rw_work_request *)(records + at) : NULL;
}

/* Pass the claimed record to the service. */
void rw_commit(struct rw_context *context, uint32_t size)
{
	context->ring.head += size;
	atomic_store_explicit(counter(context, RW_HEAD), context->ring.head, memory_order_release);
}

/* Wake the service if it sleeps. Either the service sees the new head, or this function sees that
 * it sleeps: adding 0 to the head orders the store before the load. */
void rw_ring_doorbell(struct rw_context *context)
{
	_Atomic(uint32_t) *asleep = (_Atomic(uint32_t) *)(context->ring.memory + RW_ASLEEP);
	const uint64_t one = 1;

	atomic_fetch_add(counter(context, RW_HEAD), 0);
	if (!atomic_load(asleep))
		return;
	if (write(context->ring.doorbell, &one, sizeof one) < 0)
		rw_check_alive(context); /* the counter is full: the service has enough to do */
}
