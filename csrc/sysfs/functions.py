"""``librdmawire-sysfs.so``, which LD_PRELOAD puts before the C library.

Its functions have no versions: so they stand for every version that a program asks for.
"""

SONAME = "librdmawire-sysfs.so"
SOURCES = ("../ibverbs/trace.c",)
