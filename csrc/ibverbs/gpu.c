/* SPDX-License-Identifier: MIT
 * Memory of CUDA devices: whether an address is one, and copying.
 *
 * The program's own libcuda.so.1 is used if it is loaded already. Copies run on a stream of the
 * library, so that they wait for no work of the program. */
#include <dlfcn.h>
#include <errno.h>

#include "internal.h"

/* Numbers and types of cuda.h. */
typedef int result;
typedef void *context_handle;
typedef void *stream_handle;

enum {
	POINTER_CONTEXT = 1,
	POINTER_MEMORY_TYPE = 2,
	POINTER_IS_MANAGED = 8,
	POINTER_DEVICE_ORDINAL = 9,
	MEMORY_TYPE_DEVICE = 2,
	STREAM_NON_BLOCKING = 1,
	MAX_CONTEXTS = 32,
};

static struct {
	result (*pointer_attribute)(void *value, int attribute, unsigned long long address);
	result (*push)(context_handle context);
	result (*pop)(context_handle *context);
	result (*retain)(context_handle *context, int device);
	result (*create_stream)(stream_handle *stream, unsigned flags);
	result (*to_host)(void *to, unsigned long long from, size_t length, stream_handle stream);
	result (*to_device)(unsigned long long to, const void *from, size_t length,
			    stream_handle stream);
	result (*synchronize)(stream_handle stream);
} cuda;

/* The stream of each CUDA context that was copied in. */
static struct {
	context_handle context;
	stream_handle stream;
} streams[MAX_CONTEXTS];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool is_loaded; /* guarded by mutex; the pointers never change after it is set */

static bool load_function(void *library, const char *name, void *function)
{
	*(void **)function = dlsym(library, name);
	return *(void **)function;
}

static bool load_functions(void *library)
{
	return load_function(library, "cuPointerGetAttribute", &cuda.pointer_attribute) &&
	       load_function(library, "cuCtxPushCurrent_v2", &cuda.push) &&
	       load_function(library, "cuCtxPopCurrent_v2", &cuda.pop) &&
	       load_function(library, "cuDevicePrimaryCtxRetain", &cuda.retain) &&
	       load_function(library, "cuStreamCreate", &cuda.create_stream) &&
	       load_function(library, "cuMemcpyDtoHAsync_v2", &cuda.to_host) &&
	       load_function(library, "cuMemcpyHtoDAsync_v2", &cuda.to_device) &&
	       load_function(library, "cuStreamSynchronize", &cuda.synchronize);
}

/* Use libcuda if the program loaded it. The handle is kept: the library must not go away. */
static bool load(void)
{
	void *library;
	bool loaded;

	pthread_mutex_lock(&mutex);
	if (!is_loaded) {
		library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
		is_loaded = library && load_functions(library);
	}
	loaded = is_loaded;
	pthread_mutex_unlock(&mutex);
	return loaded;
}

/* Whether an address is device memory, or managed memory, which may be on the device. */
bool rw_gpu_is_address(const void *address)
{
	unsigned long long pointer = (uintptr_t)address;
	unsigned type = 0, managed = 0;

	if (!address || !load() ||
	    cuda.pointer_attribute(&type, POINTER_MEMORY_TYPE, pointer))
		return false;
	if (!cuda.pointer_attribute(&managed, POINTER_IS_MANAGED, pointer) && managed)
		return true;
	return type == MEMORY_TYPE_DEVICE;
}

/* The CUDA context of an address. Memory of the virtual memory API has none: its device's primary
 * context serves. Returns null for other memory. */
static context_handle context_of(unsigned long long address)
{
	context_handle context = NULL;
	int device;

	if (!cuda.pointer_attribute(&context, POINTER_CONTEXT, address) && context)
		return context;
	if (cuda.pointer_attribute(&device, POINTER_DEVICE_ORDINAL, address) ||
	    cuda.retain(&context, device))
		return NULL;
	return context;
}

/* The stream for a context, which is current. Returns false if CUDA gives none. */
static bool stream_of(context_handle context, stream_handle *stream)
{
	bool found = false;

	pthread_mutex_lock(&mutex);
	for (unsigned i = 0; i < MAX_CONTEXTS && !found; i++) {
		if (!streams[i].context &&
		    !cuda.create_stream(&streams[i].stream, STREAM_NON_BLOCKING))
			streams[i].context = context;
		found = streams[i].context == context;
		*stream = streams[i].stream;
	}
	pthread_mutex_unlock(&mutex);
	return found;
}

/* Copy between device memory and a buffer, and wait. Returns an errno. */
int rw_gpu_copy(uint64_t address, void *buffer, size_t length, bool to_gpu)
{
	context_handle context = load() ? context_of(address) : NULL;
	stream_handle stream;
	result failed;

	if (!context || cuda.push(context))
		return EFAULT;
	failed = !stream_of(context, &stream);
	if (!failed)
		failed = to_gpu ? cuda.to_device(address, buffer, length, stream)
				: cuda.to_host(buffer, address, length, stream);
	if (!failed)
		failed = cuda.synchronize(stream);
	cuda.pop(&context);
	return failed ? EFAULT : 0;
}
