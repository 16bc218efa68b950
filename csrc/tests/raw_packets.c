/* SPDX-License-Identifier: MIT
 * Raw packets: frames to a group go by RSS to work queues, with the tag of their flow. */
#include "scenarios.h"

enum { FRAME = 60, WQS = 4, FRAMES = 12, TAG = 0x123456 };

static const uint8_t group[] = {1, 0, 0x5e, 0, 0, 1};

struct rule {
	struct ibv_flow_attr attr;
	struct ibv_flow_spec_eth eth;
	struct ibv_flow_spec_action_tag tag;
	struct ibv_flow_spec_counter_action count;
};

/* A flow of frames to the group. */
static struct ibv_flow *make_flow(struct ibv_qp *qp, struct ibv_counters *counters)
{
	struct rule rule = {
		.attr = {.num_of_specs = counters ? 3 : 2, .port = 1, .size = sizeof rule},
		.eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof rule.eth},
		.tag = {IBV_FLOW_SPEC_ACTION_TAG, sizeof rule.tag, TAG},
		.count = {IBV_FLOW_SPEC_ACTION_COUNT, sizeof rule.count, counters},
	};

	memcpy(rule.eth.val.dst_mac, group, sizeof group);
	memset(rule.eth.mask.dst_mac, 0xff, sizeof group);
	return ibv_create_flow(qp, &rule.attr);
}

static void open_sender(struct end *end)
{
	struct ibv_qp_init_attr init = {.cap = {DEPTH, 0, 1, 0, 0}, .qp_type = IBV_QPT_RAW_PACKET};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_rate_limit_attr rate = {.rate_limit = 1000 * 1000};

	open_memory(end, 0);
	CHECK((end->cq = ibv_create_cq(end->context, DEPTH, NULL, NULL, 0)));
	init.send_cq = init.recv_cq = end->cq;
	CHECK((end->qp = ibv_create_qp(end->pd, &init)));
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	for (attr.qp_state = IBV_QPS_RTR; attr.qp_state <= IBV_QPS_RTS; attr.qp_state++)
		CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE));
	CHECK(!ibv_modify_qp_rate_limit(end->qp, &rate));
	rate.max_burst_sz = 1;
	CHECK(ibv_modify_qp_rate_limit(end->qp, &rate) == EINVAL);
}

/* Send an IPv4 packet whose source address ends with `number` to the group. */
static void send_frame(struct end *end, uint8_t number)
{
	const uint8_t ip[] = {0x45, 0, 0, FRAME - 14, 0, 0, 0, 0, 64, 253, 0, 0,
			      10,   0, 0, number,     224, 0, 0, 1};
	struct ibv_sge sge = sge_of(end, 0, FRAME);
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED};

	memcpy(end->buffer, group, sizeof group);
	memcpy(end->buffer + 12, "\x08", 2);
	memcpy(end->buffer + 14, ip, sizeof ip);
	CHECK(!ibv_post_send(end->qp, &wr, &bad));
	CHECK(poll_one(end->cq).status == IBV_WC_SUCCESS);
}

static struct ibv_wq *make_wq(struct end *end)
{
	struct ibv_wq_init_attr init = {.wq_type = IBV_WQT_RQ, .max_wr = FRAMES + 1, .max_sge = 1,
					.pd = end->pd, .cq = end->cq};
	struct ibv_wq_attr attr = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
	struct ibv_wq *wq = ibv_create_wq(end->context, &init);
	struct ibv_sge sge = sge_of(end, 0, BUFFER);
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};

	CHECK(wq && ibv_post_wq_recv(wq, &wr, &bad) == EINVAL && bad == &wr);
	CHECK(!ibv_modify_wq(wq, &attr) && wq->state == IBV_WQS_RDY);
	for (wr.wr_id = 0; wr.wr_id <= FRAMES; wr.wr_id++)
		CHECK(!ibv_post_wq_recv(wq, &wr, &bad));
	CHECK(ibv_post_wq_recv(wq, &wr, &bad) == ENOMEM);
	return wq;
}

static struct ibv_qp *make_rss(struct end *end, struct ibv_rwq_ind_table *table)
{
	uint8_t key[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2};
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH |
			     IBV_QP_INIT_ATTR_IND_TABLE,
		.pd = end->pd,
		.rwq_ind_tbl = table,
		.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, sizeof key, key,
				 IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4},
	};
	struct ibv_qp *qp = ibv_create_qp_ex(end->context, &init);

	init.rx_hash_conf.rx_hash_fields_mask |= IBV_RX_HASH_SRC_IPV6;
	CHECK(qp && !ibv_create_qp_ex(end->context, &init) && errno == EINVAL);
	return qp;
}

/* Poll the completions of all frames. Returns the work queues that got some, as bits. */
static unsigned poll_frames(struct ibv_cq_ex *cq, struct ibv_wq **wqs)
{
	struct ibv_poll_cq_attr attr = {0};
	unsigned found = 0;

	for (int i = 0; i < FRAMES; i++) {
		while (ibv_start_poll(cq, &attr))
			;
		CHECK(cq->status == IBV_WC_SUCCESS && ibv_wc_read_byte_len(cq) == FRAME);
		CHECK(ibv_wc_read_flow_tag(cq) == TAG);
		for (int n = 0; n < WQS; n++)
			found |= (ibv_wc_read_qp_num(cq) == wqs[n]->wq_num) << n;
		ibv_end_poll(cq);
	}
	return found;
}

/* Work queues behind a queue pair of RSS and its flow. */
struct fan {
	struct ibv_wq *wqs[WQS];
	struct ibv_rwq_ind_table *table;
	struct ibv_flow *flow;
};

static void open_fan(struct end *end, struct fan *fan, uint32_t log_size,
		     struct ibv_counters *counters)
{
	struct ibv_rwq_ind_table_init_attr init = {log_size, fan->wqs, 0};

	for (int i = 0; i < 1 << log_size; i++)
		fan->wqs[i] = make_wq(end);
	CHECK((fan->table = ibv_create_rwq_ind_table(end->context, &init)));
	end->qp = make_rss(end, fan->table);
	CHECK((fan->flow = make_flow(end->qp, counters)));
}

static void close_fan(struct end *end, struct fan *fan)
{
	CHECK(ibv_destroy_qp(end->qp) == EBUSY && !ibv_destroy_flow(fan->flow));
	CHECK(ibv_destroy_rwq_ind_table(fan->table) == EBUSY && !ibv_destroy_qp(end->qp));
	CHECK(ibv_destroy_wq(fan->wqs[0]) == EBUSY && !ibv_destroy_rwq_ind_table(fan->table));
	for (int i = 0; i < WQS && fan->wqs[i]; i++)
		CHECK(!ibv_destroy_wq(fan->wqs[i]));
	CHECK(!ibv_destroy_cq(end->cq) && !ibv_dereg_mr(end->mr) && !ibv_dealloc_pd(end->pd));
	CHECK(!ibv_close_device(end->context));
	free(end->buffer);
}

SCENARIO(rss)
{
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 4 * FRAMES * WQS,
					      .wc_flags = IBV_WC_EX_WITH_BYTE_LEN |
							  IBV_WC_EX_WITH_FLOW_TAG |
							  IBV_WC_EX_WITH_QP_NUM};
	struct ibv_counters_init_attr counters_attr = {0};
	struct ibv_counter_attach_attr attach = {IBV_COUNTER_BYTES, 1, 0};
	struct ibv_wq_attr error = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_ERR};
	struct end a = {0}, b = {0};
	struct fan fan = {0};
	struct ibv_counters *counters;
	struct ibv_cq_ex *cq;
	struct ibv_wc wc;
	uint64_t values[2] = {0};

	open_sender(&a);
	open_memory(&b, 1);
	CHECK((cq = ibv_create_cq_ex(b.context, &cq_attr)));
	b.cq = ibv_cq_ex_to_cq(cq);
	CHECK((counters = ibv_create_counters(b.context, &counters_attr)));
	CHECK(!ibv_attach_counters_point_flow(counters, &attach, NULL));
	open_fan(&b, &fan, 2, counters);
	for (uint8_t i = 0; i < FRAMES; i++)
		send_frame(&a, i);
	CHECK(__builtin_popcount(poll_frames(cq, fan.wqs)) > 1);
	CHECK(ibv_read_counters(counters, values, 1, 0) == EINVAL);
	CHECK(!ibv_read_counters(counters, values, 2, 0) && values[1] == FRAME * FRAMES);
	CHECK(ibv_destroy_counters(counters) == EBUSY);
	CHECK(!ibv_modify_wq(fan.wqs[0], &error));
	wc = poll_one(b.cq);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == fan.wqs[0]->wq_num);
	close_fan(&b, &fan);
	close_end(&a);
}

/* A CQ that overruns fails its work queue. */
SCENARIO(overrun)
{
	struct end a = {0}, b = {0};
	struct fan fan = {0};
	struct ibv_async_event event = {0};

	open_sender(&a);
	open_memory(&b, 1);
	CHECK((b.cq = ibv_create_cq(b.context, 1, NULL, NULL, 0)));
	open_fan(&b, &fan, 0, NULL);
	for (uint8_t i = 0; i < 3; i++)
		send_frame(&a, i);
	while (event.event_type != IBV_EVENT_WQ_FATAL) {
		CHECK(!ibv_get_async_event(b.context, &event));
		ibv_ack_async_event(&event);
	}
	CHECK(event.element.wq == fan.wqs[0]);
	close_fan(&b, &fan);
	close_end(&a);
}
