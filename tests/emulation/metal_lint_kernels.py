"""Lint rules about kernels: their parameters, their groups, and what torch can bind."""

import re
from collections.abc import Iterator

from tests.emulation.metal_lint_source import (
    POSITIONS,
    SCALARS,
    THREAD_IDS,
    Function,
    Rule,
    Source,
    in_parameters,
    one_kernel,
    pattern,
)
from tests.emulation.metal_translate import closing

_THREADGROUP_BYTES = 32768
_MAX_BUFFERS = 31
_SIZES = {
    "bool": 1,
    "char": 1,
    "uchar": 1,
    "half": 2,
    "bfloat": 2,
    "short": 2,
    "ushort": 2,
    "long": 8,
    "ulong": 8,
}
_BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
_SHARED = r"\bthreadgroup\s+(\w+)\s+\w+\s*((?:\[[^\];]*\]\s*)*);"


def _by_value_parameters(source: Source) -> Iterator[int]:
    for kernel in source.kernels:
        for parameter in kernel.parameters:
            if not parameter.attributes and not re.search(r"[*&]", parameter.text):
                yield parameter.position


def _wrong_position_types(source: Source) -> Iterator[int]:
    for kernel in source.kernels:
        for parameter in kernel.parameters:
            is_position = any(re.fullmatch(POSITIONS, name) for name, _ in parameter.attributes)
            if is_position and not re.search(r"\bu(?:int|short)[23]?\b", parameter.text):
                yield parameter.position


def _wrong_buffer_indices(source: Source) -> Iterator[int]:
    for kernel in source.kernels:
        bound = [p for p in kernel.parameters if re.search(r"\b(?:device|constant)\b", p.text)]
        indices = [argument for p in bound for name, argument in p.attributes if name == "buffer"]
        if indices and sorted(indices, key=int) != [str(i) for i in range(len(bound))]:
            yield kernel.position


def _too_many_buffers(source: Source) -> Iterator[int]:
    for kernel in source.kernels:
        if sum(bool(re.search(r"\b(?:device|constant)\b", p.text)) for p in kernel.parameters) > _MAX_BUFFERS:
            yield kernel.position


def _threadgroup_bytes(kernel: Function, constants: dict[str, str]) -> int:
    total = 0
    for match in re.finditer(_SHARED, kernel.body):
        element = match[1].rstrip("234")
        size = _SIZES.get(element, 4) * {"2": 2, "3": 4, "4": 4}.get(match[1][len(element) :], 1)
        for extent in re.findall(r"\[([^\]]*)\]", match[2]):
            size *= _product(extent, constants)
        total += size
    return total


def _product(extent: str, constants: dict[str, str]) -> int:
    """Return the value of a product of literals and known constants; what is unknown counts as 1."""
    value = 1
    for factor in extent.split("*"):
        literal = re.fullmatch(r"\s*(\d+)u?\s*", constants.get(factor.strip(), factor))
        value *= int(literal[1]) if literal else 1
    return value


def _too_much_threadgroup_memory(source: Source) -> Iterator[int]:
    constants = dict(re.findall(r"\bconstexpr\s+\w+\s+(\w+)\s*=\s*(\d+)u?\s*;", source.code))
    for kernel in source.kernels:
        if _threadgroup_bytes(kernel, constants) > _THREADGROUP_BYTES:
            yield kernel.position


def _missing_thread_limit(source: Source) -> Iterator[int]:
    for kernel in source.kernels:
        limit = re.search(r"max_total_threads_per_threadgroup\s*\(\s*(\d+)", kernel.head)
        needs = re.search(r"threadgroup_barrier|\bthreadgroup\s+\w+\s+\w+", kernel.body)
        if (needs and limit is None) or (limit and int(limit[1]) > 1024):
            yield kernel.position


def _statements_under(body: str, condition: str) -> Iterator[tuple[int, str]]:
    """Yield the statements that run only if a condition holds that matches the pattern."""
    for match in re.finditer(r"\bif\s*\(", body):
        end = closing(body, match.end() - 1)
        if not re.search(condition, body[match.end() : end]):
            continue
        start = re.compile(r"\s*").match(body, end + 1).end()
        stop = closing(body, start) if body[start] == "{" else body.index(";", start)
        yield match.start(), body[start : stop + 1]


def _divergent_barriers(source: Source) -> Iterator[int]:
    for kernel in source.kernels:
        ids = kernel.names_with(THREAD_IDS)
        if not ids:
            continue
        last_barrier = kernel.body.rfind("threadgroup_barrier")
        for position, statement in _statements_under(kernel.body, rf"\b(?:{'|'.join(ids)})\b"):
            leaves = re.search(r"\breturn\b", statement) and position < last_barrier
            if leaves or "threadgroup_barrier" in statement:
                yield kernel.body_position + position


def _divergent_simd_operations(source: Source) -> Iterator[int]:
    for kernel in source.kernels:
        ids = kernel.names_with(THREAD_IDS)
        if not ids:
            continue
        for position, statement in _statements_under(kernel.body, rf"\b(?:{'|'.join(ids)})\b"):
            if re.search(r"\bsimd(?:group)?_(?!index)\w+\s*\(", statement):
                yield kernel.body_position + position


def _wrong_simd_types(source: Source) -> Iterator[int]:
    for function in source.functions:
        names = re.findall(r"\b(?:u?long|bfloat)[234]?\s+(\w+)\s*[=;]", function.body)
        operand = rf"(?:(?:u?long|bfloat)[234]?\s*\(|(?:{'|'.join(names) or '(?!)'})\b)"
        for match in re.finditer(rf"\bsimd_(?!ballot|any|all)\w+\s*\(\s*{operand}", function.body):
            yield function.body_position + match.start()


def _indexed_fragments(source: Source) -> Iterator[int]:
    for function in source.functions:
        fragments = r"\bsimdgroup_(?:matrix\s*<[^>]*>|\w+8x8)\s+([\w\[\]\s,]*)"
        names = [n for m in re.finditer(fragments, function.body) for n in re.findall(r"(\w+)\s*\[", m[1])]
        if not names:
            continue
        for loop in re.finditer(r"\bfor\s*\(\s*\w+\s+(\w+)", function.body):
            unrolled = re.search(r"(?:UNROLL|_Pragma\s*\(\s*\))\s*$", function.body[: loop.start()])
            indexed = rf"\b(?:{'|'.join(names)})\s*(?:\[[^\]]*\]\s*)*\[[^\]]*\b{loop[1]}\b"
            if not unrolled and re.search(indexed, function.body[loop.end() :]):
                yield function.body_position + loop.start()


def _narrow_indices(source: Source) -> Iterator[int]:
    for kernel in source.kernels:
        names = "|".join(kernel.names_with(r"thread_position_in_grid|threadgroup_position_in_grid"))
        if not names:
            continue
        for match in re.finditer(rf"(?<![\w.])(?:{names})(?:\.[xyz])?\s*\*|\*\s*(?:{names})\b", kernel.body):
            yield kernel.body_position + match.start()


def _lanes_by_arithmetic(source: Source) -> Iterator[int]:
    for kernel in source.kernels:
        names = "|".join(kernel.names_with(THREAD_IDS))
        if not names:
            continue
        for match in re.finditer(rf"\b(?:{names})\s*(?:%\s*32|/\s*32|&\s*31|>>\s*5)u?\b", kernel.body):
            yield kernel.body_position + match.start()


def _unordered_shared_memory(source: Source) -> Iterator[int]:
    for kernel in source.kernels:
        if not re.search(_SHARED, kernel.body):
            continue
        for match in re.finditer(r"threadgroup_barrier\s*\(\s*mem_flags::mem_none", kernel.body):
            yield kernel.body_position + match.start()


_LIMITED = "[[max_total_threads_per_threadgroup(256)]] "
_SHARED_BODY = "threadgroup float s[32]; s[i] = x[i]; "

KERNEL_RULES = (
    Rule(
        "kernel-argument",
        "A kernel parameter is a device or constant pointer or reference, or carries an attribute.",
        "high",
        "kernel void k(device float* x, constant long& n) { }",
        "kernel void k(device float* x, uint n) { }",
        _by_value_parameters,
    ),
    Rule(
        "position-type",
        "Position attributes are uint or ushort, of 1 to 3 components.",
        "high",
        one_kernel("x[i] = 0.0f;"),
        one_kernel("x[i] = 0.0f;", "device float* x, int i [[thread_position_in_grid]]"),
        _wrong_position_types,
    ),
    Rule(
        "bool-argument",
        "No constant bool: torch binds a Python bool as eight bytes.",
        "high",
        "kernel void k(constant long& flag) { }",
        "kernel void k(constant bool& flag) { }",
        in_parameters(r"\bconstant\s+bool\b"),
    ),
    Rule(
        "wide-scalars",
        "Integer arguments are constant long: torch binds a Python int as eight bytes.",
        "high",
        "kernel void k(constant long* prm) { }",
        "kernel void k(constant uint& n) { }",
        in_parameters(r"\bconstant\s+(?:u?int|u?short|u?char|u?int(?:8|16|32)_t)[234]?\s*[*&]"),
    ),
    Rule(
        "constant-array",
        "Arrays of data are device const: offsets in the constant space have an alignment of their own.",
        "medium",
        "kernel void k(device const half* table, constant float* prm) { }",
        "kernel void k(constant half* table) { }",
        in_parameters(r"\bconstant\s+(?!long|ulong|float\b|int64_t)\w+\s*\*"),
    ),
    Rule(
        "vec3-layout",
        "A vector of 3 occupies 4 elements in memory.",
        "high",
        "kernel void k(device float* x) { }",
        "kernel void k(device float3* x) { }",
        in_parameters(rf"\b(?:device|constant)\s+(?:const\s+)?{SCALARS}3\s*[*&]"),
    ),
    Rule(
        "vec-align",
        "A vector pointer needs an aligned storage offset, which the host must check.",
        "high",
        "kernel void k(device float* x) { }",
        "kernel void k(device float4* x) { }",
        in_parameters(rf"\bdevice\s+(?:const\s+)?{SCALARS}[24]\s*\*"),
    ),
    Rule(
        "atomic-float",
        "Float atomics have no min and max.",
        "high",
        "kernel void k(device atomic_uint* x) { atomic_fetch_max_explicit(x, 1u, memory_order_relaxed); }",
        "kernel void k(device atomic_float* x) { atomic_fetch_max_explicit(x, 1.0f, memory_order_relaxed); }",
        lambda source: [
            kernel.position
            for kernel in source.kernels
            for parameter in kernel.parameters
            if re.search(r"\batomic_float\b|atomic\s*<\s*float", parameter.text)
            and re.search(rf"\batomic_fetch_(?:min|max)_explicit\s*\(\s*&?\s*{parameter.name}\b", kernel.body)
        ],
    ),
    Rule(
        "buffer-index",
        "Buffer indices are 0, 1, 2, ..., each once and written for all buffers or for none.",
        "high",
        "kernel void k(device float* x [[buffer(0)]], device float* y [[buffer(1)]]) { }",
        "kernel void k(device float* x [[buffer(0)]], device float* y [[buffer(0)]]) { }",
        _wrong_buffer_indices,
    ),
    Rule(
        "buffer-count",
        "A kernel has at most 31 buffers.",
        "high",
        "kernel void k(device float* x) { }",
        f"kernel void k({', '.join(f'device float* x{i}' for i in range(32))}) {{ }}",
        _too_many_buffers,
    ),
    Rule(
        "threadgroup-argument",
        "No threadgroup parameter: compile_shader cannot give it a size.",
        "high",
        one_kernel("threadgroup float s[32];"),
        "kernel void k(threadgroup float* s [[threadgroup(0)]]) { }",
        in_parameters(r"\[\[\s*threadgroup\s*\("),
    ),
    Rule(
        "threadgroup-size",
        "The threadgroup variables of a kernel have at most 32768 bytes.",
        "high",
        one_kernel("threadgroup float s[8192];"),
        one_kernel("threadgroup float s[64 * 129];"),
        _too_much_threadgroup_memory,
    ),
    Rule(
        "thread-limit",
        "A kernel with shared memory or barriers states max_total_threads_per_threadgroup, at most 1024.",
        "high",
        _LIMITED + one_kernel(_SHARED_BODY + _BARRIER),
        one_kernel(_SHARED_BODY + _BARRIER),
        _missing_thread_limit,
    ),
    Rule(
        "barrier-divergence",
        "Every thread reaches each threadgroup_barrier.",
        "high",
        one_kernel(_BARRIER + " if (i > 5u) return;"),
        one_kernel("if (i > 5u) return; " + _BARRIER),
        _divergent_barriers,
    ),
    Rule(
        "barrier-memory",
        "A barrier between accesses of threadgroup memory orders that memory.",
        "high",
        one_kernel(_SHARED_BODY + _BARRIER),
        one_kernel(_SHARED_BODY + "threadgroup_barrier(mem_flags::mem_none);"),
        _unordered_shared_memory,
    ),
    Rule(
        "simd-divergence",
        "Simdgroup operations stand in control flow that is uniform in the simdgroup.",
        "medium",
        one_kernel("float s = simd_sum(x[i]);"),
        one_kernel("if (i > 5u) { x[i] = simd_sum(x[i]); }"),
        _divergent_simd_operations,
    ),
    Rule(
        "simd-type",
        "Simdgroup functions take no 64-bit type and no bfloat.",
        "high",
        one_kernel("x[i] = simd_sum(x[i]);"),
        one_kernel("long n = 1; n = simd_sum(n);"),
        _wrong_simd_types,
    ),
    Rule(
        "simd-width",
        "The lane comes from thread_index_in_simdgroup: arithmetic is right for some group shapes only.",
        "medium",
        one_kernel("x[i] = 0.0f;"),
        one_kernel("uint lane = i % 32u;"),
        _lanes_by_arithmetic,
    ),
    Rule(
        "matrix-type",
        "A simdgroup_matrix is 8x8 and holds half, bfloat or float.",
        "high",
        one_kernel("simdgroup_matrix<float, 8, 8> m;"),
        one_kernel("simdgroup_matrix<int, 8, 8> m;"),
        pattern(r"\bsimdgroup_matrix\s*<(?!\s*(?:half|bfloat|float|T)\s*,\s*8\s*,\s*8\s*>)"),
    ),
    Rule(
        "matrix-elements",
        "thread_elements() and the lanes it belongs to are not specified.",
        "high",
        one_kernel("simdgroup_float8x8 m;"),
        one_kernel("simdgroup_float8x8 m; m.thread_elements()[0] = 1.0f;"),
        pattern(r"\bthread_elements\b"),
    ),
    Rule(
        "matrix-index",
        "Loops over arrays of simdgroup matrices are unrolled in full, or the arrays may go to memory.",
        "medium",
        one_kernel(
            "simdgroup_float8x8 m[4];"
            ' _Pragma("clang loop unroll(full)") for (ushort j = 0; j < 4; ++j) f(m[j]);'
        ),
        one_kernel("simdgroup_float8x8 m[4]; for (ushort j = 0; j < 4; ++j) f(m[j]);"),
        _indexed_fragments,
    ),
    Rule(
        "wide-index",
        "Products with a grid position are ulong: tensors have more than 2^32 elements.",
        "high",
        one_kernel("x[ulong(i) * 4ul] = 0.0f;"),
        one_kernel("x[i * 4u] = 0.0f;"),
        _narrow_indices,
    ),
)
