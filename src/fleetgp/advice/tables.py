"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns below each other; the first `left` ones begin at the left, the others end at the right.

    >>> print(aligned(["method", "bytes"], [["dec-poe", "12"], ["dec-npae", "3456"]]))
    method    bytes
    dec-poe      12
    dec-npae   3456
    """
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[k]) for row in table) for k in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
    return "\n".join(line.rstrip() for line in lines)
