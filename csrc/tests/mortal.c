/* SPDX-License-Identifier: MIT
 * A server, and clients that are killed at any moment, over connections of librdmacm:
 *
 *     mortal serve PORT
 *     mortal connect ADDRESS PORT SEED STEPS
 *
 * A client registers memory, connects, writes and reads, and leaves in order; or it kills itself
 * with SIGKILL before its call of the library number STEPS. The server writes to the memory of each
 * client and reads it back until the client leaves. With a client that was killed it goes on: its
 * retries must be exceeded. At SIGTERM it prints what it saw. */
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>

#include "check.h"
#include "data.h"

enum {
	SMALLEST = 4096, /* bytes of a client's memory: half for it, half for the server */
	CHUNK = 1500,	 /* bytes of a message of the server */
	RETRIES = 2,
	CONNECTIONS = 256, /* at once */
	MESSAGES = 4,	  /* of a client */
	GOODBYE = 1,	  /* wr_id of a receive */
};

/* What each side says of its memory when they connect. */
struct place {
	uint64_t address;
	uint32_t rkey, size;
};

/* Server. */

struct connection {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct place client;
	char memory[2 * SMALLEST + 4 * GUARD];
	struct data data;
	bool is_established, said_bye, is_over;
	int under_way;
};

static struct connection connections[CONNECTIONS];
static struct ibv_comp_channel *completions;
static struct ibv_cq *cq;
static struct ibv_pd *pd;
static volatile sig_atomic_t stopped;
static unsigned long established, left, exceeded, failed, messages;

static void stop(int number)
{
	stopped = number;
}

static struct connection *find_connection(const struct rdma_cm_id *id)
{
	for (size_t i = 0; i < CONNECTIONS; i++)
		if (connections[i].id == id)
			return &connections[i];
	return NULL;
}

static struct connection *find_by_qp(uint32_t number)
{
	for (size_t i = 0; i < CONNECTIONS; i++)
		if (connections[i].id && connections[i].id->qp->qp_num == number)
			return &connections[i];
	return NULL;
}

static void open_shared(struct ibv_context *context)
{
	if (pd)
		return;
	pd = ibv_alloc_pd(context);
	completions = ibv_create_comp_channel(context);
	CHECK(pd && completions && !fcntl(completions->fd, F_SETFL, O_NONBLOCK));
	cq = ibv_create_cq(context, 4 * CONNECTIONS, NULL, completions, 0);
	CHECK(cq && !ibv_req_notify_cq(cq, 0));
}

static void close_connection(struct connection *connection)
{
	rdma_destroy_qp(connection->id);
	CHECK(!ibv_dereg_mr(connection->mr) && !rdma_destroy_id(connection->id));
	*connection = (struct connection){0};
}

static struct connection *open_connection(struct rdma_cm_event *event)
{
	struct ibv_qp_init_attr init = {.cap = {4, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	struct connection *connection = find_connection(NULL);
	struct ibv_recv_wr *bad, wr = {.wr_id = GOODBYE};

	CHECK(connection && event->param.conn.private_data_len >= sizeof connection->client);
	connection->id = event->id;
	memcpy(&connection->client, event->param.conn.private_data, sizeof connection->client);
	open_shared(event->id->verbs);
	init.send_cq = init.recv_cq = cq;
	CHECK(!rdma_create_qp(event->id, pd, &init));
	connection->mr = ibv_reg_mr(pd, connection->memory, sizeof connection->memory, ALL_ACCESS);
	CHECK(connection->mr && !ibv_post_recv(event->id->qp, &wr, &bad));
	return connection;
}

static void accept_request(struct rdma_cm_event *event)
{
	struct connection *connection = open_connection(event);
	struct place own = {(uintptr_t)connection->memory, connection->mr->rkey, SMALLEST};
	struct rdma_conn_param param = {.private_data = &own,
					.private_data_len = sizeof own,
					.responder_resources = 2,
					.initiator_depth = 2,
					.rnr_retry_count = 7};

	if (rdma_accept(event->id, &param))
		connection->is_over = true; /* the client is gone already */
}

/* Post a WRITE of new data to the client, or a READ of it. */
static void post(struct connection *connection, enum ibv_wr_opcode opcode)
{
	char *memory = connection->memory + SMALLEST + GUARD;
	struct ibv_sge sge = {(uintptr_t)memory, CHUNK, connection->mr->lkey};
	struct ibv_send_wr *bad, wr = {.opcode = opcode, .sg_list = &sge, .num_sge = 1};

	if (opcode == IBV_WR_RDMA_WRITE) {
		connection->data = (struct data){connection->data.number + 1, random_below(UINT32_MAX), CHUNK};
		fill(memory, &connection->data);
	} else {
		memset(memory - GUARD, UNTOUCHED, CHUNK + 2 * GUARD);
	}
	wr.wr.rdma.remote_addr = connection->client.address + connection->client.size / 2;
	wr.wr.rdma.rkey = connection->client.rkey;
	CHECK(!ibv_post_send(connection->id->qp, &wr, &bad));
	connection->under_way++;
}

static void take_send(struct connection *connection, const struct ibv_wc *wc)
{
	connection->under_way--;
	if (wc->status != IBV_WC_SUCCESS) {
		CHECK(wc->status == IBV_WC_RETRY_EXC_ERR ||
		      (wc->status == IBV_WC_WR_FLUSH_ERR && connection->is_over));
		exceeded += wc->status == IBV_WC_RETRY_EXC_ERR && !connection->said_bye;
		connection->is_over = true;
		return;
	}
	if (wc->opcode == IBV_WC_RDMA_READ) {
		CHECK(is_right(connection->memory + SMALLEST + GUARD, &connection->data, false));
		messages++;
	}
	if (!connection->is_over)
		post(connection, wc->opcode == IBV_WC_RDMA_READ ? IBV_WR_RDMA_WRITE
								: IBV_WR_RDMA_READ);
}

static void take_completions(void)
{
	struct connection *connection;
	struct ibv_cq *found;
	struct ibv_wc wc;
	void *context;

	while (!ibv_get_cq_event(completions, &found, &context))
		ibv_ack_cq_events(found, 1);
	CHECK(!ibv_req_notify_cq(cq, 0));
	while (ibv_poll_cq(cq, 1, &wc) == 1) {
		connection = find_by_qp(wc.qp_num);
		CHECK(connection);
		if (wc.wr_id == GOODBYE)
			connection->said_bye |= wc.status == IBV_WC_SUCCESS;
		else
			take_send(connection, &wc);
	}
}

static void take_event(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event, copy;
	struct connection *connection;

	CHECK(!rdma_get_cm_event(channel, &event));
	copy = *event;
	if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST)
		accept_request(event);
	CHECK(!rdma_ack_cm_event(event));
	connection = find_connection(copy.id);
	if (copy.event == RDMA_CM_EVENT_ESTABLISHED) {
		established++;
		connection->is_established = true;
		post(connection, IBV_WR_RDMA_WRITE);
	} else if (copy.event == RDMA_CM_EVENT_DISCONNECTED && connection) {
		take_completions(); /* the goodbye may be there */
		left += connection->said_bye;
		connection->is_over |= connection->said_bye || !connection->is_established;
	} else if (copy.event != RDMA_CM_EVENT_CONNECT_REQUEST && connection) {
		connection->is_over = true;
	}
}

/* End the connections that are over, once nothing is in flight on them. */
static void end_connections(void)
{
	for (size_t i = 0; i < CONNECTIONS; i++) {
		struct connection *connection = &connections[i];

		if (!connection->id || !connection->is_over)
			continue;
		failed += !connection->is_established && !connection->under_way;
		rdma_disconnect(connection->id); /* fails if it is over for the manager, too */
		if (!connection->under_way)
			close_connection(connection);
	}
}

static void serve(const char *port)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *found;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sigaction action = {.sa_handler = stop};
	struct rdma_cm_id *listener;

	CHECK(channel && !sigaction(SIGTERM, &action, NULL));
	CHECK(!rdma_getaddrinfo(NULL, port, &hints, &found));
	CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, found->ai_src_addr) && !rdma_listen(listener, CONNECTIONS));
	rdma_freeaddrinfo(found);
	puts("listening");
	fflush(stdout);
	while (!stopped) {
		struct pollfd ready[] = {{.fd = channel->fd, .events = POLLIN},
					 {.fd = completions ? completions->fd : -1, .events = POLLIN}};

		if (poll(ready, 2, -1) < 0)
			continue;
		if (ready[0].revents)
			take_event(channel);
		if (completions)
			take_completions();
		end_connections();
	}
	printf("%lu established, %lu left, %lu exceeded, %lu failed, %lu messages\n", established,
	       left, exceeded, failed, messages);
	exit(0);
}

/* Client. */

static unsigned long steps;

/* Count a call of the library: the process may die before it. */
static void step(void)
{
	if (steps && !--steps)
		raise(SIGKILL);
}

#define STEP(call) (step(), (call))

static void wait_for(struct rdma_event_channel *channel, enum rdma_cm_event_type type,
		     struct place *server)
{
	struct rdma_cm_event *event;

	CHECK(!STEP(rdma_get_cm_event(channel, &event)));
	if (event->event != type)
		fprintf(stderr, "%s (%d) ", rdma_event_str(event->event), event->status);
	CHECK(event->event == type);
	if (server)
		memcpy(server, event->param.conn.private_data, sizeof *server);
	CHECK(!STEP(rdma_ack_cm_event(event)));
}

static void wait_for_sends(struct rdma_cm_id *id, int count)
{
	while (count--) {
		struct ibv_wc wc = poll_one(id->send_cq);

		CHECK(wc.status == IBV_WC_SUCCESS);
	}
}

/* Write data to the server and read it back, and say goodbye. */
static void exchange(struct rdma_cm_id *id, struct ibv_mr *mr, const struct place *server)
{
	char *memory = (char *)mr->addr + GUARD;
	struct ibv_sge sge = {(uintptr_t)memory, 0, mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};

	for (uint64_t number = 1; number <= MESSAGES; number++) {
		struct data data = {number, random_below(UINT32_MAX),
				    (uint32_t)random_below(SMALLEST / 2 - 2 * GUARD)};

		sge.length = data.size;
		wr.wr.rdma.remote_addr = server->address;
		wr.wr.rdma.rkey = server->rkey;
		memset(memory - GUARD, UNTOUCHED, SMALLEST / 2);
		fill(memory, &data);
		wr.opcode = IBV_WR_RDMA_WRITE;
		CHECK(!STEP(ibv_post_send(id->qp, &wr, &bad)));
		wait_for_sends(id, 1);
		memset(memory, UNTOUCHED, data.size);
		wr.opcode = IBV_WR_RDMA_READ;
		CHECK(!STEP(ibv_post_send(id->qp, &wr, &bad)));
		wait_for_sends(id, 1);
		CHECK(is_right(memory, &data, false));
	}
	sge.length = 0;
	wr.opcode = IBV_WR_SEND;
	CHECK(!STEP(ibv_post_send(id->qp, &wr, &bad)));
	wait_for_sends(id, 1);
}

static void connect_to(const char *address, const char *port)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr init = {.cap = {4, 1, 1, 1, 64}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	struct rdma_event_channel *channel = STEP(rdma_create_event_channel());
	uint32_t size = SMALLEST << random_below(9);
	char *memory = malloc(size);
	struct rdma_cm_id *id;
	struct place own, server;
	struct rdma_conn_param param = {.private_data = &own,
					.private_data_len = sizeof own,
					.responder_resources = 2,
					.initiator_depth = 2,
					.retry_count = RETRIES,
					.rnr_retry_count = 7};
	struct ibv_mr *mr;

	CHECK(channel && memory && !rdma_getaddrinfo(address, port, &hints, &found));
	CHECK(!STEP(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)));
	CHECK(!STEP(rdma_resolve_addr(id, NULL, found->ai_dst_addr, 2000)));
	wait_for(channel, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	CHECK(!STEP(rdma_resolve_route(id, 2000)));
	wait_for(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	CHECK(!STEP(rdma_create_qp(id, NULL, &init)));
	mr = STEP(ibv_reg_mr(id->pd, memory, size, ALL_ACCESS));
	CHECK(mr);
	own = (struct place){(uintptr_t)memory, mr->rkey, size};
	CHECK(!STEP(rdma_connect(id, &param)));
	wait_for(channel, RDMA_CM_EVENT_ESTABLISHED, &server);
	exchange(id, mr, &server);
	CHECK(!STEP(rdma_disconnect(id)));
	wait_for(channel, RDMA_CM_EVENT_DISCONNECTED, NULL);
	STEP(rdma_destroy_qp(id));
	CHECK(!STEP(ibv_dereg_mr(mr)) && !STEP(rdma_destroy_id(id)));
	STEP(rdma_destroy_event_channel(channel));
	rdma_freeaddrinfo(found);
	free(memory);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3 || argc == 6);
	alarm(HANG);
	if (argc == 3)
		serve(argv[2]);
	random_state = strtoull(argv[4], NULL, 10);
	steps = strtoul(argv[5], NULL, 10);
	connect_to(argv[2], argv[3]);
	return 0;
}
