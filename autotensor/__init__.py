"""autotensor."""
