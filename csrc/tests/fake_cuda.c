/* SPDX-License-Identifier: MIT
 * A libcuda.so.1 with one piece of device memory, at an address where this process has none. */
#include <stddef.h>
#include <string.h>

enum { SIZE = 8192, INVALID_VALUE = 1 };

static const unsigned long long base = 0x7000000000000000ull;
static char storage[SIZE];
static int context, current, streams, synchronized;

unsigned long long fake_base(void);
char *fake_storage(void);
int fake_synchronized(void);
int cuPointerGetAttribute(void *value, int attribute, unsigned long long address);
int cuCtxPushCurrent_v2(void *pushed);
int cuCtxPopCurrent_v2(void **popped);
int cuDevicePrimaryCtxRetain(void **retained, int device);
int cuStreamCreate(void **stream, unsigned flags);
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t length, void *stream);
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t length, void *stream);
int cuStreamSynchronize(void *stream);

unsigned long long fake_base(void)
{
	return base;
}

char *fake_storage(void)
{
	return storage;
}

int fake_synchronized(void)
{
	return synchronized;
}

static int is_inside(unsigned long long address, size_t length)
{
	return address >= base && address + length <= base + SIZE;
}

/* The second half is as memory of the virtual memory API: it has no context, but a device. */
int cuPointerGetAttribute(void *value, int attribute, unsigned long long address)
{
	if (!is_inside(address, 1))
		return INVALID_VALUE;
	if (attribute == 1)
		*(void **)value = address < base + SIZE / 2 ? &context : NULL;
	else if (attribute == 2)
		*(unsigned *)value = 2;
	else if (attribute == 8)
		*(unsigned *)value = 0;
	else if (attribute == 9)
		*(int *)value = 0;
	else
		return INVALID_VALUE;
	return 0;
}

int cuDevicePrimaryCtxRetain(void **retained, int device)
{
	*retained = &context;
	return device ? INVALID_VALUE : 0;
}

int cuCtxPushCurrent_v2(void *pushed)
{
	current++;
	return pushed == &context ? 0 : INVALID_VALUE;
}

int cuCtxPopCurrent_v2(void **popped)
{
	current--;
	*popped = &context;
	return 0;
}

int cuStreamCreate(void **stream, unsigned flags)
{
	*stream = &streams;
	return flags == 1 && current == 1 && ++streams == 1 ? 0 : INVALID_VALUE;
}

int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t length, void *stream)
{
	if (current != 1 || stream != &streams || !is_inside(from, length))
		return INVALID_VALUE;
	memcpy(to, storage + (from - base), length);
	return 0;
}

int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t length, void *stream)
{
	if (current != 1 || stream != &streams || !is_inside(to, length))
		return INVALID_VALUE;
	memcpy(storage + (to - base), from, length);
	return 0;
}

int cuStreamSynchronize(void *stream)
{
	synchronized++;
	return stream == &streams ? 0 : INVALID_VALUE;
}
