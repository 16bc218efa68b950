/* SPDX-License-Identifier: MIT
 * Names and addresses, and ids made from them at once. */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "cm.h"

enum { RESOLVE_TIMEOUT = 2000 }; /* ms */

static bool is_for_datagrams(const struct rdma_addrinfo *hints)
{
	return hints->ai_qp_type == IBV_QPT_UD || hints->ai_port_space == RDMA_PS_UDP ||
	       hints->ai_port_space == RDMA_PS_IPOIB;
}

static int copy_address(const void *address, socklen_t length, struct sockaddr **copy,
			socklen_t *copied)
{
	if (!length)
		return 0;
	*copy = malloc(length);
	if (!*copy)
		return -1;
	memcpy(*copy, address, length);
	*copied = length;
	return 0;
}

static int set_target(struct rdma_addrinfo *made, const struct addrinfo *found)
{
	char **name = &made->ai_dst_canonname;

	made->ai_family = found->ai_family;
	if (made->ai_flags & RAI_PASSIVE)
		name = &made->ai_src_canonname;
	if (found->ai_canonname && !(*name = strdup(found->ai_canonname)))
		return -1;
	return made->ai_flags & RAI_PASSIVE
		       ? copy_address(found->ai_addr, found->ai_addrlen, &made->ai_src_addr,
				      &made->ai_src_len)
		       : copy_address(found->ai_addr, found->ai_addrlen, &made->ai_dst_addr,
				      &made->ai_dst_len);
}

/* Returns 0, an error of getaddrinfo(3), or -1 with errno. */
static int look_up(const char *node, const char *service, struct rdma_addrinfo *made)
{
	bool datagrams = made->ai_qp_type == IBV_QPT_UD;
	struct addrinfo hints = {
		.ai_family = made->ai_flags & RAI_FAMILY ? made->ai_family : AF_UNSPEC,
		.ai_socktype = datagrams ? SOCK_DGRAM : SOCK_STREAM,
		.ai_flags = (made->ai_flags & RAI_PASSIVE ? AI_PASSIVE : 0) |
			    (made->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0),
	};
	struct addrinfo *found;
	int error = getaddrinfo(node, service, &hints, &found);

	if (error)
		return error;
	error = set_target(made, found);
	freeaddrinfo(found);
	return error;
}

/* Make a result with the hints, and defaults for what they leave out. Null without memory. */
static struct rdma_addrinfo *new_addrinfo(const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo *made = calloc(1, sizeof *made);

	if (!made)
		return NULL;
	made->ai_flags = hints->ai_flags;
	made->ai_family = hints->ai_family;
	made->ai_qp_type = hints->ai_qp_type;
	made->ai_port_space = hints->ai_port_space;
	if (!made->ai_qp_type)
		made->ai_qp_type = is_for_datagrams(hints) ? IBV_QPT_UD : IBV_QPT_RC;
	if (!made->ai_port_space)
		made->ai_port_space = is_for_datagrams(hints) ? RDMA_PS_UDP : RDMA_PS_TCP;
	return made;
}

/* Copy addresses of the hints: the destination if `target`, the source unless there is one. Returns
 * 0, or -1 with errno. */
static int copy_hints(struct rdma_addrinfo *made, const struct rdma_addrinfo *hints, bool target)
{
	if (target && copy_address(hints->ai_dst_addr, hints->ai_dst_len, &made->ai_dst_addr,
				   &made->ai_dst_len))
		return -1;
	if (made->ai_src_len)
		return 0;
	return copy_address(hints->ai_src_addr, hints->ai_src_len, &made->ai_src_addr,
			    &made->ai_src_len);
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **res)
{
	static const struct rdma_addrinfo no_hints;
	bool named = node || service;
	struct rdma_addrinfo *made;
	int error = 0;

	if (!named && !hints)
		return cm_fail(EINVAL);
	if (!hints)
		hints = &no_hints;
	made = new_addrinfo(hints);
	if (!made)
		return cm_fail(ENOMEM);
	if (named)
		error = look_up(node, service, made);
	if (!error)
		error = copy_hints(made, hints, !named);
	if (error)
		rdma_freeaddrinfo(made);
	else
		*res = made;
	return error;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_connect);
		free(res->ai_route);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res);
		res = next;
	}
}

/* Mark that an id resolves addresses. Returns an errno if it does already. */
static int begin_resolving(struct cm_id *id, bool begin)
{
	int error;

	pthread_mutex_lock(&id->session->mutex);
	error = begin && id->resolving ? EBUSY : 0;
	if (!error)
		id->resolving = begin;
	pthread_mutex_unlock(&id->session->mutex);
	return error;
}

/* Resolve names as rdma_getaddrinfo does; the result is an event. The devices have no subnet
 * administrator that could resolve the name of an InfiniBand service. */
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo *found = NULL;
	int error;

	if (!id || (!node && !service && !hints))
		return cm_fail(EINVAL);
	if (hints && hints->ai_flags & CM_RAI_SA)
		return cm_fail(rw_refuse(EOPNOTSUPP, "rdma_resolve_addrinfo",
					 "RAI_SA: there is no subnet administrator"));
	error = begin_resolving(cm_id(id), true);
	if (error)
		return cm_fail(error);
	if (rdma_getaddrinfo(node, service, hints, &found)) {
		error = cm_write_event(id, CM_EVENT_ADDRINFO_ERROR, -ENOENT, 0);
	} else {
		rdma_freeaddrinfo(cm_id(id)->resolved);
		cm_id(id)->resolved = found;
		error = cm_write_event(id, CM_EVENT_ADDRINFO_RESOLVED, 0, 0);
	}
	if (!error)
		return cm_complete(id);
	begin_resolving(cm_id(id), false);
	return cm_fail(error);
}

/* Give what was resolved to the program, which frees it. */
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info)
{
	if (!id || !info)
		return cm_fail(EINVAL);
	pthread_mutex_lock(&cm_id(id)->session->mutex);
	*info = cm_id(id)->resolving ? cm_id(id)->resolved : NULL;
	if (*info) {
		cm_id(id)->resolved = NULL;
		cm_id(id)->resolving = false;
	}
	pthread_mutex_unlock(&cm_id(id)->session->mutex);
	return cm_fail(*info ? 0 : ENOENT);
}

/* An endpoint that listens: requests get queue pairs with these attributes. */
static int make_passive(struct rdma_cm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd,
			struct ibv_qp_init_attr *attributes)
{
	struct cm_id *own = cm_id(id);

	if (rdma_bind_addr(id, res->ai_src_addr))
		return -1;
	if (pd)
		id->pd = pd;
	if (!attributes)
		return 0;
	own->accepted_qp = malloc(sizeof *own->accepted_qp);
	if (!own->accepted_qp)
		return cm_fail(ENOMEM);
	*own->accepted_qp = *attributes;
	own->accepted_qp->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return 0;
}

static int make_active(struct rdma_cm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd,
		       struct ibv_qp_init_attr *attributes)
{
	if (rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, RESOLVE_TIMEOUT) ||
	    rdma_resolve_route(id, RESOLVE_TIMEOUT))
		return -1;
	if (!attributes)
		return 0;
	attributes->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return rdma_create_qp(id, pd, attributes);
}

int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *qp_init_attr)
{
	struct rdma_cm_id *made;
	bool passive = res->ai_flags & RAI_PASSIVE;
	int error;

	if (cm_create_id(NULL, &made, NULL, (enum rdma_port_space)res->ai_port_space,
			 (enum ibv_qp_type)res->ai_qp_type))
		return -1;
	if (passive ? make_passive(made, res, pd, qp_init_attr)
		    : make_active(made, res, pd, qp_init_attr)) {
		error = errno;
		rdma_destroy_ep(made);
		return cm_fail(error);
	}
	*id = made;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	if (id->srq)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}
