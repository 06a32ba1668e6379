"""Bytes to values and back, without any input or output."""
