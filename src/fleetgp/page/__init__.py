"""The page: a fleet that can be watched in a browser. Needs the extra "page"."""
