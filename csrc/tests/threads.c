/* SPDX-License-Identifier: MIT
 * Scenarios of threads, for ThreadSanitizer: what programs may do at the same time on one context. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "scenarios.h"

enum { QPS = 3, POSTERS = 3, POLLERS = 2, WRITES = 1000, MAX_CQE = 512 };

static struct end one, other;
static struct ibv_qp *qps[QPS];
static struct ibv_comp_channel *channel;
static atomic_uint posted, polled;
static atomic_bool ended;

static void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
	CHECK(!pthread_create(thread, NULL, run, argument));
}

static void finish(pthread_t *threads, int count)
{
	for (int i = 0; i < count; i++)
		CHECK(!pthread_join(threads[i], NULL));
}

/* Post to every queue pair, as other threads do. */
static void *post_writes(void *nothing)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	int error;

	for (int i = 0; i < WRITES; i++) {
		wr = make_send(&one, &other, IBV_WR_RDMA_WRITE, &sge, 64);
		while ((error = ibv_post_send(qps[i % QPS], &wr, &bad)) == ENOMEM)
			sched_yield();
		CHECK(!error);
		atomic_fetch_add(&posted, 1);
	}
	return nothing;
}

static bool is_all_polled(void)
{
	return atomic_load(&ended) && atomic_load(&polled) == atomic_load(&posted);
}

static void *poll_queue(void *nothing)
{
	struct ibv_wc wc[4];
	int count;

	while (!is_all_polled()) {
		count = ibv_poll_cq(one.cq, 4, wc);
		CHECK(count >= 0);
		for (int i = 0; i < count; i++)
			CHECK(wc[i].status == IBV_WC_SUCCESS);
		atomic_fetch_add(&polled, (unsigned)count);
	}
	return nothing;
}

static void *resize_queue(void *nothing)
{
	for (int cqe = MAX_CQE; !atomic_load(&ended); cqe = cqe == MAX_CQE ? MAX_CQE / 2 : MAX_CQE)
		CHECK(!ibv_resize_cq(one.cq, cqe));
	return nothing;
}

static void *take_events(void *nothing)
{
	struct pollfd readable = {.fd = channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	while (!atomic_load(&ended)) {
		CHECK(!ibv_req_notify_cq(one.cq, 0));
		if (poll(&readable, 1, 1) > 0 && !ibv_get_cq_event(channel, &cq, &context))
			ibv_ack_cq_events(cq, 1);
	}
	return nothing;
}

/* Make and destroy objects of the same context. */
static void *make_objects(void *nothing)
{
	struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_async_event event;
	struct ibv_mr *mr;
	struct ibv_qp *qp;

	fcntl(one.context->async_fd, F_SETFL, O_NONBLOCK);
	while (!atomic_load(&ended)) {
		init.send_cq = init.recv_cq = one.cq;
		CHECK((qp = ibv_create_qp(one.pd, &init)));
		CHECK((mr = ibv_reg_mr(one.pd, one.buffer, 4096, ALL_ACCESS)));
		CHECK(ibv_get_async_event(one.context, &event) == -1 && errno == EAGAIN);
		CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_qp(qp));
	}
	return nothing;
}

static bool is_refused(void)
{
	struct ibv_qp_ex *extended = ibv_qp_to_qp_ex(one.qp);
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	wr = make_send(&one, &other, IBV_WR_RDMA_WRITE, &sge, 64);
	if (!ibv_post_send(one.qp, &wr, &bad) || ibv_req_notify_cq(one.cq, 0) != EIO)
		return false;
	ibv_wr_start(extended);
	ibv_wr_rdma_write(extended, 0, 0);
	if (!ibv_wr_complete(extended))
		return false;
	return ibv_poll_cq(one.cq, 1, &wc) < 0 && !ibv_alloc_pd(one.context) && errno == EIO;
}

/* Children of a process whose threads post: their calls fail, and the parent's go on. */
static void *make_children(void *nothing)
{
	pid_t child;
	int status;

	while (!atomic_load(&ended)) {
		child = fork();
		CHECK(child >= 0);
		if (!child)
			_exit(is_refused() ? 0 : 1);
		CHECK(waitpid(child, &status, 0) == child && !status);
	}
	return nothing;
}

static void open_ends(void)
{
	open_memory(&one, 0);
	CHECK((channel = ibv_create_comp_channel(one.context)));
	CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	CHECK((one.cq = ibv_create_cq(one.context, MAX_CQE, NULL, channel, 0)));
	for (int i = 0; i < QPS; i++) {
		open_end(&one, 0, NULL);
		open_end(&other, 1, NULL);
		connect_ends(&one, &other);
		qps[i] = one.qp;
	}
}

static void run_with(void *(*further[])(void *), int count)
{
	pthread_t posters[POSTERS], pollers[POLLERS], others[4];

	open_ends();
	for (int i = 0; i < POLLERS; i++)
		start(&pollers[i], poll_queue, NULL);
	for (int i = 0; i < count; i++)
		start(&others[i], further[i], NULL);
	for (int i = 0; i < POSTERS; i++)
		start(&posters[i], post_writes, NULL);
	finish(posters, POSTERS);
	atomic_store(&ended, true);
	finish(others, count);
	finish(pollers, POLLERS);
	CHECK(atomic_load(&polled) == POSTERS * WRITES);
	for (int i = 0; i < QPS; i++)
		CHECK(!ibv_destroy_qp(qps[i]));
	CHECK(!ibv_destroy_cq(one.cq) && !ibv_destroy_comp_channel(channel));
}

SCENARIO(traffic)
{
	run_with((void *(*[])(void *)){resize_queue, take_events, make_objects}, 3);
}

SCENARIO(children)
{
	run_with((void *(*[])(void *)){make_children}, 1);
}

/* The device is closed while its thread copies for the service. */
SCENARIO(close_while_copying)
{
	int fd = memfd_create("dmabuf", 0);
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct ibv_mr *mr;

	open_pair(&one, &other);
	CHECK(fd >= 0 && !ftruncate(fd, BUFFER));
	CHECK((mr = ibv_reg_dmabuf_mr(other.pd, 0, BUFFER, 0x5000, fd, ALL_ACCESS)));
	for (int i = 0; i < DEPTH; i++) {
		wr = make_send(&one, &other, IBV_WR_RDMA_WRITE, &sge, BUFFER);
		wr.wr.rdma.remote_addr = 0x5000;
		wr.wr.rdma.rkey = mr->rkey;
		CHECK(!ibv_post_send(one.qp, &wr, &bad));
	}
	CHECK(poll_one(one.cq).status == IBV_WC_SUCCESS);
	CHECK(!ibv_close_device(other.context));
	CHECK(!ibv_close_device(one.context));
}
