/* SPDX-License-Identifier: MIT
 * Copies by the thread of the library: the test's service reads the address that is printed, and
 * writes there, before it writes a line to this program. */
#include <dlfcn.h>

#include "scenarios.h"

static void wait_for_service(unsigned long long address)
{
	printf("%llu\n", address);
	fflush(stdout);
	CHECK(getchar() == '\n');
}

SCENARIO(host)
{
	static char buffer[64] = "from the program";
	struct ibv_context *context = open_device(0);

	wait_for_service((uintptr_t)buffer);
	CHECK(!strcmp(buffer, "from the service"));
	CHECK(!ibv_close_device(context));
}

SCENARIO(gpu)
{
	struct ibv_context *context = open_device(0);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	unsigned long long (*base)(void);
	char *(*storage)(void);
	int (*synchronized)(void);
	char local[8];

	CHECK(pd && cuda);
	*(void **)&base = dlsym(cuda, "fake_base");
	*(void **)&storage = dlsym(cuda, "fake_storage");
	*(void **)&synchronized = dlsym(cuda, "fake_synchronized");
	strcpy(storage(), "from the program");
	strcpy(storage() + 4096, "from the program");
	CHECK(ibv_reg_mr(pd, local, sizeof local, ALL_ACCESS));
	CHECK(ibv_reg_mr(pd, (void *)(uintptr_t)base(), 8192, ALL_ACCESS));
	CHECK(ibv_reg_dmabuf_mr(pd, 0, 4096, base() + 4096, 0, ALL_ACCESS));
	wait_for_service(base());
	CHECK(!strcmp(storage(), "from the service"));
	CHECK(!strcmp(storage() + 4096, "from the service"));
	CHECK(synchronized() == 4);
	CHECK(!ibv_close_device(context));
}
