/* SPDX-License-Identifier: MIT
 * Address handles, addresses made from received datagrams, and multicast groups. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"
#include "internal.h"

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attributes)
{
	struct rw_context *context = rw_context(pd->context);
	struct rw_create_ah_request request = {.call = RW_CREATE_AH,
					       .pd = pd->handle,
					       .ah_port_num = attributes->port_num};
	struct rw_create_ah_reply reply;
	struct ibv_ah *ah = calloc(1, sizeof *ah);

	if (!ah)
		return NULL;
	PACK_ADDRESS(&request, , attributes);
	if (rw_control(context, "create_ah", &request, sizeof request, &reply, sizeof reply, NULL,
		       0, NULL)) {
		free(ah);
		return NULL;
	}
	ah->context = pd->context;
	ah->pd = pd;
	ah->handle = (uint32_t)reply.ah;
	return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	struct rw_context *context = rw_context(ah->context);
	struct rw_destroy_ah_reply reply;
	int error = CALL(context, RW_DESTROY_AH, destroy_ah, &reply, .ah = ah->handle);

	error = rw_destroyed(context, error);
	if (!error)
		free(ah);
	return error;
}

/* The IPv4 header in the last 20 of the 40 bytes before a datagram, or null. RFC 791, section 3.1;
 * its checksum tells it from the second half of a GRH. */
static const uint8_t *ipv4_header(const struct ibv_grh *grh)
{
	const uint8_t *header = (const uint8_t *)grh + 20;
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)(header[i] << 8 | header[i + 1]);
	while (sum > 0xffff)
		sum = (sum & 0xffff) + (sum >> 16);
	return header[0] == 0x45 && sum == 0xffff ? header : NULL;
}

static void map_ipv4(union ibv_gid *gid, const uint8_t *address)
{
	memset(gid->raw, 0, 10);
	memset(gid->raw + 10, 0xff, 2);
	memcpy(gid->raw + 12, address, 4);
}

/* The index of a GID in a port's table, or -1. */
static int gid_index(struct ibv_context *context, uint8_t port, const union ibv_gid *gid)
{
	struct ibv_port_attr attributes;
	union ibv_gid found;

	if (rw_query_port(context, port, &attributes, sizeof attributes))
		return -1;
	for (int i = 0; i < attributes.gid_tbl_len && i < 256; i++)
		if (!ibv_query_gid(context, port, i, &found) && !memcmp(&found, gid, sizeof found))
			return i;
	return -1;
}

/* Address the sender of a datagram by its network header. Returns the GID it was sent to. */
static union ibv_gid reverse_route(const struct ibv_grh *grh, struct ibv_global_route *route)
{
	const uint8_t *ipv4 = ipv4_header(grh);
	uint32_t flow = ntohl(grh->version_tclass_flow);
	union ibv_gid local;

	route->hop_limit = 0xff;
	if (ipv4) {
		map_ipv4(&route->dgid, ipv4 + 12);
		map_ipv4(&local, ipv4 + 16);
		route->traffic_class = ipv4[1];
		return local;
	}
	route->dgid = grh->sgid;
	route->flow_label = flow & 0xfffff;
	route->traffic_class = (uint8_t)(flow >> 20);
	return grh->dgid;
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc,
			struct ibv_grh *grh, struct ibv_ah_attr *attributes)
{
	union ibv_gid local;
	int index;

	/* The sl of a completion is the type of the packet: RoCE has no service levels. */
	*attributes = (struct ibv_ah_attr){.dlid = wc->slid,
					   .src_path_bits = wc->dlid_path_bits,
					   .port_num = port};
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attributes->is_global = 1;
	local = reverse_route(grh, &attributes->grh);
	index = gid_index(context, port, &local);
	if (index < 0)
		return rw_refuse(EINVAL, "ibv_init_ah_from_wc", "the port lacks the GID");
	attributes->grh.sgid_index = (uint8_t)index;
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port)
{
	struct ibv_ah_attr attributes;

	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attributes)
		       ? NULL
		       : ibv_create_ah(pd, &attributes);
}

static bool starts_with(const union ibv_gid *gid, const char *prefix, size_t length)
{
	return !memcmp(gid->raw, prefix, length);
}

/* Whether a GID is an IPv4 multicast group: ::ffff:a.b.c.d for RoCE v2, ff0e::ffff:a.b.c.d for v1. */
static bool is_ipv4_group(const union ibv_gid *gid)
{
	return (starts_with(gid, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) ||
		starts_with(gid, "\xff\x0e\0\0\0\0\0\0\0\0\xff\xff", 12)) &&
	       gid->raw[12] >> 4 == 0xe;
}

static bool has_eui64(const union ibv_gid *gid)
{
	return starts_with(gid, "\xfe\x80\0\0\0\0\0\0", 8) && gid->raw[11] == 0xff &&
	       gid->raw[12] == 0xfe;
}

/* The MAC address of a GID that contains one: multicast (RFC 1112, RFC 2464) or link-local with an
 * EUI-64. The service resolves others, by itself, when work is posted. */
int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attributes,
				uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	const union ibv_gid *gid = &attributes->grh.dgid;
	const uint8_t *raw = gid->raw;

	if (is_ipv4_group(gid)) {
		memcpy(eth_mac, "\x01\x00\x5e", 3);
		eth_mac[3] = raw[13] & 0x7f;
		memcpy(eth_mac + 4, raw + 14, 2);
	} else if (raw[0] == 0xff) {
		memcpy(eth_mac, "\x33\x33", 2);
		memcpy(eth_mac + 2, raw + 12, 4);
	} else if (has_eui64(gid)) {
		memcpy(eth_mac, raw + 8, 3);
		memcpy(eth_mac + 3, raw + 13, 3);
		eth_mac[0] ^= 2;
	} else {
		return rw_refuse(EOPNOTSUPP, "ibv_resolve_eth_l2_from_gid",
				 "the GID contains no MAC address");
	}
	if (vid)
		*vid = 0xffff; /* no VLAN */
	return 0;
}

#define CALL_MULTICAST(NUMBER, name, qp, gid, lid_)                                                \
	do {                                                                                       \
		struct rw_##name##_reply reply;                                                    \
		uint64_t words[2];                                                                 \
		memcpy(words, (gid)->raw, sizeof words);                                           \
		return CALL(rw_context((qp)->context), NUMBER, name, &reply, .qp = (qp)->handle,   \
			    .gid0 = words[0], .gid1 = words[1], .lid = lid_);                      \
	} while (0)

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	CALL_MULTICAST(RW_ATTACH_MCAST, attach_mcast, qp, gid, lid);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	CALL_MULTICAST(RW_DETACH_MCAST, detach_mcast, qp, gid, lid);
}
