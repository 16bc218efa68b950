/* SPDX-License-Identifier: MIT
 * DMA handles: hints by which a bus adapter chooses the cache of a host that a write goes to (PCIe
 * 6.2, 6.17, TLP Processing Hints). They are checked as libmlx5 and Linux do, and have no effect. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "internal.h"

/* Fields of ibv_dmah_init_attr, which <infiniband/verbs.h> has since rdma-core 59. */
struct dmah_init_attr {
	uint32_t comp_mask, cpu_id;
	uint8_t ph, memory_type;
};

enum { MASK_CPU_ID = 1, MASK_PH = 2, MASK_MEMORY_TYPE = 4, MASKS = 7 };
enum { MAX_PH = 3, PERSISTENT_MEMORY = 1, MAX_CPUS = 1 << 16 };

/* Whether the process may run on a CPU. */
static bool is_allowed(uint32_t cpu)
{
	size_t size = CPU_ALLOC_SIZE(MAX_CPUS);
	cpu_set_t *set = CPU_ALLOC(MAX_CPUS);
	bool found = set && !sched_getaffinity(0, size, set) && CPU_ISSET_S(cpu, size, set);

	CPU_FREE(set);
	return found;
}

/* The hint is needed; a CPU and the kind of its memory are given together or not at all. */
static int check(const struct dmah_init_attr *wanted)
{
	uint32_t mask = wanted->comp_mask, steering = mask & (MASK_CPU_ID | MASK_MEMORY_TYPE);

	if (mask & ~(uint32_t)MASKS || !(mask & MASK_PH) ||
	    (steering && steering != (MASK_CPU_ID | MASK_MEMORY_TYPE)))
		return rw_refuse(EINVAL, "ibv_alloc_dmah", "mask %#x", mask);
	if (wanted->ph > MAX_PH)
		return rw_refuse(EINVAL, "ibv_alloc_dmah", "hint %u", wanted->ph);
	if (steering && wanted->memory_type > PERSISTENT_MEMORY)
		return rw_refuse(EINVAL, "ibv_alloc_dmah", "memory type %u", wanted->memory_type);
	if (steering && !is_allowed(wanted->cpu_id))
		return rw_refuse(EPERM, "ibv_alloc_dmah", "CPU %u", wanted->cpu_id);
	return 0;
}

struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attributes)
{
	struct rw_dmah *dmah;

	if (check((const struct dmah_init_attr *)attributes))
		return NULL;
	dmah = calloc(1, sizeof *dmah);
	if (dmah)
		dmah->context = context;
	return (struct ibv_dmah *)dmah;
}

int ibv_dealloc_dmah(struct ibv_dmah *dmah)
{
	if (atomic_load(&((struct rw_dmah *)dmah)->references))
		return rw_refuse(EBUSY, "ibv_dealloc_dmah", "a region uses it");
	free(dmah);
	return 0;
}

struct rw_dmah *rw_hold_dmah(struct ibv_dmah *dmah)
{
	atomic_fetch_add(&((struct rw_dmah *)dmah)->references, 1);
	return (struct rw_dmah *)dmah;
}

void rw_release_dmah(struct rw_dmah *dmah)
{
	if (dmah)
		atomic_fetch_sub(&dmah->references, 1);
}
