/* SPDX-License-Identifier: MIT
 * A thread that copies memory of this process for the service, where the service cannot read it
 * itself: memory of CUDA devices, dma-bufs, and processes whose memory the system protects.
 *
 * A request comes on the copy socket, the bytes are in the copy buffer, the answer is an errno. The
 * thread ends when its socket does. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "internal.h"

/* Copy by /proc/self/mem, where the system refuses process_vm_readv. Returns an errno. */
static int copy_by_file(uint64_t address, void *buffer, size_t length, bool write_memory)
{
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	ssize_t done;

	if (fd < 0)
		return errno;
	done = write_memory ? pwrite(fd, buffer, length, (off_t)address)
			    : pread(fd, buffer, length, (off_t)address);
	close(fd);
	return done == (ssize_t)length ? 0 : EFAULT;
}

/* Copy memory of this process; EFAULT for unmapped memory, without a signal. Returns an errno. */
int rw_copy_host(uint64_t address, void *buffer, size_t length, bool write_memory)
{
	struct iovec here = {buffer, length}, there = {(void *)(uintptr_t)address, length};
	ssize_t done = write_memory ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
				    : process_vm_readv(getpid(), &here, 1, &there, 1, 0);

	if (done == (ssize_t)length)
		return 0;
	if (done < 0 && (errno == EPERM || errno == ENOSYS))
		return copy_by_file(address, buffer, length, write_memory);
	return EFAULT;
}

static int copy(struct rw_context *context, const struct rw_copy_request *request)
{
	bool write_memory = request->direction == RW_COPY_WRITE;

	if (request->length > RW_COPY_BUFFER_BYTES ||
	    (!write_memory && request->direction != RW_COPY_READ))
		return EINVAL;
	if (request->memory == RW_MEMORY_OF_GPU)
		return rw_gpu_copy(request->address, context->copy.buffer, request->length,
				   write_memory);
	if (request->memory == RW_MEMORY_OF_HOST)
		return rw_copy_host(request->address, context->copy.buffer, request->length,
				    write_memory);
	if (request->memory == RW_MEMORY_OF_DMABUF)
		return rw_dmabuf_copy(context, request);
	return EINVAL;
}

static void *run(void *argument)
{
	struct rw_context *context = argument;
	int socket = context->copy.socket;
	struct rw_copy_request request;
	ssize_t length;
	uint32_t answer;

	for (;;) {
		length = recv(socket, &request, sizeof request, 0);
		if (length < 0 && errno == EINTR)
			continue;
		if (length != sizeof request)
			return NULL;
		answer = (uint32_t)copy(context, &request);
		if (send(socket, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer)
			return NULL;
	}
}

/* Start the thread with all signals blocked: they are the program's. Returns an errno. */
static int start(struct rw_context *context)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&context->copy.thread, NULL, run, context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	context->copy.started = !error;
	return error;
}

/* Start the thread unless it runs. Returns an errno. */
int rw_copy_thread_start(struct rw_context *context)
{
	int error = 0;

	pthread_mutex_lock(&context->copy.mutex);
	if (!context->copy.started)
		error = start(context);
	pthread_mutex_unlock(&context->copy.mutex);
	return error;
}

void rw_copy_thread_stop(struct rw_context *context)
{
	if (!context->copy.started || atomic_load(&context->state) == RW_FORKED)
		return;
	shutdown(context->copy.socket, SHUT_RDWR);
	pthread_join(context->copy.thread, NULL);
}
