"""Bytes to values and back: header tables and the codecs made from them.

Nothing here keeps state, reads a clock or does I/O.
"""
