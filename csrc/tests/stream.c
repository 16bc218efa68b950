/* SPDX-License-Identifier: MIT
 * A stream of small messages in both directions at once, of which every byte is checked:
 *
 *     stream SEED MESSAGES
 *
 * Each direction has batches of messages. While one batch is checked, the others are in flight.
 * Prints how many messages were done. */
#include "check.h"
#include "data.h"

enum {
	BATCH = 64,   /* messages that are posted with one call; the last one has a completion */
	BATCHES = 4,  /* of one direction that are in flight */
	LARGEST = 64, /* bytes of a message */
	PLACE = LARGEST + 2 * GUARD,
	MEMORY = BATCHES * BATCH * PLACE,
	WORK = BATCHES * BATCH,
};

struct message {
	struct data data; /* an atomic compares with its key, and swaps in its number */
	enum ibv_wr_opcode opcode;
};

struct batch {
	struct message messages[BATCH];
	unsigned receives; /* number of receives that are not completed */
	bool is_sent;
};

/* One direction. What is sent lies in `source`, what arrives in `sink`. */
struct direction {
	struct end *from, *to;
	char *source, *sink;
	struct ibv_mr *source_mr, *sink_mr;
	struct batch batches[BATCHES];
};

static struct end ends[2];
static struct direction directions[2];
static uint64_t wanted, posted, done;

static char *place(char *memory, size_t batch, size_t index)
{
	return memory + (batch * BATCH + index) * PLACE + GUARD;
}

static bool uses_receive(const struct message *message)
{
	return message->opcode == IBV_WR_SEND || message->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_atomic(const struct message *message)
{
	return message->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* Choose a message, and fill its memory, which is aligned as atomics need. */
static void prepare(struct direction *way, size_t batch, size_t index)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_SEND,	   IBV_WR_SEND,	      IBV_WR_RDMA_READ,	 IBV_WR_ATOMIC_CMP_AND_SWP,
	};
	struct message *message = &way->batches[batch].messages[index];
	char *from = place(way->source, batch, index), *to = place(way->sink, batch, index);

	message->opcode = opcodes[random_below(sizeof opcodes / sizeof *opcodes)];
	message->data.number = ++posted;
	message->data.key = mixed(random_state + posted);
	message->data.size = is_atomic(message) ? 8 : 1 + (uint32_t)random_below(LARGEST);
	memset(from, UNTOUCHED, LARGEST);
	memset(to, UNTOUCHED, LARGEST);
	if (is_atomic(message))
		memcpy(to, &message->data.key, 8);
	else
		fill(message->opcode == IBV_WR_RDMA_READ ? to : from, &message->data);
}

static void write_request(struct direction *way, size_t batch, size_t index, struct ibv_send_wr *wr,
			  struct ibv_sge *sge)
{
	const struct message *message = &way->batches[batch].messages[index];
	uintptr_t to = (uintptr_t)place(way->sink, batch, index);

	*sge = (struct ibv_sge){(uintptr_t)place(way->source, batch, index), message->data.size,
				way->source_mr->lkey};
	*wr = (struct ibv_send_wr){.wr_id = batch,
				   .sg_list = sge,
				   .num_sge = 1,
				   .opcode = message->opcode,
				   .imm_data = htonl((uint32_t)batch)};
	if (is_atomic(message)) {
		wr->wr.atomic.remote_addr = to;
		wr->wr.atomic.rkey = way->sink_mr->rkey;
		wr->wr.atomic.compare_add = message->data.key;
		wr->wr.atomic.swap = message->data.number;
	} else {
		wr->wr.rdma.remote_addr = to;
		wr->wr.rdma.rkey = way->sink_mr->rkey;
	}
}

/* Post the receives of a batch: SENDs arrive in the places of their messages. */
static void post_receives(struct direction *way, size_t batch)
{
	struct batch *group = &way->batches[batch];
	struct ibv_recv_wr wrs[BATCH], *bad;
	struct ibv_sge sges[BATCH];
	unsigned count = 0;

	for (size_t i = 0; i < BATCH; i++) {
		if (!uses_receive(&group->messages[i]))
			continue;
		sges[count] = (struct ibv_sge){(uintptr_t)place(way->sink, batch, i), LARGEST,
					       way->sink_mr->lkey};
		wrs[count] = (struct ibv_recv_wr){.wr_id = WORK + batch,
						  .sg_list = &sges[count],
						  .num_sge = 1};
		if (count)
			wrs[count - 1].next = &wrs[count];
		count++;
	}
	group->receives = count;
	CHECK(!count || !ibv_post_recv(way->to->qp, wrs, &bad));
}

static void post_batch(struct direction *way, size_t batch)
{
	struct ibv_send_wr wrs[BATCH], *bad;
	struct ibv_sge sges[BATCH];

	for (size_t i = 0; i < BATCH; i++)
		prepare(way, batch, i);
	way->batches[batch].is_sent = false;
	post_receives(way, batch);
	for (size_t i = 0; i < BATCH; i++) {
		write_request(way, batch, i, &wrs[i], &sges[i]);
		if (i)
			wrs[i - 1].next = &wrs[i];
	}
	wrs[BATCH - 1].send_flags = IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(way->from->qp, wrs, &bad));
}

static void check_message(struct direction *way, size_t batch, size_t index)
{
	const struct message *message = &way->batches[batch].messages[index];
	char *from = place(way->source, batch, index), *to = place(way->sink, batch, index);

	if (is_atomic(message)) {
		CHECK(!memcmp(from, &message->data.key, 8));
		CHECK(!memcmp(to, &message->data.number, 8));
		CHECK(is_untouched(from + 8, GUARD) && is_untouched(to + 8, GUARD));
	} else {
		CHECK(is_right(message->opcode == IBV_WR_RDMA_READ ? from : to, &message->data, false));
	}
}

/* Check a batch if it is complete, and post the next one in its place. */
static void renew(struct direction *way, size_t batch)
{
	if (!way->batches[batch].is_sent || way->batches[batch].receives)
		return;
	for (size_t i = 0; i < BATCH; i++)
		check_message(way, batch, i);
	done += BATCH;
	if (posted < wanted)
		post_batch(way, batch);
}

static void take(const struct ibv_wc *wc, size_t end)
{
	bool is_receive = wc->wr_id >= WORK;
	struct direction *way = &directions[is_receive ? !end : end];
	size_t batch = wc->wr_id % WORK;

	CHECK(wc->status == IBV_WC_SUCCESS && batch < BATCHES);
	if (is_receive) {
		CHECK(way->batches[batch].receives);
		CHECK(!(wc->wc_flags & IBV_WC_WITH_IMM) || ntohl(wc->imm_data) == batch);
		way->batches[batch].receives--;
	} else {
		CHECK(!way->batches[batch].is_sent);
		way->batches[batch].is_sent = true;
	}
	renew(way, batch);
}

static void open_stream_end(struct end *end, int device)
{
	struct ibv_qp_init_attr init = {.cap = {WORK, WORK, 1, 1, 0}, .qp_type = IBV_QPT_RC};

	open_memory(end, device);
	end->cq = ibv_create_cq(end->context, 2 * WORK, NULL, NULL, 0);
	CHECK(end->cq);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(end->pd, &init);
	CHECK(end->qp);
}

static void open_direction(struct direction *way, struct end *from, struct end *to)
{
	*way = (struct direction){.from = from, .to = to};
	way->source = malloc(MEMORY);
	way->sink = malloc(MEMORY);
	CHECK(way->source && way->sink);
	memset(way->source, UNTOUCHED, MEMORY);
	memset(way->sink, UNTOUCHED, MEMORY);
	way->source_mr = ibv_reg_mr(from->pd, way->source, MEMORY, ALL_ACCESS);
	way->sink_mr = ibv_reg_mr(to->pd, way->sink, MEMORY, ALL_ACCESS);
	CHECK(way->source_mr && way->sink_mr);
}

static void close_direction(struct direction *way)
{
	CHECK(!ibv_dereg_mr(way->source_mr) && !ibv_dereg_mr(way->sink_mr));
	free(way->source);
	free(way->sink);
}

/* Take what completes until every message that was posted is done. */
static void run(void)
{
	struct ibv_wc wcs[16];

	while (done < posted)
		for (size_t end = 0; end < 2; end++) {
			int count = ibv_poll_cq(ends[end].cq, 16, wcs);

			CHECK(count >= 0);
			for (int i = 0; i < count; i++)
				take(&wcs[i], end);
		}
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	random_state = strtoull(argv[1], NULL, 10);
	wanted = strtoull(argv[2], NULL, 10);
	for (int i = 0; i < 2; i++)
		open_stream_end(&ends[i], i);
	connect_ends(&ends[0], &ends[1]);
	for (size_t i = 0; i < 2; i++)
		open_direction(&directions[i], &ends[i], &ends[!i]);
	for (size_t i = 0; i < 2; i++)
		for (size_t batch = 0; batch < BATCHES; batch++)
			post_batch(&directions[i], batch);
	run();
	for (size_t i = 0; i < 2; i++)
		close_direction(&directions[i]);
	for (size_t i = 0; i < 2; i++)
		close_end(&ends[i]);
	printf("%llu messages, 0 lost\n", (unsigned long long)done);
	return 0;
}
