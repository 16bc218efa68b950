/* SPDX-License-Identifier: MIT
 * What the test programs have in common: checks, and two connected queue pairs in one process. */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not true: %s (errno: %s)\n", __FILE__, __LINE__,   \
				#condition, strerror(errno));                                      \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* What an older <infiniband/verbs.h> does not declare. */
enum {
	WITH_FLUSH = 1 << 11,
	WITH_ATOMIC_WRITE = 1 << 12,
	ACCESS_FLUSH_GLOBAL = 1 << 8,
	FLUSH_GLOBAL = 1, /* ibv_placement_type */
	FLUSH_RANGE = 0,  /* ibv_selectivity_level */
	FLUSHED = 8,      /* ibv_wc_opcode */
	ATOMIC_WRITTEN = 9,
};

/* The functions of ibv_qp_ex behind wr_abort. */
struct late_functions {
	void (*atomic_write)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, const void *value);
	void (*flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, size_t length,
		      uint8_t type, uint8_t level);
};

static inline struct late_functions *late_functions(struct ibv_qp_ex *qp)
{
	return (void *)((char *)qp + offsetof(struct ibv_qp_ex, wr_abort) + sizeof(void *));
}

enum {
	BUFFER = 1 << 16,
	DEPTH = 16,
	INLINE = 64,
	HANG = 900, /* seconds after which the test fails: a completion takes milliseconds */
	ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | ACCESS_FLUSH_GLOBAL,
};

struct scenario {
	const char *name;
	void (*run)(void);
	struct scenario *next;
};

static struct scenario *scenarios __attribute__((unused));

/* Define a function that the command line may name. */
#define SCENARIO(function)                                                                         \
	static void function(void);                                                                \
	__attribute__((constructor)) static void add_##function(void)                              \
	{                                                                                          \
		static struct scenario own = {#function, function, NULL};                          \
		own.next = scenarios;                                                              \
		scenarios = &own;                                                                  \
	}                                                                                          \
	static void function(void)

/* One side of a connection. */
struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	char *buffer;
};

static inline struct ibv_context *open_device(int index)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context;

	CHECK(list && count > index);
	context = ibv_open_device(list[index]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

static inline void open_memory(struct end *end, int device)
{
	end->context = open_device(device);
	end->pd = ibv_alloc_pd(end->context);
	CHECK(end->pd);
	end->buffer = calloc(1, BUFFER);
	end->mr = ibv_reg_mr(end->pd, end->buffer, BUFFER, ALL_ACCESS);
	CHECK(end->mr);
}

static inline void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qkey = 0x1111,
				   .qp_access_flags = ALL_ACCESS & ~IBV_ACCESS_MW_BIND};
	int access = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | access));
}

static inline void open_end(struct end *end, int device, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex init = {
		.srq = srq,
		.cap = {DEPTH, DEPTH, 4, 4, INLINE},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | WITH_FLUSH |
				  WITH_ATOMIC_WRITE |
				  IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW |
				  IBV_QP_EX_WITH_LOCAL_INV,
	};

	if (!end->context)
		open_memory(end, device);
	init.pd = end->pd;
	if (!end->cq)
		end->cq = ibv_create_cq(end->context, 4 * DEPTH, NULL, NULL, 0);
	CHECK(end->cq);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp_ex(end->context, &init);
	CHECK(end->qp);
	CHECK(init.cap.max_send_wr == DEPTH);
}

static inline void to_rts(struct ibv_qp *qp, struct end *peer, uint32_t remote_qpn)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = remote_qpn,
				   .max_dest_rd_atomic = 4,
				   .min_rnr_timer = 1,
				   .ah_attr = {.is_global = 1, .port_num = 1}};
	int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

	CHECK(!ibv_query_gid(peer->context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &attr, rtr));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	CHECK(!ibv_modify_qp(qp, &attr, rts));
	CHECK(qp->state == IBV_QPS_RTS);
}

static inline void connect_ends(struct end *a, struct end *b)
{
	to_init(a->qp);
	to_init(b->qp);
	to_rts(a->qp, b, b->qp->qp_num);
	to_rts(b->qp, a, a->qp->qp_num);
}

static inline void open_pair(struct end *a, struct end *b)
{
	open_end(a, 0, NULL);
	open_end(b, 1, NULL);
	connect_ends(a, b);
}

static inline struct ibv_wc poll_one(struct ibv_cq *cq)
{
	struct timespec now, start;
	struct ibv_wc wc;
	int count;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (!(count = ibv_poll_cq(cq, 1, &wc))) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		CHECK(now.tv_sec - start.tv_sec < HANG);
	}
	CHECK(count == 1);
	return wc;
}

static inline struct ibv_sge sge_of(struct end *end, size_t offset, uint32_t length)
{
	return (struct ibv_sge){(uintptr_t)end->buffer + offset, length, end->mr->lkey};
}

static inline int post_receive(struct end *end, uint64_t wr_id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = sge_of(end, offset, length);
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	return ibv_post_recv(end->qp, &wr, &bad);
}

/* A work request of the first `length` bytes, to the start of the peer's buffer. */
static inline struct ibv_send_wr make_send(struct end *end, struct end *peer,
					   enum ibv_wr_opcode opcode, struct ibv_sge *sge,
					   uint32_t length)
{
	struct ibv_send_wr wr = {.wr_id = opcode,
				 .sg_list = sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED};

	*sge = sge_of(end, 0, length);
	wr.wr.rdma.remote_addr = (uintptr_t)peer->buffer;
	wr.wr.rdma.rkey = peer->mr->rkey;
	return wr;
}

static inline void close_end(struct end *end)
{
	CHECK(!ibv_destroy_qp(end->qp));
	CHECK(!ibv_destroy_cq(end->cq));
	CHECK(!ibv_dereg_mr(end->mr));
	CHECK(!ibv_dealloc_pd(end->pd));
	CHECK(!ibv_close_device(end->context));
	free(end->buffer);
}

static inline void close_ends(struct end *one, struct end *other)
{
	close_end(one);
	close_end(other);
}
