"""The passes of the pipeline that all targets share, one per file."""
