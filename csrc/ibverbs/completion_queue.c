/* SPDX-License-Identifier: MIT
 * Completion queues: a ring in shared memory that the service fills.
 *
 * The mutex of a CQ guards its ring. After a few empty polls each yields the processor to the
 * service, and one in 64 checks that the service still runs.
 *
 * A thread may poll while it holds a lock of the program for which other threads spin. They use up
 * the processors that it yields, and nothing goes on. So a yield that takes long, while other threads
 * of the process run, is followed by a time without yields: longer after each such yield, up to 64
 * times what that took. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "internal.h"

enum {
	POLLS_BEFORE_YIELD = 4,
	POLLS_PER_CHECK = 64,
	SLOW_YIELD = 500 * 1000, /* ns; less than a processor is given to a thread that spins */
	MAX_SLOW_YIELDS = 6,
	MAX_PAUSE = 1000 * 1000 * 1000, /* ns */
	PURGED = 1 << 31, /* in `flags`: the completion is of a queue pair that was reset */
};

_Static_assert(sizeof(struct ibv_wc) == offsetof(struct rw_completion, timestamp),
	       "ibv_wc is the beginning of a completion");

static size_t ring_size(uint64_t entries)
{
	return RW_RING_HEADER + entries * sizeof(struct rw_completion);
}

static _Atomic(uint64_t) *counter(struct rw_cq *cq, unsigned offset)
{
	return (_Atomic(uint64_t) *)(cq->ring + offset);
}

static _Atomic(uint32_t) *armed(struct rw_cq *cq)
{
	return (_Atomic(uint32_t) *)(cq->ring + RW_ARMED);
}

static struct rw_completion *slot(struct rw_cq *cq, uint64_t index)
{
	uint8_t *slots = cq->ring + RW_RING_HEADER;

	return (struct rw_completion *)slots + (index & (cq->entries - 1));
}

static uint64_t produced(struct rw_cq *cq)
{
	return atomic_load(counter(cq, RW_PRODUCED)); /* after arming, never an older number */
}

/* The number of completions in the ring; 0 after the service has counted wrongly. */
static uint64_t waiting(struct rw_cq *cq)
{
	uint64_t count = produced(cq) - cq->consumed;

	if (count <= cq->entries)
		return count;
	rw_end(rw_context(cq->cq.context), "the service counts completions wrongly");
	return 0;
}

static void consume(struct rw_cq *cq)
{
	cq->consumed++;
	atomic_store_explicit(counter(cq, RW_CONSUMED), cq->consumed, memory_order_release);
}

/* Take the next completion from the ring. Returns false if there is none. */
static bool take_completion(struct rw_cq *cq, struct rw_completion *done)
{
	while (waiting(cq)) {
		*done = *slot(cq, cq->consumed);
		consume(cq);
		if (!(done->flags & PURGED))
			return true;
	}
	return false;
}

/* Take the next completion, or make one for flushed work if the service is gone. Returns false if
 * there is none. The mutex of the CQ is held. */
bool rw_next_completion(struct rw_cq *cq, struct rw_completion *done)
{
	struct rw_context *context = rw_context(cq->cq.context);
	bool found = take_completion(cq, done);

	if (!found && rw_is_alive(context))
		return false;
	pthread_rwlock_rdlock(&context->objects);
	if (found)
		rw_retire(context, cq, done);
	else
		found = rw_flush_one(context, cq, done);
	pthread_rwlock_unlock(&context->objects);
	return found;
}

static uint64_t read_clock(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Yield the processor, unless that took long lately, as said above. All threads of the process share
 * what was measured. What they use of the processors is read only after a yield that took long. */
void rw_yield(void)
{
	static _Atomic(uint64_t) paused_until;
	static atomic_uint slow_yields;
	unsigned slow = atomic_load_explicit(&slow_yields, memory_order_relaxed);
	uint64_t before = read_clock(CLOCK_MONOTONIC), used, taken, pause;

	if (before < atomic_load_explicit(&paused_until, memory_order_relaxed))
		return;
	used = slow ? read_clock(CLOCK_PROCESS_CPUTIME_ID) : 0;
	sched_yield();
	taken = read_clock(CLOCK_MONOTONIC) - before;
	if (taken < SLOW_YIELD)
		slow = 0;
	else if (!slow || read_clock(CLOCK_PROCESS_CPUTIME_ID) - used < SLOW_YIELD)
		slow = 1;
	else {
		pause = taken << (slow < MAX_SLOW_YIELDS ? slow : MAX_SLOW_YIELDS);
		pause = pause < MAX_PAUSE ? pause : MAX_PAUSE;
		atomic_store_explicit(&paused_until, before + taken + pause, memory_order_relaxed);
		slow++;
	}
	atomic_store_explicit(&slow_yields, slow, memory_order_relaxed);
}

/* Count an empty poll: yield, and check the service, as said above. */
void rw_idle(struct rw_cq *cq)
{
	unsigned polls = atomic_fetch_add_explicit(&cq->empty_polls, 1, memory_order_relaxed) + 1;

	if (polls % POLLS_PER_CHECK == 0)
		rw_check_alive(rw_context(cq->cq.context));
	if (polls > POLLS_BEFORE_YIELD)
		rw_yield();
}

int rw_poll_cq(struct ibv_cq *ibv_cq, int count, struct ibv_wc *wc)
{
	struct rw_cq *cq = rw_cq(ibv_cq);
	struct rw_completion done;
	int found = 0;

	if (atomic_load(&rw_context(ibv_cq->context)->state) == RW_FORKED)
		return -1;
	pthread_mutex_lock(&cq->mutex);
	for (; found < count && rw_next_completion(cq, &done); found++)
		memcpy(&wc[found], &done, sizeof *wc);
	pthread_mutex_unlock(&cq->mutex);
	if (found)
		atomic_store_explicit(&cq->empty_polls, 0, memory_order_relaxed);
	else
		rw_idle(cq);
	return found;
}

/* Have the service report an event for completions that the program did not poll before it armed
 * the CQ. */
static void notify_unpolled(struct rw_cq *cq)
{
	struct rw_context *context = rw_context(cq->cq.context);
	struct rw_work_request *record;
	uint32_t events;

	pthread_mutex_lock(&cq->cq.mutex);
	events = cq->comp_events;
	pthread_mutex_unlock(&cq->cq.mutex);
	pthread_mutex_lock(&context->ring.mutex);
	record = rw_claim(context, sizeof *record);
	if (record) {
		*record = (struct rw_work_request){.size = sizeof *record,
						   .kind = RW_NOTIFY_CQ,
						   .queue = cq->cq.handle,
						   .wr_id = cq->consumed,
						   .remote_address = events};
		rw_commit(context, sizeof *record);
		rw_ring_doorbell(context);
	}
	pthread_mutex_unlock(&context->ring.mutex);
}

int rw_req_notify_cq(struct ibv_cq *ibv_cq, int solicited_only)
{
	struct rw_cq *cq = rw_cq(ibv_cq);
	uint32_t nothing = 0;

	if (atomic_load(&rw_context(ibv_cq->context)->state) == RW_FORKED)
		return EIO;
	pthread_mutex_lock(&cq->mutex); /* resizing replaces the ring */
	if (solicited_only)
		atomic_compare_exchange_strong(armed(cq), &nothing, RW_ARM_SOLICITED);
	else
		atomic_store(armed(cq), RW_ARM_ANY);
	if (cq->cq.channel && waiting(cq))
		notify_unpolled(cq);
	pthread_mutex_unlock(&cq->mutex);
	return 0;
}

int rw_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attributes)
{
	struct rw_modify_cq_reply reply;

	if (attributes->attr_mask & ~IBV_CQ_ATTR_MODERATE)
		return rw_refuse(EOPNOTSUPP, "ibv_modify_cq", "attribute mask %#x",
				 attributes->attr_mask);
	if (!attributes->attr_mask)
		return 0;
	return CALL(rw_context(cq->context), RW_MODIFY_CQ, modify_cq, &reply, .cq = cq->handle,
		    .count = attributes->moderate.cq_count,
		    .period = attributes->moderate.cq_period);
}

/* Mark the completions of a queue pair that the program did not poll. */
static void purge_ring(struct rw_context *context, struct rw_cq *cq, uint32_t qp_num)
{
	uint64_t count = waiting(cq);

	pthread_rwlock_rdlock(&context->objects);
	for (uint64_t i = 0; i < count; i++) {
		struct rw_completion *done = slot(cq, cq->consumed + i);

		if (done->qp_num != qp_num || done->flags & PURGED)
			continue;
		rw_retire(context, cq, done);
		done->flags |= PURGED;
	}
	pthread_rwlock_unlock(&context->objects);
}

/* Drop the completions and the outstanding work of a queue pair that is reset or destroyed, as
 * providers do. */
void rw_purge(struct rw_qp *qp)
{
	struct ibv_cq *cqs[] = {qp->qp.qp_base.send_cq, qp->qp.qp_base.recv_cq};
	struct rw_outstanding *queues[] = {&qp->sends, &qp->receives};

	for (unsigned i = 0; i < LENGTH(cqs); i++) {
		struct rw_cq *cq = rw_cq(cqs[i]);

		if (!cq)
			continue;
		pthread_mutex_lock(&cq->mutex);
		purge_ring(rw_context(cq->cq.context), cq, qp->qp.qp_base.qp_num);
		rw_outstanding_clear(queues[i]);
		pthread_mutex_unlock(&cq->mutex);
	}
	qp->failed = false;
}

static bool is_ring(uint64_t entries)
{
	return entries && entries <= RW_MAX_CQ_ENTRIES && !(entries & (entries - 1));
}

/* Map the ring of a reply and take over its counters. Returns an errno. */
static int set_ring(struct rw_cq *cq, int fd, uint64_t entries)
{
	uint8_t *ring = is_ring(entries) ? rw_map(fd, ring_size(entries)) : NULL;

	if (!ring)
		return EIO;
	if (cq->ring)
		munmap(cq->ring, ring_size(cq->entries));
	cq->ring = ring;
	cq->entries = entries;
	cq->consumed = atomic_load(counter(cq, RW_CONSUMED));
	return 0;
}

static void init_cq(struct rw_cq *cq, struct ibv_context *context, void *cq_context,
		    struct ibv_comp_channel *channel)
{
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	pthread_mutex_init(&cq->mutex, NULL);
}

/* Add a CQ to the objects of its context, and count it in its channel. */
static void add_cq(struct rw_context *context, struct rw_cq *cq)
{
	struct ibv_comp_channel *channel = cq->cq.channel;

	pthread_rwlock_wrlock(&context->objects);
	rw_insert(&context->cqs, &cq->node, cq->cq.handle);
	pthread_rwlock_unlock(&context->objects);
	if (!channel)
		return;
	pthread_mutex_lock(&channel->context->mutex);
	channel->refcnt++;
	pthread_mutex_unlock(&channel->context->mutex);
}

static int make_cq(struct rw_context *context, struct rw_cq *cq, uint32_t cqe, uint32_t vector)
{
	struct ibv_comp_channel *channel = cq->cq.channel;
	struct rw_create_cq_reply reply;
	int fd = -1, error;

	error = CALL_FDS(context, RW_CREATE_CQ, create_cq, &reply, &fd, NULL, .cqe = cqe,
			 .channel = channel ? ((struct rw_channel *)channel)->handle : 0,
			 .comp_vector = vector);
	if (error)
		return error;
	cq->cq.handle = (uint32_t)reply.cq;
	cq->cq.cqe = (int)reply.cqe;
	error = set_ring(cq, fd, reply.entries);
	if (error)
		rw_end(context, "the service made a CQ without a ring");
	return error;
}

struct rw_cq *rw_create_cq(struct ibv_context *context, uint32_t cqe, void *cq_context,
			   struct ibv_comp_channel *channel, uint32_t vector)
{
	struct rw_cq *cq = calloc(1, sizeof *cq);

	if (!cq)
		return NULL;
	init_cq(cq, context, cq_context, channel);
	if (make_cq(rw_context(context), cq, cqe, vector)) {
		free(cq);
		return NULL;
	}
	add_cq(rw_context(context), cq);
	return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	struct rw_cq *cq = NULL;

	if (cqe <= 0 || comp_vector < 0 || comp_vector >= context->num_comp_vectors)
		rw_refuse(EINVAL, "ibv_create_cq", "%d entries, vector %d of %d", cqe, comp_vector,
			  context->num_comp_vectors);
	else
		cq = rw_create_cq(context, (uint32_t)cqe, cq_context, channel,
				  (uint32_t)comp_vector);
	return cq ? &cq->cq : NULL;
}

static int resize(struct rw_context *context, struct rw_cq *cq, uint32_t cqe)
{
	struct rw_resize_cq_reply reply;
	int fd = -1, error;

	error = CALL_FDS(context, RW_RESIZE_CQ, resize_cq, &reply, &fd, NULL, .cq = cq->cq.handle,
			 .cqe = cqe);
	if (error)
		return error;
	error = set_ring(cq, fd, reply.entries);
	if (error)
		rw_end(context, "the service resized a CQ without a ring");
	else
		cq->cq.cqe = (int)reply.cqe;
	return error;
}

int ibv_resize_cq(struct ibv_cq *ibv_cq, int cqe)
{
	struct rw_cq *cq = rw_cq(ibv_cq);
	int error;

	if (cqe <= 0)
		return rw_refuse(EINVAL, "ibv_resize_cq", "%d entries", cqe);
	pthread_mutex_lock(&cq->mutex);
	error = resize(rw_context(ibv_cq->context), cq, (uint32_t)cqe);
	pthread_mutex_unlock(&cq->mutex);
	return error;
}

/* Remove a CQ from its context and its channel, and wait until its events are acknowledged. */
static void remove_cq(struct rw_context *context, struct rw_cq *cq)
{
	struct ibv_comp_channel *channel = cq->cq.channel;

	pthread_rwlock_wrlock(&context->objects);
	rw_remove(&context->cqs, &cq->node);
	pthread_rwlock_unlock(&context->objects);
	if (channel) {
		pthread_mutex_lock(&channel->context->mutex);
		channel->refcnt--;
		pthread_mutex_unlock(&channel->context->mutex);
	}
	pthread_mutex_lock(&cq->cq.mutex);
	while (cq->cq.comp_events_completed != cq->comp_events ||
	       cq->cq.async_events_completed != cq->async_events)
		pthread_cond_wait(&cq->cq.cond, &cq->cq.mutex);
	pthread_mutex_unlock(&cq->cq.mutex);
}

int ibv_destroy_cq(struct ibv_cq *ibv_cq)
{
	struct rw_context *context = rw_context(ibv_cq->context);
	struct rw_cq *cq = rw_cq(ibv_cq);
	struct rw_destroy_cq_reply reply;
	int error = rw_check_unused(&cq->users, "ibv_destroy_cq");

	if (error)
		return error;
	error = CALL(context, RW_DESTROY_CQ, destroy_cq, &reply, .cq = ibv_cq->handle);
	error = rw_destroyed(context, error);
	if (error)
		return error;
	remove_cq(context, cq);
	munmap(cq->ring, ring_size(cq->entries));
	pthread_mutex_destroy(&cq->mutex);
	pthread_mutex_destroy(&cq->cq.mutex);
	pthread_cond_destroy(&cq->cq.cond);
	free(cq);
	return 0;
}
