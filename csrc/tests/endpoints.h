/* SPDX-License-Identifier: MIT
 * Ids of librdmacm without a channel, whose calls wait. */
#pragma once

#include <pthread.h>
#include <rdma/rdma_verbs.h>

#include "check.h"

/* Make an id; a `type` of 0 is that of the port space. */
static struct rdma_cm_id *endpoint(const char *node, int flags, enum rdma_port_space space, int type,
				   struct ibv_qp_cap cap)
{
	struct rdma_addrinfo *found, hints = {
		.ai_flags = flags, .ai_port_space = (int)space, .ai_qp_type = type};
	struct ibv_qp_init_attr init = {.cap = cap, .sq_sig_all = 1};
	struct rdma_cm_id *id;

	CHECK(!rdma_getaddrinfo(node, "7471", &hints, &found));
	CHECK(!rdma_create_ep(&id, found, NULL, &init));
	rdma_freeaddrinfo(found);
	return id;
}

static void *end_connection(void *id)
{
	CHECK(!rdma_disconnect(id));
	return NULL;
}

/* End a connection from both sides, each of which waits for the other. */
static void destroy_endpoints(struct rdma_cm_id *client, struct rdma_cm_id *server)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, end_connection, server));
	CHECK(!rdma_disconnect(client));
	CHECK(!pthread_join(thread, NULL));
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
}
