/* Checks every byte that MPI transfers: mpi_check point | collective | window | threads COUNT
 *
 * The ranks exchange messages of 0 bytes to 4 MiB, call collectives, use windows, or run COUNT
 * threads each that exchange messages at once. Behind each buffer are bytes that must stay. Rank 0
 * prints how much was checked; the first difference ends all ranks with status 1.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64
#define GUARD_BYTE 0xa5
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define LARGEST (4 << 20)
#define AT_ONCE 4
#define MAX_THREADS 16
#define ROUNDS 150
#define ADDITIONS 200

static const int sizes[] = {
	0, 1, 3, 8, 63, 64, 65, 255, 256, 1023, 1024, 1025, 2047, 4096, 4097, 8192, 8193,
	16384, 65535, 65536, 65537, 262144, 1 << 20, (1 << 20) + 1, LARGEST,
};
static const int counts[] = { 1, 3, 16, 1000, 16385, 262144 };

static int rank, ranks;
static unsigned long long checks;
static pthread_mutex_t counter = PTHREAD_MUTEX_INITIALIZER;

static uint8_t expected(size_t index, unsigned seed)
{
	return (uint8_t)((index ^ index >> 8 ^ index >> 16) * 31 + seed * 97);
}

static uint8_t *buffer(size_t size)
{
	uint8_t *bytes = malloc(size + GUARD);

	if (!bytes)
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(bytes, GUARD_BYTE, size + GUARD);
	return bytes;
}

static uint8_t *filled(size_t size, unsigned seed)
{
	uint8_t *bytes = buffer(size);

	for (size_t i = 0; i < size; i++)
		bytes[i] = expected(i, seed);
	return bytes;
}

static void count_check(void)
{
	pthread_mutex_lock(&counter);
	checks++;
	pthread_mutex_unlock(&counter);
}

static void differ(const char *what, size_t size, size_t offset)
{
	fprintf(stderr, "error: rank %d: %s of %zu differs at %zu\n", rank, what, size, offset);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check_guard(const char *what, const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < GUARD; i++)
		if (bytes[size + i] != GUARD_BYTE)
			differ(what, size, size + i);
}

static void check(const char *what, const uint8_t *bytes, size_t size, unsigned seed)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i] != expected(i, seed))
			differ(what, size, i);
	count_check();
}

static void check_all(const char *what, uint8_t *bytes, size_t size, unsigned seed)
{
	check(what, bytes, size, seed);
	check_guard(what, bytes, size);
	memset(bytes, GUARD_BYTE, size);
}

static void check_value(const char *what, uint64_t value, uint64_t wanted, size_t index)
{
	if (value != wanted)
		differ(what, sizeof(value), index);
	count_check();
}

static int right_of(int of)
{
	return (of + 1) % ranks;
}

static int left_of(int of)
{
	return (of + ranks - 1) % ranks;
}

static void ring(int size, MPI_Comm comm, int tag)
{
	int left = left_of(rank), right = right_of(rank);
	uint8_t *out = filled(size, rank + tag), *in = buffer(size);

	MPI_Sendrecv(out, size, MPI_BYTE, right, tag, in, size, MPI_BYTE, left, tag, comm,
		     MPI_STATUS_IGNORE);
	check_all("MPI_Sendrecv", in, size, left + tag);
	free(out);
	free(in);
}

static void many(int size, MPI_Comm comm, int tag)
{
	int left = left_of(rank), right = right_of(rank);
	uint8_t *out[AT_ONCE], *in[AT_ONCE];
	MPI_Request requests[2 * AT_ONCE];
	MPI_Status statuses[2 * AT_ONCE];

	for (int i = 0; i < AT_ONCE; i++) {
		in[i] = buffer(size);
		MPI_Irecv(in[i], size, MPI_BYTE, left, tag + i, comm, &requests[i]);
	}
	for (int i = AT_ONCE - 1; i >= 0; i--) {
		out[i] = filled(size, rank + tag + i);
		MPI_Isend(out[i], size, MPI_BYTE, right, tag + i, comm, &requests[AT_ONCE + i]);
	}
	MPI_Waitall(2 * AT_ONCE, requests, statuses);
	for (int i = 0; i < AT_ONCE; i++) {
		check_all("MPI_Irecv", in[i], size, left + tag + i);
		free(in[i]);
		free(out[i]);
	}
}

static void unexpected(int size)
{
	uint8_t *out = filled(size, rank), *in = buffer(size);
	MPI_Request request;
	MPI_Status status;
	int got;

	MPI_Isend(out, size, MPI_BYTE, right_of(rank), 7, MPI_COMM_WORLD, &request);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
	MPI_Get_count(&status, MPI_BYTE, &got);
	check_value("MPI_Probe", (uint64_t)got, (uint64_t)size, 0);
	MPI_Recv(in, size, MPI_BYTE, status.MPI_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	check_all("MPI_Recv", in, size, left_of(rank));
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	free(out);
	free(in);
}

static void synchronous(int size)
{
	uint8_t *out = filled(size, rank), *in = buffer(size);
	MPI_Request request;

	MPI_Irecv(in, size, MPI_BYTE, left_of(rank), 8, MPI_COMM_WORLD, &request);
	MPI_Ssend(out, size, MPI_BYTE, right_of(rank), 8, MPI_COMM_WORLD);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	check_all("MPI_Ssend", in, size, left_of(rank));
	free(out);
	free(in);
}

static void strided(int blocks)
{
	uint8_t *out = filled(8 * (size_t)blocks, rank), *in = buffer(8 * (size_t)blocks);
	MPI_Datatype type;

	MPI_Type_vector(blocks, 3, 8, MPI_BYTE, &type);
	MPI_Type_commit(&type);
	MPI_Sendrecv(out, 1, type, right_of(rank), 9, in, 1, type, left_of(rank), 9,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (size_t i = 0; i < 8 * (size_t)blocks; i++) {
		uint8_t wanted = i % 8 < 3 ? expected(i, left_of(rank)) : GUARD_BYTE;

		if (in[i] != wanted)
			differ("MPI_Type_vector", blocks, i);
	}
	count_check();
	MPI_Type_free(&type);
	free(out);
	free(in);
}

static void point(void)
{
	for (size_t i = 0; i < COUNT(sizes); i++) {
		ring(sizes[i], MPI_COMM_WORLD, 1);
		unexpected(sizes[i]);
		synchronous(sizes[i]);
		if (sizes[i] <= 65537)
			many(sizes[i], MPI_COMM_WORLD, 10);
	}
	strided(1);
	strided(1000);
	strided(100000);
}

static void spread(int count)
{
	size_t size = (size_t)count;
	uint8_t *one = buffer(size), *all = buffer(size * ranks), *mine;

	for (int root = 0; root < ranks; root++) {
		mine = filled(size, root);
		memcpy(one, mine, rank == root ? size : 0);
		MPI_Bcast(one, count, MPI_BYTE, root, MPI_COMM_WORLD);
		check_all("MPI_Bcast", one, size, root);
		free(mine);
	}
	mine = filled(size, rank);
	MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		check("MPI_Allgather", all + from * size, size, from);
	check_guard("MPI_Allgather", all, size * ranks);
	MPI_Scatter(all, count, MPI_BYTE, one, count, MPI_BYTE, ranks - 1, MPI_COMM_WORLD);
	check_all("MPI_Scatter", one, size, rank);
	memset(all, GUARD_BYTE, size * ranks);
	MPI_Gather(mine, count, MPI_BYTE, all, count, MPI_BYTE, 0, MPI_COMM_WORLD);
	for (int from = 0; !rank && from < ranks; from++)
		check("MPI_Gather", all + from * size, size, from);
	free(mine);
	free(one);
	free(all);
}

static void exchange(int count)
{
	size_t size = (size_t)count;
	uint8_t *out = buffer(size * ranks), *in = buffer(size * ranks);
	int lengths[64], places[64];

	for (int to = 0; to < ranks; to++) {
		uint8_t *part = filled(size, 16 * rank + to);

		memcpy(out + to * size, part, size);
		free(part);
	}
	MPI_Alltoall(out, count, MPI_BYTE, in, count, MPI_BYTE, MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		check("MPI_Alltoall", in + from * size, size, 16 * from + rank);
	check_guard("MPI_Alltoall", in, size * ranks);
	memset(in, GUARD_BYTE, size * ranks);
	for (int i = 0; i < ranks; i++) {
		lengths[i] = count - (i + rank) % 2;
		places[i] = i * count;
	}
	MPI_Alltoallv(out, lengths, places, MPI_BYTE, in, lengths, places, MPI_BYTE,
		      MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		check("MPI_Alltoallv", in + from * size, lengths[from], 16 * from + rank);
	free(out);
	free(in);
}

static uint64_t term(int of, int index)
{
	return (uint64_t)(of + 1) * 1000003 + (uint64_t)index * (of + 7);
}

static uint64_t sum_until(int last, int index)
{
	uint64_t sum = 0;

	for (int of = 0; of <= last; of++)
		sum += term(of, index);
	return sum;
}

static void check_sums(const char *what, const uint64_t *sums, int count, int last, int first)
{
	for (int i = 0; i < count; i++)
		if (sums[i] != sum_until(last, first + i))
			differ(what, count, i);
	count_check();
}

static void reductions(int count)
{
	int length = count / 8 + 1, all = length * ranks;
	uint64_t *values = malloc(all * sizeof(*values)), *sums = calloc(all, sizeof(*sums));
	MPI_Request request;

	for (int i = 0; i < all; i++)
		values[i] = term(rank, i);
	MPI_Reduce(values, sums, length, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		check_sums("MPI_Reduce", sums, length, ranks - 1, 0);
	MPI_Allreduce(values, sums, length, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	check_sums("MPI_Allreduce", sums, length, ranks - 1, 0);
	memset(sums, 0, all * sizeof(*sums));
	MPI_Iallreduce(values, sums, length, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	check_sums("MPI_Iallreduce", sums, length, ranks - 1, 0);
	MPI_Scan(values, sums, length, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	check_sums("MPI_Scan", sums, length, rank, 0);
	MPI_Reduce_scatter_block(values, sums, length, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	check_sums("MPI_Reduce_scatter_block", sums, length, ranks - 1, rank * length);
	free(values);
	free(sums);
}

static void collective(void)
{
	for (size_t i = 0; i < COUNT(counts); i++) {
		spread(counts[i]);
		exchange(counts[i]);
		reductions(counts[i]);
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

static void fenced(MPI_Win window, uint8_t *memory, int size)
{
	int right = right_of(rank), left = left_of(rank);
	uint8_t *out = filled(size, rank), *in = buffer(size);

	memset(memory, 0, LARGEST);
	MPI_Win_fence(0, window);
	MPI_Put(out, size, MPI_BYTE, right, 16, size, MPI_BYTE, window);
	MPI_Win_fence(0, window);
	check("MPI_Put", memory + 16, size, left);
	MPI_Win_fence(0, window);
	MPI_Get(in, size, MPI_BYTE, right, 16, size, MPI_BYTE, window);
	MPI_Win_fence(0, window);
	check_all("MPI_Get", in, size, rank);
	free(out);
	free(in);
}

static void locked(MPI_Win window, uint8_t *memory, int size)
{
	int right = right_of(rank), left = left_of(rank);
	uint8_t *out = filled(size, rank + 40), *in = buffer(size);

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, window);
	MPI_Put(out, size, MPI_BYTE, right, 8, size, MPI_BYTE, window);
	MPI_Win_flush(right, window);
	MPI_Get(in, size, MPI_BYTE, right, 8, size, MPI_BYTE, window);
	MPI_Win_unlock(right, window);
	check_all("MPI_Win_flush", in, size, rank + 40);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
	check("MPI_Win_lock", memory + 8, size, left + 40);
	MPI_Win_unlock(rank, window);
	MPI_Barrier(MPI_COMM_WORLD);
	free(out);
	free(in);
}

static void atomics(MPI_Win window, uint64_t *words)
{
	uint64_t one = 1, zero = 0, mine = (uint64_t)rank + 1, old, sum = 0;

	memset(words, 0, 64);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, window);
	for (int i = 0; i < ADDITIONS; i++) {
		MPI_Fetch_and_op(&one, &old, MPI_UINT64_T, 0, 0, MPI_SUM, window);
		MPI_Accumulate(&mine, 1, MPI_UINT64_T, 0, 1, 1, MPI_UINT64_T, MPI_SUM, window);
		MPI_Win_flush(0, window);
		sum += old;
	}
	do {
		MPI_Compare_and_swap(&mine, &zero, &old, MPI_UINT64_T, 0, 2, window);
		MPI_Win_flush(0, window);
		if (!old)
			MPI_Compare_and_swap(&zero, &mine, &old, MPI_UINT64_T, 0, 2, window);
		MPI_Win_flush(0, window);
	} while (old != mine);
	MPI_Win_unlock_all(window);
	MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	uint64_t total = (uint64_t)ranks * ADDITIONS;

	check_value("MPI_Fetch_and_op", sum, total * (total - 1) / 2, 0);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
	if (!rank) {
		check_value("MPI_Fetch_and_op", words[0], total, 0);
		check_value("MPI_Accumulate", words[1], total * (ranks + 1) / 2, 1);
		check_value("MPI_Compare_and_swap", words[2], 0, 2);
	}
	MPI_Win_unlock(rank, window);
}

static void window(void)
{
	uint8_t *memory;
	MPI_Win win;

	MPI_Win_allocate(LARGEST + 64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	atomics(win, (uint64_t *)memory);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&win);
	memory = malloc(LARGEST + 64);
	MPI_Win_create(memory, LARGEST + 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	for (size_t i = 1; i < COUNT(sizes); i++) {
		fenced(win, memory, sizes[i] - sizes[i] / LARGEST * 64);
		locked(win, memory, sizes[i] - sizes[i] / LARGEST * 64);
	}
	MPI_Win_free(&win);
	free(memory);
}

static void *worker(void *comm)
{
	for (int i = 0; i < ROUNDS; i++) {
		ring(i * 37 % 8192, *(MPI_Comm *)comm, 100 + i);
		many(i % 10 ? 64 : 40000, *(MPI_Comm *)comm, 1000 + 8 * i);
	}
	return NULL;
}

static void threads(int count)
{
	pthread_t ids[MAX_THREADS];
	MPI_Comm comms[MAX_THREADS];

	for (int i = 0; i < count; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	for (int i = 0; i < count; i++)
		if (pthread_create(&ids[i], NULL, worker, &comms[i]))
			MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = 0; i < count; i++)
		pthread_join(ids[i], NULL);
	for (int i = 0; i < count; i++)
		MPI_Comm_free(&comms[i]);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int count = argc > 2 ? atoi(argv[2]) : 0, multiple = !strcmp(mode, "threads"), given;
	unsigned long long all = 0;

	MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &given);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (!strcmp(mode, "point")) {
		point();
	} else if (!strcmp(mode, "collective")) {
		collective();
	} else if (!strcmp(mode, "window")) {
		window();
	} else if (multiple && given == MPI_THREAD_MULTIPLE && count > 0 && count <= MAX_THREADS) {
		threads(count);
	} else {
		fprintf(stderr, "error: %s cannot be run, threads: level %d\n", mode, given);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Reduce(&checks, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("mpi_check %s: %llu comparisons, all right\n", mode, all);
	MPI_Finalize();
	return 0;
}
