/* SPDX-License-Identifier: MIT
 * Functions that other libraries of rdma-core use, under the private versions of each of them. */
#include "alias.h"
#include "aliases.h" /* their versions, made from functions.py */
#include "internal.h"

/* The types of sysfs: 0 for InfiniBand and RoCE v1, 1 for RoCE v2. */
int rw_ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	struct ibv_gid_entry entry;

	if (_ibv_query_gid_ex(context, port, index, &entry, 0, sizeof entry))
		return -1;
	*type = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
	return 0;
}

const char *rw_ibv_wr_opcode_str(enum ibv_wr_opcode opcode)
{
	static const char *const names[] = {
		[IBV_WR_RDMA_WRITE] = "IBV_WR_RDMA_WRITE",
		[IBV_WR_RDMA_WRITE_WITH_IMM] = "IBV_WR_RDMA_WRITE_WITH_IMM",
		[IBV_WR_SEND] = "IBV_WR_SEND",
		[IBV_WR_SEND_WITH_IMM] = "IBV_WR_SEND_WITH_IMM",
		[IBV_WR_RDMA_READ] = "IBV_WR_RDMA_READ",
		[IBV_WR_ATOMIC_CMP_AND_SWP] = "IBV_WR_ATOMIC_CMP_AND_SWP",
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = "IBV_WR_ATOMIC_FETCH_AND_ADD",
		[IBV_WR_LOCAL_INV] = "IBV_WR_LOCAL_INV",
		[IBV_WR_BIND_MW] = "IBV_WR_BIND_MW",
		[IBV_WR_SEND_WITH_INV] = "IBV_WR_SEND_WITH_INV",
		[IBV_WR_TSO] = "IBV_WR_TSO",
		[IBV_WR_DRIVER1] = "IBV_WR_DRIVER1",
		[RW_WR_FLUSH] = "IBV_WR_FLUSH",
		[RW_WR_ATOMIC_WRITE] = "IBV_WR_ATOMIC_WRITE",
	};

	return (unsigned)opcode < LENGTH(names) && names[opcode] ? names[opcode] : "unknown";
}
