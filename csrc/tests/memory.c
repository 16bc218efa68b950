/* SPDX-License-Identifier: MIT
 * Scenarios of memory: buffers of ibv_alloc_buf, DMA handles, paging on demand, device memory, and
 * objects of another process. */
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "scenarios.h"

/* What an older <infiniband/verbs.h> does not declare. */
struct ibv_buf;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attributes);
struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attributes);
int ibv_dealloc_dmah(struct ibv_dmah *dmah);
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *address, size_t length,
			      int access);
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);
struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle);
void ibv_unimport_dm(struct ibv_dm *dm);

enum { WITH_IOVA = 1, WITH_ADDRESS = 2, WITH_FD = 4, WITH_DMAH = 16, WITH_BUF = 32 };
enum { WITH_CPU = 1, WITH_HINT = 2, WITH_MEMORY_TYPE = 4, VOLATILE_MEMORY = 0 };
enum { ALLOW_CC_UNPROTECTED_ALLOC = 4, PAGE = 4096 };

struct attributes {
	size_t length;
	int access;
	uint64_t mask, iova;
	void *address;
	int fd;
	uint64_t fd_offset;
	struct ibv_dmah *dmah;
	struct ibv_buf *buf;
};

struct hint {
	uint32_t mask, cpu;
	uint8_t hint, memory_type;
};

static struct ibv_mr *register_ex(struct ibv_pd *pd, struct attributes wanted)
{
	return ibv_reg_mr_ex(pd, (struct ibv_mr_init_attr *)&wanted);
}

static struct ibv_dmah *alloc_dmah(struct ibv_context *context, struct hint wanted)
{
	return ibv_alloc_dmah(context, (struct ibv_dmah_init_attr *)&wanted);
}

/* Write eight bytes of `from` to an address of a region of `to`. Returns the status. */
static enum ibv_wc_status write_to(struct end *from, struct end *to, void *address, uint32_t rkey)
{
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = make_send(from, to, IBV_WR_RDMA_WRITE, &sge, 8);

	wr.wr.rdma.remote_addr = (uintptr_t)address;
	wr.wr.rdma.rkey = rkey;
	CHECK(!ibv_post_send(from->qp, &wr, &bad));
	return poll_one(from->cq).status;
}

/* Write eight bytes at an address of a region to the buffer of `to`. Returns the status. */
static enum ibv_wc_status write_from(struct end *from, struct end *to, uint64_t address,
				     struct ibv_mr *mr)
{
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = make_send(from, to, IBV_WR_RDMA_WRITE, &sge, 8);

	sge = (struct ibv_sge){address, 8, mr->lkey};
	CHECK(!ibv_post_send(from->qp, &wr, &bad));
	return poll_one(from->cq).status;
}

/* A buffer is registered in parts, with the domain that allocated it alone. */
SCENARIO(buffers)
{
	struct ibv_parent_domain_init_attr parent_attr = {.comp_mask = ALLOW_CC_UNPROTECTED_ALLOC};
	struct end a = {0}, b = {0};
	struct ibv_mr *first, *second;
	struct ibv_buf *buf;
	struct ibv_pd *parent;
	char *data;

	open_pair(&a, &b);
	parent_attr.pd = b.pd;
	parent = ibv_alloc_parent_domain(b.context, &parent_attr);
	CHECK(parent);
	data = ibv_alloc_buf(parent, 2 * PAGE, &buf);
	CHECK(data && (uintptr_t)data % PAGE == 0);
	CHECK(ibv_export_buf_dmabuf_fd(buf) == -1 && errno == ENODATA);
	first = ibv_reg_buf_mr(parent, buf, data, PAGE, ALL_ACCESS);
	second = register_ex(parent, (struct attributes){.length = PAGE,
							 .access = ALL_ACCESS,
							 .mask = WITH_BUF | WITH_ADDRESS,
							 .address = data + PAGE,
							 .buf = buf});
	CHECK(first && second && first->lkey != second->lkey && second->addr == data + PAGE);
	memcpy(a.buffer, "a buffer", 8);
	CHECK(write_to(&a, &b, data + PAGE + 8, second->rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(data + PAGE + 8, "a buffer", 8));
	CHECK(!ibv_reg_buf_mr(b.pd, buf, data, PAGE, 0) && errno == EINVAL);
	CHECK(!ibv_reg_buf_mr(parent, buf, data, 2 * PAGE + 1, 0) && errno == EINVAL);
	CHECK(!ibv_reg_buf_mr(parent, buf, data + PAGE, PAGE + 1, 0) && errno == EINVAL);
	CHECK(!ibv_reg_buf_mr(parent, buf, data - 8, 8, 0) && errno == EINVAL);
	CHECK(!register_ex(parent, (struct attributes){.length = 8, .mask = WITH_BUF, .buf = buf}));
	CHECK(!register_ex(parent, (struct attributes){.length = 8,
						       .mask = WITH_BUF | WITH_FD | WITH_IOVA,
						       .buf = buf}));
	CHECK(!ibv_dereg_mr(first) && !ibv_dereg_mr(second));
	ibv_free_buf(buf);
	CHECK(!ibv_dealloc_pd(parent));
	close_ends(&a, &b);
}

SCENARIO(dma_handles)
{
	struct hint all = {WITH_CPU | WITH_HINT | WITH_MEMORY_TYPE, (uint32_t)sched_getcpu(), 3,
			   VOLATILE_MEMORY};
	struct attributes range = {.length = PAGE, .mask = WITH_ADDRESS | WITH_DMAH};
	struct hint wrong[] = {{WITH_CPU | WITH_MEMORY_TYPE, all.cpu, 0, 0},
			       {WITH_CPU | WITH_HINT, all.cpu, 0, 0},
			       {WITH_HINT, 0, 4, 0},
			       {all.mask, all.cpu, 3, 2},
			       {all.mask, 0xffff, 3, 0},
			       {8 | WITH_HINT, 0, 0, 0}};
	struct end end = {0};
	struct ibv_dmah *dmah;
	struct ibv_mr *mr;

	open_end(&end, 0, NULL);
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
		CHECK(!alloc_dmah(end.context, wrong[i]));
	dmah = alloc_dmah(end.context, all);
	CHECK(dmah && *(struct ibv_context **)dmah == end.context);
	range.address = end.buffer;
	range.dmah = dmah;
	mr = register_ex(end.pd, range);
	CHECK(mr && ibv_dealloc_dmah(dmah) == EBUSY && !ibv_dereg_mr(mr));
	range.access = IBV_ACCESS_ON_DEMAND;
	CHECK(!register_ex(end.pd, range) && errno == EOPNOTSUPP);
	CHECK(!ibv_dealloc_dmah(dmah));
	close_end(&end);
}

static int advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, void *address, uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)address, PAGE, lkey};

	return ibv_advise_mr(pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
}

/* A region on demand may have holes, pages come and go, and a region may have all of the memory. */
SCENARIO(on_demand)
{
	const int access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct end a = {0}, b = {0};
	struct ibv_device_attr_ex caps;
	struct ibv_mr *some, *all, *read_only;

	open_pair(&a, &b);
	CHECK(!ibv_query_device_ex(b.context, NULL, &caps));
	CHECK(caps.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(caps.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_WRITE);
	CHECK(pages != MAP_FAILED && !munmap(pages + PAGE, PAGE));
	CHECK(!ibv_reg_mr(b.pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_mr(b.pd, pages, 2 * PAGE, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	some = ibv_reg_mr(b.pd, pages, 2 * PAGE, access);
	all = ibv_reg_mr(b.pd, NULL, SIZE_MAX, access);
	read_only = ibv_reg_mr(b.pd, pages, PAGE, IBV_ACCESS_ON_DEMAND);
	CHECK(some && all && read_only);
	CHECK(!advise(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, pages, some->lkey));
	CHECK(!advise(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, pages, all->lkey));
	CHECK(advise(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, pages + PAGE, some->lkey) == EFAULT);
	CHECK(!advise(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, pages + PAGE, some->lkey));
	CHECK(advise(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, pages, read_only->lkey) == EPERM);
	CHECK(advise(a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, a.buffer, a.mr->lkey) == ENOENT);
	memcpy(a.buffer, "a demand", 8);
	CHECK(write_to(&a, &b, pages, some->rkey) == IBV_WC_SUCCESS);
	CHECK(!madvise(pages, PAGE, MADV_DONTNEED) && !*pages);
	CHECK(write_to(&a, &b, pages, all->rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(pages, "a demand", 8));
	CHECK(mmap(pages + PAGE, PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == pages + PAGE);
	CHECK(write_to(&a, &b, pages + PAGE, some->rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(pages + PAGE, "a demand", 8) && !munmap(pages, 2 * PAGE));
	CHECK(write_to(&a, &b, pages, some->rkey) != IBV_WC_SUCCESS);
	CHECK(!ibv_dereg_mr(some) && !ibv_dereg_mr(all) && !ibv_dereg_mr(read_only));
	close_ends(&a, &b);
}

/* Pages on demand are accessed with the rights that the program has to them then. */
SCENARIO(on_demand_rights)
{
	const int access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct end a = {0}, b = {0};
	struct ibv_mr *mr;

	open_pair(&a, &b);
	CHECK(page != MAP_FAILED && (mr = ibv_reg_mr(b.pd, page, PAGE, access)));
	memcpy(a.buffer, "a demand", 8);
	CHECK(write_to(&a, &b, page, mr->rkey) == IBV_WC_SUCCESS && !memcmp(page, "a demand", 8));
	memcpy(a.buffer, "no right", 8);
	CHECK(!mprotect(page, PAGE, PROT_READ));
	CHECK(write_to(&a, &b, page, mr->rkey) == IBV_WC_REM_OP_ERR);
	CHECK(!memcmp(page, "a demand", 8) && !ibv_dereg_mr(mr) && !munmap(page, PAGE));
	close_ends(&a, &b);
}

static struct ibv_dm *alloc_dm(struct ibv_context *context, size_t length)
{
	struct ibv_alloc_dm_attr wanted = {.length = length};

	return ibv_alloc_dm(context, &wanted);
}

static void check_copies(struct ibv_dm *dm)
{
	char data[8] = "a memory", found[8];

	CHECK(!ibv_memcpy_to_dm(dm, 8, data, 8) && !ibv_memcpy_from_dm(found, dm, 8, 8));
	CHECK(!memcmp(found, data, 8));
	CHECK(ibv_memcpy_to_dm(dm, 6, data, 4) == EINVAL);
	CHECK(ibv_memcpy_to_dm(dm, 8, data, 3) == EINVAL);
	CHECK(ibv_memcpy_to_dm(dm, 96, data, 8) == EFAULT);
	CHECK(ibv_memcpy_from_dm(found, dm, UINT64_MAX - 3, 8) == EFAULT);
}

/* Refused allocations and registrations; an empty region is not. */
static void check_device_memory(struct end *end, struct ibv_dm *dm, size_t max)
{
	const unsigned int local = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
	struct ibv_alloc_dm_attr aligned = {.length = 8, .log_align_req = 13};
	struct ibv_alloc_dm_attr masked = {.length = 8, .comp_mask = 1};
	struct ibv_mr *mr;

	CHECK(!alloc_dm(end->context, max + 1) && errno == EINVAL);
	CHECK(!alloc_dm(end->context, 0) && errno == EINVAL);
	CHECK(!ibv_alloc_dm(end->context, &aligned) && errno == EINVAL);
	CHECK(!ibv_alloc_dm(end->context, &masked) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(end->pd, dm, 0, 101, local) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(end->pd, dm, 4, 97, local) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(end->pd, dm, 0, 100, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(end->pd, dm, 0, 100, local | IBV_ACCESS_MW_BIND) && errno == EINVAL);
	mr = ibv_reg_dm_mr(end->pd, dm, 100, 0, local);
	CHECK(mr && !mr->addr && ibv_free_dm(dm) == EBUSY);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) ==
	      IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	CHECK(!ibv_dereg_mr(mr));
}

/* A peer writes to device memory by its offset, also through the descriptor of another device. */
SCENARIO(device_memory)
{
	struct end a = {0}, b = {0};
	struct ibv_device_attr_ex caps;
	struct ibv_mr *mr, *exported;
	struct ibv_dm *dm;
	char found[8];
	int fd;

	open_pair(&a, &b);
	CHECK(!ibv_query_device_ex(b.context, NULL, &caps) && caps.max_dm_size);
	dm = alloc_dm(b.context, 100);
	CHECK(dm && dm->handle);
	check_copies(dm);
	check_device_memory(&b, dm, caps.max_dm_size);
	mr = ibv_reg_dm_mr(b.pd, dm, 16, 84,
			   IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	memcpy(a.buffer, "a device", 8);
	CHECK(write_to(&a, &b, (void *)8, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(!ibv_memcpy_from_dm(found, dm, 24, 8) && !memcmp(found, "a device", 8));
	fd = ibv_dm_export_dmabuf_fd(dm);
	exported = ibv_reg_dmabuf_mr(a.pd, 24, 8, 24, fd, IBV_ACCESS_LOCAL_WRITE);
	CHECK(fd >= 0 && exported && !close(fd));
	CHECK(write_from(&a, &b, 24, exported) == IBV_WC_SUCCESS);
	CHECK(!memcmp(b.buffer, "a device", 8));
	CHECK(write_to(&a, &b, (void *)77, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(exported) && !ibv_free_dm(dm));
	for (int i = 0; i < 64; i++) /* all of the device's, which the end of the context frees */
		CHECK(alloc_dm(a.context, caps.max_dm_size));
	CHECK(!alloc_dm(a.context, 4) && errno == ENOMEM);
	close_ends(&a, &b);
}

/* What is received into a null region is discarded; what is sent from it is zeros. */
SCENARIO(null_region)
{
	struct end a = {0}, b = {0};
	struct ibv_sge sges[2], sge;
	struct ibv_recv_wr *bad_receive, receive = {.sg_list = sges, .num_sge = 2};
	struct ibv_send_wr wr, *bad;
	struct ibv_mr *none;

	open_pair(&a, &b);
	none = ibv_alloc_null_mr(b.pd);
	CHECK(none && none->length == SIZE_MAX && !none->rkey);
	sges[0] = (struct ibv_sge){0, 4, none->lkey};
	sges[1] = sge_of(&b, 0, 4);
	CHECK(!ibv_post_recv(b.qp, &receive, &bad_receive));
	memcpy(a.buffer, "12345678", 8);
	wr = make_send(&a, &b, IBV_WR_SEND, &sge, 8);
	CHECK(!ibv_post_send(a.qp, &wr, &bad) && poll_one(a.cq).status == IBV_WC_SUCCESS);
	CHECK(poll_one(b.cq).byte_len == 8 && !memcmp(b.buffer, "5678", 4));
	wr = make_send(&b, &a, IBV_WR_RDMA_WRITE, &sge, 4);
	sge = (struct ibv_sge){4096, 4, none->lkey};
	CHECK(!ibv_post_send(b.qp, &wr, &bad) && poll_one(b.cq).status == IBV_WC_SUCCESS);
	CHECK(!memcmp(a.buffer, "\0\0\0\0" "5678", 8) && !ibv_dereg_mr(none));
	close_ends(&a, &b);
}

static void wait_for_byte(int fd)
{
	char byte;

	CHECK(read(fd, &byte, 1) == 1);
}

/* Write from the other process's region by its imported local key. */
static void check_imported(struct end *imported, struct end *own)
{
	memset(own->buffer, 0, 8);
	CHECK(write_from(imported, own, (uintptr_t)imported->buffer, imported->mr) == IBV_WC_SUCCESS);
	CHECK(!memcmp(own->buffer, "exported", 8));
}

/* Import what the exporter has opened, which then closes the device, and ends. */
static void import_objects(const struct end *theirs, uint32_t dm_handle, int exporter)
{
	struct end imported = {.buffer = theirs->buffer}, own = {0};
	int cmd_fd = dup(theirs->context->cmd_fd);
	struct ibv_dm *dm;
	char found[8];

	imported.context = ibv_import_device(cmd_fd);
	CHECK(imported.context && imported.context->device && imported.context->cmd_fd == cmd_fd);
	CHECK(!ibv_import_pd(imported.context, theirs->mr->handle) && errno == EINVAL);
	imported.pd = ibv_import_pd(imported.context, theirs->pd->handle);
	CHECK(imported.pd && imported.pd->handle == theirs->pd->handle);
	imported.mr = ibv_import_mr(imported.pd, theirs->mr->handle);
	dm = ibv_import_dm(imported.context, dm_handle);
	CHECK(imported.mr && !imported.mr->addr && imported.mr->length == BUFFER && dm);
	open_end(&imported, 0, NULL);
	open_end(&own, 1, NULL);
	connect_ends(&imported, &own);
	check_imported(&imported, &own);
	CHECK(write(exporter, "", 1) == 1);
	wait_for_byte(exporter); /* it has closed the device, but has its memory still */
	check_imported(&imported, &own);
	CHECK(write(exporter, "", 1) == 1 && !read(exporter, found, 1)); /* it has ended */
	CHECK(!ibv_memcpy_from_dm(found, dm, 0, 8) && !memcmp(found, "imported", 8));
	CHECK(write_from(&imported, &own, (uintptr_t)imported.buffer, imported.mr) ==
	      IBV_WC_LOC_PROT_ERR);
	CHECK(!ibv_free_dm(dm));
	imported.buffer = NULL;
	close_ends(&imported, &own);
}

/* Open a device, which the child imports: it does not use what it has of its parent's. */
static void export_objects(int status)
{
	struct end end = {0};
	struct ibv_dm *dm;
	int sockets[2];

	open_memory(&end, 0);
	dm = alloc_dm(end.context, 8);
	CHECK(dm && !ibv_memcpy_to_dm(dm, 0, "imported", 8));
	memcpy(end.buffer, "exported", 8);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	if (!fork()) {
		close(sockets[1]);
		import_objects(&end, dm->handle, sockets[0]);
		CHECK(write(status, "", 1) == 1);
		_exit(0);
	}
	close(sockets[0]);
	wait_for_byte(sockets[1]);
	CHECK(!ibv_close_device(end.context) && write(sockets[1], "", 1) == 1);
	wait_for_byte(sockets[1]);
}

/* Two processes share the objects of one open device. */
SCENARIO(imports)
{
	int status[2];
	pid_t child;

	CHECK(!ibv_import_device(STDERR_FILENO) && errno == EBADF);
	CHECK(!ibv_import_device(1000) && errno == EBADF);
	CHECK(!pipe(status));
	child = fork();
	if (!child) {
		export_objects(status[1]);
		_exit(0);
	}
	close(status[1]);
	CHECK(waitpid(child, NULL, 0) == child);
	wait_for_byte(status[0]);
}

/* A process may import its own device; what is un-imported stays. */
SCENARIO(unimports)
{
	struct end end = {0};
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_dm *dm, *again;

	open_memory(&end, 0);
	dm = alloc_dm(end.context, 8);
	context = ibv_import_device(dup(end.context->cmd_fd));
	CHECK(dm && context);
	pd = ibv_import_pd(context, end.pd->handle);
	again = ibv_import_dm(context, dm->handle);
	CHECK(pd && again && !ibv_memcpy_to_dm(again, 0, "12345678", 8));
	mr = ibv_import_mr(pd, end.mr->handle);
	CHECK(mr && mr->lkey == end.mr->lkey && mr->rkey == end.mr->rkey);
	ibv_unimport_mr(mr);
	ibv_unimport_dm(again);
	ibv_unimport_pd(pd);
	CHECK(!ibv_close_device(context) && !ibv_free_dm(dm) && !ibv_dereg_mr(end.mr));
	CHECK(!ibv_dealloc_pd(end.pd) && !ibv_close_device(end.context));
	free(end.buffer);
}

/* The child of a fork queries the device, and has device memory of its own. */
SCENARIO(forked_memory)
{
	struct ibv_context *context = open_device(0);
	struct ibv_dm *mine = alloc_dm(context, 8), *own;
	struct ibv_port_attr port;
	int status;
	pid_t child;

	CHECK(mine && !ibv_memcpy_to_dm(mine, 0, "87654321", 8));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		char found[8];

		CHECK(!ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE);
		own = alloc_dm(context, 8);
		CHECK(own && own->handle != mine->handle && !ibv_free_dm(own));
		CHECK(ibv_free_dm(mine) == EIO && !ibv_memcpy_from_dm(found, mine, 0, 8));
		CHECK(!memcmp(found, "87654321", 8) && !ibv_alloc_pd(context) && errno == EIO);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	CHECK(!ibv_free_dm(mine) && !ibv_close_device(context));
}
