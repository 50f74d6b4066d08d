"""Where in a TOML file a value stands, which the standard parser does not tell; and whether a text is a sane one."""

from __future__ import annotations

import re

TomlPath = tuple[str | int, ...]

_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_HEADER = re.compile(r"\s*(\[\[?)([^\]]+)\]")
# Strings (also those that never end: each is passed over once), comments, and what makes nesting.
_TOKEN = re.compile(
    r'''"""(?:[^\\]|\\.)*?(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z)|"(?:[^"\\\n]|\\.)*+"?|\'[^\'\n]*+\'?|\#[^\n]*+|[\[\]{}.,=\n]''',
    re.DOTALL,
)
#: Tables in tables, and names in a dotted key. A description has at most three.
DEEPEST = 20


class Lines:
    """The lines of a well-formed TOML file, by path: keys, and positions in arrays.

    >>> lines = Lines('name = "bay"\\n\\n[[agent]]\\nname = "a"\\nneighbours = [\\n  "b",\\n  "q",\\n]\\n')
    >>> lines.of(("name",)), lines.of(("agent", 0, "name")), lines.of(("agent", 0, "neighbours", 1), "q")
    (1, 4, 7)
    >>> lines.of(("agent", 0, "data"))  # not there: the line of what should have it
    3
    """

    def __init__(self, text: str) -> None:
        self._text = text.splitlines()
        self._lines: dict[TomlPath, int] = {}
        self._ends: dict[TomlPath, int] = {}
        counts: dict[TomlPath, int] = {}
        table: TomlPath = ()
        number = 0
        while number < len(self._text):
            line = self._text[number]
            header, key = _HEADER.match(line), _KEY.match(line)
            end = number
            if key is None and header is not None:
                table = self._table(_names(header.group(2)), header.group(1) == "[[", counts)
                self._lines.setdefault(table, number)
            elif key is not None:
                end = self._statement_end(number, key.end())
                path = (*table, *_names(key.group(1)))
                for length in range(1, len(path) + 1):
                    self._lines.setdefault(path[:length], number)
                self._ends[path] = end
            number = end + 1

    def of(self, path: TomlPath, value: object = None) -> int:
        """The line of a path, counted from 1, or of the nearest that contains it.

        value: within a statement of several lines, where this string stands.
        """
        for length in range(len(path), 0, -1):
            found = path[:length]
            if found in self._lines:
                first = self._lines[found]
                quoted = (f'"{value}"', f"'{value}'") if isinstance(value, str) else ()
                for line in range(first, self._ends.get(found, first) + 1):
                    if any(text in self._text[line] for text in quoted):
                        return line + 1
                return first + 1
        return 1

    def _table(self, names: TomlPath, array: bool, counts: dict[TomlPath, int]) -> TomlPath:
        path: TomlPath = ()
        for depth, name in enumerate(names):
            path = (*path, name)
            last = depth == len(names) - 1
            if array and last:
                counts[path] = counts.get(path, -1) + 1
            if path in counts:
                path = (*path, counts[path])
        return path

    def _statement_end(self, number: int, column: int) -> int:
        """The line on which the value that begins here ends."""
        depth, quote = 0, ""
        while True:
            line = self._text[number]
            while column < len(line):
                if quote:
                    if line[column] == "\\" and quote[0] == '"':
                        column += 2
                        continue
                    if line.startswith(quote, column):
                        column += len(quote)
                        quote = ""
                        continue
                elif line[column] == "#":
                    break
                elif line[column] in "\"'":
                    quote = line[column] * (3 if line.startswith(line[column] * 3, column) else 1)
                    column += len(quote)
                    continue
                else:
                    depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(line[column], 0)
                column += 1
            if (depth <= 0 and len(quote) != 3) or number + 1 >= len(self._text):
                return number
            number, column = number + 1, 0


def keys_in(text: str) -> int:
    """How many values, tables and lists a TOML text has, at most.

    >>> keys_in("a = 1\\n[b]\\nc.d = 'e = f' # g = h")
    3
    """
    return sum(found.group() in "=[" for found in _TOKEN.finditer(text))


def too_deep(text: str) -> int:
    """The line on which values are nested, or keys dotted, too deep for the standard parser; 0 if there is none.

    >>> too_deep("a = 1\\nb = " + 30 * "[" + 30 * "]"), too_deep("a = 1\\n" + 30 * "b." + "b = 1")
    (2, 2)
    >>> too_deep("a = '" + 30 * "[" + "' # " + 30 * "{")
    0
    """
    line, depth, dots = 1, 0, 0
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token == ".":
            dots += 1
        elif token[0] not in "\"'#":
            dots = 0
            depth = max(0, depth + (token in "[{") - (token in "]}"))
        if depth > DEEPEST or dots > DEEPEST:
            return line
        line += token.count("\n")
    return 0


def _names(dotted: str) -> TomlPath:
    return tuple(part.strip("\"' \t") for part in re.findall(r""""[^"]*"|'[^']*'|[\w-]+""", dotted))
