/* SPDX-License-Identifier: MIT
 * What an older <rdma/rdma_cma.h>, or <rdma/rsocket.h>, does not declare. */
#pragma once

#include <rdma/rdma_cma.h>
#include <sys/epoll.h>

#define CM_EVENT_ADDRINFO_RESOLVED ((enum rdma_cm_event_type)16)
#define CM_EVENT_ADDRINFO_ERROR ((enum rdma_cm_event_type)17)
#define CM_EVENT_USER ((enum rdma_cm_event_type)18)
enum { CM_RAI_SA = 0x10, CM_RAI_DNS = 0x20 };

int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints);
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
			uint64_t arg);
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);
