"""The functions of ``librdmawire-sysfs.so``, which LD_PRELOAD puts before those of the C library.

They have no versions: so they stand for every version of the function that a program asks for. This
module imports the standard library alone.
"""

from collections.abc import Iterator
from typing import NamedTuple

SONAME = "librdmawire-sysfs.so"
SOURCES = ("../ibverbs/trace.c",)

_NAMES = (
    "open open64 openat openat64 __open_2 __open64_2 __openat_2 __openat64_2 fopen fopen64 read"
    " __read_chk pread pread64 __pread_chk __pread64_chk opendir freopen freopen64 creat creat64"
    " scandir scandir64 access faccessat euidaccess eaccess stat stat64 lstat lstat64 fstatat"
    " fstatat64 statx __xstat __xstat64 __lxstat __lxstat64 __fxstatat __fxstatat64 readlink"
    " readlinkat __readlink_chk __readlinkat_chk realpath __realpath_chk canonicalize_file_name"
    " getxattr lgetxattr listxattr llistxattr chdir posix_spawn_file_actions_addchdir_np"
    " posix_spawn_file_actions_addchdir getcwd __getcwd_chk get_current_dir_name glob glob64"
    " execve execv execvp execvpe __asan_default_options fchdir dup dup2 dup3 fcntl fcntl64 unlink"
    " unlinkat rmdir remove mkdir mkdirat mkfifo mkfifoat mknod mknodat __xmknod __xmknodat symlink"
    " symlinkat chmod lchmod fchmodat chown lchown fchownat truncate truncate64 utime utimes"
    " lutimes futimesat utimensat setxattr lsetxattr removexattr lremovexattr rename renameat"
    " renameat2 link linkat fchmod fchown futimens futimes fsetxattr fremovexattr"
)
_PROVIDERS = "mlx5dv_create_qp efadv_create_qp_ex efadv_create_driver_qp umad_open_port"
"""Functions of vendors' libraries and of libibumad, whose results are explained."""


class Export(NamedTuple):
    """A function without a version."""

    name: str
    version: str = ""
    refusal: None = None
    default: bool = True


def exports() -> Iterator[Export]:
    """Yield all functions."""
    return map(Export, f"{_NAMES} {_PROVIDERS}".split())
