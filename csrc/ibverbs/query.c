/* SPDX-License-Identifier: MIT
 * Attributes of devices and ports, and the tables of GIDs and P_Keys. */
#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#include "internal.h"

/* ibv_port_attr of rdma-core 60 and later has a 32-bit active_speed_ex here. */
enum { ACTIVE_SPEED_EX = offsetof(struct ibv_port_attr, port_cap_flags2) + 2 };

enum { MAX_TABLE = 1 << 16 }; /* entries of a table of GIDs or P_Keys */

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
	*attributes = rw_context(context)->attributes.orig_attr;
	return 0;
}

int rw_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attributes, size_t size)
{
	const struct ibv_device_attr_ex *all = &rw_context(context)->attributes;

	if (input && input->comp_mask)
		return rw_refuse(EINVAL, "ibv_query_device_ex", "mask %#x", input->comp_mask);
	memset(attributes, 0, size);
	memcpy(attributes, all, size < sizeof *all ? size : sizeof *all);
	return 0;
}

int rw_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return rw_refuse(EINVAL, "ibv_query_rt_values_ex", "mask %#x", values->comp_mask);
	return clock_gettime(CLOCK_REALTIME, &values->raw_clock) ? errno : 0;
}

static void show_port(struct ibv_port_attr *attr, const struct rw_query_port_reply *reply)
{
#define SHOW(name) attr->name = (__typeof__(attr->name))reply->name
	SHOW(state);
	SHOW(max_mtu);
	SHOW(active_mtu);
	SHOW(gid_tbl_len);
	SHOW(port_cap_flags);
	SHOW(max_msg_sz);
	SHOW(bad_pkey_cntr);
	SHOW(qkey_viol_cntr);
	SHOW(pkey_tbl_len);
	SHOW(lid);
	SHOW(sm_lid);
	SHOW(lmc);
	SHOW(max_vl_num);
	SHOW(sm_sl);
	SHOW(subnet_timeout);
	SHOW(init_type_reply);
	SHOW(active_width);
	SHOW(active_speed);
	SHOW(phys_state);
	SHOW(link_layer);
	SHOW(flags);
	SHOW(port_cap_flags2);
#undef SHOW
}

/* Write as much of the attributes as the program's structure holds. */
int rw_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes,
		  size_t size)
{
	struct rw_query_port_reply reply;
	struct ibv_port_attr all = {0};
	uint32_t speed;
	int error = CALL(rw_context(context), RW_QUERY_PORT, query_port, &reply, .port_num = port);

	if (error)
		return error;
	show_port(&all, &reply);
	speed = (uint32_t)reply.active_speed_ex;
	memset(attributes, 0, size);
	memcpy(attributes, &all, size < sizeof all ? size : sizeof all);
	if (size >= ACTIVE_SPEED_EX + sizeof speed)
		memcpy((char *)attributes + ACTIVE_SPEED_EX, &speed, sizeof speed);
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port,
		   struct _compat_ibv_port_attr *attributes)
{
	return rw_query_port(context, port, (struct ibv_port_attr *)attributes,
			     offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* Lanes of a width, the bits of which are 1X, 4X, 8X, 12X and 2X. */
static uint64_t lanes(unsigned width)
{
	switch (width) {
	case 2:
		return 4;
	case 4:
		return 8;
	case 8:
		return 12;
	case 16:
		return 2;
	default:
		return 1;
	}
}

/* Speed of a lane in units of 100 Mbit/s. */
static uint64_t lane_speed(unsigned speed)
{
	static const struct {
		unsigned speed, rate;
	} rates[] = {{1, 25},    {2, 50},    {4, 100},    {8, 100},
		     {16, 141},  {32, 258},  {64, 500},   {128, 1000},
		     {256, 2000}};

	for (unsigned i = 0; i < LENGTH(rates); i++)
		if (rates[i].speed == speed)
			return rates[i].rate;
	return 0;
}

int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	struct rw_query_port_reply reply;
	int error = CALL(rw_context(context), RW_QUERY_PORT, query_port, &reply, .port_num = port);

	if (!error)
		*speed = lanes((unsigned)reply.active_width) *
			 lane_speed((unsigned)(reply.active_speed_ex ? reply.active_speed_ex
								     : reply.active_speed));
	return error;
}

/* Read an entry of the GID table. An empty entry is ENODATA. */
static int query_entry(struct ibv_context *context, uint32_t port, uint32_t index,
		       struct ibv_gid_entry *entry)
{
	struct rw_query_gid_reply reply;
	int error = CALL(rw_context(context), RW_QUERY_GID, query_gid, &reply, .port_num = port,
			 .index = index);

	if (error)
		return error;
	*entry = (struct ibv_gid_entry){.gid_index = index,
					.port_num = port,
					.gid_type = (uint32_t)reply.gid_type,
					.ndev_ifindex = (uint32_t)reply.ndev_ifindex};
	memcpy(entry->gid.raw, &reply.gid0, 8);
	memcpy(entry->gid.raw + 8, &reply.gid1, 8);
	return reply.gid0 || reply.gid1 ? 0 : ENODATA;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry entry = {0};
	int error = query_entry(context, port, (uint32_t)index, &entry);

	if (error && error != ENODATA)
		return -1;
	*gid = entry.gid;
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry found;
	int error;

	if (flags || size < sizeof found)
		return rw_refuse(EINVAL, "ibv_query_gid_ex", "flags %#x", flags);
	error = query_entry(context, port, index, &found);
	if (error)
		return error;
	memset(entry, 0, size);
	memcpy(entry, &found, sizeof found);
	return 0;
}

/* The entries of a port's GID table, or 0. */
static int gid_table_length(struct ibv_context *context, uint32_t port)
{
	struct ibv_port_attr attributes;

	if (rw_query_port(context, (uint8_t)port, &attributes, sizeof attributes))
		return 0;
	return attributes.gid_tbl_len < MAX_TABLE ? attributes.gid_tbl_len : MAX_TABLE;
}

/* Add the entries of a port that are not empty to a table. Returns an errno. */
static int query_port_entries(struct ibv_context *context, uint32_t port, char *entries,
			      size_t *count, size_t max_entries, size_t size)
{
	int length = gid_table_length(context, port);

	for (int index = 0; index < length; index++) {
		struct ibv_gid_entry entry;
		int error = query_entry(context, port, (uint32_t)index, &entry);

		if (error == ENODATA)
			continue;
		if (error || *count == max_entries)
			return error ? error : EINVAL;
		memcpy(entries + (*count)++ * size, &entry, sizeof entry);
	}
	return 0;
}

/* Returns the number of entries, or a negative errno. */
ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			     size_t max_entries, uint32_t flags, size_t size)
{
	size_t count = 0;
	int error = 0;

	if (flags || size < sizeof *entries)
		return -rw_refuse(EINVAL, "ibv_query_gid_table", "flags %#x", flags);
	memset(entries, 0, max_entries * size);
	for (uint32_t port = 1; !error && port <= rw_context(context)->attributes.phys_port_cnt_ex;
	     port++)
		error = query_port_entries(context, port, (char *)entries, &count, max_entries,
					   size);
	return error ? -error : (ssize_t)count;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	struct rw_query_pkey_reply reply;

	if (CALL(rw_context(context), RW_QUERY_PKEY, query_pkey, &reply, .port_num = port,
		 .index = (uint32_t)index))
		return -1;
	*pkey = htons((uint16_t)reply.pkey);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	__be16 found;

	for (int i = 0; i < MAX_TABLE && !ibv_query_pkey(context, port, i, &found); i++)
		if (found == pkey)
			return i;
	return -1;
}

/* Enhanced connection establishment is an option of single vendors' devices. */
int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return rw_refuse(EOPNOTSUPP, "ibv_set_ece", "these devices have no ECE");
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	*ece = (struct ibv_ece){0};
	return rw_refuse(EOPNOTSUPP, "ibv_query_ece", "these devices have no ECE");
}
