"""Turns Metal source into C++ for the headers in metal/.

Three things are rewritten, everything else is C++ already: variables declared ``threadgroup`` become
references into storage of the emulation, vector constructors become calls, and explicit instantiations with a
``host_name`` are taken out. For every kernel a C function is added that calls it once per thread.
"""

import re
from dataclasses import dataclass

_POSITIONS = {
    "thread_position_in_grid": "group.group_position * group.group_size + group.current().position",
    "thread_position_in_threadgroup": "group.current().position",
    "threadgroup_position_in_grid": "group.group_position",
    "threads_per_threadgroup": "group.size",
    "dispatch_threads_per_threadgroup": "group.group_size",
    "threads_per_grid": "group.grid_size",
    "threadgroups_per_grid": "group.groups_per_grid",
}
_INDICES = {
    "thread_index_in_threadgroup": "group.thread_index()",
    "thread_index_in_simdgroup": "group.thread_index() % emulation::simd_width",
    "simdgroup_index_in_threadgroup": "group.thread_index() / emulation::simd_width",
    "threads_per_simdgroup": "emulation::simd_width",
    "thread_execution_width": "emulation::simd_width",
    "simdgroups_per_threadgroup": "group.simdgroup_count()",
}
_VECTOR = r"(?:char|uchar|short|ushort|int|uint|long|ulong|half|bfloat|float)[234]|vec\s*<[^<>;(){}]*>"
_ATTRIBUTE = re.compile(r"\[\[\s*(\w+)\s*(?:\(\s*([^)]*?)\s*\))?\s*\]\]")
_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
_KERNEL = re.compile(
    r"(?:template\s*<(?P<template>[^{};]*?)>\s*)?(?P<attributes>(?:\[\[[^\]]*\]\]\s*)*)"
    r"\bkernel\s+(?P<more>(?:\[\[[^\]]*\]\]\s*)*)void\s+(?P<name>\w+)\s*(?P<open>\()"
)
_INSTANTIATION = re.compile(
    r"template\s*\[\[\s*host_name\s*\(\s*\"(?P<host>\w+)\"\s*\)\s*\]\]\s*(?:\[\[\s*kernel\s*\]\]|kernel)\s*"
    r"(?:void|decltype\s*\([^;]*?\))\s*(?P<name>\w+)\s*<(?P<arguments>[^;()]*)>\s*(?:\([^;]*\))?\s*;"
)
_SHARED = re.compile(
    r"\bthreadgroup\s+(?P<type>[\w:]+(?:\s*<[^<>;]*>)?)\s+(?P<name>\w+)\s*(?P<shape>(?:\[[^\];]*\]\s*)*);"
)
_SHARED_LIST = re.compile(r"\bthreadgroup\s+[\w:]+(?:\s*<[^<>;]*>)?\s+\w+\s*(?:\[[^\];]*\]\s*)*[,=]")


class TranslationError(ValueError):
    """The source uses a form that the translation does not know, or that Metal forbids."""


@dataclass(frozen=True)
class Buffer:
    """A kernel parameter that the host binds to a buffer slot."""

    name: str
    index: int
    space: str  # device or constant
    element: str  # element type, template parameters substituted
    is_reference: bool


@dataclass(frozen=True)
class Kernel:
    """A kernel as the host sees it: by its host name, with its buffers in the order of their slots."""

    host_name: str
    buffers: tuple[Buffer, ...]
    max_threads: int


@dataclass(frozen=True)
class _Parameter:
    type: str
    name: str
    attribute: str
    argument: str


@dataclass(frozen=True)
class _Function:
    name: str
    template: str
    parameters: tuple[_Parameter, ...]
    body: tuple[int, int]
    shared: tuple[str, ...]  # C++ types of its threadgroup variables
    max_threads: int

    def template_names(self) -> list[str]:
        return [parameter.split()[-1] for parameter in split_list(self.template)]


def blank_comments(source: str, *, strings: bool = False) -> str:
    """Replace comments, and string literals when asked, by blanks: every position and line stays."""

    def blank(match: re.Match[str]) -> str:
        text = match.group(0)
        return text if text.startswith('"') and not strings else re.sub(r"[^\n]", " ", text)

    return _COMMENT_OR_STRING.sub(blank, source)


def split_list(text: str) -> list[str]:
    """Split at the commas that are outside of brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def closing(text: str, opening: int) -> int:
    """Return the position of the bracket that closes the one at ``opening``."""
    pair = {"(": ")", "{": "}", "[": "]"}[text[opening]]
    depth = 0
    for position in range(opening, len(text)):
        depth += (text[position] == text[opening]) - (text[position] == pair)
        if depth == 0:
            return position
    raise TranslationError(f"no closing {pair} for the bracket at position {opening}")


def translate(source: str, file_name: str) -> tuple[str, list[Kernel]]:
    """Translate one Metal source.

    Args:
        source: The Metal source, with its own includes already inlined.
        file_name: What compiler messages call the source.

    Returns:
        The C++ source and the kernels it exports.

    Raises:
        TranslationError: The source cannot be translated.
    """
    code = blank_comments(source)
    functions = {function.name: function for function in _find_functions(code)}
    instances = [(name, name, []) for name, function in functions.items() if not function.template]
    for match in _INSTANTIATION.finditer(code):
        if match["name"] not in functions:
            raise TranslationError(f"instantiation {match['host']} names no kernel template: {match['name']}")
        instances.append((match["host"], match["name"], split_list(match["arguments"])))
    kernels, wrappers = [], []
    for host_name, name, arguments in instances:
        function = functions[name]
        types = dict(zip(function.template_names(), arguments, strict=True))
        kernels.append(Kernel(host_name, _buffers(function, types), function.max_threads))
        wrappers.append(_wrapper(host_name, function, arguments, types))
    body = _rewrite(code, [function.body for function in functions.values()])
    lines = ["#include <metal_stdlib>", f'#line 1 "{file_name}"', body, '#line 1 "wrappers"']
    return "\n".join([*lines, *wrappers, ""]), kernels


def _find_functions(code: str) -> list[_Function]:
    functions = []
    for match in _KERNEL.finditer(code):
        end = closing(code, match.start("open"))
        body_start = code.find("{", end)
        if code[end + 1 : body_start].strip():
            continue  # an explicit instantiation
        body = (body_start, closing(code, body_start))
        shared = [
            f"{declaration['type']}{declaration['shape']}" for declaration in _SHARED.finditer(code, *body)
        ]
        limit = re.search(
            r"max_total_threads_per_threadgroup\s*\(\s*(\d+)", match["attributes"] + match["more"]
        )
        functions.append(
            _Function(
                match["name"],
                match["template"] or "",
                tuple(_parameter(text) for text in split_list(code[match.end() : end])),
                body,
                tuple(shared),
                int(limit[1]) if limit else 1024,
            )
        )
    return functions


def _parameter(text: str) -> _Parameter:
    attributes = _ATTRIBUTE.findall(text)
    declaration = re.fullmatch(r"(.*?)(\w+)", _ATTRIBUTE.sub("", text).strip(), re.S)
    if declaration is None:
        raise TranslationError(f"a kernel parameter has no name: {text}")
    attribute, argument = attributes[0] if attributes else ("buffer", "")
    return _Parameter(declaration[1].strip(), declaration[2], attribute, argument)


def _substitute(text: str, types: dict[str, str]) -> str:
    for name, argument in types.items():
        text = re.sub(rf"\b{name}\b", argument, text)
    return text


def _buffers(function: _Function, types: dict[str, str]) -> tuple[Buffer, ...]:
    buffers = []
    for parameter in function.parameters:
        if parameter.attribute != "buffer":
            continue
        declared = re.search(r"\b(device|constant)\b", parameter.type)
        if declared is None or parameter.type[-1] not in "*&":
            raise TranslationError(
                f"parameter {parameter.name} of {function.name} needs an attribute, or a device or constant "
                "pointer or reference type"
            )
        element = re.sub(r"\b(?:device|constant|const|volatile)\b|[*&]", "", parameter.type).strip()
        index = int(parameter.argument) if parameter.argument else len(buffers)
        buffers.append(
            Buffer(parameter.name, index, declared[1], _substitute(element, types), parameter.type[-1] == "&")
        )
    buffers.sort(key=lambda buffer: buffer.index)
    if [buffer.index for buffer in buffers] != list(range(len(buffers))):
        raise TranslationError(f"the buffer indices of {function.name} are not 0, 1, 2, ...")
    return tuple(buffers)


def _wrapper(host_name: str, function: _Function, arguments: list[str], types: dict[str, str]) -> str:
    call = []
    slots = {buffer.name: buffer.index for buffer in _buffers(function, types)}
    for parameter in function.parameters:
        declared = _substitute(parameter.type, types)
        if parameter.name in slots:
            slot = f"buffers[{slots[parameter.name]}]"
            call.append(f"*({declared[:-1]}*){slot}" if declared.endswith("&") else f"({declared}){slot}")
        elif parameter.attribute in _POSITIONS:
            call.append(f"emulation::position_as<{declared}>({_POSITIONS[parameter.attribute]})")
        elif parameter.attribute in _INDICES:
            call.append(f"({declared})({_INDICES[parameter.attribute]})")
        else:
            raise TranslationError(
                f"attribute [[{parameter.attribute}]] of {function.name} cannot be served by compile_shader"
            )
    sizes = " + ".join(f"(sizeof({_substitute(type_, types)}) + 15) / 16 * 16" for type_ in function.shared)
    instance = f"{function.name}<{', '.join(arguments)}>" if arguments else function.name
    return (
        f"EMULATION_EXPORT const unsigned long threadgroup_bytes_{host_name} = {sizes or '0'};\n"
        f"EMULATION_EXPORT int launch_{host_name}(\n"
        "    void* const* buffers, const emulation::Dispatch* dispatch) {\n"
        "  emulation::Threadgroup& group = emulation::threadgroup_state;\n"
        f"  return emulation::launch(*dispatch, [buffers, &group] {{ {instance}({', '.join(call)}); }});\n"
        "}"
    )


def _rewrite(code: str, bodies: list[tuple[int, int]]) -> str:
    if bad := _SHARED_LIST.search(code):
        raise TranslationError(
            f"declare one threadgroup variable a statement, without initialiser: {bad[0].strip()}"
        )
    slots = iter(range(len(code)))

    def shared_variable(match: re.Match[str]) -> str:
        if not any(start < match.start() < end for start, end in bodies):
            raise TranslationError(f"threadgroup variable outside of a kernel body: {match['name']}")
        type_ = f"{match['type']}{match['shape'].strip()}"
        reference = f"(&{match['name']}){match['shape'].strip()}"
        storage = f"emulation::threadgroup_memory<{type_}>({next(slots)})"
        return f"threadgroup {match['type']} {reference} = {storage};"

    # Instantiations go last: the positions of the bodies refer to the text before any rewriting.
    code = _SHARED.sub(shared_variable, code)
    code = _INSTANTIATION.sub(lambda match: "\n" * match[0].count("\n"), code)
    return re.sub(rf"\b({_VECTOR})\s*\((?!\s*[*&])", r"emulation::make_vector<\1>(", code)
