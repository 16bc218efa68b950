/* SPDX-License-Identifier: MIT
 * Sockets to the service: where it listens, one request and its reply, descriptors beside. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "internal.h"

enum {
	MAX_FDS = 8,
	UNMAPPED_USER = 65534, /* overflowuid of user_namespaces(7) */
};

/* Write the path of the service's socket. Returns whether the user gave it. */
static bool socket_path(char *path, size_t size)
{
	const char *given = getenv("RDMAWIRE_VERBS"), *runtime = getenv("XDG_RUNTIME_DIR");

	if (given && *given)
		snprintf(path, size, "%s", given);
	else if (runtime && *runtime)
		snprintf(path, size, "%s/rdmawire/verbs.sock", runtime);
	else
		snprintf(path, size, "/tmp/rdmawire-%u/verbs.sock", (unsigned)getuid());
	return given && *given;
}

/* Whether this user namespace has all users: user_namespaces(7). */
static bool has_all_users(void)
{
	FILE *map = fopen("/proc/self/uid_map", "re");
	unsigned long first, outside, count, total = 0;

	if (!map)
		return true;
	while (fscanf(map, "%lu %lu %lu", &first, &outside, &count) == 3)
		total += count;
	fclose(map);
	return total >= UINT32_MAX;
}

/* Whether `user` alone can make a socket with this path: it has the folder. */
static bool is_of_folder(uid_t user, const char *path)
{
	char folder[sizeof((struct sockaddr_un *)0)->sun_path];
	struct stat found;

	return lstat(dirname(strcpy(folder, path)), &found) == 0 && S_ISDIR(found.st_mode) &&
	       found.st_uid == user && !(found.st_mode & (S_IWGRP | S_IWOTH));
}

/* Whether the service belongs to the user, to root, or to the one that RDMAWIRE_USER names: anyone
 * can make a folder in /tmp. In a container, users that its namespace does not have share a number.
 * For one of them the folder that was given must be theirs, too. Sets `user` to the service's. */
static bool is_trusted(int socket, const char *path, bool given, uid_t *user)
{
	const char *named = getenv("RDMAWIRE_USER");
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t size = sizeof peer;
	int error = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size);

	*user = peer.uid;
	if (error)
		return false;
	return peer.uid == geteuid() || peer.uid == 0 ||
	       (named && *named && strtoul(named, NULL, 10) == peer.uid) ||
	       (given && peer.uid == UNMAPPED_USER && !has_all_users() &&
		is_of_folder(peer.uid, path));
}

/* Print why no service is used although there is one: once, since programs ask again and again. */
static void warn_once(const char *path, const char *reason, uid_t user)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&warned))
		rw_warn(reason, path, (unsigned)user);
}

/* Connect to the service. Returns the socket, or -1 with errno. */
int rw_connect(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char *path = address.sun_path;
	bool given = socket_path(path, sizeof address.sun_path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), error = 0;
	uid_t user;

	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
		error = errno;
		if (error == EACCES)
			warn_once(path, "%s: Permission denied: name a socket of this user, or"
					" have its owner share it (chmod a+w)", 0);
	} else if (!is_trusted(fd, path, given, &user)) {
		error = EACCES;
		warn_once(path, "%s: the service there belongs to user %u, so it is not used: name a"
				" socket of this user, or that user in RDMAWIRE_USER", user);
	}
	if (!error)
		return fd;
	close(fd);
	rw_refuse(error, "connect", "no verbs service at %s: %s; start one with 'rdmawire verbs'",
		  path, strerror(error));
	return -1;
}

/* Send a request, with one descriptor beside it unless `sent` is null. Returns 0 or RW_BROKEN. */
static int send_request(int socket, const void *request, size_t size, const int *sent)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {{0}};
	struct iovec data = {(void *)request, size};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	ssize_t done;

	if (sent) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), sent, sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = sizeof control;
	}
	do
		done = sendmsg(socket, &message, MSG_NOSIGNAL);
	while (done < 0 && errno == EINTR);
	return done == (ssize_t)size ? 0 : RW_BROKEN;
}

/* Copy the descriptors of a message to `fds`, which has room for MAX_FDS. Returns their number. */
static unsigned take_fds(struct msghdr *message, int *fds)
{
	unsigned count = 0;

	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
	     header = CMSG_NXTHDR(message, header)) {
		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(header), count * sizeof(int));
	}
	return count;
}

/* Receive a reply of up to `size` bytes. Returns its length, or -1. */
static ssize_t receive_reply(int socket, void *reply, size_t size, int *fds, unsigned *fd_count)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} control;
	struct iovec data = {reply, size};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof control};
	ssize_t length;

	do
		length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (length < 0 && errno == EINTR);
	*fd_count = length < 0 ? 0 : take_fds(&message, fds);
	return message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -1 : length;
}

/* Whether a reply has the length and the descriptors that its call has, or that a refusal has. */
static bool is_reply(const uint64_t *reply, ssize_t length, size_t size, unsigned fds,
		     unsigned fd_count)
{
	if (length < (ssize_t)sizeof *reply)
		return false;
	if (reply[0])
		return length <= (ssize_t)(sizeof *reply + RW_MAX_REASON) && fds == 0 &&
		       reply[0] < RW_BROKEN;
	return length == (ssize_t)size && fds == fd_count;
}

/* Send a request and wait for its reply, an array of integers that begins with an errno.
 * Returns that errno, or RW_BROKEN when the service is gone or answers something else. The reason of
 * a refusal is kept for rw_trace_call. */
int rw_exchange(int socket, const void *request, size_t request_size, void *reply,
		size_t reply_size, int *fds, unsigned fd_count, const int *sent)
{
	uint64_t words[RW_MAX_WORDS] = {0};
	int received[MAX_FDS];
	unsigned count = 0;
	ssize_t length;

	if (send_request(socket, request, request_size, sent))
		return RW_BROKEN;
	length = receive_reply(socket, words, sizeof words, received, &count);
	if (!is_reply(words, length, reply_size, count, fd_count)) {
		while (count)
			close(received[--count]);
		return RW_BROKEN;
	}
	if (words[0])
		rw_keep_reason((const char *)&words[1], length - sizeof *words);
	memcpy(reply, words, reply_size);
	if (count)
		memcpy(fds, received, count * sizeof *fds);
	return (int)words[0];
}

/* Make the first call of a connection. Returns an errno. */
int rw_say_hello(int socket, uint64_t *device_count)
{
	struct rw_hello_request request = {.call = RW_HELLO, .protocol = RW_PROTOCOL};
	struct rw_hello_reply reply;
	int error = rw_exchange(socket, &request, sizeof request, &reply, sizeof reply, NULL, 0,
				NULL);

	if (error == EPROTO)
		return rw_refuse(error, "hello", "the service is of another version of rdmawire");
	if (error == RW_BROKEN)
		return rw_refuse(EIO, "hello", "the service gave a wrong reply, or none");
	*device_count = error ? 0 : reply.device_count;
	return error;
}
