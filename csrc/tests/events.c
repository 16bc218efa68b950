/* SPDX-License-Identifier: MIT
 * Scenarios of events: of completions that were there before, and signals that end the waiting. */
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>

#include "scenarios.h"

enum { MAX_TICKS = 3000 };

static volatile sig_atomic_t ticks;

/* A wait that a signal does not end would go on for ever. */
static void tick(int number)
{
	static const char text[] = "signals do not end the wait\n";

	(void)number;
	if (++ticks < MAX_TICKS)
		return;
	_exit(write(STDERR_FILENO, text, sizeof text - 1) ? 1 : 2);
}

static void open_channel(struct end *end, struct ibv_comp_channel **channel)
{
	open_memory(end, 0);
	*channel = ibv_create_comp_channel(end->context);
	CHECK(*channel);
	end->cq = ibv_create_cq(end->context, 64, end, *channel, 0);
	CHECK(end->cq);
}

/* Post `count` writes at once, and wait until all are complete: the service does posted work before
 * calls. An invalid R_Key fails the first one. */
static void complete(struct end *a, struct end *b, unsigned count, bool valid)
{
	struct ibv_port_attr port;
	struct ibv_send_wr wrs[DEPTH], *bad;
	struct ibv_sge sges[DEPTH];

	for (unsigned i = 0; i < count; i++) {
		wrs[i] = make_send(a, b, IBV_WR_RDMA_WRITE, &sges[i], 8);
		wrs[i].next = i + 1 < count ? &wrs[i + 1] : NULL;
		wrs[i].wr.rdma.rkey ^= valid ? 0 : 0x5a5a00;
	}
	CHECK(!ibv_post_send(a->qp, wrs, &bad));
	CHECK(poll_one(a->cq).status == (valid ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR));
	CHECK(!ibv_query_port(a->context, 1, &port));
}

/* How many events there are, after a call that the service answers behind the request for them. */
static int take_events(struct end *end, struct ibv_comp_channel *channel)
{
	struct ibv_port_attr port;
	struct ibv_cq *cq;
	void *cq_context;
	int count = 0;

	CHECK(!ibv_query_port(end->context, 1, &port));
	while (!ibv_get_cq_event(channel, &cq, &cq_context)) {
		CHECK(cq == end->cq && cq_context == end);
		count++;
	}
	CHECK(errno == EAGAIN);
	ibv_ack_cq_events(end->cq, (unsigned)count);
	return count;
}

/* A CQ with completions that came while it was not armed gives an event at once when it is armed, one
 * until the program gets it; a solicited one only for solicited or failed completions. Completions
 * that had an event give no other: programs may arm the CQ first and poll it then. */
SCENARIO(unpolled)
{
	struct end a = {0}, b = {0};
	struct ibv_comp_channel *channel;
	struct ibv_wc wc;

	open_channel(&a, &channel);
	CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	open_pair(&a, &b);
	complete(&a, &b, 3, true);
	CHECK(!ibv_req_notify_cq(a.cq, 1) && take_events(&a, channel) == 0);
	CHECK(!ibv_req_notify_cq(a.cq, 0) && !ibv_req_notify_cq(a.cq, 0));
	CHECK(take_events(&a, channel) == 1);
	CHECK(!ibv_req_notify_cq(a.cq, 0) && take_events(&a, channel) == 0);
	complete(&a, &b, 1, true);
	CHECK(take_events(&a, channel) == 1);
	complete(&a, &b, 1, true);
	CHECK(!ibv_req_notify_cq(a.cq, 0) && take_events(&a, channel) == 1);
	CHECK(ibv_poll_cq(a.cq, 1, &wc) == 1 && ibv_poll_cq(a.cq, 1, &wc) == 1);
	CHECK(!ibv_req_notify_cq(a.cq, 1) && take_events(&a, channel) == 0);
	complete(&a, &b, 2, false);
	CHECK(take_events(&a, channel) == 1); /* of the failure */
	CHECK(!ibv_req_notify_cq(a.cq, 1) && take_events(&a, channel) == 1);
	close_ends(&b, &a);
}

/* A signal without SA_RESTART ends the wait for an event. */
SCENARIO(interrupted)
{
	struct sigaction action = {.sa_handler = tick};
	struct itimerval often = {{0, 1000}, {0, 1000}}, never = {0};
	struct end end = {0};
	struct ibv_comp_channel *channel;
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *cq_context;

	open_channel(&end, &channel);
	CHECK(!sigaction(SIGALRM, &action, NULL) && !setitimer(ITIMER_REAL, &often, NULL));
	CHECK(ibv_get_cq_event(channel, &cq, &cq_context) == -1 && errno == EINTR);
	CHECK(ibv_get_async_event(end.context, &event) == -1 && errno == EINTR);
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
	open_end(&end, 0, NULL); /* the context is in order */
	close_end(&end);
}
