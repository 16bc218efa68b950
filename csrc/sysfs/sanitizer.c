/* SPDX-License-Identifier: MIT
 * AddressSanitizer ends a program whose first library is not its own, since one before it might
 * allocate memory in another way. This library does not, and may come first. */
const char *__asan_default_options(void);

/* AddressSanitizer calls the function of this name, or the program's own. */
const char *__asan_default_options(void)
{
	return "verify_asan_link_order=0";
}
