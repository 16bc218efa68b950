/* SPDX-License-Identifier: MIT
 * Sets of rsockets and other descriptors: repoll_create, repoll_ctl and repoll_wait.
 *
 * The number of a set is that of an epoll set, which has the descriptors that are no rsockets, and
 * an eventfd for changes of those that are. The mutex of a set is taken before those of its
 * members. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rsocket.h"

enum { REPORTED = EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM | EPOLLRDHUP };

struct rs_member {
	struct rs_member *next;
	struct rsocket *rs;
	int number;
	struct epoll_event event;
	struct rs_waiter waiter;
	bool disabled; /* EPOLLONESHOT has reported */
};

struct rs_set {
	int change;
	struct rs_member *members;
};

int repoll_create(int flags)
{
	int epoll = epoll_create1(flags), number = -1;
	struct rsocket *rs = epoll < 0 ? NULL : rs_new(AF_UNSPEC, RS_SET, 0);
	struct epoll_event event = {.events = EPOLLIN};

	if (rs && (rs->set = calloc(1, sizeof *rs->set))) {
		rs->set->change = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		event.data.ptr = rs->set;
		if (!epoll_ctl(epoll, EPOLL_CTL_ADD, rs->set->change, &event))
			number = rs_number(rs, epoll);
	} else if (epoll >= 0) {
		errno = ENOMEM;
	}
	if (number < 0 && epoll >= 0)
		close(epoll);
	if (rs)
		rs_put(rs);
	return number;
}

static void remove_member(struct rs_member **link)
{
	struct rs_member *member = *link;

	*link = member->next;
	pthread_mutex_lock(&member->rs->mutex);
	rs_remove_waiter(member->rs, &member->waiter);
	pthread_mutex_unlock(&member->rs->mutex);
	rs_put(member->rs);
	free(member);
}

void rs_set_close(struct rsocket *rs)
{
	while (rs->set->members)
		remove_member(&rs->set->members);
	if (rs->set->change >= 0)
		close(rs->set->change);
	free(rs->set);
}

/* As with epoll(7), what is closed is no member any more. */
static void remove_closed(struct rs_set *set)
{
	struct rs_member **link = &set->members;

	while (*(link = RS_FIND(*link, member, member->rs->closed)))
		remove_member(link);
}

static int add(struct rs_set *set, struct rsocket *rs, int number, const struct epoll_event *event)
{
	struct rs_member *member = calloc(1, sizeof *member);

	if (!member)
		return ENOMEM;
	*member = (struct rs_member){
		.next = set->members, .rs = rs, .number = number, .event = *event};
	member->waiter.fd = set->change;
	atomic_store(&member->waiter.changed, true);
	set->members = member;
	pthread_mutex_lock(&rs->mutex);
	rs_add_waiter(rs, &member->waiter);
	pthread_mutex_unlock(&rs->mutex);
	return 0;
}

/* Change the members of a set. Returns an errno. The caller has the mutex of the set. With
 * EPOLL_CTL_ADD the reference to `rs` is the member's. */
static int change(struct rs_set *set, int op, struct rsocket *rs, int number,
		  const struct epoll_event *event)
{
	struct rs_member **link;

	remove_closed(set);
	link = RS_FIND(set->members, one, one->number == number);
	if (op == EPOLL_CTL_ADD)
		return *link ? EEXIST : add(set, rs, number, event);
	if (!*link)
		return ENOENT;
	if (op == EPOLL_CTL_DEL) {
		remove_member(link);
	} else {
		(*link)->event = *event;
		(*link)->disabled = false;
		atomic_store(&(*link)->waiter.changed, true);
	}
	return 0;
}

static struct rsocket *get_set(int number)
{
	struct rsocket *rs = rs_get(number);

	if (rs && rs->type != RS_SET) {
		rs_put(rs);
		errno = EINVAL;
		return NULL;
	}
	return rs;
}

int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct rsocket *set = get_set(epfd), *rs = set ? rs_get_member(fd) : NULL;
	int error = op != EPOLL_CTL_DEL && !event ? EFAULT : 0;

	if (!set)
		return -1;
	if (!rs) {
		error = epoll_ctl(epfd, op, fd, event) ? errno : 0;
	} else if (!error) {
		pthread_mutex_lock(&set->mutex);
		error = change(set->set, op, rs, fd, event);
		pthread_mutex_unlock(&set->mutex);
		if (!error)
			rs_notify(set->set->change); /* threads that wait look at a new member */
	}
	if (rs && (error || op != EPOLL_CTL_ADD))
		rs_put(rs);
	rs_put(set);
	return cm_fail(error);
}

/* What a member reports now. */
static uint32_t events_of(struct rs_member *member)
{
	uint32_t events;
	bool changed = atomic_exchange(&member->waiter.changed, false);

	if (member->disabled)
		return 0;
	pthread_mutex_lock(&member->rs->mutex);
	rs_arm(member->rs);
	events = (uint16_t)rs_events(member->rs, (short)(member->event.events & REPORTED));
	pthread_mutex_unlock(&member->rs->mutex);
	if (member->event.events & EPOLLET && !changed)
		return 0;
	member->disabled = events && member->event.events & EPOLLONESHOT;
	return events;
}

/* Collect the events of rsockets. Returns how many. */
static int collect(struct rsocket *set, struct epoll_event *events, int most)
{
	int count = 0;

	pthread_mutex_lock(&set->mutex);
	remove_closed(set->set);
	for (struct rs_member *member = set->set->members; member && count < most;
	     member = member->next) {
		uint32_t found = events_of(member);

		if (found)
			events[count++] = (struct epoll_event){found, member->event.data};
	}
	pthread_mutex_unlock(&set->mutex);
	return count;
}

/* Wait for the other descriptors, and for a change. Returns how many of them have events, or -1
 * with errno. */
static int collect_others(struct rs_set *set, int epfd, struct epoll_event *events, int most,
			  int timeout)
{
	int count = epoll_wait(epfd, events, most, timeout);
	uint64_t value;

	for (int i = 0; i < count; i++) {
		if (events[i].data.ptr != set)
			continue;
		if (read(set->change, &value, sizeof value) < 0 && errno != EAGAIN)
			return -1;
		events[i--] = events[--count];
	}
	return count;
}

int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	struct rsocket *set = maxevents > 0 ? get_set(epfd) : NULL;
	int64_t deadline = timeout < 0 ? 0 : rs_now() + timeout * INT64_C(1000000);
	int count = 0, others = 0, left;

	if (!set)
		return maxevents > 0 ? -1 : cm_fail(EINVAL);
	do {
		count = collect(set, events, maxevents);
		left = rs_milliseconds(deadline);
		if (count < maxevents)
			others = collect_others(set->set, epfd, events + count, maxevents - count,
						count ? 0 : left);
	} while (!count && !others && left);
	rs_put(set);
	return others < 0 && !count ? -1 : count + (others > 0 ? others : 0);
}
