"""Rules of threads and blocks."""
