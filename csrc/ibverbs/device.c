/* SPDX-License-Identifier: MIT
 * The list of devices, which the service names. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

enum { MAX_DEVICES = 1024 };

/* Fill in the paths below /sys, where programs look for a device's attributes. */
static void set_paths(struct ibv_device *device, uint32_t index)
{
	const char *root = ibv_get_sysfs_path();

	snprintf(device->dev_name, sizeof device->dev_name, "uverbs%u", index);
	snprintf(device->dev_path, sizeof device->dev_path, "%s/class/infiniband_verbs/uverbs%u",
		 root, index);
	snprintf(device->ibdev_path, sizeof device->ibdev_path, "%s/class/infiniband/%s", root,
		 device->name);
}

/* Whether a device can have this name, which becomes part of paths. */
static bool is_name(const char *name)
{
	size_t length = strnlen(name, IBV_SYSFS_NAME_MAX);

	return length && length < IBV_SYSFS_NAME_MAX &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
		       length;
}

static struct rw_device *new_device(const struct rw_get_device_reply *reply, uint32_t index)
{
	const char *name = (const char *)reply + offsetof(struct rw_get_device_reply, name0);
	struct rw_device *device = is_name(name) ? calloc(1, sizeof *device) : NULL;

	if (!device)
		return NULL;
	memcpy(device->device.name, name, IBV_SYSFS_NAME_MAX);
	device->device.node_type = (enum ibv_node_type)reply->node_type;
	device->device.transport_type =
		reply->node_type == IBV_NODE_RNIC ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
	set_paths(&device->device, index);
	device->guid = reply->guid;
	device->index = index;
	atomic_init(&device->references, 1);
	return device;
}

static struct rw_device *get_device(int socket, uint32_t index)
{
	struct rw_get_device_request request = {.call = RW_GET_DEVICE, .index = index};
	struct rw_get_device_reply reply;
	int error = rw_exchange(socket, &request, sizeof request, &reply, sizeof reply, NULL, 0,
				NULL);

	if (!error)
		return new_device(&reply, index);
	error = error == RW_BROKEN ? EIO : error;
	rw_refuse(error, "get_device", "device %u: %s", index, strerror(error));
	return NULL;
}

/* Get the devices one by one; stops at an error. Returns their number. */
static int get_devices(int socket, struct ibv_device **list, uint64_t count)
{
	struct rw_device *device;
	int found = 0;

	while ((uint64_t)found < count && (device = get_device(socket, (uint32_t)found)))
		list[found++] = &device->device;
	return found;
}

/* Ask a service for its devices. Returns null, with errno, if it has a wrong number of them. */
static struct ibv_device **list_devices(int socket, int *found)
{
	struct ibv_device **list = NULL;
	uint64_t count = 0;

	if (rw_say_hello(socket, &count))
		return NULL;
	if (count <= MAX_DEVICES)
		list = calloc(count + 1, sizeof *list);
	else
		rw_refuse(EIO, "hello", "%llu devices", (unsigned long long)count);
	if (list)
		*found = get_devices(socket, list, count);
	return list;
}

/* Without a service the list is empty, and errno says why. */
struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list = NULL;
	int socket = rw_connect(), found = 0, error = errno;

	if (socket >= 0) {
		list = list_devices(socket, &found);
		error = errno;
		close(socket);
	}
	if (!list)
		list = calloc(1, sizeof *list);
	if (num_devices)
		*num_devices = found;
	errno = error;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	for (struct ibv_device **device = list; device && *device; device++)
		rw_release_device((struct rw_device *)*device);
	free(list);
}

void rw_hold_device(struct rw_device *device)
{
	atomic_fetch_add(&device->references, 1);
}

void rw_release_device(struct rw_device *device)
{
	if (atomic_fetch_sub(&device->references, 1) == 1)
		free(device);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return htobe64(((struct rw_device *)device)->guid);
}

int ibv_get_device_index(struct ibv_device *device)
{
	return (int)((struct rw_device *)device)->index;
}
