"""The shipped test vectors: what each shows, and how to find one."""
