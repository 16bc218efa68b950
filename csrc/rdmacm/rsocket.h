/* SPDX-License-Identifier: MIT
 * Sockets over RDMA, rsocket(7): the objects, and what their files offer to each other.
 *
 * An rsocket is a number, that of an eventfd, which nothing reads. A thread of the library gets the
 * events of the connection manager, and those of the CQs that calls have armed. A call that has to
 * wait adds a waiter to the rsocket: whoever changes the rsocket wakes its waiters, which look
 * again. Each rsocket has a mutex; no two are held at a time. No mutex is held while an id or a CQ
 * is destroyed: that waits until its events are acknowledged, and to handle an event before it is
 * acknowledged needs the mutex. */
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/uio.h>
#include <time.h>

#include "cm.h"

/* A file's mutex, with lock() and unlock(). fork(2) takes it: otherwise the child of a fork might have
 * it locked by a thread that the child does not have. */
#define FORK_SAFE_MUTEX                                                                            \
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;                                  \
                                                                                                   \
	static void lock(void)                                                                     \
	{                                                                                          \
		pthread_mutex_lock(&mutex);                                                        \
	}                                                                                          \
                                                                                                   \
	static void unlock(void)                                                                   \
	{                                                                                          \
		pthread_mutex_unlock(&mutex);                                                      \
	}                                                                                          \
                                                                                                   \
	__attribute__((constructor)) static void prepare_for_fork(void)                            \
	{                                                                                          \
		pthread_atfork(lock, unlock, unlock);                                              \
	}

/* A variable for the result of rs_lock(), which is released at the end of its block. */
#define RS_LOCKED __attribute__((cleanup(rs_unlock))) struct rsocket *

/* Where the pointer is to the first element `one` of a list with a property, else to its end. */
#define RS_FIND(list, one, has_property)                                                           \
	({                                                                                         \
		__typeof__(list) *link_ = &(list);                                                 \
		for (__typeof__(list) one; (one = *link_) && !(has_property); link_ = &one->next)  \
			;                                                                          \
		link_;                                                                             \
	})

enum {
	RS_TRANSFER = 1 << 16, /* bytes of a message at most */
	RS_LOW_WATER = 2048,   /* bytes of the send buffer below which nothing is sent */
	RS_MIN_QUEUE = 16,
	RS_MAX_QUEUE = 0xfffe,
	RS_MAX_INLINE = 512,
	RS_CONTROLS = 4,  /* work requests of the send queue that are kept for control messages */
	RS_TARGETS = 2,	  /* entries of the list of receive buffers that the peer fills */
	RS_BACKLOG = 64,  /* connections that wait to be accepted, at least */
	RS_MOMENT = 1000000, /* ns between two looks where there is no descriptor to wait for */
	RS_SET = 1 << 16, /* type of a set of repoll_create, beside SOCK_STREAM and SOCK_DGRAM */
};

enum rs_state {
	RS_IDLE,
	RS_LISTENING,
	RS_CONNECTING,
	RS_CONNECTED,
	RS_DISCONNECTED, /* in both directions */
	RS_FAILED,
};

/* A call that waits for a change, or a member of a set; the eventfd is written. */
struct rs_waiter {
	struct rs_waiter *next;
	int fd;
	atomic_bool changed;
};

/* Options that are a number. Sizes are those of the next connection. */
struct rs_options {
	int send_queue, receive_queue, inline_data, iomaps, receive_buffer, send_buffer;
	int reuse, keepalive, oob_inline, broadcast, only_ipv6, tos, no_delay, idle, interval,
		count;
	int max_segment;
	struct linger linger;
	struct timeval receive_timeout, send_timeout;
};

struct rs_stream;
struct rs_datagrams;
struct rs_set;

struct rsocket {
	int number;
	int domain, type;
	int status_flags, fd_flags; /* of rfcntl */
	pid_t pid;
	unsigned numbers, references; /* numbers that name it; both guarded by the table's mutex */
	pthread_mutex_t mutex;
	struct rs_waiter *waiters;
	struct rs_options options;
	enum rs_state state;
	int error; /* SO_ERROR */
	bool reading, writing, closed;
	bool armed; /* an event of a CQ is to come */
	bool bound;
	struct rdma_cm_id *id;
	struct sockaddr_storage peer;
	int64_t keepalive_due; /* ns */
	struct rs_stream *stream;
	struct rs_datagrams *datagrams;
	struct rs_set *set;
	/* Connections that a listening rsocket has not accepted; guarded by its mutex. */
	struct rsocket *listener, *children, *next;
	bool established;
	int backlog, child_count;
};

/* A place in the memory of a program. */
struct rs_cursor {
	const struct iovec *iov;
	size_t offset; /* in the first of them */
};

/* rsocket_table.c */
struct rsocket *rs_new(int domain, int type, int flags);
int rs_number(struct rsocket *rs, int number);
struct rsocket *rs_get(int number);
struct rsocket *rs_next(int *number);
struct rsocket *rs_get_member(int number);
void rs_put(struct rsocket *rs);
struct rsocket *rs_lock(int number);
void rs_unlock(struct rsocket **rs);
void rs_destroy(struct rsocket *rs);
int64_t rs_now(void);
int rs_milliseconds(int64_t deadline);
void rs_notify(int fd);
void rs_wake(struct rsocket *rs);
void rs_add_waiter(struct rsocket *rs, struct rs_waiter *waiter);
void rs_remove_waiter(struct rsocket *rs, struct rs_waiter *waiter);
int rs_wait_until(struct rsocket *rs, bool (*ready)(struct rsocket *rs), int flags,
		  const struct timeval *timeout);
bool rs_arm(struct rsocket *rs);
void rs_poll(struct rsocket *rs);
void rs_fail(struct rsocket *rs, int error);
int rs_take_error(struct rsocket *rs);
void rs_copy(void *to, struct rs_cursor *from, size_t length);
void rs_fill(struct rs_cursor *to, const void *from, size_t length);
size_t rs_length(const struct iovec *iov, size_t count);

/* rsocket_thread.c */
struct rdma_event_channel *rs_event_channel(void);
int rs_create_id(struct rsocket *rs, enum rdma_port_space ps);
struct ibv_comp_channel *rs_comp_channel(struct ibv_context *verbs);
void rs_wake_thread(void);

/* rsocket_connect.c */
struct rsocket *rs_stream_event(struct rsocket *rs, struct rdma_cm_event *event);
bool rs_has_connection(struct rsocket *rs);
void rs_copy_address(const void *from, struct sockaddr *to, socklen_t *length);
void rs_destroy_children(struct rsocket *listener);

/* rsocket_stream_open.c */
struct rs_sge {
	uint64_t address;
	uint32_t key, length;
};

struct rs_conn_data {
	uint8_t version, flags;
	uint16_t credits;
	uint8_t reserved[3], iomaps;
	struct rs_sge targets, buffer;
};

int rs_stream_open(struct rsocket *rs);
void rs_stream_close(struct rs_stream *s);
int rs_iomap_count(int wanted);
void rs_stream_offer(struct rsocket *rs, struct rs_conn_data *data);
int rs_stream_start(struct rsocket *rs, const void *data, size_t length);

/* rsocket_stream.c */
void rs_stream_poll(struct rsocket *rs);
short rs_stream_events(struct rsocket *rs);
ssize_t rs_stream_send(struct rsocket *rs, const struct iovec *iov, size_t count, int flags);
ssize_t rs_stream_receive(struct rsocket *rs, const struct iovec *iov, size_t count, int flags);
int rs_stream_shutdown(struct rsocket *rs, int how);
void rs_stream_linger(struct rsocket *rs);
void rs_stream_keepalive(struct rsocket *rs);

/* rsocket_datagram.c */
int rs_datagrams_open(struct rsocket *rs);
int rs_datagrams_bind(struct rsocket *rs, const struct sockaddr *address);
int rs_datagrams_connect(struct rsocket *rs, const struct sockaddr *address);
bool rs_datagrams_event(struct rsocket *rs, struct rdma_cm_event *event);
void rs_datagrams_close(struct rsocket *rs);
void rs_datagrams_poll(struct rsocket *rs);
void rs_datagrams_arm(struct rsocket *rs);
short rs_datagrams_events(struct rsocket *rs);
ssize_t rs_datagrams_send(struct rsocket *rs, const struct iovec *iov, size_t count, int flags,
			  const struct sockaddr *to);
ssize_t rs_datagrams_receive(struct rsocket *rs, struct msghdr *message, int flags);

/* rsocket_poll.c */
short rs_events(struct rsocket *rs, short wanted);

/* rsocket_epoll.c */
void rs_set_close(struct rsocket *rs);
