/* SPDX-License-Identifier: MIT
 * The thread that gets the events of all rsockets: those of ids, and those of CQs that are armed.
 *
 * A child of fork(2) gets a thread of its own with its first rsocket. After the end of the service a
 * process gets a new thread with its next rsocket. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rsocket.h"

enum { MAX_DEVICES = 1024 };

struct rs_thread {
	pid_t pid;
	int epoll, wake;
	atomic_uint sources; /* descriptors of events in the epoll set */
	struct rdma_event_channel *channel;
	bool ended;
	struct ibv_comp_channel *devices[MAX_DEVICES];
};

FORK_SAFE_MUTEX
static struct rs_thread *current;

/* Wait for a descriptor, whose events have `source`. */
static int add_source(struct rs_thread *thread, int fd, void *source)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

	if (fcntl(fd, F_SETFL, O_NONBLOCK) || epoll_ctl(thread->epoll, EPOLL_CTL_ADD, fd, &event))
		return -1;
	thread->sources++;
	return 0;
}

static void remove_source(struct rs_thread *thread, int fd)
{
	epoll_ctl(thread->epoll, EPOLL_CTL_DEL, fd, NULL);
	lock();
	thread->sources--;
	unlock();
}

/* Handle an event of an rsocket, and acknowledge it; what has failed is destroyed after that. */
static void report(struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	struct rsocket *rs = event->listen_id ? event->listen_id->context : id->context;
	struct rsocket *failed = NULL;
	bool done = false;

	if (rs->datagrams)
		done = rs_datagrams_event(rs, event);
	else
		failed = rs_stream_event(rs, event);
	rdma_ack_cm_event(event);
	if (done)
		rdma_destroy_id(id);
	if (failed)
		rs_destroy(failed);
}

/* End all rsockets with EIO: the service is gone. */
static void end(struct rs_thread *thread)
{
	struct rsocket *rs;
	int number = 0;

	remove_source(thread, thread->channel->fd);
	lock();
	thread->ended = true;
	unlock();
	while ((rs = rs_next(&number))) {
		pthread_mutex_lock(&rs->mutex);
		if (rs->id && rs->id->channel == thread->channel && rs->state < RS_DISCONNECTED)
			rs_fail(rs, EIO);
		pthread_mutex_unlock(&rs->mutex);
		rs_put(rs);
	}
}

static void get_connection_events(struct rs_thread *thread)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(thread->channel, &event))
		report(event);
	if (errno != EAGAIN && errno != EINTR)
		end(thread);
}

static void get_completion_event(struct rs_thread *thread, struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	struct rsocket *rs;
	void *context;

	if (ibv_get_cq_event(channel, &cq, &context)) {
		if (errno != EAGAIN)
			remove_source(thread, channel->fd);
		return;
	}
	rs = context;
	pthread_mutex_lock(&rs->mutex);
	rs->armed = false;
	rs_poll(rs);
	rs_wake(rs);
	pthread_mutex_unlock(&rs->mutex);
	ibv_ack_cq_events(cq, 1);
}

/* Send the messages of SO_KEEPALIVE that are due. Returns when the next one is (ns), or 0. */
static int64_t keep_alive(void)
{
	struct rsocket *rs;
	int64_t next = 0, now = rs_now();
	int number = 0;

	while ((rs = rs_next(&number))) {
		pthread_mutex_lock(&rs->mutex);
		if (rs->keepalive_due && rs->keepalive_due <= now) {
			rs_stream_keepalive(rs);
			rs->keepalive_due = now + rs->options.idle * INT64_C(1000000000);
		}
		if (rs->keepalive_due && (!next || rs->keepalive_due < next))
			next = rs->keepalive_due;
		pthread_mutex_unlock(&rs->mutex);
		rs_put(rs);
	}
	return next;
}

static void *run(void *argument)
{
	struct rs_thread *thread = argument;
	struct epoll_event event;
	int64_t due = 0;
	uint64_t count;

	while (thread->sources) {
		int got = epoll_wait(thread->epoll, &event, 1, rs_milliseconds(due));

		if (got > 0 && event.data.ptr == thread->channel)
			get_connection_events(thread);
		else if (got > 0 && event.data.ptr != thread)
			get_completion_event(thread, event.data.ptr);
		else if (got == 0 || read(thread->wake, &count, sizeof count) > 0)
			due = keep_alive();
	}
	return NULL;
}

/* Start the thread, which gets no signals of the program. */
static int start(struct rs_thread *thread)
{
	sigset_t all, before;
	pthread_t id;
	int error;

	if (add_source(thread, thread->wake, thread) ||
	    add_source(thread, thread->channel->fd, thread->channel))
		return errno;
	thread->sources--; /* without that of the eventfd */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&id, NULL, run, thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		pthread_detach(id);
	return error;
}

static struct rs_thread *new_thread(void)
{
	struct rs_thread *thread = calloc(1, sizeof *thread);
	int error = ENOMEM;

	if (!thread)
		return NULL;
	thread->pid = getpid();
	thread->epoll = epoll_create1(EPOLL_CLOEXEC);
	thread->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	thread->channel = rdma_create_event_channel();
	error = thread->epoll < 0 || thread->wake < 0 || !thread->channel ? errno : start(thread);
	if (!error)
		return thread;
	if (thread->channel)
		rdma_destroy_event_channel(thread->channel);
	close(thread->wake);
	close(thread->epoll);
	free(thread);
	errno = error;
	return NULL;
}

/* The channel for ids of rsockets. Starts the thread if there is none. Returns null with errno. */
struct rdma_event_channel *rs_event_channel(void)
{
	struct rdma_event_channel *channel;

	lock();
	if (!current || current->pid != getpid() || current->ended)
		current = new_thread();
	channel = current ? current->channel : NULL;
	unlock();
	return channel;
}

/* Returns -1 with errno. */
int rs_create_id(struct rsocket *rs, enum rdma_port_space ps)
{
	struct rdma_event_channel *channel = rs_event_channel();

	return channel ? rdma_create_id(channel, &rs->id, rs, ps) : -1;
}

/* The completion channel of a device. Returns null with errno. */
struct ibv_comp_channel *rs_comp_channel(struct ibv_context *verbs)
{
	struct ibv_comp_channel **channel = current->devices;

	lock();
	while (*channel && (*channel)->context != verbs)
		channel++;
	if (!*channel && (*channel = ibv_create_comp_channel(verbs)) &&
	    add_source(current, (*channel)->fd, *channel)) {
		ibv_destroy_comp_channel(*channel);
		*channel = NULL;
	}
	unlock();
	return *channel;
}

/* Have the thread look which keepalive messages are due. */
void rs_wake_thread(void)
{
	lock();
	if (current)
		rs_notify(current->wake);
	unlock();
}
