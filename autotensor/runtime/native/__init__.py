"""Threads, and the way into a kernel: the parts of the runtime that are native code."""
