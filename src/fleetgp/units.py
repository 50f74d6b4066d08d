"""Bytes and seconds as people read them."""

from __future__ import annotations


def readable_bytes(count: int) -> str:
    """Format a number of bytes.

    >>> readable_bytes(123456)
    '123 kB'
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def counted(count: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "agent"), counted(2_000, "agent")
    ('1 agent', '2,000 agents')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def readable_seconds(seconds: float) -> str:
    """Format a time in seconds with two or three digits.

    >>> readable_seconds(0.00123), readable_seconds(0.2699), readable_seconds(2.3), readable_seconds(754)
    ('1.2 ms', '270 ms', '2.3 s', '12.6 min')
    """
    if seconds < 0.9995:
        return f"{1e3 * seconds:.2g} ms" if seconds < 0.00995 else f"{1e3 * seconds:.0f} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"
