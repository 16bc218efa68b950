/* SPDX-License-Identifier: MIT
 * Calls of librdmacm against a service with invalid replies, or one that ends: nothing harms the
 * program, and no call waits for ever. */
#include <fcntl.h>
#include <rdma/rdma_cma.h>

#include "scenarios.h"

static struct sockaddr_in made_address(const char *text)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7)};

	CHECK(inet_pton(AF_INET, text, &address.sin_addr) == 1);
	return address;
}

/* Read what an event says: the sanitizers check each byte. */
static unsigned sum(const struct rdma_cm_event *event)
{
	bool datagrams = event->id->qp_type == IBV_QPT_UD ||
			 event->event == RDMA_CM_EVENT_MULTICAST_JOIN;
	const uint8_t *data = datagrams ? event->param.ud.private_data
					: event->param.conn.private_data;
	unsigned length = datagrams ? event->param.ud.private_data_len
				    : event->param.conn.private_data_len;
	unsigned total = (unsigned)strlen(rdma_event_str(event->event));

	if (event->event == RDMA_CM_EVENT_MULTICAST_JOIN)
		return total; /* its private data is the program's context */
	for (unsigned i = 0; data && i < length; i++)
		total += data[i];
	return total;
}

static struct ibv_qp_init_attr attributes(struct rdma_cm_id *id)
{
	return (struct ibv_qp_init_attr){.cap = {8, 8, 1, 1, 8}, .qp_type = id->qp_type};
}

/* The id of a request: accept it, refuse it, or destroy it at once. */
static void answer(struct rdma_cm_id *id, unsigned choice)
{
	struct rdma_conn_param param = {.private_data = "answer", .private_data_len = 6};
	struct ibv_qp_init_attr init = attributes(id);

	if (choice % 3 == 1)
		rdma_reject(id, "no", 2);
	if (choice % 3 == 0 && !rdma_create_qp(id, NULL, &init))
		rdma_accept(id, &param);
	if (id->qp)
		rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

static void take_events(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *requested;
	unsigned total = 0;

	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 6 && !rdma_get_cm_event(channel, &event); i++) {
		requested = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
		total += sum(event);
		rdma_ack_cm_event(event);
		if (requested)
			answer(requested, total);
	}
}

static void use_queue_pair(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5};
	struct ibv_qp_init_attr init = attributes(id);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask;

	if (rdma_create_qp(id, NULL, &init))
		return;
	rdma_init_qp_attr(id, &attr, &mask);
	rdma_connect(id, &param);
	take_events(id->channel);
	rdma_establish(id);
	rdma_notify(id, IBV_EVENT_COMM_EST);
	rdma_disconnect(id);
	take_events(id->channel);
	rdma_destroy_qp(id);
}

static void use_groups(struct rdma_cm_id *id)
{
	struct sockaddr_in group = made_address("239.0.0.1");
	struct rdma_cm_join_mc_attr_ex wanted = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		.addr = (struct sockaddr *)&group};

	rdma_join_multicast(id, (struct sockaddr *)&group, id);
	take_events(id->channel);
	rdma_join_multicast_ex(id, &wanted, NULL);
	take_events(id->channel);
	rdma_leave_multicast(id, (struct sockaddr *)&group);
}

static void use_id(struct rdma_event_channel *channel, enum rdma_port_space space)
{
	struct sockaddr_in peer = made_address("10.0.0.2"), any = made_address("0.0.0.0");
	struct rdma_event_channel *other;
	struct rdma_cm_id *id;
	uint8_t tos = 3;

	if (rdma_create_id(channel, &id, NULL, space))
		return;
	rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1);
	rdma_bind_addr(id, (struct sockaddr *)&any);
	rdma_listen(id, 4);
	take_events(channel);
	rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, 1000);
	take_events(channel);
	rdma_resolve_route(id, 1000);
	take_events(channel);
	if (id->verbs)
		use_queue_pair(id);
	use_groups(id);
	other = rdma_create_event_channel();
	if (other && !rdma_migrate_id(id, other))
		take_events(other);
	rdma_destroy_id(id);
	if (other)
		rdma_destroy_event_channel(other);
}

/* Ids that wait for the event of each call. */
static void use_endpoints(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST | RAI_PASSIVE,
				      .ai_port_space = RDMA_PS_TCP};
	struct ibv_qp_init_attr init = {.cap = {8, 8, 1, 1, 8}, .qp_type = IBV_QPT_RC};
	struct rdma_cm_id *id, *requested;
	struct rdma_addrinfo *found;

	for (int passive = 1; passive >= 0; passive--) {
		hints.ai_flags = RAI_NUMERICHOST | (passive ? RAI_PASSIVE : 0);
		CHECK(!rdma_getaddrinfo("10.0.0.2", "7", &hints, &found));
		if (!rdma_create_ep(&id, found, NULL, &init)) {
			if (passive && !rdma_listen(id, 1) && !rdma_get_request(id, &requested)) {
				rdma_accept(requested, NULL);
				rdma_destroy_ep(requested);
			} else if (!passive && !rdma_connect(id, NULL)) {
				rdma_disconnect(id);
			}
			rdma_destroy_ep(id);
		}
		rdma_freeaddrinfo(found);
	}
}

/* Walk through the calls until the service removes its socket, whatever it answers. */
SCENARIO(invalid_replies)
{
	const char *path = getenv("RDMAWIRE_VERBS");
	struct rdma_event_channel *channel;
	struct ibv_context **devices;
	int count;

	do {
		channel = rdma_create_event_channel();
		if (channel) {
			use_id(channel, RDMA_PS_TCP);
			use_id(channel, RDMA_PS_UDP);
			rdma_destroy_event_channel(channel);
			use_endpoints();
			devices = rdma_get_devices(&count);
			if (devices)
				rdma_free_devices(devices);
		}
	} while (channel || !access(path, F_OK));
}
