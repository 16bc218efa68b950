/* SPDX-License-Identifier: MIT
 * A further name with a symbol version for a function of the same C file. */
#pragma once

#define ALIAS(label, target, kind, name)                                                           \
	__asm__(".globl " label "\n.set " label ", " target "\n.type " label ", %" kind             \
		"\n.symver " label ", " name);
