/* SPDX-License-Identifier: MIT
 * The objects of the library, and what its files offer to each other.
 *
 * Every object embeds the structure that <infiniband/verbs.h> shows to programs. Locks are taken in
 * this order: build_mutex of a queue pair, mutex of a CQ, objects of the context, mutex of the work
 * ring. control_mutex is taken alone or with a CQ's. */
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol.h"
#include "trace.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;

#define CONTAINER(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))
#define LENGTH(array) (sizeof(array) / sizeof *(array))

enum { RW_BUCKETS = 1024 };

/* Objects of one kind by number. Guarded by the lock of the context's objects. */
struct rw_node {
	uint32_t key;
	struct rw_node *next;
};

struct rw_table {
	struct rw_node *buckets[RW_BUCKETS];
};

struct rw_device {
	struct ibv_device device;
	/* Where providers read their operations: null, since the device is not theirs. */
	const void *provider[8];
	uint64_t guid;
	uint32_t index;
	atomic_int references; /* the lists and contexts that hold it */
};

/* Where work requests are written. `memory` begins with the counters. */
struct rw_work_ring {
	pthread_mutex_t mutex;
	uint8_t *memory;
	uint64_t head;
	int doorbell;
};

struct rw_copy_thread {
	pthread_mutex_t mutex; /* of starting it */
	pthread_t thread;
	bool started;
	int socket;
	uint8_t *buffer;
};

enum rw_state {
	RW_ALIVE,
	RW_GONE,   /* the service ended, or broke the protocol */
	RW_FORKED, /* this process is a child of the one that opened the device */
};

struct rw_context {
	struct rw_device *device;
	struct rw_context *next; /* in the list of all contexts */
	int socket;
	pthread_mutex_t control_mutex;
	atomic_int state;
	atomic_bool fatal_reported;
	struct rw_work_ring ring;
	pthread_rwlock_t objects;
	struct rw_table qps, cqs, srqs, dmabufs;
	struct ibv_device_attr_ex attributes;
	struct rw_copy_thread copy;
	struct verbs_context verbs;
};

struct rw_pd {
	struct ibv_pd pd;
	struct rw_pd *parent_of; /* of a parent domain: its protection domain */
	atomic_int users;
};

/* A region of a dma-buf is mapped here, for the copy thread. */
struct rw_mr {
	struct ibv_mr mr;
	struct rw_dmah *dmah; /* null: none */
	bool is_fixed;	      /* not one of ibv_reg_mr, so that it is not registered again */
	atomic_int *dm_users; /* of its device memory; null: none */
	struct rw_node node;
	unsigned int access;
	char *map; /* null: no dma-buf */
	uint64_t map_offset;
	size_t map_length;
};

/* A hint for the caches of a host, which has no effect here. */
struct rw_dmah {
	struct ibv_context *context; /* as in ibv_dmah */
	atomic_uint references;	     /* of regions */
};

struct rw_xrcd {
	struct ibv_xrcd xrcd;
	uint32_t handle;
	atomic_int users;
};

struct rw_channel {
	struct ibv_comp_channel channel;
	uint32_t handle;
};

struct rw_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex extended;
	};
	struct rw_node node;
	pthread_mutex_t mutex;
	uint8_t *ring;
	uint64_t entries, consumed;
	atomic_int users;
	struct rw_completion current; /* what the functions of an extended CQ read */
	atomic_uint empty_polls;
	bool single_threaded;
	bool end_reported; /* the program has got the event for the end of the service */
	uint32_t comp_events, async_events; /* that the program has got; guarded by cq.mutex */
};

struct rw_entry {
	uint64_t wr_id;
	bool signaled;
};

/* Work requests without a completion, in order. One thread at a time posts, under the mutex of the
 * work ring, and one retires, under that of the CQ. Both counts only grow, modulo 2**32. */
struct rw_outstanding {
	struct rw_entry *entries;
	uint32_t limit, mask;
	atomic_uint posted, retired;
};

/* Records between ibv_wr_start and ibv_wr_complete. */
struct rw_builder {
	pthread_mutex_t mutex;
	uint8_t *records;
	size_t length, room;
	struct rw_work_request *last;
	int error;
};

struct rw_qp {
	struct ibv_qp_ex qp;
	void *spare[32]; /* room for functions that later versions add to ibv_qp_ex */
	struct rw_node node;
	struct ibv_qp_cap cap;
	struct rw_xrcd *xrcd; /* of an XRC target; null: none */
	bool signal_all;
	atomic_bool failed; /* a send has failed: each later one has a completion of its own */
	bool shared; /* opened by ibv_open_qp: it posts nothing */
	struct rw_outstanding sends, receives;
	struct rw_builder builder;
	uint32_t async_events; /* that the program got; guarded by qp.qp_base.mutex */
	struct rw_wq *wq;      /* of a work queue */
	atomic_int *users;     /* of RSS: how many queue pairs the indirection table has */
};

struct rw_wq {
	struct ibv_wq wq;
	struct rw_qp *queue;
	atomic_int tables; /* entries of indirection tables */
};

struct rw_srq {
	struct ibv_srq srq;
	struct rw_node node;
	struct ibv_cq *cq;    /* of XRC */
	struct rw_xrcd *xrcd; /* of XRC */
	atomic_int users;
	uint32_t number, max_wr, max_sge;
	enum ibv_srq_type type;
	atomic_uint outstanding;
	uint32_t async_events; /* that the program got; guarded by srq.mutex */
};

static inline struct rw_context *rw_context(struct ibv_context *context)
{
	return CONTAINER(context, struct rw_context, verbs.context);
}

static inline struct rw_cq *rw_cq(struct ibv_cq *cq)
{
	return (struct rw_cq *)cq;
}

static inline struct rw_qp *rw_qp(struct ibv_qp *qp)
{
	return (struct rw_qp *)qp;
}

static inline struct rw_srq *rw_srq(struct ibv_srq *srq)
{
	return (struct rw_srq *)srq;
}

static inline struct rw_pd *rw_pd(struct ibv_pd *pd)
{
	return (struct rw_pd *)pd;
}

/* Add `change` to the number of objects that use one; null: none is used. Objects in use are not
 * destroyed, also after the end of the service. */
static inline void rw_count(atomic_int *users, int change)
{
	if (users)
		atomic_fetch_add(users, change);
}

/* connection.c: sockets to the service. RW_BROKEN is no errno: the service is gone, or its reply is
 * invalid. */
enum { RW_BROKEN = 4096 };
int rw_connect(void);
int rw_exchange(int socket, const void *request, size_t request_size, void *reply,
		size_t reply_size, int *fds, unsigned fd_count, const int *sent);
int rw_say_hello(int socket, uint64_t *device_count);

/* control.c: calls of a context */
int rw_control(struct rw_context *context, const char *name, const void *request,
	       size_t request_size, void *reply, size_t reply_size, int *fds, unsigned fd_count,
	       const int *sent);
int rw_destroyed(struct rw_context *context, int error);
int rw_check_unused(atomic_int *users, const char *call);
bool rw_is_alive(struct rw_context *context);
void rw_check_alive(struct rw_context *context);
void rw_end(struct rw_context *context, const char *cause);

/* Ask the service: CALL_FDS also sends a descriptor (or null) and receives some. They return an
 * errno, which they also set. */
#define CALL_FDS(context, NUMBER, name, reply, fds, sent, ...)                                     \
	rw_control(context, #name,                                                                 \
		   &(struct rw_##name##_request){.call = NUMBER, ##__VA_ARGS__},                   \
		   sizeof(struct rw_##name##_request), reply, sizeof(struct rw_##name##_reply),    \
		   fds, NUMBER##_REPLY_FDS, sent)
#define CALL(context, NUMBER, name, reply, ...)                                                    \
	CALL_FDS(context, NUMBER, name, reply, NULL, NULL, ##__VA_ARGS__)

/* table.c */
void rw_insert(struct rw_table *table, struct rw_node *node, uint32_t key);
void rw_remove(struct rw_table *table, struct rw_node *node);
struct rw_node *rw_find(struct rw_table *table, uint32_t key);

/* context.c */
int rw_reconnect(struct rw_context *context);

/* device.c */
void rw_hold_device(struct rw_device *device);
void rw_release_device(struct rw_device *device);

/* shared_memory.c */
void *rw_map(int fd, size_t size);

/* work_ring.c */
struct rw_work_request *rw_claim(struct rw_context *context, uint32_t size);
void rw_commit(struct rw_context *context, uint32_t size);
void rw_ring_doorbell(struct rw_context *context);

/* outstanding.c */
int rw_outstanding_init(struct rw_outstanding *queue, uint32_t limit);
void rw_outstanding_free(struct rw_outstanding *queue);
void rw_outstanding_clear(struct rw_outstanding *queue);
uint32_t rw_outstanding_room(struct rw_outstanding *queue);
void rw_outstanding_add(struct rw_outstanding *queue, uint64_t wr_id, bool signaled);
bool rw_outstanding_take(struct rw_outstanding *queue, uint64_t *wr_id);
void rw_retire(struct rw_context *context, struct rw_cq *cq, const struct rw_completion *done);
bool rw_flush_one(struct rw_context *context, struct rw_cq *cq, struct rw_completion *done);

/* completion_queue.c */
int rw_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int rw_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int rw_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attributes);
bool rw_next_completion(struct rw_cq *cq, struct rw_completion *done);
void rw_idle(struct rw_cq *cq);
void rw_yield(void);
void rw_purge(struct rw_qp *qp);
struct rw_cq *rw_create_cq(struct ibv_context *context, uint32_t cqe, void *cq_context,
			   struct ibv_comp_channel *channel, uint32_t vector);

/* extended_poll.c */
struct ibv_cq_ex *rw_create_cq_ex(struct ibv_context *context,
				  struct ibv_cq_init_attr_ex *attributes);

/* queue_pair.c */
struct ibv_qp *rw_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attributes);
struct ibv_qp *rw_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attributes);
int rw_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attributes);

/* work_queue.c */
struct ibv_wq *rw_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attributes);
int rw_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attributes);
int rw_destroy_wq(struct ibv_wq *wq);
struct ibv_rwq_ind_table *rw_create_rwq_ind_table(struct ibv_context *context,
						  struct ibv_rwq_ind_table_init_attr *attributes);
int rw_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table);
int rw_create_rss_qp(struct rw_qp *qp, const struct ibv_qp_init_attr_ex *attributes,
		     struct rw_create_qp_reply *reply);

/* flow.c */
struct ibv_flow *rw_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attributes);
int rw_destroy_flow(struct ibv_flow *flow);
struct ibv_counters *rw_create_counters(struct ibv_context *context,
					struct ibv_counters_init_attr *attributes);
int rw_destroy_counters(struct ibv_counters *counters);
int rw_attach_counters(struct ibv_counters *counters, struct ibv_counter_attach_attr *attributes,
		       struct ibv_flow *flow);
int rw_read_counters(struct ibv_counters *counters, uint64_t *values, uint32_t count,
		     uint32_t flags);

/* post.c */
int rw_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int rw_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int rw_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int rw_check_send(struct rw_qp *qp, const struct rw_work_request *record);
uint32_t rw_record_size(uint32_t payload);

/* extended_post.c */
void rw_set_builders(struct rw_qp *qp);
uint64_t rw_supported_send_ops(enum ibv_qp_type type);

/* shared_receive.c */
struct ibv_srq *rw_create_srq_ex(struct ibv_context *context,
				 struct ibv_srq_init_attr_ex *attributes);
int rw_get_srq_num(struct ibv_srq *srq, uint32_t *number);

/* protection_domain.c */
struct ibv_td *rw_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attributes);
int rw_dealloc_td(struct ibv_td *td);
struct ibv_pd *rw_alloc_parent_domain(struct ibv_context *context,
				      struct ibv_parent_domain_init_attr *attributes);
struct ibv_xrcd *rw_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attributes);
int rw_close_xrcd(struct ibv_xrcd *xrcd);

/* dmabuf.c */
int rw_dmabuf_map(struct rw_mr *mr, int fd, uint64_t offset, size_t length);
void rw_dmabuf_add(struct rw_context *context, struct rw_mr *mr);
void rw_dmabuf_unmap(struct rw_context *context, struct rw_mr *mr);
int rw_dmabuf_copy(struct rw_context *context, const struct rw_copy_request *request);

/* pages.c */
int rw_make_present(const void *address, size_t length, bool writing);

/* memory.c and memory_window.c */
int rw_check_access(unsigned int *access, unsigned int allowed);
struct ibv_mr *rw_new_mr(struct ibv_pd *pd, void *address, size_t length);
struct ibv_mr *rw_finish_mr(struct ibv_mr *mr, int error, uint64_t handle, uint64_t lkey,
			    uint64_t rkey);
struct ibv_mr *rw_fixed_mr(struct ibv_mr *mr);
int rw_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		 struct ibv_sge *sges, uint32_t count);
struct ibv_mw *rw_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int rw_dealloc_mw(struct ibv_mw *mw);
int rw_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* device_memory.c */
struct ibv_dm *rw_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attributes);
int rw_free_dm(struct ibv_dm *dm);
struct ibv_mr *rw_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			    unsigned int access);
struct ibv_mr *rw_alloc_null_mr(struct ibv_pd *pd);

/* buffer.c */
int rw_check_buf(const struct ibv_buf *buf, const struct ibv_pd *pd, const void *address,
		 size_t length);

/* dma_handle.c */
struct rw_dmah *rw_hold_dmah(struct ibv_dmah *dmah);
void rw_release_dmah(struct rw_dmah *dmah);

/* query.c */
int rw_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes,
		  size_t size);
int rw_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attributes, size_t size);
int rw_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);

/* gpu.c: memory of CUDA devices */
bool rw_gpu_is_address(const void *address);
int rw_gpu_copy(uint64_t address, void *buffer, size_t length, bool to_gpu);

/* copy_thread.c */
int rw_copy_host(uint64_t address, void *buffer, size_t length, bool write_memory);
int rw_copy_thread_start(struct rw_context *context);
void rw_copy_thread_stop(struct rw_context *context);

/* What <infiniband/verbs.h>, or an older one, does not declare. */
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attributes);
struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attributes);
int ibv_dealloc_dmah(struct ibv_dmah *dmah);
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);
struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle);
void ibv_unimport_dm(struct ibv_dm *dm);
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *address, size_t length,
			      int access);
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);
int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps,
			      size_t size);
struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context,
					   struct ibv_comp_cntr_init_attr *attributes);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter);
int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter,
			    struct ibv_qp_attach_comp_cntr_attr *attributes);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed);
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
int rw_ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
const char *rw_ibv_wr_opcode_str(enum ibv_wr_opcode opcode);

enum {
	RW_WR_FLUSH = 14,
	RW_WR_ATOMIC_WRITE = 15,
	RW_QP_EX_WITH_FLUSH = 1 << 11,
	RW_QP_EX_WITH_ATOMIC_WRITE = 1 << 12,
	RW_MAX_QP_WR = 1 << 20, /* of a reply: a greater number is invalid */
	RW_MAX_CQ_ENTRIES = 1 << 24,
};
