"""The service behind the stand-in ``libibverbs.so.1``: emulated devices for unmodified programs."""
