"""The schedulers that may be used: those that check certificates of callers, and those on this machine.

Anybody who can reach a scheduler can run Python on all its workers. So a scheduler without certificates may
only be at a loopback address.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from autotensor.base.errors import InputError


def checked_address(address: str) -> str:
    """The address in the form that dask takes, with its scheme.

    >>> checked_address("localhost:8786"), checked_address("tls://scheduler:8786")
    ('tcp://localhost:8786', 'tls://scheduler:8786')

    Raises InputError for text that is not an address, and for a scheduler without certificates that is not at
    a loopback address.
    """
    full = address if "://" in address else f"tcp://{address}"
    try:
        parts = urlsplit(full)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or port is None or parts.scheme not in ("tcp", "tls"):
        raise InputError(f"{address!r} is not a scheduler's address.", fix="Write tls://HOST:PORT.")
    if parts.scheme == "tcp" and not is_loopback(host):
        raise InputError(
            f"the scheduler {address!r} is plain and not on this machine: whoever reaches it runs programs "
            "on every worker.",
            fix=f"Start it with certificates and write tls://{parts.netloc} (docs/fleet.md).",
        )
    return full


def is_loopback(host: str) -> bool:
    """Whether the host of an address is this machine, at an address that no other machine can reach.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("10.0.0.4")
    (True, True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


__all__ = ["checked_address", "is_loopback"]
