"""How printable objects look in a notebook: the text of `print(x)`, with the marks of loops in bold.

    class Schedule(ShownInNotebooks): …        a cell that ends with a schedule shows its loops

Jupyter calls `_repr_html_`; this needs no import.
"""

from __future__ import annotations

import html
import re

_MARK = re.compile(r"(?<= in )(?!range\b)\w+(?=\()")  # parallel, vectorized, unrolled, threadIdx, …
_STYLE = "line-height:1.35;overflow-x:auto"


class ShownInNotebooks:
    """Base of classes whose `str` is worth reading."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        text = _MARK.sub(lambda mark: f"<b>{mark[0]}</b>", html.escape(str(self), quote=False))
        return f'<pre style="{_STYLE}">{text}</pre>'


__all__ = ["ShownInNotebooks"]
