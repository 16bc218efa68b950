/* SPDX-License-Identifier: MIT
 * Scenarios of objects and queries, of posting's checks, and of the child of a fork. */
#include "scenarios.h"

SCENARIO(queries)
{
	struct ibv_context *context = open_device(1);
	struct ibv_device_attr attr;
	struct ibv_device_attr_ex extended;
	struct ibv_port_attr port;
	struct ibv_gid_entry entry, table[256];
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	union ibv_gid gid;
	__be16 pkey;

	CHECK(!strncmp(context->device->dev_name, "uverbs", 6));
	CHECK(!ibv_query_device(context, &attr) && attr.max_qp > 0 && attr.phys_port_cnt == 1);
	CHECK(attr.node_guid == ibv_get_device_guid(context->device));
	CHECK(!ibv_query_device_ex(context, NULL, &extended));
	CHECK(extended.completion_timestamp_mask && extended.orig_attr.max_qp == attr.max_qp);
	CHECK((unsigned)extended.device_cap_flags_ex == attr.device_cap_flags);
	CHECK(extended.device_cap_flags_ex & 1ull << 40); /* ATOMIC_WRITE */
	CHECK(!ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE);
	CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET && port.gid_tbl_len > 0);
	CHECK(ibv_query_port(context, 2, &port) == EINVAL);
	CHECK(!ibv_query_gid(context, 1, 0, &gid));
	CHECK(!ibv_query_gid_ex(context, 1, 0, &entry, 0) && !memcmp(&entry.gid, &gid, 16));
	CHECK(entry.gid_type == IBV_GID_TYPE_ROCE_V2);
	CHECK(!ibv_query_gid_ex(context, 1, 3, &entry, 0) && !memcmp(&entry.gid, &gid, 16));
	CHECK(ibv_query_gid_ex(context, 1, 2, &entry, 0) == ENODATA);
	CHECK(!ibv_query_gid(context, 1, 2, &gid) && !gid.global.subnet_prefix &&
	      !gid.global.interface_id);
	CHECK(!ibv_query_gid(context, 1, 0, &gid));
	CHECK(ibv_query_gid_table(context, table, 256, 0) >= 1);
	CHECK(!memcmp(&table[0].gid, &gid, 16));
	CHECK(!ibv_query_pkey(context, 1, 0, &pkey) && ibv_get_pkey_index(context, 1, pkey) == 0);
	CHECK(ibv_get_pkey_index(context, 1, htons(0x1234)) == -1);
	CHECK(!ibv_query_rt_values_ex(context, &values) && values.raw_clock.tv_sec);
	CHECK(!ibv_close_device(context));
}

/* Objects in use are not destroyed; parent domains stand for their domain. */
SCENARIO(objects)
{
	struct end end = {0};
	struct ibv_td *td;
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_parent_domain_init_attr parent_attr = {0};
	struct ibv_ah_attr ah_attr = {.is_global = 1, .port_num = 1};
	struct ibv_pd *parent;
	struct ibv_ah *ah;
	struct ibv_mw *mw;
	struct ibv_mr *mr;

	open_end(&end, 0, NULL);
	CHECK(ibv_dealloc_pd(end.pd) == EBUSY);
	CHECK(ibv_destroy_cq(end.cq) == EBUSY);
	td = ibv_alloc_td(end.context, &td_attr);
	CHECK(td);
	parent_attr.pd = end.pd;
	parent_attr.td = td;
	parent = ibv_alloc_parent_domain(end.context, &parent_attr);
	CHECK(parent && parent->handle == end.pd->handle);
	mr = ibv_reg_mr(parent, end.buffer, 100, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->pd == parent && mr->lkey != end.mr->lkey && !ibv_dereg_mr(mr));
	CHECK(ibv_dealloc_pd(end.pd) == EBUSY && !ibv_dealloc_pd(parent) && !ibv_dealloc_td(td));
	CHECK(!ibv_query_gid(end.context, 1, 0, &ah_attr.grh.dgid));
	ah = ibv_create_ah(end.pd, &ah_attr);
	CHECK(ah && !ibv_destroy_ah(ah));
	mw = ibv_alloc_mw(end.pd, IBV_MW_TYPE_1);
	CHECK(mw && mw->rkey && !ibv_dealloc_mw(mw));
	CHECK(!ibv_reg_mr(end.pd, (void *)16, 100, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	CHECK(!ibv_reg_mr(end.pd, end.buffer, 100, 1 << 10) && errno == EINVAL);
	CHECK(!ibv_rereg_mr(end.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			    IBV_ACCESS_LOCAL_WRITE));
	CHECK(ibv_rereg_mr(end.mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	close_end(&end);
}

SCENARIO(cq_resize)
{
	struct end a = {0}, b = {0};
	struct ibv_modify_cq_attr moderation = {.attr_mask = IBV_CQ_ATTR_MODERATE,
						.moderate = {4, 100}};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	open_pair(&a, &b);
	for (int i = 0; i < 5; i++) {
		wr = make_send(&a, &b, IBV_WR_RDMA_WRITE, &sge, 8);
		wr.wr_id = (uint64_t)i;
		CHECK(!ibv_post_send(a.qp, &wr, &bad));
	}
	CHECK(poll_one(a.cq).wr_id == 0);
	CHECK(!ibv_resize_cq(a.cq, 200) && a.cq->cqe >= 200);
	for (uint64_t i = 1; i < 5; i++)
		CHECK(poll_one(a.cq).wr_id == i);
	CHECK(ibv_resize_cq(a.cq, 0) == EINVAL);
	CHECK(!ibv_modify_cq(a.cq, &moderation));
	close_ends(&a, &b);
}

/* What a provider refuses at once: each case with its errno, and the request that it names. */
SCENARIO(refused_posts)
{
	struct end a = {0}, b = {0};
	struct ibv_sge sges[8] = {0}, sge;
	struct ibv_send_wr wr, first, *bad = NULL;
	struct ibv_recv_wr receive = {.num_sge = 5, .sg_list = sges}, *bad_receive = NULL;

	open_end(&a, 0, NULL);
	open_end(&b, 1, NULL);
	wr = make_send(&a, &b, IBV_WR_SEND, &sge, 8);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr); /* RESET */
	CHECK(post_receive(&a, 1, 0, 8) == EINVAL);
	connect_ends(&a, &b);
	first = make_send(&a, &b, IBV_WR_RDMA_WRITE, &sge, 8);
	first.next = &wr;
	wr = make_send(&a, &b, IBV_WR_TSO, &sge, 8);
	CHECK(ibv_post_send(a.qp, &first, &bad) == EINVAL && bad == &wr);
	CHECK(poll_one(a.cq).status == IBV_WC_SUCCESS); /* the first one was posted */
	wr = make_send(&a, &b, IBV_WR_SEND, &sge, 8);
	wr.sg_list = sges;
	wr.num_sge = 5;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL);
	CHECK(ibv_post_recv(a.qp, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
	wr = make_send(&a, &b, IBV_WR_SEND, &sge, INLINE + 1);
	wr.send_flags |= IBV_SEND_INLINE;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL);
	wr = make_send(&a, &b, IBV_WR_RDMA_READ, &sge, 8);
	wr.send_flags |= IBV_SEND_INLINE;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL);
	close_ends(&a, &b);
}

static int post_write(struct end *a, struct end *b, uint64_t wr_id, unsigned flags)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = make_send(a, b, IBV_WR_RDMA_WRITE, &sge, 8), *bad;

	wr.wr_id = wr_id;
	wr.send_flags = flags;
	return ibv_post_send(a->qp, &wr, &bad);
}

/* A send queue is full until a completion is polled, which frees unsignaled work before it. */
SCENARIO(full_queues)
{
	struct end a = {0}, b = {0};
	uint64_t i;

	open_pair(&a, &b);
	for (i = 1; i < DEPTH; i++)
		CHECK(!post_write(&a, &b, i, 0));
	CHECK(!post_write(&a, &b, i, IBV_SEND_SIGNALED));
	CHECK(post_write(&a, &b, 99, IBV_SEND_SIGNALED) == ENOMEM);
	CHECK(poll_one(a.cq).wr_id == DEPTH);
	for (i = 0; i < DEPTH; i++)
		CHECK(!post_write(&a, &b, i, IBV_SEND_SIGNALED));
	CHECK(post_write(&a, &b, 99, IBV_SEND_SIGNALED) == ENOMEM);
	CHECK(poll_one(a.cq).wr_id == 0 && !post_write(&a, &b, 16, IBV_SEND_SIGNALED));
	for (i = 0; i < DEPTH; i++)
		CHECK(!post_receive(&a, i, 0, 8));
	CHECK(post_receive(&a, 99, 0, 8) == ENOMEM);
	close_ends(&a, &b);
}

/* An error completes its work request and flushes the following ones, unsignaled ones too. After a
 * reset the queue is empty and no old completion is left. */
SCENARIO(flushed)
{
	struct end a = {0}, b = {0};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;

	open_pair(&a, &b);
	CHECK(!post_write(&a, &b, 1, 0));
	wr = make_send(&a, &b, IBV_WR_RDMA_WRITE, &sge, 8);
	wr.wr_id = 2;
	wr.wr.rdma.rkey ^= 0x5a5a00;
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	wc = poll_one(a.cq);
	CHECK(wc.wr_id == 2 && wc.status == IBV_WC_REM_ACCESS_ERR && wc.qp_num == a.qp->qp_num);
	for (uint64_t i = 0; i < DEPTH; i++)
		CHECK(!post_write(&a, &b, i, 0));
	CHECK(post_write(&a, &b, 99, 0) == ENOMEM);
	wc = poll_one(a.cq);
	CHECK(wc.wr_id == 0 && wc.status == IBV_WC_WR_FLUSH_ERR);
	CHECK(!post_write(&a, &b, 16, 0) && post_write(&a, &b, 99, 0) == ENOMEM);
	CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) && a.qp->state == IBV_QPS_RESET);
	CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);
	CHECK(!ibv_modify_qp(b.qp, &attr, IBV_QP_STATE));
	connect_ends(&a, &b);
	CHECK(!post_write(&a, &b, 7, IBV_SEND_SIGNALED));
	wc = poll_one(a.cq);
	CHECK(wc.wr_id == 7 && wc.status == IBV_WC_SUCCESS);
	close_ends(&a, &b);
}

/* The child's calls fail, and its end does not disturb the parent. */
SCENARIO(forked)
{
	struct end a = {0}, b = {0};
	struct ibv_wc wc;
	int status;
	pid_t child;

	CHECK(!ibv_fork_init());
	open_pair(&a, &b);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK(post_write(&a, &b, 1, 0) == EIO && ibv_poll_cq(a.cq, 1, &wc) < 0);
		CHECK(!ibv_alloc_pd(a.context) && errno == EIO && !ibv_close_device(b.context));
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	CHECK(!post_write(&a, &b, 3, IBV_SEND_SIGNALED) && poll_one(a.cq).wr_id == 3);
	close_ends(&a, &b);
}
