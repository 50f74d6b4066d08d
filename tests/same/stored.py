"""What test_same.py compares with."""

from __future__ import annotations


def write() -> None:
    """placeholder"""
