/* SPDX-License-Identifier: MIT
 * A program whose service ends while it has objects of every kind: it calls all that takes one, and
 * destroys them in the order of a seed. Those in use are busy, as with a living service:
 *
 *     survivor SEED */
#include <fcntl.h>

#include "check.h"
#include "data.h"

enum kind { PD, PARENT, CHANNEL, CQ, SRQ, XRCD, XRC_SRQ, QP, TARGET, INITIATOR, MR, DM, DM_MR, MW, AH, KINDS };

struct object {
	void *it;
	int (*destroy)(void *);
	unsigned uses; /* a bit for each kind */
	int users;
};

static struct object objects[KINDS];

#define USES(kind) (1u << (kind))
#define ADD(kind, made, end, uses) add(kind, made, (int (*)(void *))(void (*)(void))end, uses)

static void *add(enum kind kind, void *it, int (*destroy)(void *), unsigned uses)
{
	CHECK(it);
	objects[kind] = (struct object){it, destroy, uses, 0};
	for (int i = 0; i < KINDS; i++)
		objects[i].users += uses >> i & 1;
	return it;
}

static struct ibv_qp *add_qp(enum kind kind, enum ibv_qp_type type, unsigned uses)
{
	struct ibv_qp_init_attr_ex init = {.qp_type = type,
					   .cap = {DEPTH, DEPTH, 1, 1, INLINE},
					   .comp_mask = IBV_QP_INIT_ATTR_PD,
					   .pd = objects[uses & USES(PARENT) ? PARENT : PD].it};

	if (type == IBV_QPT_XRC_RECV)
		init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	else
		init.send_cq = init.recv_cq = objects[CQ].it;
	init.xrcd = objects[XRCD].it;
	init.srq = uses & USES(SRQ) ? objects[SRQ].it : NULL;
	return ADD(kind, ibv_create_qp_ex(((struct ibv_pd *)objects[PD].it)->context, &init),
		   ibv_destroy_qp, uses);
}

static void add_memory(struct ibv_pd *pd, char *buffer)
{
	struct ibv_alloc_dm_attr wanted = {.length = 64};
	struct ibv_ah_attr path = {.is_global = 1, .port_num = 1};
	struct ibv_dm *dm = ADD(DM, ibv_alloc_dm(pd->context, &wanted), ibv_free_dm, 0);

	ADD(MR, ibv_reg_mr(pd, buffer, BUFFER, ALL_ACCESS), ibv_dereg_mr, USES(PD));
	ADD(DM_MR, ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED), ibv_dereg_mr, USES(PD) | USES(DM));
	ADD(MW, ibv_alloc_mw(pd, IBV_MW_TYPE_1), ibv_dealloc_mw, USES(PD));
	CHECK(!ibv_query_gid(pd->context, 1, 0, &path.grh.dgid));
	ADD(AH, ibv_create_ah(pd, &path), ibv_destroy_ah, 0);
}

static void make_all(struct ibv_context *context, char *buffer)
{
	struct ibv_pd *pd = ADD(PD, ibv_alloc_pd(context), ibv_dealloc_pd, 0);
	struct ibv_parent_domain_init_attr parent = {.pd = pd};
	void *channel = ADD(CHANNEL, ibv_create_comp_channel(context), ibv_destroy_comp_channel, 0);
	struct ibv_srq_init_attr init = {.attr = {DEPTH, 1, 0}};
	struct ibv_xrcd_init_attr domain = {IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
	struct ibv_srq_init_attr_ex xrc = {.attr = init.attr, .srq_type = IBV_SRQT_XRC, .pd = pd, .comp_mask = 15};

	ADD(PARENT, ibv_alloc_parent_domain(context, &parent), ibv_dealloc_pd, USES(PD));
	xrc.cq = ADD(CQ, ibv_create_cq(context, 64, NULL, channel, 0), ibv_destroy_cq, USES(CHANNEL));
	ADD(SRQ, ibv_create_srq(pd, &init), ibv_destroy_srq, USES(PD));
	xrc.xrcd = ADD(XRCD, ibv_open_xrcd(context, &domain), ibv_close_xrcd, 0);
	ADD(XRC_SRQ, ibv_create_srq_ex(context, &xrc), ibv_destroy_srq, USES(PD) | USES(XRCD) | USES(CQ));
	to_init(add_qp(QP, IBV_QPT_RC, USES(PARENT) | USES(CQ)));
	to_init(add_qp(TARGET, IBV_QPT_XRC_RECV, USES(XRCD)));
	add_qp(INITIATOR, IBV_QPT_XRC_SEND, USES(PD) | USES(CQ));
	add_memory(pd, buffer);
}

/* Call what takes the objects that are left: most fail with EIO. */
static void call_all(struct ibv_context *context, char *buffer)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_srq_attr srq_attr = {DEPTH, 1, 0};
	struct ibv_port_attr port;
	struct ibv_sge sge = {(uintptr_t)buffer, 8, 1};
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
	struct ibv_send_wr *bad_send, send = {.sg_list = &sge, .num_sge = 1};
	union ibv_gid group = {.raw = {0xff, 0x0e}};
	struct ibv_wc wc;

	CHECK(ibv_query_port(context, 1, &port) == EIO && !ibv_alloc_pd(context));
	for (enum kind kind = QP; kind <= INITIATOR; kind++) {
		if (!objects[kind].it)
			continue;
		CHECK(ibv_query_qp(objects[kind].it, &attr, IBV_QP_STATE, &init) == EIO);
		CHECK(ibv_modify_qp(objects[kind].it, &attr, IBV_QP_STATE) == EIO);
		CHECK(ibv_attach_mcast(objects[kind].it, &group, 0) == EIO);
		ibv_post_send(objects[kind].it, &send, &bad_send);
		ibv_post_recv(objects[kind].it, &wr, &bad);
	}
	for (enum kind kind = SRQ; kind <= XRC_SRQ; kind += XRC_SRQ - SRQ)
		if (objects[kind].it) {
			CHECK(ibv_query_srq(objects[kind].it, &srq_attr) == EIO);
			CHECK(ibv_modify_srq(objects[kind].it, &srq_attr, IBV_SRQ_LIMIT) == EIO);
			ibv_post_srq_recv(objects[kind].it, &wr, &bad);
		}
	if (objects[CQ].it) {
		CHECK(ibv_poll_cq(objects[CQ].it, 1, &wc) >= 0);
		CHECK(!ibv_req_notify_cq(objects[CQ].it, 0) && ibv_resize_cq(objects[CQ].it, 8) == EIO);
	}
	if (objects[MR].it)
		CHECK(ibv_rereg_mr(objects[MR].it, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
	if (objects[DM].it)
		CHECK(!ibv_memcpy_to_dm(objects[DM].it, 0, buffer, 64));
}

static void destroy(struct object *object)
{
	int error = object->destroy(object->it);

	CHECK(error == (object->users ? EBUSY : 0));
	if (error)
		return;
	object->it = NULL;
	for (int i = 0; i < KINDS; i++)
		objects[i].users -= object->uses >> i & 1;
}

int main(int argc, char **argv)
{
	struct ibv_context *context = open_device(0);
	char *buffer = calloc(1, BUFFER);
	struct ibv_wc wc;

	CHECK(argc == 2);
	random_state = strtoull(argv[1], NULL, 10);
	make_all(context, buffer);
	for (int i = 0; i < KINDS; i++) /* those in use, while the service lives */
		if (objects[i].users)
			destroy(&objects[i]);
	puts("ready");
	fflush(stdout);
	CHECK(getchar() == '\n');
	CHECK(ibv_poll_cq(objects[CQ].it, 1, &wc) >= 0);
	for (int left = KINDS; left;) {
		struct object *object = &objects[random_below(KINDS)];

		if (!object->it)
			continue;
		call_all(context, buffer);
		destroy(object);
		left -= !object->it;
	}
	CHECK(!ibv_close_device(context));
	free(buffer);
	return 0;
}
