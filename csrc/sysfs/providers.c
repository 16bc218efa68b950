/* SPDX-License-Identifier: MIT
 * Functions of vendors' libraries that create their own kinds of queue pairs. For devices that are
 * not the vendor's they return null with EOPNOTSUPP, and programs print no reason. */
#include <dlfcn.h>
#include <errno.h>
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
