/* SPDX-License-Identifier: MIT
 * Contexts: opening, importing and closing a device, and the child of a fork. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "internal.h"

enum { COMPLETION_VECTORS = 8 };

/* Descriptors of the reply of OPEN_DEVICE, in the order of the protocol. */
enum { WORK_RING, DOORBELL, ASYNC_EVENTS, COPY_SOCKET, COPY_BUFFER, OPEN_FDS };
_Static_assert(OPEN_FDS == RW_OPEN_DEVICE_REPLY_FDS, "the descriptors of OPEN_DEVICE changed");
_Static_assert(sizeof(struct rw_open_device_reply) == sizeof(struct rw_import_device_reply),
	       "the replies are alike");

static pthread_mutex_t contexts_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct rw_context *contexts; /* all open ones, for the child of a fork */

static void before_fork(void)
{
	pthread_mutex_lock(&contexts_mutex);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&contexts_mutex);
}

/* Call a function for each object of a table. */
static void for_each(struct rw_table *table, void (*call)(struct rw_node *node))
{
	for (unsigned i = 0; i < RW_BUCKETS; i++)
		for (struct rw_node *node = table->buckets[i]; node; node = node->next)
			call(node);
}

static void renew_cq(struct rw_node *node)
{
	struct rw_cq *cq = CONTAINER(node, struct rw_cq, node);

	pthread_mutex_init(&cq->mutex, NULL);
	pthread_mutex_init(&cq->cq.mutex, NULL);
}

static void renew_qp(struct rw_node *node)
{
	struct rw_qp *qp = CONTAINER(node, struct rw_qp, node);

	pthread_mutex_init(&qp->builder.mutex, NULL);
	pthread_mutex_init(&qp->qp.qp_base.mutex, NULL);
}

static void renew_srq(struct rw_node *node)
{
	pthread_mutex_init(&CONTAINER(node, struct rw_srq, node)->srq.mutex, NULL);
}

/* Another thread of the parent may have any of the locks: the child would wait for ever. */
static void renew_locks(struct rw_context *context)
{
	pthread_mutex_init(&context->control_mutex, NULL);
	pthread_mutex_init(&context->ring.mutex, NULL);
	pthread_mutex_init(&context->copy.mutex, NULL);
	pthread_mutex_init(&context->verbs.context.mutex, NULL);
	pthread_rwlock_init(&context->objects, NULL);
	for_each(&context->cqs, renew_cq);
	for_each(&context->qps, renew_qp);
	for_each(&context->srqs, renew_srq);
}

/* Close the connections in the child, so that the service sees the end of the parent. Most calls
 * fail in the child; for the others it makes a connection of its own: see rw_reconnect. */
static void after_fork_in_child(void)
{
	for (struct rw_context *context = contexts; context; context = context->next) {
		atomic_store(&context->state, RW_FORKED);
		close(context->socket);
		close(context->copy.socket);
		context->socket = context->copy.socket = -1;
		renew_locks(context);
	}
	pthread_mutex_unlock(&contexts_mutex);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void add_context(struct rw_context *context)
{
	pthread_mutex_lock(&contexts_mutex);
	context->next = contexts;
	contexts = context;
	pthread_mutex_unlock(&contexts_mutex);
}

static void remove_context(struct rw_context *context)
{
	struct rw_context **link = &contexts;

	pthread_mutex_lock(&contexts_mutex);
	while (*link && *link != context)
		link = &(*link)->next;
	if (*link)
		*link = context->next;
	pthread_mutex_unlock(&contexts_mutex);
}

/* Let the service read and write this process' memory where Yama restricts that to parents. */
static void allow_access(int socket)
{
	struct ucred peer = {0};
	socklen_t size = sizeof peer;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.pid <= 0)
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	else
		prctl(PR_SET_PTRACER, (unsigned long)peer.pid, 0, 0, 0);
}

/* What raw packet queue pairs can do. */
static void show_raw_packets(struct ibv_device_attr_ex *all)
{
	all->rss_caps = (struct ibv_rss_caps){
		.supported_qpts = 1 << IBV_QPT_RAW_PACKET,
		.max_rwq_indirection_tables = (uint32_t)all->orig_attr.max_qp,
		.max_rwq_indirection_table_size = RW_MAX_RSS_TABLE,
		.rx_hash_fields_mask = RW_RSS_FIELDS,
		.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
	};
	all->max_wq_type_rq = (uint32_t)all->orig_attr.max_qp;
	all->packet_pacing_caps = (struct ibv_packet_pacing_caps){
		.qp_rate_limit_min = 1,
		.qp_rate_limit_max = UINT32_MAX,
		.supported_qpts = 1 << IBV_QPT_RAW_PACKET,
	};
}

static void set_attributes(struct rw_context *context, const struct rw_open_device_reply *reply)
{
	struct ibv_device_attr_ex *all = &context->attributes;
	struct ibv_device_attr *attr = &all->orig_attr;

#define SHOW(name) attr->name = (__typeof__(attr->name))reply->name
	SHOW(max_mr_size);
	SHOW(page_size_cap);
	SHOW(vendor_id);
	SHOW(vendor_part_id);
	SHOW(hw_ver);
	SHOW(max_qp);
	SHOW(max_qp_wr);
	SHOW(device_cap_flags);
	SHOW(max_sge);
	SHOW(max_sge_rd);
	SHOW(max_cq);
	SHOW(max_cqe);
	SHOW(max_mr);
	SHOW(max_pd);
	SHOW(max_qp_rd_atom);
	SHOW(max_res_rd_atom);
	SHOW(max_qp_init_rd_atom);
	SHOW(atomic_cap);
	SHOW(max_mw);
	SHOW(max_mcast_grp);
	SHOW(max_mcast_qp_attach);
	SHOW(max_total_mcast_qp_attach);
	SHOW(max_ah);
	SHOW(max_srq);
	SHOW(max_srq_wr);
	SHOW(max_srq_sge);
	SHOW(max_pkeys);
	SHOW(local_ca_ack_delay);
	SHOW(phys_port_cnt);
#undef SHOW
	attr->node_guid = htobe64(reply->node_guid);
	attr->sys_image_guid = htobe64(reply->sys_image_guid);
	snprintf(attr->fw_ver, sizeof attr->fw_ver, "1.0.0");
	all->completion_timestamp_mask = UINT64_MAX;
	all->hca_core_clock = 1000 * 1000; /* kHz */
	all->device_cap_flags_ex = reply->device_cap_flags;
	all->phys_port_cnt_ex = attr->phys_port_cnt;
	all->cq_mod_caps.max_cq_count = (uint16_t)reply->max_cq_moderation_count;
	all->cq_mod_caps.max_cq_period = (uint16_t)reply->max_cq_moderation_period;
	all->odp_caps.general_caps = reply->odp_general;
	all->odp_caps.per_transport_caps.rc_odp_caps = (uint32_t)reply->odp_rc;
	all->odp_caps.per_transport_caps.uc_odp_caps = (uint32_t)reply->odp_uc;
	all->odp_caps.per_transport_caps.ud_odp_caps = (uint32_t)reply->odp_ud;
	all->max_dm_size = reply->max_dm_size;
	all->xrc_odp_caps = (uint32_t)reply->odp_xrc;
	show_raw_packets(all);
}

static void set_functions(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	ops->poll_cq = rw_poll_cq;
	ops->req_notify_cq = rw_req_notify_cq;
	ops->post_send = rw_post_send;
	ops->post_recv = rw_post_recv;
	ops->post_srq_recv = rw_post_srq_recv;
	ops->alloc_mw = rw_alloc_mw;
	ops->dealloc_mw = rw_dealloc_mw;
	ops->bind_mw = rw_bind_mw;
	verbs->query_port = rw_query_port;
	verbs->query_device_ex = rw_query_device_ex;
	verbs->query_rt_values = rw_query_rt_values;
	verbs->advise_mr = rw_advise_mr;
	verbs->alloc_dm = rw_alloc_dm;
	verbs->free_dm = rw_free_dm;
	verbs->reg_dm_mr = rw_reg_dm_mr;
	verbs->alloc_null_mr = rw_alloc_null_mr;
	verbs->create_cq_ex = rw_create_cq_ex;
	verbs->modify_cq = rw_modify_cq;
	verbs->create_qp_ex = rw_create_qp_ex;
	verbs->open_qp = rw_open_qp;
	verbs->create_srq_ex = rw_create_srq_ex;
	verbs->get_srq_num = rw_get_srq_num;
	verbs->open_xrcd = rw_open_xrcd;
	verbs->close_xrcd = rw_close_xrcd;
	verbs->alloc_td = rw_alloc_td;
	verbs->dealloc_td = rw_dealloc_td;
	verbs->alloc_parent_domain = rw_alloc_parent_domain;
	verbs->modify_qp_rate_limit = rw_modify_qp_rate_limit;
	verbs->create_wq = rw_create_wq;
	verbs->modify_wq = rw_modify_wq;
	verbs->destroy_wq = rw_destroy_wq;
	verbs->create_rwq_ind_table = rw_create_rwq_ind_table;
	verbs->destroy_rwq_ind_table = rw_destroy_rwq_ind_table;
	verbs->ibv_create_flow = rw_create_flow;
	verbs->ibv_destroy_flow = rw_destroy_flow;
	verbs->create_counters = rw_create_counters;
	verbs->destroy_counters = rw_destroy_counters;
	verbs->attach_counters_point_flow = rw_attach_counters;
	verbs->read_counters = rw_read_counters;
}

/* `sz` tells inline functions which members verbs_context has: it grows at its beginning. */
static void init_verbs(struct rw_context *context)
{
	struct ibv_context *ibv = &context->verbs.context;

	context->verbs.sz = sizeof context->verbs;
	set_functions(&context->verbs);
	ibv->cmd_fd = ibv->async_fd = -1;
	ibv->num_comp_vectors = COMPLETION_VECTORS;
	ibv->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&ibv->mutex, NULL);
}

static struct rw_context *new_context(void)
{
	struct rw_context *context = calloc(1, sizeof *context);

	if (!context)
		return NULL;
	context->socket = rw_connect();
	if (context->socket < 0) {
		free(context);
		return NULL;
	}
	pthread_mutex_init(&context->control_mutex, NULL);
	pthread_mutex_init(&context->ring.mutex, NULL);
	pthread_mutex_init(&context->copy.mutex, NULL);
	pthread_rwlock_init(&context->objects, NULL);
	context->ring.doorbell = context->copy.socket = -1;
	init_verbs(context);
	return context;
}

/* Give a new context its device, with which the program gets it. */
static struct ibv_context *finish_context(struct rw_context *context, struct ibv_device *device)
{
	context->device = (struct rw_device *)device;
	context->verbs.context.device = device;
	rw_hold_device(context->device);
	add_context(context);
	return &context->verbs.context;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void free_context(struct rw_context *context)
{
	close_fd(context->socket);
	rw_copy_thread_stop(context);
	close_fd(context->copy.socket);
	close_fd(context->ring.doorbell);
	close_fd(context->verbs.context.async_fd);
	close_fd(context->verbs.context.cmd_fd);
	if (context->ring.memory)
		munmap(context->ring.memory, RW_RING_HEADER + RW_WORK_RING_BYTES);
	if (context->copy.buffer)
		munmap(context->copy.buffer, RW_COPY_BUFFER_BYTES);
	pthread_mutex_destroy(&context->verbs.context.mutex);
	pthread_mutex_destroy(&context->control_mutex);
	pthread_mutex_destroy(&context->ring.mutex);
	pthread_mutex_destroy(&context->copy.mutex);
	pthread_rwlock_destroy(&context->objects);
	if (context->device)
		rw_release_device(context->device);
	free(context);
}

static int take_fds(struct rw_context *context, const int *fds)
{
	context->ring.doorbell = fds[DOORBELL];
	context->verbs.context.async_fd = fds[ASYNC_EVENTS];
	context->copy.socket = fds[COPY_SOCKET];
	context->ring.memory = rw_map(fds[WORK_RING], RW_RING_HEADER + RW_WORK_RING_BYTES);
	context->copy.buffer = rw_map(fds[COPY_BUFFER], RW_COPY_BUFFER_BYTES);
	return context->ring.memory && context->copy.buffer ? 0 : EIO;
}

/* Open a device on a connection, or import that of a cmd_fd, which is null otherwise. Returns an
 * errno. */
static int ask_for_device(int socket, uint32_t index, const int *cmd_fd,
			  struct rw_open_device_reply *reply, int *fds)
{
	struct rw_open_device_request open = {.call = RW_OPEN_DEVICE, .index = index};
	struct rw_import_device_request import = {.call = RW_IMPORT_DEVICE};
	uint64_t device_count;
	int error;

	allow_access(socket);
	error = rw_say_hello(socket, &device_count);
	if (!error)
		error = rw_exchange(socket, cmd_fd ? (void *)&import : &open,
				    cmd_fd ? sizeof import : sizeof open, reply, sizeof *reply, fds,
				    OPEN_FDS, cmd_fd);
	return error == RW_BROKEN ? EIO : error;
}

/* Returns an errno. `index` is that of the device, which an import sets. */
static int open_connection(struct rw_context *context, uint64_t *index, const int *cmd_fd)
{
	struct rw_open_device_reply reply;
	int fds[OPEN_FDS], error;

	error = ask_for_device(context->socket, (uint32_t)*index, cmd_fd, &reply, fds);
	if (error)
		return error;
	if (!cmd_fd)
		context->verbs.context.cmd_fd = fcntl(fds[WORK_RING], F_DUPFD_CLOEXEC, 0);
	error = take_fds(context, fds);
	if (!error && !cmd_fd && context->verbs.context.cmd_fd < 0)
		error = EMFILE;
	if (error)
		return error;
	*index = reply.handle - 1;
	set_attributes(context, &reply);
	return reply.copy_thread ? rw_copy_thread_start(context) : 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct rw_context *context = new_context();
	uint64_t index = ((struct rw_device *)device)->index;
	int error;

	if (!context)
		return NULL;
	error = open_connection(context, &index, NULL);
	if (!error)
		return finish_context(context, device);
	free_context(context);
	rw_refuse(error, "ibv_open_device", "%s: %s", device->name, strerror(error));
	return NULL;
}

/* Import a device on a new connection. The context has the cmd_fd from then on. */
static struct ibv_context *import_device(struct ibv_device **list, uint64_t count, int cmd_fd)
{
	struct rw_context *context = new_context();
	uint64_t index = 0;
	int error;

	if (!context)
		return NULL;
	error = open_connection(context, &index, &cmd_fd);
	if (!error && index >= count)
		error = EIO;
	if (!error) {
		context->verbs.context.cmd_fd = cmd_fd;
		return finish_context(context, list[index]);
	}
	free_context(context);
	rw_refuse(error, "ibv_import_device", "descriptor %d: %s", cmd_fd, strerror(error));
	return NULL;
}

struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_context *context = NULL;
	struct ibv_device **list;
	int count;

	if (fcntl(cmd_fd, F_GETFD) < 0) {
		rw_refuse(EBADF, "ibv_import_device", "descriptor %d", cmd_fd);
		return NULL;
	}
	list = ibv_get_device_list(&count);
	if (list)
		context = import_device(list, (uint64_t)count, cmd_fd);
	if (list)
		ibv_free_device_list(list);
	return context;
}

/* Connect the child of a fork, which imports the device of its parent. It posts nothing, and needs
 * no descriptors of its own. Returns an errno. */
int rw_reconnect(struct rw_context *context)
{
	struct rw_open_device_reply reply;
	int fds[OPEN_FDS], error;
	int socket = rw_connect();

	if (socket < 0)
		return errno;
	error = ask_for_device(socket, 0, &context->verbs.context.cmd_fd, &reply, fds);
	if (error) {
		close(socket);
		return error;
	}
	for (unsigned i = 0; i < OPEN_FDS; i++)
		close(fds[i]);
	context->socket = socket;
	return 0;
}

/* Objects that the program did not destroy end with the connection. */
int ibv_close_device(struct ibv_context *ibv_context)
{
	struct rw_context *context = rw_context(ibv_context);

	remove_context(context);
	free_context(context);
	return 0;
}

/* No preparation is needed: the service accesses memory by its address, not by its pages. */
int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}
