/* SPDX-License-Identifier: MIT
 * Scenarios of librdmacm: connections of all kinds, refusals, addresses, groups and channels. */
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>

#include "../rdmacm/newer.h"
#include "endpoints.h"
#include "scenarios.h"

enum { PORT = 7471, TIMED_OUT = 4, NO_SUCH_SERVICE = 8, REJECTED_BY_CONSUMER = 28 };

/* One side: a channel, and the id of its connection. */
struct side {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id, *listener;
};

static struct sockaddr *address(const char *text, int port)
{
	static struct sockaddr_storage made[4];
	static int next;
	struct sockaddr_storage *result = &made[next++ % 4];
	struct sockaddr_in *sin = (struct sockaddr_in *)result;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)result;

	memset(result, 0, sizeof *result);
	if (strchr(text, ':')) {
		sin6->sin6_family = AF_INET6;
		sin6->sin6_port = htons((uint16_t)port);
		CHECK(inet_pton(AF_INET6, text, &sin6->sin6_addr) == 1);
	} else {
		sin->sin_family = AF_INET;
		sin->sin_port = htons((uint16_t)port);
		CHECK(inet_pton(AF_INET, text, &sin->sin_addr) == 1);
	}
	return (struct sockaddr *)result;
}

/* Whether an address of an id is this one. */
static bool is_address(const struct sockaddr *found, const char *text)
{
	const struct sockaddr *wanted = address(text, 0);

	if (found->sa_family != wanted->sa_family)
		return false;
	if (found->sa_family == AF_INET)
		return ((const struct sockaddr_in *)found)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)wanted)->sin_addr.s_addr;
	return !memcmp(&((const struct sockaddr_in6 *)found)->sin6_addr,
		       &((const struct sockaddr_in6 *)wanted)->sin6_addr, 16);
}

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel,
					enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	CHECK(!rdma_get_cm_event(channel, &event));
	if (event->event != type)
		fprintf(stderr, "%s (%d) in place of ", rdma_event_str(event->event), event->status);
	CHECK(event->event == type || !fprintf(stderr, "%s\n", rdma_event_str(type)));
	return event;
}

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event *event = next_event(channel, type);

	CHECK(event->status == status);
	CHECK(!rdma_ack_cm_event(event));
}

static void open_side(struct side *side)
{
	side->channel = rdma_create_event_channel();
	CHECK(side->channel);
}

static void close_side(struct side *side)
{
	if (side->id && side->id->qp)
		rdma_destroy_qp(side->id);
	CHECK(!side->id || !rdma_destroy_id(side->id));
	CHECK(!side->listener || !rdma_destroy_id(side->listener));
	rdma_destroy_event_channel(side->channel);
}

static void listen_on(struct side *side, const char *text, enum rdma_port_space space)
{
	open_side(side);
	CHECK(!rdma_create_id(side->channel, &side->listener, side, space));
	CHECK(!rdma_bind_addr(side->listener, address(text, PORT)));
	CHECK(!rdma_listen(side->listener, 8));
	CHECK(rdma_get_src_port(side->listener) == htons(PORT));
}

static void resolve(struct side *side, const char *text, enum rdma_port_space space)
{
	if (!side->channel)
		open_side(side);
	CHECK(!rdma_create_id(side->channel, &side->id, side, space));
	CHECK(!rdma_resolve_addr(side->id, NULL, address(text, PORT), 2000));
	expect(side->channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK(!rdma_resolve_route(side->id, 2000));
	expect(side->channel, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	CHECK(side->id->verbs && side->id->port_num == 1 && side->id->pd);
	CHECK(side->id->route.num_paths == 1 && side->id->route.path_rec->mtu == IBV_MTU_4096);
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 64},
					.qp_type = id->qp_type,
					.sq_sig_all = 1};

	CHECK(!rdma_create_qp(id, NULL, &init));
	CHECK(id->qp && id->send_cq && id->recv_cq && init.cap.max_inline_data >= 64);
	CHECK(id->qp->state == (id->qp_type == IBV_QPT_UD ? IBV_QPS_RTS : IBV_QPS_INIT));
}

static struct rdma_conn_param parameters(const char *private_data)
{
	return (struct rdma_conn_param){.private_data = private_data,
					.private_data_len = (uint8_t)(strlen(private_data) + 1),
					.responder_resources = 3,
					.initiator_depth = 2,
					.retry_count = 5,
					.rnr_retry_count = 6};
}

/* Take a request: its id becomes that of the side. */
static struct rdma_cm_event *take_request(struct side *side)
{
	struct rdma_cm_event *event = next_event(side->channel, RDMA_CM_EVENT_CONNECT_REQUEST);

	CHECK(event->listen_id == side->listener && event->id != side->listener);
	CHECK(event->id->context == side && event->id->verbs);
	side->id = event->id;
	return event;
}

static void request(struct side *side, const char *text)
{
	struct rdma_conn_param param = parameters("hello");

	resolve(side, text, RDMA_PS_TCP);
	create_qp(side->id);
	CHECK(!rdma_connect(side->id, &param));
}

static void accept_request(struct side *side)
{
	struct rdma_conn_param param = parameters("welcome");
	struct rdma_cm_event *event = take_request(side);

	CHECK(event->param.conn.private_data_len >= sizeof "hello");
	CHECK(!strcmp(event->param.conn.private_data, "hello"));
	/* the peer's depths, exchanged */
	CHECK(event->param.conn.responder_resources == 2 && event->param.conn.initiator_depth == 3);
	CHECK(event->param.conn.retry_count == 5 && event->param.conn.rnr_retry_count == 6);
	CHECK(event->param.conn.qp_num);
	create_qp(side->id);
	param.responder_resources = RDMA_MAX_RESP_RES;
	param.initiator_depth = RDMA_MAX_INIT_DEPTH;
	CHECK(!rdma_accept(side->id, &param));
	CHECK(!rdma_ack_cm_event(event));
}

static void connect_sides(struct side *server, struct side *client, const char *text)
{
	struct rdma_cm_event *event;

	request(client, text);
	accept_request(server);
	event = next_event(client->channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!event->status && !strcmp(event->param.conn.private_data, "welcome"));
	CHECK(event->param.conn.responder_resources == 3 && event->param.conn.initiator_depth == 2);
	CHECK(!rdma_ack_cm_event(event));
	expect(server->channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK(client->id->qp->state == IBV_QPS_RTS && server->id->qp->state == IBV_QPS_RTS);
}

static void exchange_data(struct rdma_cm_id *from, struct rdma_cm_id *to)
{
	char received[64] = "", sent[] = "data of a connection";
	struct ibv_mr *mr = rdma_reg_msgs(to, received, sizeof received);
	struct ibv_wc wc;

	CHECK(mr);
	CHECK(!rdma_post_recv(to, NULL, received, sizeof received, mr));
	CHECK(!rdma_post_send(from, NULL, sent, sizeof sent, NULL, IBV_SEND_INLINE));
	CHECK(rdma_get_send_comp(from, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_get_recv_comp(to, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(wc.byte_len == sizeof sent && !strcmp(received, sent));
	CHECK(!rdma_dereg_mr(mr));
}

static void check_addresses(struct side *server, struct side *client, const char *from,
			    const char *to)
{
	CHECK(is_address(rdma_get_local_addr(client->id), from));
	CHECK(is_address(rdma_get_peer_addr(client->id), to));
	CHECK(is_address(rdma_get_local_addr(server->id), to));
	CHECK(is_address(rdma_get_peer_addr(server->id), from));
	CHECK(rdma_get_dst_port(client->id) == htons(PORT));
	CHECK(rdma_get_src_port(server->id) == htons(PORT));
	CHECK(rdma_get_src_port(client->id) == rdma_get_dst_port(server->id));
	CHECK(rdma_get_src_port(client->id));
}

static void disconnect(struct side *one, struct side *other)
{
	CHECK(!rdma_disconnect(one->id));
	expect(other->channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	CHECK(!rdma_disconnect(other->id));
	expect(one->channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	CHECK(!rdma_disconnect(one->id)); /* it is over: no error, as with Linux */
	CHECK(one->id->qp->state == IBV_QPS_ERR && other->id->qp->state == IBV_QPS_ERR);
}

/* Connect between two devices, exchange data in both directions, and disconnect. */
SCENARIO(connection)
{
	struct side server = {0}, client = {0};

	listen_on(&server, "0.0.0.0", RDMA_PS_TCP);
	CHECK(!server.listener->verbs);
	connect_sides(&server, &client, "10.0.0.2");
	check_addresses(&server, &client, "10.0.0.1", "10.0.0.2");
	CHECK(!strcmp(ibv_get_device_name(server.id->verbs->device), "rw1"));
	exchange_data(client.id, server.id);
	exchange_data(server.id, client.id);
	disconnect(&client, &server);
	close_side(&client);
	close_side(&server);
}

/* Addresses that mean this host are those of the first device; IPv6 has its own. */
SCENARIO(local_addresses)
{
	static const char *const targets[][2] = {
		{"127.0.0.1", "10.0.0.1"}, {"0.0.0.0", "10.0.0.1"}, {"10.0.0.1", "10.0.0.1"}};
	struct side server = {0}, client;
	union ibv_gid gid;
	char text[64];

	listen_on(&server, "::", RDMA_PS_TCP);
	for (size_t i = 0; i < LENGTH(targets); i++) {
		client = (struct side){0};
		connect_sides(&server, &client, targets[i][0]);
		CHECK(is_address(rdma_get_peer_addr(client.id), targets[i][1]));
		CHECK(is_address(rdma_get_local_addr(client.id), i < 2 ? "10.0.0.1" : "10.0.0.2"));
		exchange_data(client.id, server.id);
		CHECK(!rdma_disconnect(client.id));
		expect(server.channel, RDMA_CM_EVENT_DISCONNECTED, 0);
		close_side(&client);
		rdma_destroy_qp(server.id);
		CHECK(!rdma_destroy_id(server.id));
	}
	client = (struct side){0};
	resolve(&client, "10.0.0.2", RDMA_PS_TCP);
	CHECK(!ibv_query_gid(client.id->verbs, 1, 1, &gid));
	inet_ntop(AF_INET6, gid.raw, text, sizeof text);
	CHECK(!rdma_destroy_id(client.id));
	client.id = NULL;
	connect_sides(&server, &client, text);
	CHECK(is_address(rdma_get_peer_addr(client.id), text));
	exchange_data(client.id, server.id);
	close_side(&client);
	expect(server.channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	close_side(&server);
}

/* Refused by the program, and by the service because none listens. */
SCENARIO(rejection)
{
	struct side server = {0}, client = {0};
	struct rdma_cm_event *event;

	request(&client, "10.0.0.2");
	expect(client.channel, RDMA_CM_EVENT_REJECTED, NO_SUCH_SERVICE);
	CHECK(client.id->qp->state == IBV_QPS_ERR);
	CHECK(rdma_connect(client.id, &(struct rdma_conn_param){0}) == -1 && errno == EINVAL);
	rdma_destroy_qp(client.id);
	CHECK(!rdma_destroy_id(client.id));
	listen_on(&server, "10.0.0.2", RDMA_PS_TCP);
	request(&client, "10.0.0.2");
	event = take_request(&server);
	CHECK(!rdma_reject(server.id, "no", 3));
	CHECK(!rdma_ack_cm_event(event));
	event = next_event(client.channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == REJECTED_BY_CONSUMER);
	CHECK(!strcmp(event->param.conn.private_data, "no"));
	CHECK(!rdma_ack_cm_event(event));
	close_side(&client);
	close_side(&server);
}

/* Requests that the program never took are refused when their listener is destroyed. */
SCENARIO(unseen_request)
{
	struct side server = {0}, client = {0};
	struct pollfd ready = {.events = POLLIN};

	listen_on(&server, "10.0.0.2", RDMA_PS_TCP);
	request(&client, "10.0.0.2");
	ready.fd = server.channel->fd;
	CHECK(poll(&ready, 1, HANG * 1000) == 1);
	CHECK(!rdma_destroy_id(server.listener));
	server.listener = NULL;
	CHECK(poll(&ready, 1, 0) == 0);
	expect(client.channel, RDMA_CM_EVENT_REJECTED, REJECTED_BY_CONSUMER);
	close_side(&client);
	close_side(&server);
}

/* The network loses everything: for a service with short times. */
SCENARIO(no_answer)
{
	struct side client = {0};
	struct rdma_conn_param param = {.private_data = "?", .private_data_len = 2};

	request(&client, "10.0.0.2");
	expect(client.channel, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	rdma_destroy_qp(client.id);
	CHECK(!rdma_destroy_id(client.id));
	resolve(&client, "10.0.0.2", RDMA_PS_UDP);
	create_qp(client.id);
	CHECK(!rdma_connect(client.id, &param));
	expect(client.channel, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	close_side(&client);
}

/* Whether an event says that a side has waited for too long: its own clock, or the peer's. */
static void expect_timeout(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;

	CHECK(!rdma_get_cm_event(channel, &event));
	CHECK((event->event == RDMA_CM_EVENT_UNREACHABLE && event->status == -ETIMEDOUT) ||
	      (event->event == RDMA_CM_EVENT_REJECTED && event->status == TIMED_OUT));
	CHECK(!rdma_ack_cm_event(event));
}

/* The program does not answer a request: for a service with short times. */
SCENARIO(slow_program)
{
	struct side server = {0}, client = {0};
	struct rdma_cm_event *event;

	listen_on(&server, "10.0.0.2", RDMA_PS_TCP);
	request(&client, "10.0.0.2");
	event = take_request(&server);
	CHECK(!rdma_ack_cm_event(event));
	expect_timeout(client.channel);
	expect_timeout(server.channel);
	create_qp(server.id);
	CHECK(rdma_accept(server.id, NULL) == -1 && errno == EINVAL);
	close_side(&client);
	close_side(&server);
}

/* Errors of addresses and ports, and options. */
SCENARIO(addresses)
{
	struct side one = {0}, other = {0};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	uint8_t tos = 0x20;
	int yes = 1;

	open_side(&one);
	CHECK(!rdma_create_id(one.channel, &one.id, NULL, RDMA_PS_TCP));
	CHECK(rdma_bind_addr(one.id, address("10.9.9.9", 0)) == -1 && errno == EADDRNOTAVAIL);
	CHECK(!rdma_resolve_addr(one.id, NULL, address("10.9.9.9", PORT), 10));
	event = next_event(one.channel, RDMA_CM_EVENT_ADDR_ERROR);
	CHECK(event->status == -EHOSTUNREACH);
	CHECK(!event->param.conn.private_data && !event->param.conn.private_data_len);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(rdma_resolve_route(one.id, 10) == -1 && errno == EINVAL);
	CHECK(rdma_resolve_addr(one.id, address("10.0.0.1", 0), address("fe80::1", 1), 10) == -1 &&
	      errno == EINVAL);
	CHECK(!rdma_set_option(one.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos));
	CHECK(rdma_set_option(one.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &yes, sizeof yes) == -1 &&
	      errno == EINVAL);
	CHECK(rdma_set_option(one.id, RDMA_OPTION_ID, 99, &yes, sizeof yes) == -1 &&
	      errno == ENOSYS);
	CHECK(rdma_listen(one.id, 0) == -1 || rdma_get_src_port(one.id));
	listen_on(&other, "10.0.0.1", RDMA_PS_TCP);
	CHECK(!rdma_create_id(one.channel, &id, NULL, RDMA_PS_TCP));
	CHECK(rdma_bind_addr(id, address("0.0.0.0", PORT)) == -1 && errno == EADDRNOTAVAIL);
	CHECK(rdma_bind_addr(id, address("10.0.0.1", PORT)) == -1 && errno == EADDRINUSE);
	CHECK(!rdma_bind_addr(id, address("10.0.0.2", PORT)));
	CHECK(!strcmp(ibv_get_device_name(id->verbs->device), "rw1"));
	CHECK(rdma_bind_addr(id, address("10.0.0.2", PORT + 1)) == -1 && errno == EINVAL);
	CHECK(!rdma_destroy_id(id));
	CHECK(!rdma_create_id(one.channel, &id, NULL, RDMA_PS_UDP));
	CHECK(!rdma_bind_addr(id, address("10.0.0.1", PORT))); /* another port space */
	CHECK(!rdma_destroy_id(id));
	close_side(&other);
	other = (struct side){0};
	for (int i = 0; i < 2; i++) {
		CHECK(!rdma_create_id(one.channel, i ? &other.id : &id, NULL, RDMA_PS_TCP));
		CHECK(!rdma_set_option(i ? other.id : id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR,
				       &yes, sizeof yes));
		CHECK(!rdma_bind_addr(i ? other.id : id, address("10.0.0.1", PORT)));
	}
	CHECK(!rdma_listen(id, 1));
	CHECK(rdma_listen(other.id, 1) == -1 && errno == EADDRINUSE);
	CHECK(!rdma_destroy_id(id));
	CHECK(!rdma_destroy_id(other.id));
	close_side(&one);
}

static struct ibv_qp *own_qp(struct rdma_cm_id *id, struct ibv_cq **cq)
{
	struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 64}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp;

	*cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	CHECK(*cq);
	init.send_cq = init.recv_cq = *cq;
	qp = ibv_create_qp(id->pd, &init);
	CHECK(qp);
	return qp;
}

static void move(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attributes = {.qp_state = state};
	int mask;

	CHECK(!rdma_init_qp_attr(id, &attributes, &mask));
	CHECK(!ibv_modify_qp(qp, &attributes, mask));
}

/* Queue pairs that the programs make and connect themselves, as UCX does. */
SCENARIO(own_queue_pairs)
{
	struct side server = {0}, client = {0};
	struct ibv_qp *of_server, *of_client;
	struct ibv_cq *server_cq, *client_cq;
	struct rdma_conn_param param = parameters("mine");
	struct rdma_cm_event *event;
	struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR};
	int mask;

	listen_on(&server, "10.0.0.2", RDMA_PS_TCP);
	resolve(&client, "10.0.0.2", RDMA_PS_TCP);
	CHECK(rdma_init_qp_attr(client.id, &attributes, &mask) == -1 && errno == EINVAL);
	of_client = own_qp(client.id, &client_cq);
	param.qp_num = of_client->qp_num;
	CHECK(!rdma_connect(client.id, &param));
	event = take_request(&server);
	CHECK(event->param.conn.qp_num == of_client->qp_num);
	of_server = own_qp(server.id, &server_cq);
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		move(server.id, of_server, (enum ibv_qp_state)state);
	param.qp_num = of_server->qp_num;
	CHECK(!rdma_accept(server.id, &param));
	CHECK(!rdma_ack_cm_event(event));
	event = next_event(client.channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK(event->param.conn.qp_num == of_server->qp_num);
	CHECK(!strcmp(event->param.conn.private_data, "mine"));
	CHECK(!rdma_ack_cm_event(event));
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		move(client.id, of_client, (enum ibv_qp_state)state);
	CHECK(!rdma_establish(client.id));
	expect(server.channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK(rdma_notify(server.id, IBV_EVENT_COMM_EST) == -1 && errno == EISCONN);
	CHECK(!rdma_disconnect(client.id));
	expect(server.channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	CHECK(!ibv_destroy_qp(of_client) && !ibv_destroy_qp(of_server));
	CHECK(!ibv_destroy_cq(client_cq) && !ibv_destroy_cq(server_cq));
	close_side(&client);
	close_side(&server);
}

/* A datagram service is found by its port; one without a listener is not. */
SCENARIO(datagrams)
{
	struct side server = {0}, client = {0};
	struct rdma_conn_param param = {.private_data = "who", .private_data_len = 4};
	struct rdma_cm_event *event;
	struct ibv_ah *ah;

	resolve(&client, "10.0.0.2", RDMA_PS_UDP);
	create_qp(client.id);
	CHECK(!rdma_connect(client.id, &param));
	expect(client.channel, RDMA_CM_EVENT_UNREACHABLE, 1); /* IB_SIDR_UNSUPPORTED */
	rdma_destroy_qp(client.id);
	CHECK(!rdma_destroy_id(client.id));
	listen_on(&server, "10.0.0.2", RDMA_PS_UDP);
	resolve(&client, "10.0.0.2", RDMA_PS_UDP);
	create_qp(client.id);
	CHECK(!rdma_connect(client.id, &param));
	event = take_request(&server);
	CHECK(!strcmp(event->param.ud.private_data, "who"));
	create_qp(server.id);
	param.private_data = "me";
	param.private_data_len = 3;
	CHECK(!rdma_accept(server.id, &param));
	CHECK(!rdma_ack_cm_event(event));
	event = next_event(client.channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->param.ud.qp_num == server.id->qp->qp_num);
	CHECK(event->param.ud.qkey == RDMA_UDP_QKEY);
	CHECK(!strcmp(event->param.ud.private_data, "me"));
	ah = ibv_create_ah(client.id->pd, &event->param.ud.ah_attr);
	CHECK(ah && !ibv_destroy_ah(ah));
	CHECK(!rdma_ack_cm_event(event));
	close_side(&client);
	close_side(&server);
}

/* Join a group, which attaches the queue pair; leave it. */
SCENARIO(groups)
{
	struct side one = {0};
	struct rdma_cm_event *event;
	struct sockaddr_storage group;
	union ibv_gid *gid;
	int context;

	memcpy(&group, address("239.1.2.3", 0), sizeof group);
	open_side(&one);
	CHECK(!rdma_create_id(one.channel, &one.id, NULL, RDMA_PS_UDP));
	CHECK(rdma_join_multicast(one.id, (struct sockaddr *)&group, &context) == -1);
	CHECK(!rdma_bind_addr(one.id, address("10.0.0.2", 0)));
	create_qp(one.id);
	CHECK(rdma_join_multicast(one.id, address("10.0.0.1", 0), NULL) == -1 && errno == EINVAL);
	CHECK(!rdma_join_multicast(one.id, (struct sockaddr *)&group, &context));
	event = next_event(one.channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(!event->status && event->param.ud.private_data == &context);
	CHECK(event->param.ud.qp_num == 0xFFFFFF && event->param.ud.qkey == RDMA_UDP_QKEY);
	gid = &event->param.ud.ah_attr.grh.dgid;
	CHECK(gid->raw[10] == 0xff && gid->raw[12] == 239 && gid->raw[15] == 3);
	CHECK(ibv_detach_mcast(one.id->qp, gid, 0) == 0);
	CHECK(ibv_attach_mcast(one.id->qp, gid, 0) == 0);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_leave_multicast(one.id, (struct sockaddr *)&group));
	CHECK(rdma_leave_multicast(one.id, (struct sockaddr *)&group) == -1 &&
	      errno == EADDRNOTAVAIL);
	CHECK(!rdma_join_multicast(one.id, (struct sockaddr *)&group, NULL));
	CHECK(!rdma_leave_multicast(one.id, (struct sockaddr *)&group)); /* its event goes, too */
	CHECK(fcntl(one.channel->fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(rdma_get_cm_event(one.channel, &event) == -1 && errno == EAGAIN);
	close_side(&one);
}

/* An id takes its events to another channel. */
SCENARIO(migration)
{
	struct side one = {0}, other = {0};
	struct rdma_cm_event *event;
	struct pollfd ready = {.events = POLLIN};

	open_side(&one);
	open_side(&other);
	CHECK(!rdma_create_id(one.channel, &one.id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(one.id, NULL, address("10.0.0.2", PORT), 2000));
	CHECK(!rdma_migrate_id(one.id, other.channel));
	CHECK(one.id->channel == other.channel);
	ready.fd = one.channel->fd;
	CHECK(poll(&ready, 1, 0) == 0);
	expect(other.channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK(!rdma_migrate_id(one.id, NULL));
	CHECK(!rdma_resolve_route(one.id, 2000)); /* it waits for the event now */
	CHECK(one.id->event && one.id->event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!rdma_migrate_id(one.id, one.channel));
	CHECK(!one.id->event);
	CHECK(fcntl(one.channel->fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(rdma_get_cm_event(one.channel, &event) == -1 && errno == EAGAIN);
	close_side(&one);
	close_side(&other);
}

static void *serve(void *argument)
{
	struct rdma_cm_id *listener = argument, *id;

	CHECK(!rdma_get_request(listener, &id));
	CHECK(id->qp && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!rdma_accept(id, NULL));
	CHECK(id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	return id;
}

/* Ids without a channel, whose calls wait. */
SCENARIO(synchronous)
{
	const struct ibv_qp_cap cap = {4, 4, 1, 1, 64};
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
	struct rdma_cm_id *listener, *client;
	pthread_t thread;
	void *server;

	CHECK(rdma_getaddrinfo("no.such.host.invalid", "7471", &hints, &found) != 0);
	CHECK(!rdma_getaddrinfo("10.0.0.2", "7471", &hints, &found));
	CHECK(found->ai_qp_type == IBV_QPT_RC && found->ai_dst_len == sizeof(struct sockaddr_in));
	rdma_freeaddrinfo(found);
	client = endpoint("10.0.0.2", 0, RDMA_PS_TCP, 0, cap);
	CHECK(rdma_connect(client, NULL) == -1 && errno == ECONNREFUSED);
	rdma_destroy_ep(client);
	listener = endpoint(NULL, RAI_PASSIVE, RDMA_PS_TCP, 0, cap);
	CHECK(!rdma_listen(listener, 0));
	CHECK(!pthread_create(&thread, NULL, serve, listener));
	client = endpoint("10.0.0.2", 0, RDMA_PS_TCP, 0, cap);
	CHECK(!rdma_connect(client, NULL));
	CHECK(!pthread_join(thread, &server));
	exchange_data(client, server);
	destroy_endpoints(client, server);
	rdma_destroy_ep(listener);
}

/* Events that are written to a channel: by a program, and with the result of a resolution. */
SCENARIO(written_events)
{
	struct rdma_addrinfo *found, hints = {.ai_port_space = RDMA_PS_UDP};
	struct rdma_cm_event *event;
	struct rdma_cm_id *alone;
	struct side side;
	uint64_t argument;

	open_side(&side);
	CHECK(!rdma_create_id(side.channel, &side.id, &side, RDMA_PS_TCP));
	CHECK(!rdma_write_cm_event(side.id, CM_EVENT_USER, -123456, UINT64_MAX - 7));
	event = next_event(side.channel, CM_EVENT_USER);
	memcpy(&argument, &event->param, sizeof argument);
	CHECK(event->id == side.id && event->status == -123456 && argument == UINT64_MAX - 7);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(rdma_write_cm_event(side.id, RDMA_CM_EVENT_ESTABLISHED, 0, 0) == -1 && errno == EINVAL);
	CHECK(rdma_query_addrinfo(side.id, &found) == -1 && errno == ENOENT);
	CHECK(!rdma_resolve_addrinfo(side.id, "10.0.0.2", "7471", &hints));
	CHECK(rdma_resolve_addrinfo(side.id, "10.0.0.2", "7471", NULL) == -1 && errno == EBUSY);
	expect(side.channel, CM_EVENT_ADDRINFO_RESOLVED, 0);
	CHECK(!rdma_query_addrinfo(side.id, &found) && found->ai_qp_type == IBV_QPT_UD);
	CHECK(is_address(found->ai_dst_addr, "10.0.0.2"));
	rdma_freeaddrinfo(found);
	CHECK(rdma_query_addrinfo(side.id, &found) == -1 && errno == ENOENT);
	CHECK(!rdma_resolve_addrinfo(side.id, "no.such.host.invalid", "7471", NULL));
	expect(side.channel, CM_EVENT_ADDRINFO_ERROR, -ENOENT);
	CHECK(rdma_query_addrinfo(side.id, &found) == -1 && errno == ENOENT);
	hints.ai_flags = CM_RAI_SA;
	CHECK(rdma_resolve_addrinfo(side.id, NULL, "x", &hints) == -1 && errno == EOPNOTSUPP);
	CHECK(!strcmp(rdma_event_str(CM_EVENT_ADDRINFO_ERROR), "RDMA_CM_EVENT_ADDRINFO_ERROR"));
	CHECK(!rdma_create_id(NULL, &alone, NULL, RDMA_PS_TCP)); /* it waits for its events */
	CHECK(!rdma_resolve_addrinfo(alone, "10.0.0.1", "7471", NULL));
	CHECK(rdma_resolve_addrinfo(alone, "10.0.0.1", "7471", NULL) == -1 && errno == EBUSY);
	CHECK(!rdma_query_addrinfo(alone, &found));
	rdma_freeaddrinfo(found);
	CHECK(rdma_resolve_addrinfo(alone, "no.such.host.invalid", NULL, NULL) && errno == ENOENT);
	CHECK(!rdma_destroy_id(alone));
	close_side(&side);
}

/* The peer's process is killed: its ids go, and the peer gets an event. */
SCENARIO(killed_peer)
{
	struct side server = {0}, client = {0};
	int pipes[2];
	pid_t child;
	char byte;

	CHECK(!pipe(pipes));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		listen_on(&server, "10.0.0.2", RDMA_PS_TCP);
		CHECK(write(pipes[1], "l", 1) == 1);
		accept_request(&server);
		expect(server.channel, RDMA_CM_EVENT_ESTABLISHED, 0);
		raise(SIGKILL);
	}
	CHECK(read(pipes[0], &byte, 1) == 1);
	request(&client, "10.0.0.2");
	expect(client.channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	expect(client.channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	CHECK(waitpid(child, NULL, 0) == child);
	listen_on(&server, "10.0.0.2", RDMA_PS_TCP); /* the port is free again */
	close_side(&server);
	close_side(&client);
}

/* The service ends while a thread waits for events; another one is used afterwards. */
SCENARIO(service_ends)
{
	struct side one = {0};
	struct rdma_cm_event *event;

	listen_on(&one, "10.0.0.2", RDMA_PS_TCP);
	puts("listening");
	fflush(stdout);
	CHECK(rdma_get_cm_event(one.channel, &event) == -1 && errno == EIO);
	CHECK(rdma_listen(one.listener, 1) == -1 && errno == EIO);
	close_side(&one);
	one = (struct side){0};
	puts("ended");
	fflush(stdout);
	CHECK(getchar() == '\n');
	listen_on(&one, "10.0.0.2", RDMA_PS_TCP);
	close_side(&one);
}

/* What is refused, and what takes no service. */
SCENARIO(others)
{
	struct ibv_context **contexts;
	int count;

	contexts = rdma_get_devices(&count);
	CHECK(contexts && count == 2 && !contexts[2]);
	CHECK(!strcmp(ibv_get_device_name(contexts[1]->device), "rw1"));
	rdma_free_devices(contexts);
	CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT"));
	CHECK(!strcmp(rdma_event_str((enum rdma_cm_event_type)99), "UNKNOWN EVENT"));
	CHECK(rdma_get_cm_event(NULL, NULL) == -1 && errno == EINVAL);
	CHECK(rdma_ack_cm_event(NULL) == -1 && errno == EINVAL);
}
