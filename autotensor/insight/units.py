"""Numbers as people read them: times, rates, shares, sizes."""

from __future__ import annotations


def micros(seconds: float | None) -> str:
    """
    >>> micros(0.0123456), micros(1.5e-6), micros(None)
    ('12,346', '1.50', '-')
    """
    if seconds is None:
        return "-"
    us = seconds * 1e6
    return f"{us:,.0f}" if us >= 100 else f"{us:.1f}" if us >= 10 else f"{us:.2f}"


def millis(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.1 else f"{seconds * 1e3:,.0f} ms"


def gflops(flops: float, seconds: float | None) -> str:
    """Rate in GFLOP/s; a dash if there are no operations to count."""
    if not seconds or not flops:
        return "-"
    rate = flops / seconds / 1e9
    return f"{rate:.1f}" if rate >= 10 else f"{rate:.2f}"


def percent(share: float | None) -> str:
    """
    >>> percent(0.714), percent(0.0333), percent(0.0004), percent(0.0), percent(None)
    ('71 %', '3.3 %', '< 0.1 %', '0 %', '-')
    """
    if share is None:
        return "-"
    if share == 0.0:
        return "0 %"
    return "< 0.1 %" if 0.0 < share < 0.001 else f"{share * 100:.{0 if share >= 0.1 else 1}f} %"


def size(count: float) -> str:
    """
    >>> size(512), size(3 << 20)
    ('512 B', '3.15 MB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}" if count < 100 * scale else f"{count / scale:.0f} {unit}"
    return f"{count:.0f} B"


def amount(count: float) -> str:
    """A count with few digits: three digits from a hundred thousand on.

    >>> amount(1.0), amount(2.54), amount(12345.0), amount(28.9e6)
    ('1', '2.5', '12,345', '28.9 M')
    """
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= max(scale, 1e5):
            return f"{count / scale:.3g} {unit}"
    return f"{count:,.0f}" if count >= 10 or count == round(count) else f"{count:.1f}"


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(3725)
    ('1:15', '1:02:05')
    """
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
