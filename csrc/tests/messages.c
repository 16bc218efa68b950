/* SPDX-License-Identifier: MIT
 * Scenarios of data: every operation by both ways of posting, shared receives, datagrams, windows,
 * events and threads. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "scenarios.h"

static void check_received(struct end *end, uint64_t wr_id, const char *text, bool imm)
{
	struct ibv_wc wc = poll_one(end->cq);

	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id && wc.opcode & IBV_WC_RECV);
	CHECK(!imm || (wc.wc_flags & IBV_WC_WITH_IMM && ntohl(wc.imm_data) == 0x12345678));
	CHECK(!strcmp(end->buffer, text));
}

static void check_sent(struct end *end, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = poll_one(end->cq);

	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode && wc.qp_num == end->qp->qp_num);
}

/* Every operation of a reliable connection, by ibv_post_send. */
SCENARIO(post_send)
{
	struct end a = {0}, b = {0};
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;

	open_pair(&a, &b);
	strcpy(a.buffer, "send");
	CHECK(!post_receive(&b, 1, 0, 100));
	wr = make_send(&a, &b, IBV_WR_SEND_WITH_IMM, &sge, 100);
	wr.imm_data = htonl(0x12345678);
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	check_sent(&a, IBV_WC_SEND);
	check_received(&b, 1, "send", true);
	strcpy(a.buffer, "write");
	CHECK(!post_receive(&b, 2, 0, 0));
	wr = make_send(&a, &b, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 5000);
	wr.imm_data = htonl(0x12345678);
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	check_sent(&a, IBV_WC_RDMA_WRITE);
	check_received(&b, 2, "write", true);
	strcpy(b.buffer, "read");
	wr = make_send(&a, &b, IBV_WR_RDMA_READ, &sge, 5000);
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	check_sent(&a, IBV_WC_RDMA_READ);
	CHECK(!strcmp(a.buffer, "read"));
	*(uint64_t *)b.buffer = 40;
	wr = make_send(&a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 8);
	wr.wr.atomic.remote_addr = (uintptr_t)b.buffer;
	wr.wr.atomic.rkey = b.mr->rkey;
	wr.wr.atomic.compare_add = 2;
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	check_sent(&a, IBV_WC_FETCH_ADD);
	CHECK(*(uint64_t *)a.buffer == 40 && *(uint64_t *)b.buffer == 42);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 7;
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	check_sent(&a, IBV_WC_COMP_SWAP);
	CHECK(*(uint64_t *)a.buffer == 42 && *(uint64_t *)b.buffer == 7);
	close_ends(&a, &b);
}

/* Bytes of inline data are those at the time of posting, in several SGEs. */
SCENARIO(inline_data)
{
	struct end a = {0}, b = {0};
	char one[] = "in", two[] = "line";
	struct ibv_sge sges[] = {{(uintptr_t)one, 2, 0}, {(uintptr_t)two, 5, 0}};
	struct ibv_send_wr *bad, wr = {.sg_list = sges,
				       .num_sge = 2,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};

	open_pair(&a, &b);
	CHECK(!post_receive(&b, 1, 0, 100) && !ibv_post_send(a.qp, &wr, &bad));
	memset(one, 'x', sizeof one);
	memset(two, 'x', sizeof two);
	check_sent(&a, IBV_WC_SEND);
	check_received(&b, 1, "inline", false);
	close_ends(&a, &b);
}

/* Several operations between one ibv_wr_start and its ibv_wr_complete. */
SCENARIO(extended_post)
{
	struct end a = {0}, b = {0};
	struct ibv_qp_ex *qp;
	char text[] = "later", word[8] = "atomics";
	struct ibv_data_buf parts[] = {{"lat", 3}, {"er", 3}};

	open_pair(&a, &b);
	qp = ibv_qp_to_qp_ex(a.qp);
	CHECK(qp && !post_receive(&b, 1, 0, 100) && !post_receive(&b, 2, 0, 100));
	strcpy(a.buffer, "first");
	ibv_wr_start(qp);
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, b.mr->rkey, (uintptr_t)b.buffer + 1000);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.buffer, 6);
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qp, htonl(0x12345678));
	ibv_wr_set_inline_data(qp, text, sizeof text);
	memset(text, 'x', sizeof text);
	CHECK(!ibv_wr_complete(qp));
	check_sent(&a, IBV_WC_SEND);
	check_received(&b, 1, "later", true);
	CHECK(!strcmp(b.buffer + 1000, "first"));
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data_list(qp, 2, parts);
	late_functions(qp)->atomic_write(qp, b.mr->rkey, (uintptr_t)b.buffer + 2000, word);
	late_functions(qp)->flush(qp, b.mr->rkey, (uintptr_t)b.buffer, 100, FLUSH_GLOBAL,
				  FLUSH_RANGE);
	CHECK(!ibv_wr_complete(qp));
	check_sent(&a, IBV_WC_SEND);
	check_sent(&a, (enum ibv_wc_opcode)ATOMIC_WRITTEN);
	check_sent(&a, (enum ibv_wc_opcode)FLUSHED);
	check_received(&b, 2, "later", false);
	CHECK(!memcmp(b.buffer + 2000, "atomics", 8));
	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, 0, 0);
	ibv_wr_abort(qp);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, a.buffer, INLINE + 1);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	ibv_wr_start(qp);
	for (int i = 0; i <= DEPTH; i++)
		ibv_wr_rdma_read(qp, b.mr->rkey, (uintptr_t)b.buffer);
	CHECK(ibv_wr_complete(qp) == ENOMEM);
	close_ends(&a, &b);
}

SCENARIO(extended_poll)
{
	struct end a = {0}, b = {0};
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 64,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK |
			    IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED};
	struct ibv_poll_cq_attr poll_attr = {0};
	struct ibv_cq_ex *cq;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct timespec now;
	uint64_t stamp;

	open_memory(&b, 1);
	cq = ibv_create_cq_ex(b.context, &attr);
	CHECK(cq);
	b.cq = ibv_cq_ex_to_cq(cq);
	open_pair(&a, &b);
	CHECK(ibv_start_poll(cq, &poll_attr) == ENOENT);
	for (uint64_t i = 0; i < 2; i++) {
		CHECK(!post_receive(&b, i, 0, 100));
		wr = make_send(&a, &b, IBV_WR_SEND_WITH_IMM, &sge, 30);
		wr.imm_data = htonl(5);
		CHECK(!ibv_post_send(a.qp, &wr, &bad));
		check_sent(&a, IBV_WC_SEND);
	}
	CHECK(!ibv_start_poll(cq, &poll_attr));
	CHECK(cq->wr_id == 0 && cq->status == IBV_WC_SUCCESS && ibv_wc_read_byte_len(cq) == 30);
	CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_imm_data(cq) == htonl(5));
	CHECK(ibv_wc_read_qp_num(cq) == b.qp->qp_num);
	stamp = ibv_wc_read_completion_wallclock_ns(cq);
	clock_gettime(CLOCK_REALTIME, &now);
	CHECK(stamp / 1000000000 + 60 > (uint64_t)now.tv_sec);
	CHECK(!ibv_next_poll(cq) && cq->wr_id == 1 && ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	attr.wc_flags = IBV_WC_EX_WITH_CVLAN;
	CHECK(!ibv_create_cq_ex(b.context, &attr) && errno == EOPNOTSUPP);
	close_ends(&a, &b);
}

static int post_shared(struct ibv_srq *srq, struct end *end, uint64_t wr_id)
{
	struct ibv_sge sge = sge_of(end, 0, 100);
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	return ibv_post_srq_recv(srq, &wr, &bad);
}

/* A shared queue that is full has room again when its completions are polled. */
SCENARIO(shared_receive)
{
	struct end a = {0}, b = {0};
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq_attr attr = {.srq_limit = 3};
	struct ibv_async_event event;
	struct ibv_srq *srq;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	uint64_t posted = 0;
	uint32_t number;

	open_memory(&b, 1);
	srq = ibv_create_srq(b.pd, &init);
	CHECK(srq && init.attr.max_wr >= 4);
	open_end(&a, 0, NULL);
	open_end(&b, 1, srq);
	connect_ends(&a, &b);
	while (!post_shared(srq, &b, posted))
		posted++;
	CHECK(posted == init.attr.max_wr && errno == ENOMEM);
	CHECK(post_receive(&b, 1, 0, 8) == EINVAL);
	CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	for (uint64_t i = 0; i < posted; i++) {
		sprintf(a.buffer, "%d", (int)i);
		wr = make_send(&a, &b, IBV_WR_SEND, &sge, 100);
		CHECK(!ibv_post_send(a.qp, &wr, &bad));
		check_sent(&a, IBV_WC_SEND);
		check_received(&b, i, a.buffer, false);
	}
	CHECK(!ibv_get_async_event(b.context, &event));
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
	ibv_ack_async_event(&event);
	CHECK(!post_shared(srq, &b, 9) && !ibv_query_srq(srq, &attr) && attr.srq_limit == 0);
	CHECK(ibv_get_srq_num(srq, &number) == EOPNOTSUPP && ibv_destroy_srq(srq) == EBUSY);
	CHECK(!ibv_destroy_qp(b.qp) && !ibv_destroy_srq(srq));
	open_end(&b, 1, NULL);
	close_ends(&a, &b);
}

static struct ibv_qp *datagram_qp(struct end *end)
{
	struct ibv_qp_init_attr init = {.cap = {DEPTH, DEPTH, 2, 2, 0}, .qp_type = IBV_QPT_UD};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	struct ibv_qp *qp;

	init.send_cq = init.recv_cq = end->cq;
	qp = ibv_create_qp(end->pd, &init);
	CHECK(qp && !ibv_qp_to_qp_ex(qp) && errno == EOPNOTSUPP);
	to_init(qp);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

/* A datagram, and an answer to the address that its header gives. */
SCENARIO(datagrams)
{
	struct end a = {0}, b = {0};
	struct ibv_qp *from, *to, *connected;
	struct ibv_ah_attr attr = {.grh.flow_label = UINT32_MAX, .is_global = 1, .port_num = 1};
	struct ibv_ah_attr back;
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;
	struct ibv_wc wc;
	union ibv_gid gid;

	open_pair(&a, &b);
	from = datagram_qp(&a);
	to = datagram_qp(&b);
	CHECK(!ibv_query_gid(b.context, 1, 0, &attr.grh.dgid));
	wr = make_send(&a, &b, IBV_WR_SEND, &sge, 50);
	wr.wr.ud.ah = NULL;
	CHECK(ibv_post_send(from, &wr, &bad) == EINVAL);
	wr.wr.ud.ah = ibv_create_ah(a.pd, &attr);
	wr.wr.ud.remote_qpn = to->qp_num;
	wr.wr.ud.remote_qkey = 0x1111;
	connected = b.qp;
	b.qp = to;
	CHECK(wr.wr.ud.ah && !post_receive(&b, 1, 0, 100));
	strcpy(a.buffer, "datagram");
	CHECK(!ibv_post_send(from, &wr, &bad) && poll_one(a.cq).status == IBV_WC_SUCCESS);
	wc = poll_one(b.cq);
	CHECK(wc.byte_len == 90 && wc.wc_flags & IBV_WC_GRH && wc.src_qp == from->qp_num);
	CHECK(!strcmp(b.buffer + 40, "datagram"));
	CHECK(!ibv_init_ah_from_wc(b.context, 1, &wc, (struct ibv_grh *)b.buffer, &back));
	CHECK(!ibv_query_gid(a.context, 1, 0, &gid) && !memcmp(&back.grh.dgid, &gid, 16));
	CHECK(!ibv_destroy_ah(wr.wr.ud.ah) && !ibv_destroy_qp(from) && !ibv_destroy_qp(to));
	b.qp = connected;
	close_ends(&a, &b);
}

/* A datagram to a group reaches the queue pair that is attached to it, until it is detached. */
SCENARIO(multicast)
{
	struct end a = {0}, b = {0};
	struct ibv_ah_attr attr = {
		.grh.dgid.raw = {[10] = 0xff, 0xff, 239, 1, 2, 3},
		.is_global = 1,
		.port_num = 1};
	uint8_t mac[ETHERNET_LL_SIZE], group_mac[] = {1, 0, 0x5e, 1, 2, 3};
	struct ibv_qp *from, *to, *connected;
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;

	open_pair(&a, &b);
	from = datagram_qp(&a);
	to = datagram_qp(&b);
	connected = b.qp;
	b.qp = to;
	CHECK(!ibv_resolve_eth_l2_from_gid(a.context, &attr, mac, NULL));
	CHECK(!memcmp(mac, group_mac, sizeof mac));
	CHECK(!ibv_attach_mcast(to, &attr.grh.dgid, 0) && !post_receive(&b, 1, 0, 100));
	strcpy(a.buffer, "group");
	wr = make_send(&a, &b, IBV_WR_SEND, &sge, 50);
	wr.wr.ud.ah = ibv_create_ah(a.pd, &attr);
	wr.wr.ud.remote_qpn = 0xffffff;
	wr.wr.ud.remote_qkey = 0x1111;
	CHECK(wr.wr.ud.ah && !ibv_post_send(from, &wr, &bad));
	CHECK(poll_one(a.cq).status == IBV_WC_SUCCESS && poll_one(b.cq).wr_id == 1);
	CHECK(!strcmp(b.buffer + 40, "group"));
	CHECK(!ibv_detach_mcast(to, &attr.grh.dgid, 0));
	CHECK(ibv_detach_mcast(to, &attr.grh.dgid, 0) && !ibv_destroy_ah(wr.wr.ud.ah));
	CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to));
	b.qp = connected;
	close_ends(&a, &b);
}

/* A region behind a descriptor that can be mapped, as dma-bufs of dma-heaps are: a part of it. */
SCENARIO(dmabuf)
{
	struct end a = {0}, b = {0};
	int fd = memfd_create("dmabuf", 0);
	char text[16] = "";
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;
	struct ibv_mr *mr;

	open_pair(&a, &b);
	CHECK(fd >= 0 && !ftruncate(fd, 8192));
	mr = ibv_reg_dmabuf_mr(b.pd, 4096 + 100, 1000, 0x5000 + 100, fd, ALL_ACCESS);
	CHECK(mr);
	strcpy(a.buffer, "dmabuf");
	wr = make_send(&a, &b, IBV_WR_RDMA_WRITE, &sge, 7);
	wr.wr.rdma.remote_addr = 0x5000 + 110;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	check_sent(&a, IBV_WC_RDMA_WRITE);
	CHECK(pread(fd, text, 7, 4096 + 110) == 7 && !strcmp(text, "dmabuf"));
	CHECK(!ibv_dereg_mr(mr) && !close(fd));
	CHECK(!ibv_reg_dmabuf_mr(b.pd, 0, 100, 0, STDOUT_FILENO, ALL_ACCESS));
	close_ends(&a, &b);
}

/* A window of type 1: its key opens a part of the region, until it is unbound. */
SCENARIO(memory_window)
{
	struct end a = {0}, b = {0};
	struct ibv_mw_bind bind = {.wr_id = 5, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw *mw;
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;
	uint32_t rkey;

	open_pair(&a, &b);
	mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
	CHECK(mw);
	rkey = mw->rkey;
	bind.bind_info = (struct ibv_mw_bind_info){b.mr, (uintptr_t)b.buffer, 64,
						   IBV_ACCESS_REMOTE_WRITE};
	CHECK(!ibv_bind_mw(b.qp, mw, &bind) && mw->rkey != rkey && mw->rkey >> 8 == rkey >> 8);
	check_sent(&b, IBV_WC_BIND_MW);
	strcpy(a.buffer, "window");
	wr = make_send(&a, &b, IBV_WR_RDMA_WRITE, &sge, 64);
	wr.wr.rdma.rkey = mw->rkey;
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	check_sent(&a, IBV_WC_RDMA_WRITE);
	CHECK(!strcmp(b.buffer, "window"));
	sge.length = 65;
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	CHECK(poll_one(a.cq).status == IBV_WC_REM_ACCESS_ERR);
	CHECK(!ibv_dealloc_mw(mw));
	close_ends(&a, &b);
}

static void *destroy_cq(void *cq)
{
	CHECK(!ibv_destroy_cq(cq));
	return NULL;
}

/* An armed CQ gives one event; a CQ is destroyed when its events are acknowledged. */
SCENARIO(completion_events)
{
	struct end a = {0}, b = {0};
	struct ibv_comp_channel *channel;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct ibv_cq *cq;
	void *cq_context;
	pthread_t thread;

	open_memory(&a, 0);
	channel = ibv_create_comp_channel(a.context);
	CHECK(channel);
	a.cq = ibv_create_cq(a.context, 64, &a, channel, 0);
	CHECK(a.cq && channel->refcnt == 1 && ibv_destroy_comp_channel(channel) == EBUSY);
	open_pair(&a, &b);
	CHECK(!ibv_req_notify_cq(a.cq, 0));
	for (int i = 0; i < 2; i++) {
		wr = make_send(&a, &b, IBV_WR_RDMA_WRITE, &sge, 8);
		CHECK(!ibv_post_send(a.qp, &wr, &bad));
	}
	CHECK(!ibv_get_cq_event(channel, &cq, &cq_context) && cq == a.cq && cq_context == &a);
	check_sent(&a, IBV_WC_RDMA_WRITE);
	check_sent(&a, IBV_WC_RDMA_WRITE);
	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(ibv_get_cq_event(channel, &cq, &cq_context) == -1 && errno == EAGAIN);
	CHECK(!ibv_destroy_qp(a.qp));
	CHECK(!pthread_create(&thread, NULL, destroy_cq, a.cq));
	usleep(1000);
	ibv_ack_cq_events(a.cq, 1);
	CHECK(!pthread_join(thread, NULL) && !ibv_destroy_comp_channel(channel));
	a.cq = NULL;
	open_end(&a, 0, NULL);
	close_ends(&a, &b);
}

/* XRC: a message to a shared queue of a domain, by its number. */
SCENARIO(xrc)
{
	struct end a = {0}, b = {0};
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT};
	struct ibv_srq_init_attr_ex shared = {.attr = {4, 1, 0},
					      .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
							   IBV_SRQ_INIT_ATTR_PD |
							   IBV_SRQ_INIT_ATTR_CQ |
							   IBV_SRQ_INIT_ATTR_XRCD,
					      .srq_type = IBV_SRQT_XRC};
	struct ibv_qp_init_attr_ex target = {.qp_type = IBV_QPT_XRC_RECV,
					     .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	struct ibv_qp_init_attr_ex initiator = {.qp_type = IBV_QPT_XRC_SEND,
						.cap = {DEPTH, 0, 1, 0, 0},
						.comp_mask = IBV_QP_INIT_ATTR_PD};
	struct ibv_qp_open_attr open_attr = {.comp_mask = IBV_QP_OPEN_ATTR_NUM |
							  IBV_QP_OPEN_ATTR_XRCD |
							  IBV_QP_OPEN_ATTR_TYPE,
					     .qp_type = IBV_QPT_XRC_RECV};
	struct ibv_qp *from, *to, *opened;
	struct ibv_srq *srq;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	uint32_t number;

	open_pair(&a, &b);
	target.xrcd = shared.xrcd = ibv_open_xrcd(b.context, &domain);
	CHECK(target.xrcd);
	shared.pd = b.pd;
	shared.cq = b.cq;
	srq = ibv_create_srq_ex(b.context, &shared);
	CHECK(srq && !ibv_get_srq_num(srq, &number) && !post_shared(srq, &b, 8));
	to = ibv_create_qp_ex(b.context, &target);
	initiator.pd = a.pd;
	initiator.send_cq = a.cq;
	from = ibv_create_qp_ex(a.context, &initiator);
	CHECK(from && to);
	to_init(from);
	to_init(to);
	to_rts(from, &b, to->qp_num);
	to_rts(to, &a, from->qp_num);
	strcpy(a.buffer, "xrc");
	wr = make_send(&a, &b, IBV_WR_SEND, &sge, 100);
	wr.qp_type.xrc.remote_srqn = number;
	CHECK(!ibv_post_send(from, &wr, &bad) && poll_one(a.cq).status == IBV_WC_SUCCESS);
	check_received(&b, 8, "xrc", false);
	open_attr.xrcd = target.xrcd;
	open_attr.qp_num = to->qp_num;
	opened = ibv_open_qp(b.context, &open_attr);
	CHECK(opened && opened->qp_num == to->qp_num && !ibv_destroy_qp(opened));
	CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to) && !ibv_destroy_srq(srq));
	CHECK(!ibv_close_xrcd(target.xrcd));
	close_ends(&a, &b);
}

enum { THREADS = 4, ROUNDS = 200 };

struct worker {
	struct end *a, *b;
	int done;
};

/* Post on the one queue pair and poll the one CQ, whose completions may be another thread's. */
static void *work(void *argument)
{
	struct worker *worker = argument;

	for (int posted = 0; posted < ROUNDS;) {
		struct ibv_sge sge;
		struct ibv_send_wr *bad, wr = make_send(worker->a, worker->b, IBV_WR_RDMA_WRITE,
							&sge, 8);
		struct ibv_wc wc;
		int error = ibv_post_send(worker->a->qp, &wr, &bad);

		CHECK(!error || error == ENOMEM);
		posted += !error;
		if (ibv_poll_cq(worker->a->cq, 1, &wc) == 1) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			worker->done++;
		}
	}
	return NULL;
}

SCENARIO(threads)
{
	struct end a = {0}, b = {0};
	struct worker workers[THREADS];
	pthread_t ids[THREADS];
	int done = 0;

	open_pair(&a, &b);
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){&a, &b, 0};
		CHECK(!pthread_create(&ids[i], NULL, work, &workers[i]));
	}
	for (int i = 0; i < THREADS; i++) {
		CHECK(!pthread_join(ids[i], NULL));
		done += workers[i].done;
	}
	for (; done < THREADS * ROUNDS; done++)
		check_sent(&a, IBV_WC_RDMA_WRITE);
	close_ends(&a, &b);
}
