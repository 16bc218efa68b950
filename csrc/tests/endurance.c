/* SPDX-License-Identifier: MIT
 * Mixed messages between two devices, of which every byte is checked:
 *
 *     endurance SEED MESSAGES LOSSY
 *
 * Lanes, each a pair of connected queue pairs or two of datagrams with memory of their own, come and
 * go until MESSAGES messages are done. Messages of reliable lanes must all arrive. Those of others
 * arrive whole or not at all, and all of them if LOSSY is 0. Lanes end in order, in the middle of
 * work, or by an error, which must be the right one. Prints how many messages were done, and lost. */
#include <fcntl.h>
#include <poll.h>

#include "lane.h"

enum { LANES = 3, CQ_ENTRIES = 1024 };

#define NEVER_POSTED (RECEIVE - 1)

static struct side sides[2];
static struct lane lanes[LANES];
static struct lane fences[2]; /* reliable ones, from each side, which stay */
static uint64_t wanted, done, lost, taken; /* messages; completions */
static bool lossy;

/* Posting. */

static bool uses_receive(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

static enum ibv_wr_opcode any_opcode(enum ibv_qp_type type)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,	    IBV_WR_SEND_WITH_IMM,	 IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_WRITE,  IBV_WR_RDMA_READ,		 IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,   IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
	};
	static const size_t counts[] = {[IBV_QPT_RC] = 9, [IBV_QPT_UC] = 4, [IBV_QPT_UD] = 2};

	return opcodes[random_below(counts[type])];
}

/* Many small messages, some of several packets, few large ones; often at the edge of a packet. */
static uint32_t any_size(enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	uint64_t kind = random_below(20), size;

	if (is_atomic(opcode))
		return 8;
	if (kind < 10)
		size = random_below(257);
	else if (kind < 14)
		size = 1024 * (1 + random_below(4)) - 1 + random_below(3);
	else
		size = random_below(kind < 18 ? 8192 : LARGEST + 1);
	if (type == IBV_QPT_UD && size > LARGEST_DATAGRAM)
		size = LARGEST_DATAGRAM;
	return (uint32_t)(opcode == IBV_WR_SEND && size < 8 ? 8 : size); /* has its number */
}

static void prepare(struct lane *lane, struct message *message, size_t index)
{
	bool is_word;

	message->data.number = ++lane->posted;
	message->data.key = mixed(random_state + message->data.number);
	message->opcode = any_opcode(lane->type);
	message->data.size = any_size(lane->type, message->opcode);
	is_word = is_atomic(message->opcode);
	message->from = place_of(lane->source, index, is_word);
	message->to = place_of(lane->sink, index, is_word);
	if (is_word) {
		message->before = mixed(message->data.key + 1);
		message->compare_add = message->before + random_below(2);
		message->swap = message->data.key;
		memcpy(message->to, &message->before, 8);
	} else {
		fill(message->opcode == IBV_WR_RDMA_READ ? message->to : message->from, &message->data);
	}
}

/* Write the SGEs of a message: up to three. Returns their number. */
static int split(struct ibv_sge *sges, const struct message *message, uint32_t lkey)
{
	uint32_t at = 0;
	int count = 0;

	while (count < 2 && random_below(2) && !is_atomic(message->opcode)) {
		uint32_t size = (uint32_t)random_below(message->data.size - at + 1);

		sges[count++] = (struct ibv_sge){(uintptr_t)message->from + at, size, lkey};
		at += size;
	}
	sges[count++] = (struct ibv_sge){(uintptr_t)message->from + at, message->data.size - at, lkey};
	return count;
}

static void address_to(struct lane *lane, struct ibv_send_wr *wr, const struct message *message)
{
	if (lane->type == IBV_QPT_UD) {
		wr->wr.ud.ah = lane->ah;
		wr->wr.ud.remote_qpn = lane->receiver->qp_num;
		wr->wr.ud.remote_qkey = 0x1111;
	} else if (is_atomic(message->opcode)) {
		wr->wr.atomic.remote_addr = (uintptr_t)message->to;
		wr->wr.atomic.rkey = lane->sink_mr->rkey;
		wr->wr.atomic.compare_add = message->compare_add;
		wr->wr.atomic.swap = message->swap;
	} else {
		wr->wr.rdma.remote_addr = (uintptr_t)message->to;
		wr->wr.rdma.rkey = lane->sink_mr->rkey;
	}
}

static void post(struct lane *lane, struct message *message, bool signaled)
{
	struct ibv_sge sges[3];
	struct ibv_send_wr *bad, wr = {.wr_id = message->data.number,
				       .sg_list = sges,
				       .opcode = message->opcode,
				       .imm_data = htonl((uint32_t)message->data.number),
				       .send_flags = signaled ? IBV_SEND_SIGNALED : 0};
	bool reads = message->opcode == IBV_WR_RDMA_READ || is_atomic(message->opcode);
	bool is_inline = !reads && message->data.size <= INLINE && random_below(2);

	wr.num_sge = split(sges, message, lane->source_mr->lkey);
	wr.send_flags |= is_inline ? IBV_SEND_INLINE : 0;
	wr.send_flags |= lane->type == IBV_QPT_RC && !random_below(8) ? IBV_SEND_FENCE : 0;
	wr.send_flags |= uses_receive(message->opcode) && random_below(2) ? IBV_SEND_SOLICITED : 0;
	address_to(lane, &wr, message);
	CHECK(!ibv_post_send(lane->sender, &wr, &bad));
	if (is_inline)
		memset(message->from, UNTOUCHED, message->data.size);
}

/* Post a message if there is room for one. Returns whether there was. What fills the last room, and
 * the last message, have a completion: it is also that of those before. */
static bool post_next(struct lane *lane)
{
	size_t index = 0, free_count = 0;

	for (size_t i = 0; i < SLOTS; i++)
		if (!lane->messages[i].data.number) {
			free_count++;
			index = i;
		}
	if (!free_count || lane->posted == lane->life)
		return false;
	prepare(lane, &lane->messages[index], index);
	post(lane, &lane->messages[index],
	     free_count == 1 || lane->posted == lane->life || random_below(4));
	return true;
}

/* Completions. */

static void check_result(struct lane *lane, const struct message *message)
{
	uint64_t found, after = message->before + message->compare_add;

	if (message->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		after = message->before == message->compare_add ? message->swap : message->before;
	if (is_atomic(message->opcode)) {
		CHECK(!memcmp(message->from, &message->before, 8));
		CHECK(is_untouched(message->from + 8, GUARD));
		memcpy(&found, message->to, 8);
		CHECK(found == after && is_untouched(message->to + 8, GUARD));
	} else if (message->opcode == IBV_WR_RDMA_READ) {
		CHECK(is_right(message->from, &message->data, false));
	} else if (!uses_receive(message->opcode)) {
		CHECK(is_right(message->to, &message->data, lossy && lane->type == IBV_QPT_UC));
	}
}

/* Forget a message that is over. One of an unreliable lane without a receive is over when a later
 * one arrives. */
static void retire(struct lane *lane, struct message *message)
{
	bool over = message->arrived || message->is_lost ||
		    (lane->type == IBV_QPT_RC && !uses_receive(message->opcode));

	if (!message->data.number || !message->sent || !over)
		return;
	if (!message->is_lost || !uses_receive(message->opcode))
		check_result(lane, message);
	lost += message->is_lost && uses_receive(message->opcode);
	done++;
	*message = (struct message){0};
}

/* A completion is that of all sends up to this one. */
static void note_sent(struct lane *lane, uint64_t number)
{
	for (size_t i = 0; i < SLOTS; i++) {
		struct message *message = &lane->messages[i];

		message->sent |= message->data.number && message->data.number <= number;
		retire(lane, message);
	}
}

/* Messages that were sent before one that arrived are over, too. The loss of a message is seen only
 * if it needs a receive. */
static void note_passed(struct lane *lane, uint64_t number)
{
	for (size_t i = 0; i < SLOTS; i++) {
		struct message *message = &lane->messages[i];

		if (!message->data.number || message->data.number >= number || message->arrived)
			continue;
		CHECK(lossy || !uses_receive(message->opcode));
		message->is_lost = true;
		retire(lane, message);
	}
}

static struct message *find_message(struct lane *lane, uint64_t number)
{
	for (size_t i = 0; i < SLOTS; i++)
		if (number && lane->messages[i].data.number == number)
			return &lane->messages[i];
	return NULL;
}

static void take_receive(struct lane *lane, const struct ibv_wc *wc)
{
	uint64_t index = wc->wr_id & ~RECEIVE, number;
	char *data = lane->sink + (SLOTS + index) * PLACE + GUARD;
	struct message *message;

	CHECK(wc->status == IBV_WC_SUCCESS && index < RECEIVES);
	if (lane->type == IBV_QPT_UD) {
		CHECK(wc->wc_flags & IBV_WC_GRH && wc->src_qp == lane->sender->qp_num);
		data += GRH;
		memset(data - GUARD, UNTOUCHED, GUARD); /* the header is not ours */
	}
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		number = ntohl(wc->imm_data);
	else
		memcpy(&number, data, 8);
	message = find_message(lane, number);
	CHECK(message && number > lane->arrived && uses_receive(message->opcode));
	lane->arrived = number;
	if (message->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		CHECK(wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM);
		CHECK(is_right(message->to, &message->data, false));
	} else {
		CHECK(wc->opcode == IBV_WC_RECV);
		CHECK(wc->byte_len == message->data.size + (lane->type == IBV_QPT_UD ? GRH : 0));
		/* a message that was lost in part may have been longer */
		CHECK(lossy && lane->type == IBV_QPT_UC ? is_filled(data, &message->data, false)
							: is_right(data, &message->data, false));
	}
	post_receive_at(lane, index);
	message->arrived = true;
	if (lane->type != IBV_QPT_RC)
		note_passed(lane, number);
	retire(lane, message);
}

/* All that a lane sent before its fence has arrived, or is lost. */
static bool take_fence(const struct ibv_wc *wc)
{
	for (size_t i = 0; i < 2; i++)
		if (fences[i].sender->qp_num == wc->qp_num) {
			CHECK(wc->status == IBV_WC_SUCCESS && wc->wr_id < LANES);
			lanes[wc->wr_id].is_fenced = true;
			return true;
		}
	return false;
}

static void take(const struct ibv_wc *wc)
{
	taken++;
	if (take_fence(wc))
		return;
	for (size_t i = 0; i < LANES; i++) {
		struct lane *lane = &lanes[i];

		if (lane->sender && wc->qp_num == lane->sender->qp_num && !(wc->wr_id & RECEIVE)) {
			CHECK(wc->status == IBV_WC_SUCCESS);
			note_sent(lane, wc->wr_id);
			return;
		}
		if (lane->receiver && wc->qp_num == lane->receiver->qp_num) {
			take_receive(lane, wc);
			return;
		}
	}
	CHECK(!"a completion of a queue pair that is destroyed");
}

static bool poll_both(void)
{
	struct ibv_wc wcs[8];
	bool found = false;

	for (size_t side = 0; side < 2; side++) {
		int count = ibv_poll_cq(sides[side].end.cq, 8, wcs);

		CHECK(count >= 0);
		for (int i = 0; i < count; i++)
			take(&wcs[i]);
		found |= count > 0;
	}
	return found;
}

static void wait_for_completions(void)
{
	struct pollfd ready[2];
	struct ibv_cq *cq;
	void *context;

	if (poll_both())
		return;
	for (size_t i = 0; i < 2; i++) {
		CHECK(!ibv_req_notify_cq(sides[i].end.cq, 0));
		ready[i] = (struct pollfd){.fd = sides[i].channel->fd, .events = POLLIN};
	}
	if (!poll_both())
		CHECK(poll(ready, 2, -1) > 0);
	for (size_t i = 0; i < 2; i++)
		while (!ibv_get_cq_event(sides[i].channel, &cq, &context))
			ibv_ack_cq_events(cq, 1);
}

/* Ends of lanes. */

static bool is_idle(const struct lane *lane)
{
	for (size_t i = 0; i < SLOTS; i++)
		if (lane->messages[i].data.number)
			return false;
	return true;
}

/* Whether an unreliable lane has sent all that it can for now. */
static bool is_waiting(const struct lane *lane)
{
	for (size_t i = 0; i < SLOTS; i++) {
		const struct message *message = &lane->messages[i];

		if (message->data.number ? !message->sent : lane->posted < lane->life)
			return false;
	}
	return lane->type != IBV_QPT_RC && !is_idle(lane);
}

/* Packets of two devices keep their order: what was sent before a WRITE that is acknowledged is not
 * in flight any more. */
static void post_fence(struct lane *lane)
{
	struct lane *fence = &fences[lane->from != &sides[0]];
	struct ibv_send_wr *bad, wr = {.wr_id = (uint64_t)(lane - lanes),
				       .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED};

	CHECK(!ibv_post_send(fence->sender, &wr, &bad));
	lane->fence = lane->posted;
}

/* What an unreliable lane sent before its fence, and has not arrived by then, is lost, or is WRITEs
 * without a later message that uses a receive. */
static void fence_lane(struct lane *lane)
{
	if (lane->is_fenced) {
		while (poll_both())
			;
		note_passed(lane, lane->fence + 1);
		lane->fence = 0;
		lane->is_fenced = false;
	}
	if (!lane->fence && is_waiting(lane))
		post_fence(lane);
}

/* A request that must fail, and with it the queue pair, which flushes the next one. */
static void fail(struct lane *lane, struct ibv_send_wr *wr, enum ibv_wc_status status)
{
	struct ibv_send_wr *bad, *next = wr;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;

	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_post_send(lane->sender, next, &bad));
		do
			wc = poll_one(lane->from->end.cq);
		while (wc.qp_num != lane->sender->qp_num || wc.wr_id != NEVER_POSTED);
		CHECK(wc.status == (i ? IBV_WC_WR_FLUSH_ERR : status));
	}
	CHECK(!ibv_query_qp(lane->sender, &attr, IBV_QP_STATE, &init));
	CHECK(attr.qp_state == IBV_QPS_ERR);
}

/* End a lane by an error of the sender, of the responder, or of a peer that is gone. Only while no
 * other lane is open, since its completions are skipped. */
static void end_by_error(struct lane *lane)
{
	struct ibv_sge sge = {(uintptr_t)lane->source, 64, lane->source_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = NEVER_POSTED,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED};

	wr.wr.rdma.remote_addr = (uintptr_t)lane->sink;
	wr.wr.rdma.rkey = lane->sink_mr->rkey;
	memset(lane->sink, UNTOUCHED, PLACE);
	switch (random_below(4)) {
	case 0:
		wr.wr.rdma.rkey ^= 0x5500;
		fail(lane, &wr, IBV_WC_REM_ACCESS_ERR);
		break;
	case 1:
		wr.wr.rdma.remote_addr += REGION - 63;
		fail(lane, &wr, IBV_WC_REM_ACCESS_ERR);
		break;
	case 2:
		sge.lkey ^= 0x5500;
		fail(lane, &wr, IBV_WC_LOC_PROT_ERR);
		break;
	default:
		CHECK(!ibv_destroy_qp(lane->receiver));
		lane->receiver = NULL;
		fail(lane, &wr, IBV_WC_RETRY_EXC_ERR);
	}
	CHECK(is_untouched(lane->sink, PLACE));
}

/* The program. */

static void open_side_of(struct side *side, int device)
{
	open_memory(&side->end, device);
	side->channel = ibv_create_comp_channel(side->end.context);
	CHECK(side->channel && !fcntl(side->channel->fd, F_SETFL, O_NONBLOCK));
	side->end.cq = ibv_create_cq(side->end.context, CQ_ENTRIES, NULL, side->channel, 0);
	CHECK(side->end.cq);
}

static void close_side_of(struct side *side)
{
	CHECK(!ibv_destroy_cq(side->end.cq) && !ibv_destroy_comp_channel(side->channel));
	CHECK(!ibv_dereg_mr(side->end.mr) && !ibv_dealloc_pd(side->end.pd));
	CHECK(!ibv_close_device(side->end.context));
	free(side->end.buffer);
}

/* Work on lanes until each has sent what it has to. */
static void work_on_lanes(size_t count)
{
	for (size_t ended = 0; ended < count;) {
		uint64_t before = taken;

		ended = 0;
		for (size_t i = 0; i < count; i++) {
			fence_lane(&lanes[i]);
			while (post_next(&lanes[i]))
				;
			ended += lanes[i].posted == lanes[i].life && is_idle(&lanes[i]);
		}
		if (ended < count && taken == before)
			wait_for_completions();
	}
}

/* Close a lane while messages are in flight, which are not counted. */
static void close_in_the_middle(struct lane *lane)
{
	while (post_next(lane))
		;
	close_lane(lane);
}

static void open_some_lanes(size_t count)
{
	uint64_t left = wanted - done;

	for (size_t i = 0; i < count; i++) {
		uint64_t life = 1 + random_below(200);
		size_t way = random_below(2);

		life = life < left ? life : left;
		open_lane(&lanes[i], any_type(), &sides[way], &sides[!way], life);
		left -= life;
	}
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	random_state = strtoull(argv[1], NULL, 10);
	wanted = strtoull(argv[2], NULL, 10);
	lossy = atoi(argv[3]);
	alarm(HANG);
	open_side_of(&sides[0], 0);
	open_side_of(&sides[1], 1);
	for (size_t i = 0; i < 2; i++)
		open_lane(&fences[i], IBV_QPT_RC, &sides[i], &sides[!i], 0);
	while (done < wanted) {
		size_t count = 1 + random_below(LANES);

		open_some_lanes(count);
		if (!random_below(4))
			close_in_the_middle(&lanes[--count]);
		work_on_lanes(count);
		while (count > 1)
			close_lane(&lanes[--count]);
		if (count && lanes[0].type == IBV_QPT_RC && !random_below(4))
			end_by_error(&lanes[0]);
		if (count)
			close_lane(&lanes[0]);
	}
	for (size_t i = 0; i < 2; i++)
		close_lane(&fences[i]);
	for (size_t i = 0; i < 2; i++)
		close_side_of(&sides[i]);
	printf("%llu messages, %llu lost\n", (unsigned long long)done, (unsigned long long)lost);
	return 0;
}
