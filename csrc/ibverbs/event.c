/* SPDX-License-Identifier: MIT
 * Completion channels and asynchronous events: pipes that the service writes to.
 *
 * Programs acknowledge each event; the destruction of an object waits until all of its events are
 * acknowledged. When the service is gone, a pipe ends: a channel then yields one event for each of
 * its CQs, so that their flushed work is polled, and asynchronous events yield one of type
 * DEVICE_FATAL. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "internal.h"

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct rw_channel *channel = calloc(1, sizeof *channel);
	struct rw_create_comp_channel_reply reply;

	if (!channel)
		return NULL;
	if (CALL_FDS(rw_context(context), RW_CREATE_COMP_CHANNEL, create_comp_channel, &reply,
		     &channel->channel.fd, NULL)) {
		free(channel);
		return NULL;
	}
	channel->channel.context = context;
	channel->handle = (uint32_t)reply.channel;
	return &channel->channel;
}

static bool is_busy(struct ibv_comp_channel *channel)
{
	bool busy;

	pthread_mutex_lock(&channel->context->mutex);
	busy = channel->refcnt;
	pthread_mutex_unlock(&channel->context->mutex);
	return busy;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct rw_context *context = rw_context(channel->context);
	struct rw_destroy_comp_channel_reply reply;
	int error;

	if (is_busy(channel))
		return rw_refuse(EBUSY, "ibv_destroy_comp_channel", "a CQ uses it");
	error = CALL(context, RW_DESTROY_COMP_CHANNEL, destroy_comp_channel, &reply,
		     .channel = ((struct rw_channel *)channel)->handle);
	error = rw_destroyed(context, error);
	if (error)
		return error;
	close(channel->fd);
	free(channel);
	return 0;
}

/* Read an event. Returns 1, or 0 at the end of the pipe, or -1 with errno, which is EINTR after a
 * signal: programs end their waiting with one. */
static int read_event(int fd, void *event, size_t size)
{
	ssize_t length = read(fd, event, size);

	return length == (ssize_t)size ? 1 : length < 0 ? -1 : 0;
}

/* Count an event that the program gets from a CQ. The lock of the objects is held. */
static struct rw_cq *count_event(struct rw_cq *cq)
{
	pthread_mutex_lock(&cq->cq.mutex);
	cq->comp_events++;
	pthread_mutex_unlock(&cq->cq.mutex);
	return cq;
}

static struct rw_cq *cq_of(struct rw_node *node)
{
	return CONTAINER(node, struct rw_cq, node);
}

/* The CQ of an event, or null: a CQ may be destroyed before its event is read. */
static struct rw_cq *find_cq(struct rw_context *context, uint64_t handle)
{
	struct rw_node *node;
	struct rw_cq *cq;

	pthread_rwlock_rdlock(&context->objects);
	node = handle <= UINT32_MAX ? rw_find(&context->cqs, (uint32_t)handle) : NULL;
	cq = node ? count_event(cq_of(node)) : NULL;
	pthread_rwlock_unlock(&context->objects);
	return cq;
}

/* A CQ of the channel without an event for the end of the service so far, or null. */
static struct rw_cq *next_ended(struct rw_context *context, struct ibv_comp_channel *channel)
{
	struct rw_cq *found = NULL;

	pthread_rwlock_wrlock(&context->objects);
	for (unsigned i = 0; i < RW_BUCKETS && !found; i++)
		for (struct rw_node *node = context->cqs.buckets[i]; node; node = node->next)
			if (cq_of(node)->cq.channel == channel && !cq_of(node)->end_reported)
				found = cq_of(node);
	if (found) {
		found->end_reported = true;
		count_event(found);
	}
	pthread_rwlock_unlock(&context->objects);
	return found;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct rw_context *context = rw_context(channel->context);
	struct rw_cq *found = NULL;
	uint64_t handle;
	int got;

	while (!found && (got = read_event(channel->fd, &handle, sizeof handle)) > 0)
		found = find_cq(context, handle);
	if (!found && got < 0)
		return -1;
	if (!found) {
		rw_end(context, "the service is gone");
		found = next_ended(context, channel);
	}
	if (!found) {
		errno = EIO;
		return -1;
	}
	*cq = &found->cq;
	*cq_context = found->cq.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

enum object { OF_CQ, OF_QP, OF_WQ, OF_SRQ, OF_PORT };

/* What an event is about. */
static enum object object_of(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return OF_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return OF_QP;
	case IBV_EVENT_WQ_FATAL:
		return OF_WQ;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return OF_SRQ;
	default:
		return OF_PORT;
	}
}

/* Count an event of an object, under the lock that its destruction takes. */
static void count_async(pthread_mutex_t *mutex, uint32_t *count)
{
	pthread_mutex_lock(mutex);
	++*count;
	pthread_mutex_unlock(mutex);
}

static struct rw_table *table_of(struct rw_context *context, enum object object)
{
	return object == OF_CQ ? &context->cqs : object == OF_QP ? &context->qps : &context->srqs;
}

/* Fill in the object of an event, and count the event. */
static void set_element(struct ibv_async_event *event, enum object object, struct rw_node *node)
{
	if (object == OF_CQ) {
		struct rw_cq *cq = cq_of(node);

		event->element.cq = &cq->cq;
		count_async(&cq->cq.mutex, &cq->async_events);
	} else if (object == OF_QP) {
		struct rw_qp *qp = CONTAINER(node, struct rw_qp, node);

		if (qp->wq) {
			event->event_type = IBV_EVENT_WQ_FATAL;
			event->element.wq = &qp->wq->wq;
		} else {
			event->element.qp = &qp->qp.qp_base;
		}
		count_async(&qp->qp.qp_base.mutex, &qp->async_events);
	} else {
		struct rw_srq *srq = CONTAINER(node, struct rw_srq, node);

		event->element.srq = &srq->srq;
		count_async(&srq->srq.mutex, &srq->async_events);
	}
}

/* Translate an event. Returns false for one of an object that is destroyed. */
static bool show_event(struct rw_context *context, const uint64_t *words,
		       struct ibv_async_event *event)
{
	enum object object;
	struct rw_node *node;

	*event = (struct ibv_async_event){.event_type = (enum ibv_event_type)words[0]};
	object = object_of(event->event_type);
	if (object == OF_PORT) {
		event->element.port_num = (int)words[1];
		return true;
	}
	pthread_rwlock_rdlock(&context->objects);
	node = rw_find(table_of(context, object), (uint32_t)words[1]);
	if (node)
		set_element(event, object, node);
	pthread_rwlock_unlock(&context->objects);
	return node;
}

int ibv_get_async_event(struct ibv_context *ibv_context, struct ibv_async_event *event)
{
	struct rw_context *context = rw_context(ibv_context);
	uint64_t words[2]; /* type, object */
	int got;

	while ((got = read_event(ibv_context->async_fd, words, sizeof words)) > 0)
		if (show_event(context, words, event))
			return 0;
	if (got < 0)
		return -1;
	rw_end(context, "the service is gone");
	if (atomic_exchange(&context->fatal_reported, true)) {
		errno = EIO;
		return -1;
	}
	*event = (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL};
	return 0;
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	++*completed;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	enum object object = object_of(event->event_type);
	struct ibv_cq *cq = event->element.cq;
	struct ibv_qp *qp = object == OF_WQ ? &((struct rw_wq *)event->element.wq)->queue->qp.qp_base
					    : event->element.qp;
	struct ibv_srq *srq = event->element.srq;

	if (object == OF_CQ)
		acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
	else if (object == OF_QP || object == OF_WQ)
		acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
	else if (object == OF_SRQ)
		acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
}
