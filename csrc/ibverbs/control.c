/* SPDX-License-Identifier: MIT
 * Calls of a context to the service, and what the end of the service means for a context. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "internal.h"

/* Whether the child of a fork may make a call: it needs none of the parent's objects. */
static bool is_for_children(uint64_t call)
{
	return call == RW_QUERY_PORT || call == RW_QUERY_GID || call == RW_QUERY_PKEY ||
	       call == RW_ALLOC_DM || call == RW_FREE_DM;
}

/* Whether a call can be made; a child connects first. The mutex is held. Returns an errno. */
static int prepare(struct rw_context *context, uint64_t call)
{
	if (rw_is_alive(context))
		return 0;
	if (atomic_load(&context->state) != RW_FORKED || !is_for_children(call))
		return EIO;
	return context->socket < 0 ? rw_reconnect(context) : 0;
}

/* Make a call. Returns an errno, which it also sets: EIO when the service is gone. */
int rw_control(struct rw_context *context, const char *name, const void *request,
	       size_t request_size, void *reply, size_t reply_size, int *fds, unsigned fd_count,
	       const int *sent)
{
	int error;

	pthread_mutex_lock(&context->control_mutex);
	error = prepare(context, *(const uint64_t *)request);
	if (!error)
		error = rw_exchange(context->socket, request, request_size, reply, reply_size, fds,
				    fd_count, sent);
	pthread_mutex_unlock(&context->control_mutex);
	if (error == RW_BROKEN) {
		rw_end(context, "the service is gone, or gave a wrong reply");
		error = EIO;
	}
	return rw_trace_call(error, name);
}

/* The result of destroying an object: success if the service is gone, and all objects with it. */
int rw_destroyed(struct rw_context *context, int error)
{
	return atomic_load(&context->state) == RW_GONE ? 0 : error;
}

/* EBUSY for an object that others use, as the service answers: here, since it may have ended. */
int rw_check_unused(atomic_int *users, const char *call)
{
	int count = atomic_load(users);

	return count ? rw_refuse(EBUSY, call, "%d objects use it", count) : 0;
}

bool rw_is_alive(struct rw_context *context)
{
	return atomic_load_explicit(&context->state, memory_order_acquire) == RW_ALIVE;
}

/* Check whether the service has closed the connection. */
void rw_check_alive(struct rw_context *context)
{
	struct pollfd connection = {.fd = context->socket, .events = POLLRDHUP};

	if (rw_is_alive(context) && poll(&connection, 1, 0) > 0 &&
	    connection.revents & (POLLRDHUP | POLLHUP | POLLERR))
		rw_end(context, "the service is gone");
}

/* Note that the service is gone, and print `cause`. Later polls flush outstanding work. */
void rw_end(struct rw_context *context, const char *cause)
{
	int alive = RW_ALIVE;

	if (!atomic_compare_exchange_strong(&context->state, &alive, RW_GONE))
		return;
	shutdown(context->socket, SHUT_RDWR);
	rw_warn("%s: %s: outstanding work is flushed, and calls fail with EIO",
		context->device->device.name, cause);
}
