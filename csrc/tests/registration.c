/* SPDX-License-Identifier: MIT
 * Which memory can be registered, with which access. */
#include <sys/mman.h>

#include "scenarios.h"

enum { PAGE = 4096, READ_ONLY = 0, WRITABLE = IBV_ACCESS_LOCAL_WRITE };

static const char constants[100] = "constants";

/* Three pages with `protection`, of which the middle one has another, or is a hole. They are far from
 * other maps, so that no later one fills the hole. */
static char *three_pages(int protection, int middle)
{
	static uintptr_t place = 0x200000000000;
	char *pages = mmap((void *)place, 3 * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	place += 16 * PAGE;
	CHECK(pages != MAP_FAILED);
	CHECK(middle < 0 ? !munmap(pages + PAGE, PAGE) : !mprotect(pages + PAGE, PAGE, middle));
	return pages;
}

static char *shared_file(int protection, size_t size)
{
	int fd = memfd_create("file", MFD_CLOEXEC);
	char *pages;

	CHECK(fd >= 0 && !ftruncate(fd, (off_t)size));
	pages = mmap(NULL, 3 * PAGE, protection, MAP_SHARED, fd, 0);
	CHECK(pages != MAP_FAILED && !close(fd));
	return pages;
}

static void check_one(struct ibv_pd *pd, const void *address, size_t length, int access, int error)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, (void *)(uintptr_t)address, length, access);

	if (!!mr == !error && (mr || errno == error)) {
		CHECK(!mr || !ibv_dereg_mr(mr));
		return;
	}
	fprintf(stderr, "%zu bytes at %p with access %#x: %s, not %s\n", length, address, access,
		mr ? "no error" : strerror(errno), strerror(error));
	exit(1);
}

/* As ib_umem_get() of Linux: EFAULT for pages that cannot be pinned. EINVAL comes first. */
SCENARIO(permissions)
{
	const int remote = IBV_ACCESS_REMOTE_WRITE, atomic = IBV_ACCESS_REMOTE_ATOMIC;
	const char *none = three_pages(PROT_NONE, PROT_NONE), *hole = three_pages(3, -1);
	const char *middle = three_pages(PROT_READ | PROT_WRITE, PROT_READ);
	const char *shared = shared_file(PROT_READ, 3 * PAGE), *half = shared_file(3, PAGE + 1);
	struct ibv_context *context = open_device(0);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	const struct {
		const void *address;
		size_t length;
		int access, error;
	} cases[] = {{constants, 100, READ_ONLY, 0},
		     {constants, 100, IBV_ACCESS_REMOTE_READ, 0},
		     {constants, 100, WRITABLE, EFAULT},
		     {constants, 100, IBV_ACCESS_MW_BIND, EFAULT},
		     {constants, 100, WRITABLE | remote | atomic, EFAULT},
		     {constants, 100, remote, EINVAL},
		     {constants, 100, atomic, EINVAL},
		     {none, 3 * PAGE, READ_ONLY, EFAULT},
		     {none, 3 * PAGE, WRITABLE, EFAULT},
		     {hole, 3 * PAGE, READ_ONLY, EFAULT},
		     {hole, 3 * PAGE, WRITABLE, EFAULT},
		     {hole + 100, PAGE - 100, WRITABLE, 0},
		     {middle, 3 * PAGE, READ_ONLY, 0},
		     {middle, 3 * PAGE, WRITABLE, EFAULT},
		     {middle + 2 * PAGE + 7, 10, WRITABLE, 0},
		     {shared, 3 * PAGE, READ_ONLY, 0},
		     {shared, 3 * PAGE, WRITABLE, EFAULT},
		     {half, 2 * PAGE, WRITABLE, 0},
		     {half, 3 * PAGE, WRITABLE, EFAULT},
		     {middle, 0, WRITABLE, EINVAL},
		     {(void *)-PAGE, 2 * PAGE, WRITABLE, EINVAL}};

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
		check_one(pd, cases[i].address, cases[i].length, cases[i].access, cases[i].error);
	CHECK(!ibv_reg_mr_iova(pd, (void *)(uintptr_t)middle, PAGE, 1, WRITABLE) && errno == EINVAL);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

/* The same for a region that is registered again; it stays as it was. */
SCENARIO(again)
{
	const int move = IBV_REREG_MR_CHANGE_TRANSLATION, access = IBV_REREG_MR_CHANGE_ACCESS;
	char *middle = three_pages(PROT_READ | PROT_WRITE, PROT_READ);
	struct end a = {0}, b = {0};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	open_pair(&a, &b);
	CHECK(ibv_rereg_mr(b.mr, move, NULL, middle, 3 * PAGE, 0) == IBV_REREG_MR_ERR_CMD &&
	      errno == EFAULT);
	wr = make_send(&a, &b, IBV_WR_RDMA_WRITE, &sge, 8);
	CHECK(!ibv_post_send(a.qp, &wr, &bad) && poll_one(a.cq).status == IBV_WC_SUCCESS);
	CHECK(!ibv_rereg_mr(b.mr, move | access, NULL, middle, 3 * PAGE, READ_ONLY));
	CHECK(ibv_rereg_mr(b.mr, access, NULL, NULL, 0, WRITABLE) == IBV_REREG_MR_ERR_CMD &&
	      errno == EFAULT);
	CHECK(!ibv_rereg_mr(b.mr, move, NULL, middle, 3 * PAGE, 0));
	CHECK(!mprotect(middle, 3 * PAGE, PROT_READ | PROT_WRITE));
	CHECK(!ibv_rereg_mr(b.mr, access, NULL, NULL, 0, WRITABLE));
	close_ends(&a, &b);
}
