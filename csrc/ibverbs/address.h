/* SPDX-License-Identifier: MIT
 * ibv_ah_attr in the requests and replies of the protocol: address handles, and the paths of queue
 * pairs, whose fields have a prefix. Programs leave ones in bits that the headers do not have. */
#pragma once

#include <string.h>

#define PACK_ADDRESS(request, prefix, attr)                                                        \
	do {                                                                                       \
		const struct ibv_ah_attr *from_ = (attr);                                          \
		memcpy(&(request)->prefix##dgid0, from_->grh.dgid.raw, 8);                         \
		memcpy(&(request)->prefix##dgid1, from_->grh.dgid.raw + 8, 8);                     \
		(request)->prefix##is_global = from_->is_global;                                   \
		(request)->prefix##flow_label = from_->grh.flow_label & 0xfffff;                   \
		(request)->prefix##sgid_index = from_->grh.sgid_index;                             \
		(request)->prefix##hop_limit = from_->grh.hop_limit;                               \
		(request)->prefix##traffic_class = from_->grh.traffic_class;                       \
		(request)->prefix##dlid = from_->dlid;                                             \
		(request)->prefix##sl = from_->sl & 0xf;                                           \
		(request)->prefix##src_path_bits = from_->src_path_bits;                           \
		(request)->prefix##static_rate = from_->static_rate;                               \
	} while (0)

#define UNPACK_ADDRESS(attr, reply, prefix)                                                        \
	do {                                                                                       \
		struct ibv_ah_attr *to_ = (attr);                                                  \
		memcpy(to_->grh.dgid.raw, &(reply)->prefix##dgid0, 8);                             \
		memcpy(to_->grh.dgid.raw + 8, &(reply)->prefix##dgid1, 8);                         \
		to_->is_global = (uint8_t)(reply)->prefix##is_global;                              \
		to_->grh.flow_label = (uint32_t)(reply)->prefix##flow_label;                       \
		to_->grh.sgid_index = (uint8_t)(reply)->prefix##sgid_index;                        \
		to_->grh.hop_limit = (uint8_t)(reply)->prefix##hop_limit;                          \
		to_->grh.traffic_class = (uint8_t)(reply)->prefix##traffic_class;                  \
		to_->dlid = (uint16_t)(reply)->prefix##dlid;                                       \
		to_->sl = (uint8_t)(reply)->prefix##sl;                                            \
		to_->src_path_bits = (uint8_t)(reply)->prefix##src_path_bits;                      \
		to_->static_rate = (uint8_t)(reply)->prefix##static_rate;                          \
	} while (0)
