"""Kernels as people write them: "matern32(lon, lat) * matern12(day) + linear(lon)"; one, or several to choose from.

    sum     = product ("+" product)*
    product = factor ("*" factor)*
    factor  = "(" sum ")" | leaf
    leaf    = name | name "(" input ("," input)* ")"

Without inputs a leaf is a function of all of them. Inputs go by their names, or by their numbers, which begin at 1;
names with other characters than letters, digits, ".", "_" and "-" stand in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fleetgp.errors import InputError, PointedError, shortened, unknown_name
from fleetgp.kernels.composite import OTHERS, Composite, Leaf, Scaled, leaf, leaf_names
from fleetgp.kernels.stationary import KERNELS, Kernel
from fleetgp.registry import NAME

_TOKEN = re.compile(r"""\s*(?:(?P<word>[\w.\-]+)|(?P<quoted>"[^"]*"|'[^']*')|(?P<sign>[()+*,]))""")
#: Terms of the numbers of leaves.
Terms = list[tuple[int, ...]]


def as_kernel(kernel: str | Kernel, inputs: int | Sequence[str] | None = None) -> Kernel:
    """A kernel by name, by expression, or as itself. inputs: how many there are, or what they are called.

    >>> as_kernel("se").name, as_kernel("se(lon) * matern12(day)", ["lon", "day"]).names(["lon", "day"])
    ('se', ('l_lon', 'l_day', 'sigma_f', 'sigma_eps'))
    """
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str):
        raise InputError(f"expected the name of a kernel or a Kernel, got {type(kernel).__name__}")
    if NAME.fullmatch(kernel) and kernel not in ("rq", *OTHERS) and kernel in KERNELS:
        return KERNELS[kernel]
    labels = [str(d + 1) for d in range(inputs)] if isinstance(inputs, int) else list(inputs or ())
    return _simplest(Parser(kernel, labels).kernel(), len(labels))


@dataclass
class Parser:
    """text: the expression.  labels: of all inputs."""

    text: str
    labels: Sequence[str]
    leaves: list[Leaf] = field(default_factory=list)
    _at: int = 0

    def kernel(self) -> Composite:
        terms = self._sum()
        if self._peek():
            raise self._wrong("expected + or * here, or the end")
        return Composite(" ".join(self.text.split()), tuple(self.leaves), tuple(terms))

    def _sum(self) -> Terms:
        terms = self._product()
        while self._take("+"):
            terms += self._product()
        return terms

    def _product(self) -> Terms:
        terms = self._factor()
        while self._take("*"):
            others = self._factor()
            terms = [one + other for one in terms for other in others]
        return terms

    def _factor(self) -> Terms:
        if not self._take("("):
            return self._leaf()
        terms = self._sum()
        if not self._take(")"):
            raise self._wrong("expected a closing bracket")
        return terms

    def _leaf(self) -> Terms:
        start, word = self._word("a kernel")
        if word.lower() == "auto":
            raise self._wrong('expected "auto" alone, and in small letters, or a kernel', start)
        made = leaf(word, ())
        if made is None:
            raise self._wrong(str(unknown_name("kernel", word, leaf_names())), start)
        if self._take("("):
            axes = [self._input()]
            while self._take(","):
                axes.append(self._input())
            if not self._take(")"):
                raise self._wrong("expected a comma or a closing bracket")
        elif not self.labels:
            raise self._wrong("expected the inputs' names, which are not known here", start)
        else:
            axes = list(range(len(self.labels)))
        if len(set(axes)) < len(axes):
            raise self._wrong("expected every input once", start)
        self.leaves.append(replace(made, axes=tuple(sorted(axes))))
        return [(len(self.leaves) - 1,)]

    def _input(self) -> int:
        start, word = self._word("an input")
        if word in self.labels:
            return list(self.labels).index(word)
        if word.isdecimal() and 1 <= int(word) <= len(self.labels):
            return int(word) - 1
        raise self._wrong(str(unknown_name("input", word, self.labels)), start)

    # ---- letter by letter ----------------------------------------------------------------------------------

    def _peek(self) -> str:
        """What is next: a word, a sign, or nothing."""
        if not self.text[self._at :].strip():
            return ""
        result = _TOKEN.match(self.text, self._at)
        if result is None:
            raise self._wrong("expected a kernel, an input, +, *, a comma or a bracket")
        return result.group().strip()

    def _take(self, sign: str) -> bool:
        if self._peek() != sign:
            return False
        self._at = self._begin() + len(sign)
        return True

    def _word(self, what: str) -> tuple[int, str]:
        """The next word and where it begins."""
        word, start = self._peek(), self._begin()
        if not word or word in "()+*,":
            raise self._wrong(f"expected {what} here")
        self._at = start + len(word)
        return start, word.strip("\"'")

    def _begin(self) -> int:
        return len(self.text) - len(self.text[self._at :].lstrip())

    def _wrong(self, what: str, place: int | None = None) -> InputError:
        return PointedError(f"kernel: {what}", self.text.rstrip(), self._begin() if place is None else place)


def _simplest(kernel: Composite, dimension: int) -> Kernel:
    """The same in fewer leaves: a product of squared exponentials of different inputs is one, and a plain kernel of all
    inputs is itself.
    """
    if len(kernel.terms) > 1:
        return kernel
    plain = [one for one in kernel.leaves if type(one) is Scaled and not one.alike]
    axes = [axis for one in plain for axis in one.axes]
    together = len(plain) == 1 or {one.profile for one in plain} == {"se"}
    if len(plain) < len(kernel.leaves) or not together or len(set(axes)) < len(axes):
        return kernel
    one = Scaled(tuple(sorted(axes)), plain[0].profile)
    return KERNELS[one.profile] if len(axes) == dimension else Composite(kernel.name, (one,), ((0,),))


#: What chooses among CANDIDATES, from the smoothest to the roughest.
AUTO = "auto"
CANDIDATES = ("se", "matern52", "matern32", "matern12")

#: One, or those that are compared.
Kernels = tuple[Kernel, ...]


def as_kernels(kernel: object, inputs: int | Sequence[str] | None = None) -> Kernels:
    """A kernel, by name, expression or as itself; "auto"; or a list of kernels to choose from.

    inputs: how many there are, or what they are called.

    >>> [kernel.name for kernel in as_kernels("auto")], [kernel.name for kernel in as_kernels(["se", "matern32"])]
    (['se', 'matern52', 'matern32', 'matern12'], ['se', 'matern32'])
    """
    if isinstance(kernel, str) and kernel == AUTO:
        return tuple(KERNELS[name] for name in CANDIDATES)
    if isinstance(kernel, str | Kernel):
        return (as_kernel(kernel, inputs),)
    if not isinstance(kernel, list | tuple) or not kernel:
        raise InputError(f'expected a kernel, "auto" or a list of kernels, got {shortened(kernel)}')
    result = tuple(as_kernel(one, inputs) for one in kernel)
    names = [one.name for one in result]
    if len(set(names)) < len(names):
        raise InputError(f"expected different kernels to choose from, got {', '.join(names)}")
    return result
