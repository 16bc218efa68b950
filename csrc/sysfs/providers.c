/* SPDX-License-Identifier: MIT
 * Functions of libraries that need more than verbs: those of vendors create their own kinds of queue
 * pairs, libibumad sends MADs of an InfiniBand subnet. For devices without these they fail, and
 * programs print no reason or a wrong one. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>

#include "trace.h"

#define PROVIDER_FUNCTION(name, parameters, arguments)                                             \
	void *name parameters;                                                                     \
	void *name parameters                                                                      \
	{                                                                                          \
		void *(*real) parameters = dlsym(RTLD_NEXT, #name);                                \
		void *made = real ? real arguments : (errno = EOPNOTSUPP, NULL);                   \
                                                                                                   \
		if (!made && errno == EOPNOTSUPP)                                                  \
			rw_explain_vendor(EOPNOTSUPP, #name);                                      \
		return made;                                                                       \
	}

PROVIDER_FUNCTION(mlx5dv_create_qp, (void *context, void *attributes, void *own),
		  (context, attributes, own))
PROVIDER_FUNCTION(efadv_create_qp_ex, (void *context, void *attributes, void *own, uint32_t size),
		  (context, attributes, own, size))
PROVIDER_FUNCTION(efadv_create_driver_qp, (void *pd, void *attributes, uint32_t type),
		  (pd, attributes, type))

int umad_open_port(const char *device, int port);
int umad_open_port(const char *device, int port)
{
	static atomic_flag explained = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&explained))
		rw_warn("umad_open_port: emulated devices are RoCE ports, which answer no MADs of a"
			" subnet; the section 'InfiniBand diagnostics' of 'Run verbs programs' says"
			" what to use");
	return -EOPNOTSUPP;
}
