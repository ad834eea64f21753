"""Threads, and the way into a kernel, as native code: launcher, pool, affinity, shared work."""
