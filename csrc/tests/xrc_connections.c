/* SPDX-License-Identifier: MIT
 * Scenarios of librdmacm with XRC: an initiator, a target, and the SRQ that the target's side names. */
#include "endpoints.h"
#include "scenarios.h"

enum { OTHER_TRANSPORT = 9 };

static struct rdma_cm_id *initiator(void)
{
	return endpoint("10.0.0.2", 0, RDMA_PS_IB, IBV_QPT_XRC_SEND,
			(struct ibv_qp_cap){.max_send_wr = 4, .max_send_sge = 1});
}

static struct rdma_cm_id *listener(void)
{
	struct rdma_cm_id *id = endpoint(NULL, RAI_PASSIVE, RDMA_PS_IB, IBV_QPT_XRC_RECV,
					 (struct ibv_qp_cap){.max_recv_wr = 4, .max_recv_sge = 1});

	CHECK(!rdma_listen(id, 0));
	return id;
}

/* Accept a request, and name an SRQ in the private data. */
static void *serve(void *argument)
{
	struct rdma_cm_id *listening = argument, *id;
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	uint32_t number;
	struct rdma_conn_param param = {.private_data = &number,
					.private_data_len = sizeof number,
					.responder_resources = RDMA_MAX_RESP_RES,
					.initiator_depth = RDMA_MAX_INIT_DEPTH};

	CHECK(!rdma_get_request(listening, &id));
	CHECK(id->qp && id->qp->qp_type == IBV_QPT_XRC_RECV && id->qp_type == IBV_QPT_XRC_RECV);
	CHECK(id->event->param.conn.initiator_depth == 0);
	CHECK(id->event->param.conn.responder_resources > 0);
	CHECK(!rdma_create_srq(id, NULL, &init));
	CHECK(!ibv_get_srq_num(id->srq, &number));
	CHECK(!rdma_accept(id, &param));
	return id;
}

static void send_to(struct rdma_cm_id *from, uint32_t srq, struct rdma_cm_id *to)
{
	char received[32] = "", sent[] = "by the name of an SRQ";
	struct ibv_mr *mr = rdma_reg_msgs(to, received, sizeof received);
	struct ibv_sge sge = {.addr = (uintptr_t)sent, .length = sizeof sent};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE,
				 .qp_type.xrc.remote_srqn = srq},
			   *bad;
	struct ibv_wc wc;

	CHECK(mr && !rdma_post_recv(to, NULL, received, sizeof received, mr));
	CHECK(!ibv_post_send(from->qp, &wr, &bad));
	CHECK(rdma_get_send_comp(from, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_get_recv_comp(to, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(wc.byte_len == sizeof sent && !strcmp(received, sent));
	CHECK(!rdma_dereg_mr(mr));
}

SCENARIO(connection)
{
	struct rdma_cm_id *listening = listener(), *client = initiator(), *server;
	uint32_t srq;
	pthread_t thread;
	void *result;

	CHECK(client->qp->qp_type == IBV_QPT_XRC_SEND && !client->recv_cq);
	CHECK(!pthread_create(&thread, NULL, serve, listening));
	CHECK(!rdma_connect(client, NULL));
	memcpy(&srq, client->event->param.conn.private_data, sizeof srq);
	CHECK(!pthread_join(thread, &result));
	server = result;
	CHECK(client->qp->state == IBV_QPS_RTS && server->qp->state == IBV_QPS_RTS);
	send_to(client, srq, server);
	destroy_endpoints(client, server);
	CHECK(!listening->recv_cq);
	rdma_destroy_ep(listening);
}

/* Another type of queue pair is not connected to a target, and a target does not connect. */
SCENARIO(other_types)
{
	struct ibv_qp_cap cap = {4, 4, 1, 1, 0};
	struct rdma_cm_id *listening = listener(),
			  *client = endpoint("10.0.0.2", 0, RDMA_PS_IB, IBV_QPT_RC, cap);

	CHECK(rdma_connect(client, NULL) == -1 && errno == ECONNREFUSED);
	CHECK(client->event->status == OTHER_TRANSPORT);
	rdma_destroy_ep(client);
	client = endpoint("10.0.0.2", 0, RDMA_PS_IB, IBV_QPT_XRC_RECV, cap);
	CHECK(rdma_connect(client, NULL) == -1 && errno == EINVAL);
	rdma_destroy_ep(client);
	rdma_destroy_ep(listening);
}
