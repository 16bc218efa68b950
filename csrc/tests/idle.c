/* SPDX-License-Identifier: MIT
 * Scenarios of empty polls: when they yield the processor, by clocks of this program. */
#include <sched.h>

#include "scenarios.h"

enum { POLLS = 20000, CLOCK_STEP = 20 * 1000, MILLISECOND = 1000 * 1000 };

/* What a yield costs, in ns: in all, and of the processors for other threads of this process. */
static uint64_t yield_time, yield_use;
static uint64_t wall, used;
static unsigned yields;

/* Instead of the functions of the C library. */
int sched_yield(void)
{
	yields++;
	wall += yield_time;
	used += yield_use;
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	uint64_t ns = clock == CLOCK_PROCESS_CPUTIME_ID ? used : (wall += CLOCK_STEP);

	*time = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
	return 0;
}

/* Poll an empty CQ. Returns how many polls yielded, and what part of the time that took in %. */
static unsigned poll_empty(struct ibv_cq *cq, uint64_t time, uint64_t use, uint64_t *part)
{
	uint64_t start = wall;
	struct ibv_wc wc;

	yield_time = time;
	yield_use = use;
	yields = 0;
	for (int i = 0; i < POLLS; i++)
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	*part = yields * yield_time * 100 / (wall - start);
	return yields;
}

/* All polls but the first yield. If yields take long since threads of this process spin, few do; if
 * they take long for other reasons, nothing changes. */
SCENARIO(yielding)
{
	struct ibv_context *context = open_device(0);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	uint64_t part;

	CHECK(cq);
	CHECK(poll_empty(cq, 1000, 0, &part) > POLLS - 10);
	CHECK(poll_empty(cq, 4 * MILLISECOND, 0, &part) == POLLS);
	CHECK(poll_empty(cq, 4 * MILLISECOND, 2 * MILLISECOND, &part) > 1 && part < 10);
	CHECK(poll_empty(cq, 1000, 0, &part) > POLLS / 10);
	CHECK(poll_empty(cq, 1000, 0, &part) == POLLS);
	CHECK(!ibv_destroy_cq(cq) && !ibv_close_device(context));
}
