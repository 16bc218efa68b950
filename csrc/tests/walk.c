/* SPDX-License-Identifier: MIT
 * Calls against a service that a test makes: one that ends in the middle, and ones with invalid
 * replies, which must harm nothing. */
#include <fcntl.h>
#include <sys/mman.h>

#include "scenarios.h"

/* Objects of a service that completes nothing; its test closes the connection later. */
struct idle {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[2];
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	char buffer[4096];
};

static void make_ready(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

static void open_idle(struct idle *idle)
{
	struct ibv_qp_init_attr init = {.cap = {8, 8, 1, 1, 0}, .qp_type = IBV_QPT_RC};

	idle->context = open_device(0);
	CHECK((idle->pd = ibv_alloc_pd(idle->context)));
	CHECK((idle->channel = ibv_create_comp_channel(idle->context)));
	for (int i = 0; i < 2; i++)
		CHECK((idle->cq[i] = ibv_create_cq(idle->context, 16, NULL, idle->channel, 0)));
	CHECK((idle->mr = ibv_reg_mr(idle->pd, idle->buffer, 4096, ALL_ACCESS)));
	init.send_cq = idle->cq[0];
	init.recv_cq = idle->cq[1];
	CHECK((idle->qp = ibv_create_qp(idle->pd, &init)));
	make_ready(idle->qp);
}

static void post_some(struct idle *idle, int sends, int receives)
{
	struct ibv_sge sge = {(uintptr_t)idle->buffer, 8, idle->mr->lkey};
	struct ibv_send_wr *bad, send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_recv_wr *bad_receive, receive = {.sg_list = &sge, .num_sge = 1};

	for (send.wr_id = 0; send.wr_id < (uint64_t)sends; send.wr_id++)
		CHECK(!ibv_post_send(idle->qp, &send, &bad));
	for (receive.wr_id = 100; receive.wr_id < 100 + (uint64_t)receives; receive.wr_id++)
		CHECK(!ibv_post_recv(idle->qp, &receive, &bad_receive));
}

static void check_flushed(struct idle *idle, struct ibv_cq *cq, uint64_t first, int count)
{
	struct ibv_wc wc;

	for (int i = 0; i < count; i++) {
		wc = poll_one(cq);
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == first + (uint64_t)i);
		CHECK(wc.qp_num == idle->qp->qp_num);
	}
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
}

/* The service ends while work is outstanding: all of it is flushed, each CQ has an event, the
 * device fails, calls fail, and objects can be destroyed. */
SCENARIO(service_ends)
{
	struct idle idle = {0};
	struct ibv_async_event event;
	struct ibv_cq *first, *second;
	void *cq_context;
	struct ibv_wc wc;

	open_idle(&idle);
	post_some(&idle, 5, 3);
	CHECK(ibv_poll_cq(idle.cq[0], 1, &wc) == 0);
	puts("posted");
	fflush(stdout);
	CHECK(!ibv_get_cq_event(idle.channel, &first, &cq_context));
	CHECK(!ibv_get_cq_event(idle.channel, &second, &cq_context));
	CHECK(first != second);
	CHECK(ibv_get_cq_event(idle.channel, &second, &cq_context) == -1 && errno == EIO);
	check_flushed(&idle, idle.cq[0], 0, 5);
	check_flushed(&idle, idle.cq[1], 100, 3);
	CHECK(!ibv_get_async_event(idle.context, &event));
	CHECK(event.event_type == IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
	CHECK(ibv_get_async_event(idle.context, &event) == -1 && errno == EIO);
	CHECK(!ibv_alloc_pd(idle.context) && errno == EIO);
	ibv_ack_cq_events(idle.cq[0], 1);
	ibv_ack_cq_events(idle.cq[1], 1);
	CHECK(!ibv_destroy_qp(idle.qp) && !ibv_destroy_cq(idle.cq[0]));
	CHECK(!ibv_destroy_cq(idle.cq[1]) && !ibv_destroy_comp_channel(idle.channel));
	CHECK(!ibv_dereg_mr(idle.mr) && !ibv_dealloc_pd(idle.pd) && !ibv_close_device(idle.context));
}

/* As above, but the program only polls. */
SCENARIO(poll_notices)
{
	struct idle idle = {0};

	open_idle(&idle);
	post_some(&idle, 8, 0);
	puts("posted");
	fflush(stdout);
	check_flushed(&idle, idle.cq[0], 0, 8);
}

/* Posting with a full ring notices that the service ended. */
SCENARIO(full_ring)
{
	struct idle idle = {0};
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 1 << 20, .max_sge = 1}};
	struct ibv_srq *srq;
	struct ibv_sge sge = {0};
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
	int error;

	open_idle(&idle);
	CHECK((srq = ibv_create_srq(idle.pd, &init)));
	puts("posted");
	fflush(stdout);
	while (!(error = ibv_post_srq_recv(srq, &wr, &bad)))
		;
	CHECK(error == EIO);
}

/* Poll without waiting, and read the completions. */
static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc[4];
	int count;

	for (int i = 0; i < 50 && (count = ibv_poll_cq(cq, 4, wc)) >= 0; i++)
		for (int k = 0; k < count; k++)
			CHECK(ibv_wc_status_str(wc[k].status));
}

static void take_events(struct ibv_context *context, struct ibv_comp_channel *channel)
{
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *cq_context;

	fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 4 && !ibv_get_async_event(context, &event); i++) {
		CHECK(ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
	for (int i = 0; i < 4 && !ibv_get_cq_event(channel, &cq, &cq_context); i++)
		ibv_ack_cq_events(cq, 1);
}

static void use_queue_pair(struct ibv_qp *qp, struct ibv_cq *cq)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_qp_init_attr init;
	struct ibv_sge sge = {0, 8, 0};
	struct ibv_send_wr *bad, send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_recv_wr *bad_receive, receive = {.sg_list = &sge, .num_sge = 1};

	ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	ibv_query_qp(qp, &attr, 0, &init);
	for (int i = 0; i < 10; i++) {
		ibv_post_send(qp, &send, &bad);
		ibv_post_recv(qp, &receive, &bad_receive);
	}
	ibv_req_notify_cq(cq, 0);
	drain(cq);
	ibv_resize_cq(cq, 100);
	drain(cq);
	attr.qp_state = IBV_QPS_RESET;
	ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	ibv_destroy_qp(qp);
}

static void use_dmabuf(struct ibv_pd *pd)
{
	int fd = memfd_create("dmabuf", 0);
	struct ibv_mr *mr;

	CHECK(fd >= 0 && !ftruncate(fd, 4096));
	mr = ibv_reg_dmabuf_mr(pd, 100, 1000, 0, fd, ALL_ACCESS);
	if (mr)
		ibv_dereg_mr(mr);
	close(fd);
}

static void use_domain(struct ibv_context *context, struct ibv_pd *pd,
		       struct ibv_comp_channel *channel)
{
	static char buffer[4096];
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof buffer, ALL_ACCESS);
	struct ibv_srq_init_attr shared = {.attr = {4, 1, 0}};
	struct ibv_srq *srq = ibv_create_srq(pd, &shared);
	struct ibv_qp_init_attr init = {cq, cq, cq, NULL, {8, 8, 1, 1, 8}, IBV_QPT_RC, 1};
	struct ibv_qp *qp = cq ? ibv_create_qp(pd, &init) : NULL;

	take_events(context, channel);
	use_dmabuf(pd);
	if (qp)
		use_queue_pair(qp, cq);
	if (srq && !ibv_query_srq(srq, &shared.attr))
		ibv_destroy_srq(srq);
	if (mr && !ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1))
		ibv_dereg_mr(mr);
	if (cq)
		ibv_destroy_cq(cq);
}

static void use_device(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_comp_channel *channel;
	struct ibv_port_attr port;
	struct ibv_gid_entry table[4];
	struct ibv_pd *pd;

	if (!context)
		return;
	ibv_query_port(context, 1, &port);
	ibv_query_gid_table(context, table, 4, 0);
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	if (pd && channel)
		use_domain(context, pd, channel);
	if (channel)
		ibv_destroy_comp_channel(channel);
	if (pd)
		ibv_dealloc_pd(pd);
	ibv_close_device(context);
}

/* Walk through the calls until the service removes its socket, whatever it answers. */
SCENARIO(invalid_replies)
{
	const char *path = getenv("RDMAWIRE_VERBS");
	struct ibv_device **list;
	int count;

	while ((list = ibv_get_device_list(&count))) {
		bool ended = !count && access(path, F_OK);

		for (int i = 0; i < count && i < 2; i++)
			use_device(list[i]);
		ibv_free_device_list(list);
		if (ended)
			break;
	}
}
