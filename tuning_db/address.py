"""Addresses of databases without their passwords, for messages. A URL may hold passwords in several places.

>>> shown("postgresql://ada:secret@host/log?password=other&sslmode=require")
'postgresql://ada:***@host/log?password=***&sslmode=require'
"""

from __future__ import annotations

import re
from urllib.parse import unquote

HIDDEN = "***"
_SECRET = re.compile(r"pass(?!file)|pwd|secret|token|credential", re.IGNORECASE)
_SHORTEST = 4  # least length of a password that is removed from a text; shorter ones would damage other words


def shown(address: str) -> str:
    """The address without passwords. A path is returned unchanged.

    >>> shown("tuning.db"), shown("sqlite:///a.db"), shown("postgresql://ada:p@ss@h/db?sslpassword=x")
    ('tuning.db', 'sqlite:///a.db', 'postgresql://ada:***@h/db?sslpassword=***')
    """
    scheme, colon, rest = address.partition("://")
    if not colon:
        return address
    user, at, host, query = _parts(rest)
    name, separator, password = user.partition(":")
    user = f"{name}:{HIDDEN}" if separator and password else user
    mark = "?" if query else ""
    return f"{scheme}{colon}{user}{at}{host}{mark}{'&'.join(map(_shown_pair, query.split('&')))}"


def _parts(rest: str) -> tuple[str, str, str, str]:
    """The parts of an address after `://`: user and password, `@`, host and database, query.

    >>> _parts("ada:p?q@host/log"), _parts("host/log?user=ada")
    (('ada:p?q', '@', 'host/log', ''), ('', '', 'host/log', 'user=ada'))
    """
    front, _, query = rest.partition("?")
    if "@" not in front and "@" in query:  # a password contains ? instead of %3F
        user, at, rest = rest.rpartition("@")
        return (user, at, *rest.partition("?")[::2])
    return (*front.rpartition("@"), query)


def _shown_pair(pair: str) -> str:
    """
    >>> _shown_pair("PASS%77ORD=x"), _shown_pair("passfile=/home/ada/.pgpass"), _shown_pair("sslmode=disable")
    ('PASS%77ORD=***', 'passfile=/home/ada/.pgpass', 'sslmode=disable')
    """
    name, equals, value = pair.partition("=")
    return f"{name}={HIDDEN}" if equals and value and _SECRET.search(unquote(name)) else pair


def without_passwords(text: str, address: str) -> str:
    """A text, such as a driver's message, with the address and its passwords removed.

    >>> without_passwords("cannot log in with secret", "postgresql://ada:secret@host/log")
    'cannot log in with ***'
    """
    text = text.replace(address, shown(address))
    for secret in sorted(_passwords(address), key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, HIDDEN)
    return text


def _passwords(address: str) -> set[str]:
    """The passwords of an address, each as it is written and decoded."""
    user, _, _, query = _parts(address.partition("://")[2])
    found = {user.partition(":")[2]}
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if _SECRET.search(unquote(name)):
            found.add(value)
    return {s for secret in found if secret for s in (secret, unquote(secret))}


__all__ = ["shown", "without_passwords"]
