/*
 * Drives the IB transport of an unmodified libnccl.so.2 between host buffers of two processes,
 * without a GPU: its table of functions ncclNetIb is not exported, so that its offset is given.
 *
 *   nccl_net LIBRARY OFFSET-IN-HEX HANDLE-FILE recv|send SIZE COUNT
 *
 * The receiver listens, and writes its handle to the file, which the sender waits for. COUNT
 * messages of SIZE bytes are sent, eight at a time; the receiver compares the last eight. The table
 * is that of ncclNet_v11_t (NCCL 2.28 to 2.32).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 8, HANDLE_BYTES = 512, HOST_POINTER = 1 };

struct transport {
	const char *name;
	int (*init)(void **context, uint64_t communicator, void *config, void *log, void *profile);
	int (*devices)(int *count);
	int (*get_properties)(int device, void *properties);
	int (*listen)(void *context, int device, void *handle, void **listener);
	int (*connect)(void *context, int device, void *handle, void **connection, void **gpu);
	int (*accept)(void *listener, void **connection, void **gpu);
	int (*reg_mr)(void *connection, void *data, size_t size, int type, void **region);
	int (*reg_mr_dma_buf)(void *, void *, size_t, int, uint64_t, int, void **);
	int (*dereg_mr)(void *connection, void *region);
	int (*isend)(void *connection, void *data, size_t size, int tag, void *region, void *profile,
		     void **request);
	int (*irecv)(void *connection, int count, void **data, size_t *sizes, int *tags,
		     void **regions, void **profiles, void **request);
	int (*iflush)(void *, int, void **, int *, void **, void **);
	int (*test)(void *request, int *done, int *sizes);
	int (*close_send)(void *connection);
	int (*close_recv)(void *connection);
	int (*close_listen)(void *listener);
};

static void check(int result, const char *what)
{
	if (result) {
		fprintf(stderr, "error: %s: ncclResult_t %d\n", what, result);
		exit(1);
	}
}

static struct transport *load(const char *path, const char *offset)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	struct link_map *map;
	struct transport *net;

	if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map)) {
		fprintf(stderr, "error: %s\n", dlerror());
		exit(1);
	}
	net = (struct transport *)(map->l_addr + strtoul(offset, NULL, 16));
	if (strcmp(net->name, "IB")) {
		fprintf(stderr, "error: %s has no ncclNetIb at %s\n", path, offset);
		exit(1);
	}
	return net;
}

static void write_handle(const char *path, const void *handle)
{
	char other[4096];
	FILE *file;

	snprintf(other, sizeof(other), "%s.new", path);
	file = fopen(other, "w");
	if (!file || fwrite(handle, HANDLE_BYTES, 1, file) != 1 || fclose(file) ||
	    rename(other, path)) {
		perror(path);
		exit(1);
	}
}

static void read_handle(const char *path, void *handle)
{
	FILE *file;

	while (!(file = fopen(path, "r")))
		usleep(10000);
	if (fread(handle, HANDLE_BYTES, 1, file) != 1) {
		perror(path);
		exit(1);
	}
	fclose(file);
}

static unsigned char pattern(size_t at)
{
	return (unsigned char)(at * 7 + (at >> 9));
}

static long exchange(struct transport *net, void *connection, void *region, unsigned char *buffer,
		     size_t size, int count, int receives)
{
	void *requests[WINDOW] = { 0 };
	int posted = 0, completed = 0, tag = 0;
	long bytes = 0;

	while (completed < count) {
		if (posted < count && posted - completed < WINDOW) {
			void *request = NULL, *data = buffer + (size_t)(posted % WINDOW) * size;

			if (receives)
				check(net->irecv(connection, 1, &data, &size, &tag, &region, NULL,
						 &request), "irecv");
			else
				check(net->isend(connection, data, size, tag, region, NULL,
						 &request), "isend");
			if (request)
				requests[posted++ % WINDOW] = request;
		}
		if (completed < posted) {
			int done = 0, sizes[WINDOW] = { 0 };

			check(net->test(requests[completed % WINDOW], &done, sizes), "test");
			if (done) {
				bytes += sizes[0];
				completed++;
			}
		}
	}
	return bytes;
}

int main(int count, char **words)
{
	char handle[HANDLE_BYTES] = { 0 };
	int config[8] = { -1 }, devices, messages, receives;
	void *context, *listener = NULL, *connection = NULL, *gpu = NULL, *region;
	struct transport *net;
	unsigned char *buffer;
	size_t size, wrong = 0, at;
	long bytes;

	if (count != 7) {
		fprintf(stderr, "usage: nccl_net LIBRARY OFFSET HANDLE-FILE recv|send SIZE COUNT\n");
		return 2;
	}
	net = load(words[1], words[2]);
	receives = !strcmp(words[4], "recv");
	size = strtoul(words[5], NULL, 10);
	messages = atoi(words[6]);
	check(net->init(&context, 1, config, NULL, NULL), "init");
	check(net->devices(&devices), "devices");
	if (receives) {
		check(net->listen(context, 0, handle, &listener), "listen");
		write_handle(words[3], handle);
		while (!connection)
			check(net->accept(listener, &connection, &gpu), "accept");
	} else {
		read_handle(words[3], handle);
		while (!connection)
			check(net->connect(context, 0, handle, &connection, &gpu), "connect");
	}
	buffer = aligned_alloc(4096, size * WINDOW);
	for (at = 0; at < size * WINDOW; at++)
		buffer[at] = receives ? 0 : pattern(at);
	check(net->reg_mr(connection, buffer, size * WINDOW, HOST_POINTER, &region), "reg_mr");
	bytes = exchange(net, connection, region, buffer, size, messages, receives);
	for (at = 0; receives && at < size * WINDOW; at++)
		wrong += buffer[at] != pattern(at);
	printf("%s: %d devices, %ld bytes, %zu wrong\n", words[4], devices, bytes, wrong);
	check(net->dereg_mr(connection, region), "dereg_mr");
	if (receives) {
		check(net->close_recv(connection), "close_recv");
		check(net->close_listen(listener), "close_listen");
	} else {
		sleep(1); /* the receiver closes first */
		check(net->close_send(connection), "close_send");
	}
	return wrong != 0;
}
