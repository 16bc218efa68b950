/* SPDX-License-Identifier: MIT
 * The devices of ids. They stay open for as long as the process runs. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "cm.h"

enum { MAX_DEVICES = 1024 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct cm_device *devices[MAX_DEVICES];

void cm_renew_device_lock(void)
{
	pthread_mutex_init(&mutex, NULL);
}

static uint8_t at_most_a_byte(int value)
{
	return value > UINT8_MAX ? UINT8_MAX : (uint8_t)value;
}

static struct cm_device *open_device(struct ibv_device *found)
{
	struct cm_device *device = calloc(1, sizeof *device);
	struct ibv_device_attr attributes;

	if (!device)
		return NULL;
	device->verbs = ibv_open_device(found);
	if (device->verbs && !ibv_query_device(device->verbs, &attributes) &&
	    (device->pd = ibv_alloc_pd(device->verbs))) {
		device->max_responder_resources = at_most_a_byte(attributes.max_qp_rd_atom);
		device->max_initiator_depth = at_most_a_byte(attributes.max_qp_init_rd_atom);
		return device;
	}
	if (device->verbs)
		ibv_close_device(device->verbs);
	free(device);
	return NULL;
}

/* A device by its place in the list of devices, opened if no id had it. Returns null with errno. A
 * device whose service is gone is opened anew; its old context stays, since programs have it. */
struct cm_device *cm_device(struct cm_session *session, uint32_t index)
{
	struct cm_device *device;
	struct ibv_device **list;
	int count;

	if (index >= MAX_DEVICES) {
		errno = ENODEV;
		return NULL;
	}
	pthread_mutex_lock(&mutex);
	device = devices[index];
	if ((!device || device->service != session->number) &&
	    (list = ibv_get_device_list(&count))) {
		errno = ENODEV;
		device = (int)index < count ? open_device(list[index]) : NULL;
		ibv_free_device_list(list);
		if (device)
			device->service = session->number;
		devices[index] = device;
	}
	pthread_mutex_unlock(&mutex);
	return device;
}

struct ibv_xrcd *cm_xrcd(struct cm_device *device)
{
	struct ibv_xrcd_init_attr attributes = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	pthread_mutex_lock(&mutex);
	if (!device->xrcd)
		device->xrcd = ibv_open_xrcd(device->verbs, &attributes);
	pthread_mutex_unlock(&mutex);
	return device->xrcd;
}

struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct cm_session *session = cm_hold_current();
	struct ibv_device **list = session ? ibv_get_device_list(NULL) : NULL;
	struct ibv_context **contexts;
	struct cm_device *device;
	int count = 0, found = 0;

	while (list && list[count])
		count++;
	contexts = calloc((size_t)count + 1, sizeof *contexts);
	for (int index = 0; contexts && index < count; index++)
		if ((device = cm_device(session, (uint32_t)index)))
			contexts[found++] = device->verbs;
	if (list)
		ibv_free_device_list(list);
	if (session)
		cm_release(session);
	if (num_devices)
		*num_devices = found;
	if (found)
		return contexts;
	free(contexts);
	errno = ENODEV;
	return NULL;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
