/* SPDX-License-Identifier: MIT
 * Writes a message into the memory of another device by one RDMA WRITE.
 *
 * Both ends are in this process, so that nothing has to be exchanged by TCP: the queue pair on the
 * first device is connected to one on the second.
 *
 *     cc hello.c -o hello -libverbs && ./hello */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 4096, ENTRIES = 4 };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	union ibv_gid gid;
	char buffer[SIZE];
};

static void check(int is_good, const char *what)
{
	if (!is_good) {
		perror(what);
		exit(1);
	}
}

static void open_end(struct end *end, struct ibv_device *device)
{
	struct ibv_qp_init_attr attributes = {.qp_type = IBV_QPT_RC};

	check((end->context = ibv_open_device(device)) != NULL, "ibv_open_device");
	check((end->pd = ibv_alloc_pd(end->context)) != NULL, "ibv_alloc_pd");
	check((end->cq = ibv_create_cq(end->context, ENTRIES, NULL, NULL, 0)) != NULL, "ibv_create_cq");
	check((end->mr = ibv_reg_mr(end->pd, end->buffer, SIZE,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) != NULL,
	      "ibv_reg_mr");
	check(!ibv_query_gid(end->context, 1, 0, &end->gid), "ibv_query_gid");
	attributes.send_cq = attributes.recv_cq = end->cq;
	attributes.cap = (struct ibv_qp_cap){ENTRIES, ENTRIES, 1, 1, 0};
	check((end->qp = ibv_create_qp(end->pd, &attributes)) != NULL, "ibv_create_qp");
}

/* Take a queue pair through INIT and RTR to RTS, with PSNs from 0. */
static void connect_end(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
				  .path_mtu = IBV_MTU_1024,
				  .dest_qp_num = peer->qp->qp_num,
				  .max_dest_rd_atomic = 1,
				  .min_rnr_timer = 12};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
				  .timeout = 14,
				  .retry_cnt = 7,
				  .rnr_retry = 7,
				  .max_rd_atomic = 1};

	rtr.ah_attr = (struct ibv_ah_attr){
		.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}};
	check(!ibv_modify_qp(end->qp, &init,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	      "INIT");
	check(!ibv_modify_qp(end->qp, &rtr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER),
	      "RTR");
	check(!ibv_modify_qp(end->qp, &rts,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
	      "RTS");
}

static void write_message(struct end *from, const struct end *to)
{
	struct ibv_sge sge = {(uintptr_t)from->buffer, SIZE, from->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)to->buffer, to->mr->rkey}};
	struct ibv_send_wr *bad;
	struct ibv_wc wc = {0};

	check(!ibv_post_send(from->qp, &wr, &bad), "ibv_post_send");
	while (!ibv_poll_cq(from->cq, 1, &wc))
		;
	printf("%s\n", ibv_wc_status_str(wc.status));
}

int main(void)
{
	static struct end client, server;
	int count = 0;
	struct ibv_device **devices = ibv_get_device_list(&count);

	if (!devices || count < 2) {
		fprintf(stderr, "two devices are needed, there are %d\n", count);
		return 1;
	}
	open_end(&client, devices[0]);
	open_end(&server, devices[1]);
	connect_end(&client, &server);
	connect_end(&server, &client);
	strcpy(client.buffer, "hello from the first device");
	write_message(&client, &server);
	printf("%s\n", server.buffer);
	ibv_free_device_list(devices);
	return 0;
}
