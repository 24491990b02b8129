"""What the Metal lint rules look at: a source with its comments blanked, its kernels and its functions."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tests.emulation.metal_translate import TranslationError, blank_comments, closing, split_list

SPACES = r"\b(?:device|constant|threadgroup|thread)\b"
SCALARS = (
    r"(?:float|half|bfloat|bool|char|uchar|short|ushort|int|uint|long|ulong|size_t|u?int(?:8|16|32|64)_t"
    r"|atomic_\w+|simdgroup_\w+8x8|[TUV])"
)
THREAD_IDS = r"thread_position_in_grid|thread_position_in_threadgroup|thread_index_in_\w+"
POSITIONS = (
    rf"(?:{THREAD_IDS}|threadgroup_position_in_grid|simdgroup_index_in_threadgroup"
    r"|(?:dispatch_)?(?:threads|threadgroups|simdgroups)_per_\w+)"
)


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter: its text with attributes, and where it starts."""

    text: str
    position: int

    @property
    def attributes(self) -> list[tuple[str, str]]:
        """The names and arguments of its attributes."""
        return re.findall(r"\[\[\s*(\w+)\s*(?:\(\s*([^)]*?)\s*\))?\s*\]\]", self.text)

    @property
    def name(self) -> str:
        """The name it declares."""
        declaration = re.sub(r"\[\[.*?\]\]", "", self.text).strip()
        return re.search(r"\w*$", declaration)[0]


@dataclass(frozen=True)
class Function:
    """A function with a body. ``head`` is the text between the end of the previous item and the name."""

    name: str
    head: str
    position: int
    parameters: tuple[Parameter, ...]
    body: str
    body_position: int

    @property
    def is_kernel(self) -> bool:
        """Whether the host can dispatch it."""
        return re.search(r"\bkernel\b", self.head) is not None

    def names_with(self, attribute: str) -> list[str]:
        """Return the parameters that carry an attribute matching the pattern."""
        return [
            p.name for p in self.parameters if any(re.fullmatch(attribute, name) for name, _ in p.attributes)
        ]


class Source:
    """A Metal source. ``code`` has comments, strings and conditional directives blanked; positions agree."""

    def __init__(self, text: str):
        self.text = text
        directives = re.compile(r"^[ \t]*#[ \t]*(?!include|define)[^\n]*", re.M)
        self.code = directives.sub(lambda m: " " * len(m[0]), blank_comments(text, strings=True))
        self.commentless = blank_comments(text)

    def line(self, position: int) -> int:
        """Return the number of the line, from 1, that holds a position."""
        return self.text.count("\n", 0, position) + 1

    @cached_property
    def functions(self) -> list[Function]:
        """All functions that have a body."""
        return list(self._find_functions())

    @property
    def kernels(self) -> list[Function]:
        """The functions that the host can dispatch."""
        return [function for function in self.functions if function.is_kernel]

    @cached_property
    def outside_braces(self) -> str:
        """The code at program scope: what braces and template parameter lists hold is blanked."""
        code, changed = re.sub(r"\btemplate\s*<[^;{}()]*>(?=\s*[\w\[])", _blank, self.code), 1
        while changed:
            code, changed = re.subn(r"\{[^{}]*\}", _blank, code)
        return code

    def _find_functions(self) -> Iterator[Function]:
        code = self.code
        for match in re.finditer(r"\b(?!(?:if|for|while|switch|return|defined|_Pragma)\b)(\w+)\s*\(", code):
            try:
                end = closing(code, match.end() - 1)
            except TranslationError:
                continue  # an unbalanced macro
            opening = re.compile(r"\s*\{").match(code, end + 1)
            if opening is None:
                continue
            head_start = max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1
            body_start = opening.end() - 1
            yield Function(
                match[1],
                code[head_start : match.start()],
                match.start(),
                tuple(_parameters(code[match.end() : end], match.end())),
                code[body_start : closing(code, body_start) + 1],
                body_start,
            )


@dataclass(frozen=True)
class Rule:
    """One rule of the lint.

    Attributes:
        id: What ``// lint: allow(id)`` names.
        sentence: What the source must do, or why it must not.
        confidence: How sure it is that Apple's compiler or GPUs need it: high or medium.
        good: A source that keeps the rule.
        bad: A source that breaks it.
        find: Returns the positions at which a source breaks it.
    """

    id: str
    sentence: str
    confidence: str
    good: str
    bad: str
    find: Callable[[Source], Iterable[int]]


def pattern(expression: str) -> Callable[[Source], Iterable[int]]:
    """Return a finder of every match of a regular expression in the code."""
    compiled = re.compile(expression, re.M)
    return lambda source: [match.start() for match in compiled.finditer(source.code)]


def in_parameters(expression: str) -> Callable[[Source], Iterable[int]]:
    """Return a finder of kernel parameters that match a regular expression."""
    compiled = re.compile(expression)
    return lambda source: [
        parameter.position
        for kernel in source.kernels
        for parameter in kernel.parameters
        if compiled.search(parameter.text)
    ]


def one_kernel(
    body: str, parameters: str = "device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]"
) -> str:
    """Return the source of a kernel, for snippets."""
    return f"kernel void k({parameters}) {{ {body} }}\n"


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _parameters(text: str, start: int) -> Iterator[Parameter]:
    position = 0
    for part in split_list(text):
        position = text.index(part, position)
        yield Parameter(part, start + position)
        position += len(part)
