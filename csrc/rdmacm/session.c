/* SPDX-License-Identifier: MIT
 * The session with the service, and calls on it. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cm.h"

static pthread_mutex_t current_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct cm_session *current;

/* In the child of a fork, for which another thread of the parent may have a lock. */
static void renew_locks(void)
{
	pthread_mutex_init(&current_mutex, NULL);
	cm_renew_device_lock();
	if (current) {
		pthread_mutex_init(&current->mutex, NULL);
		pthread_cond_init(&current->acknowledged, NULL);
	}
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, renew_locks);
}

/* The result of a function that reports by errno. */
int cm_fail(int error)
{
	errno = error;
	return error ? -1 : 0;
}

static bool is_usable(struct cm_session *session)
{
	bool usable;

	pthread_mutex_lock(&session->mutex);
	usable = !session->gone && session->pid == getpid();
	pthread_mutex_unlock(&session->mutex);
	return usable;
}

/* The caller holds current_mutex. */
static struct cm_session *new_session(void)
{
	static unsigned made;
	struct cm_session *session = calloc(1, sizeof *session);
	uint64_t devices;

	if (!session)
		return NULL;
	session->socket = rw_connect();
	if (session->socket < 0 || rw_say_hello(session->socket, &devices)) {
		if (session->socket >= 0)
			close(session->socket);
		free(session);
		return NULL;
	}
	session->number = ++made;
	session->pid = getpid();
	session->references = 1;
	pthread_mutex_init(&session->mutex, NULL);
	pthread_cond_init(&session->acknowledged, NULL);
	return session;
}

static void hold(struct cm_session *session)
{
	pthread_mutex_lock(&session->mutex);
	session->references++;
	pthread_mutex_unlock(&session->mutex);
}

/* The session of this process, which is opened first, and again after the end of a service. The
 * caller releases it. Returns null with errno without a service. */
struct cm_session *cm_hold_current(void)
{
	struct cm_session *session;

	pthread_mutex_lock(&current_mutex);
	if (current && !is_usable(current)) {
		cm_release(current);
		current = NULL;
	}
	if (!current)
		current = new_session();
	session = current;
	if (session)
		hold(session);
	pthread_mutex_unlock(&current_mutex);
	return session;
}

void cm_release(struct cm_session *session)
{
	unsigned left;

	pthread_mutex_lock(&session->mutex);
	left = --session->references;
	pthread_mutex_unlock(&session->mutex);
	if (left)
		return;
	close(session->socket);
	pthread_mutex_destroy(&session->mutex);
	pthread_cond_destroy(&session->acknowledged);
	free(session);
}

/* Make a call. The caller holds the mutex. A child of the process that opened the session has none:
 * it would mix its requests with its parent's. */
int cm_exchange_locked(struct cm_session *session, const char *name, const void *request,
		       size_t request_size, void *reply, size_t reply_size, int *fds,
		       unsigned fd_count)
{
	int error = EIO;

	if (!session->gone && session->pid == getpid())
		error = rw_exchange(session->socket, request, request_size, reply, reply_size, fds,
				    fd_count, NULL);
	if (error == RW_BROKEN) {
		session->gone = true;
		shutdown(session->socket, SHUT_RDWR);
		error = EIO;
	}
	return rw_trace_call(error, name);
}

int cm_exchange(struct cm_session *session, const char *name, const void *request,
		size_t request_size, void *reply, size_t reply_size, int *fds, unsigned fd_count)
{
	int error;

	pthread_mutex_lock(&session->mutex);
	error = cm_exchange_locked(session, name, request, request_size, reply, reply_size, fds,
				   fd_count);
	pthread_mutex_unlock(&session->mutex);
	return error;
}
