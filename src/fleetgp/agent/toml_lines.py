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
        self._text, self._lines = text, text.split("\n")
        self._begins: dict[TomlPath, int] = {}
        self._ends: dict[TomlPath, int] = {}
        counts: dict[TomlPath, int] = {}
        table: TomlPath = ()
        number = place = 0  # of a line, and where it begins
        while number < len(self._lines):
            line = self._lines[number]
            header, key = _HEADER.match(line), _KEY.match(line)
            end = number
            if key is not None:
                end = number + self._lines_of_value(place + key.end())
                path = (*table, *_names(key.group(1)))
                for length in range(1, len(path) + 1):
                    self._begins.setdefault(path[:length], number)
                self._ends[path] = end
            elif header is not None:
                table = self._table(_names(header.group(2)), header.group(1) == "[[", counts)
                self._begins.setdefault(table, number)
            place += sum(len(line) + 1 for line in self._lines[number : end + 1])
            number = end + 1

    def of(self, path: TomlPath, value: object = None) -> int:
        """The line of a path, counted from 1, or of the nearest that contains it.

        value: within a statement of several lines, where this string stands.
        """
        for length in range(len(path), 0, -1):
            if path[:length] in self._begins:
                first, last = self._begins[path[:length]], self._ends.get(path[:length], -1)
                quoted = (f'"{value}"', f"'{value}'") if isinstance(value, str) else ()
                for number in range(first, last + 1):
                    if any(text in self._lines[number] for text in quoted):
                        return number + 1
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

    def _lines_of_value(self, place: int) -> int:
        """The number of line ends in the value that begins at a place of the text."""
        depth = lines = 0
        for match in _TOKEN.finditer(self._text, place):
            token = match.group()
            if token == "\n" and depth <= 0:
                return lines
            depth += (token in "[{") - (token in "]}")
            lines += token.count("\n")
        return lines


def keys_in(text: str) -> int:
    """How many values, tables and lists a TOML text has, at most.

    >>> keys_in("a = 1\\n[b]\\nc.d = 'e = f' # g = h")
    3
    """
    return sum(token.group() in "=[" for token in _TOKEN.finditer(text))


def too_deep(text: str) -> int:
    """The line on which values are nested, or keys dotted, too deep for the standard parser; 0 if there is none.

    >>> too_deep("a = 1\\nb = " + 30 * "[" + 30 * "]"), too_deep("a = 1\\n" + 30 * "b." + "b = 1")
    (2, 2)
    >>> too_deep("a = '" + 30 * "[" + "' # " + 30 * "{")
    0
    """
    line, depth, dots = 1, 0, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
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
