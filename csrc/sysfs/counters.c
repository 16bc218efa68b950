/* SPDX-License-Identifier: MIT
 * Each refresh is a connection of its own: no descriptor stays that the program could close or
 * inherit. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "counters.h"
#include "protocol.h"

enum {
	MAX_FDS = 4096,	    /* for higher descriptors, counters are refreshed only by open() */
	ANSWER_SECONDS = 1, /* a service that is alive answers in milliseconds */
};

static atomic_bool counters[MAX_FDS]; /* whether a descriptor is that of a counter */
static atomic_long silent_until;      /* seconds of CLOCK_MONOTONIC: the service did not answer */

bool rw_is_in_counters(const char *path)
{
	const char *name = strrchr(path, '/'), *folder = name;

	if (!name || !name[1])
		return false;
	while (folder > path && folder[-1] != '/')
		folder--;
	return strncmp(folder, "counters/", strlen("counters/")) == 0 ||
	       strncmp(folder, "hw_counters/", strlen("hw_counters/")) == 0;
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = ANSWER_SECONDS};
	int fd;

	if (strlen(path) >= sizeof address.sun_path)
		return -1;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
	    connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Make the call. Returns false if the service did not answer in time; true if it is gone. */
static bool call(const char *path)
{
	struct rw_write_counters_request request = {RW_WRITE_COUNTERS, RW_PROTOCOL};
	struct rw_write_counters_reply reply;
	int fd = connect_to(path);
	bool answered = true;

	if (fd < 0)
		return errno != EAGAIN;
	if (send(fd, &request, sizeof request, MSG_NOSIGNAL) == (ssize_t)sizeof request)
		answered = recv(fd, &reply, sizeof reply, 0) >= 0 || errno != EAGAIN;
	close(fd);
	return answered;
}

static long seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* A cancelled thread would leave the socket open. */
void rw_refresh_counters(void)
{
	const char *path = getenv("RDMAWIRE_VERBS");
	int before = errno, state;

	if (path && *path && seconds() >= atomic_load(&silent_until)) {
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
		if (!call(path))
			atomic_store(&silent_until, seconds() + ANSWER_SECONDS);
		pthread_setcancelstate(state, NULL);
	}
	errno = before;
}

void rw_note_counter(int fd, bool is_counter)
{
	if (fd >= 0 && fd < MAX_FDS)
		atomic_store_explicit(&counters[fd], is_counter, memory_order_relaxed);
}

/* A descriptor that was closed keeps its mark until open() returns it again. If it is another file
 * now, the only effect is a refresh that is not needed. */
void rw_before_read(int fd, off_t offset)
{
	int before = errno;

	if (fd < 0 || fd >= MAX_FDS ||
	    !atomic_load_explicit(&counters[fd], memory_order_relaxed))
		return;
	if ((offset < 0 ? lseek(fd, 0, SEEK_CUR) : offset) == 0)
		rw_refresh_counters();
	errno = before;
}
