"""The version, for whoever writes it on disk: it loads nothing."""

__version__ = "0.1.0"
