"""The ways a Metal compiler and GPU may round, as builds of the emulation."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Mode:
    """One choice of the arithmetic that Metal leaves open.

    Attributes:
        flags: Compiler flags of the build.
        flush_subnormals: Subnormal operands and results count as zero.
        division_ulp: Error of every float division and approximate function, in units in the last place.
    """

    flags: tuple[str, ...] = ("-ffp-contract=off",)
    flush_subnormals: bool = False
    division_ulp: int = 0


# -ffast-math itself would change the rounding of the whole process when the library is loaded.
_FAST_MATH = (
    "-fassociative-math -fno-signed-zeros -fno-trapping-math -fno-math-errno -freciprocal-math "
    "-fno-honor-nans -fno-honor-infinities -ffp-contract=fast"
)

MODES = {
    "exact": Mode(),
    "flush": Mode(flush_subnormals=True),
    "contract": Mode(flags=("-ffp-contract=fast",)),
    "division_high": Mode(division_ulp=1),
    "division_low": Mode(division_ulp=-1),
    "fast": Mode(flags=tuple(_FAST_MATH.split())),
}

_FLOAT_DIVISION = re.compile(
    r"^  (?P<result>%\S+) = fdiv (?:[a-z]+ )*(?P<type>float|<(?P<size>\d+) x float>)"
    r" (?P<operands>.+?)(?:, !.*)?$",
    re.M,
)


def replace_divisions(ir: str) -> str:
    """Replace each float division in textual LLVM IR by a call of ``emulation_divide``."""
    return _FLOAT_DIVISION.sub(_call_divide, ir)


def _call_divide(match: re.Match[str]) -> str:
    result, type_ = match["result"], match["type"]
    left, right = _split_operands(match["operands"])
    if match["size"] is None:
        return f"  {result} = call float @emulation_divide(float {left}, float {right})"
    name = f"%division.{match.start()}"
    lines, vector = [], "poison"
    for i in range(int(match["size"])):
        target = result if i + 1 == int(match["size"]) else f"{name}.v{i}"
        lines += [
            f"  {name}.a{i} = extractelement {type_} {left}, i32 {i}",
            f"  {name}.b{i} = extractelement {type_} {right}, i32 {i}",
            f"  {name}.q{i} = call float @emulation_divide(float {name}.a{i}, float {name}.b{i})",
            f"  {target} = insertelement {type_} {vector}, float {name}.q{i}, i32 {i}",
        ]
        vector = target
    return "\n".join(lines)


def _split_operands(text: str) -> tuple[str, str]:
    depth = 0
    for position, character in enumerate(text):
        depth += (character in "<([{") - (character in ">)]}")
        if character == "," and depth == 0:
            return text[:position], text[position + 1 :].strip()
    raise ValueError(f"not the two operands of a division: {text}")
