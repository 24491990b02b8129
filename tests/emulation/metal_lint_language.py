"""Lint rules about the language: what Apple's compiler rejects and the host's accepts."""

import re
from collections.abc import Iterator

from tests.emulation.metal_lint_source import (
    SCALARS,
    SPACES,
    Rule,
    Source,
    in_parameters,
    one_kernel,
    pattern,
)
from tests.emulation.metal_translate import split_list

_PRAGMAS = (
    "#if __METAL_VERSION__ >= 320\n#pragma METAL fp math_mode(safe)\n#pragma METAL fp contract(off)\n#endif\n"
)


def _unqualified_declarations(source: Source) -> Iterator[int]:
    declaration = (
        rf"(?:(?<=[(,;{{}}\n<])|^)\s*((?:const\s+|volatile\s+|static\s+|inline\s+|{SPACES}\s+)*){SCALARS}[234]?"
        rf"(?:\s*<[^;(){{}}]*?>)?(\s+(?:{SPACES}|const))*\s*[*&]\s*(?:const\s+)?\w+\s*(?=[,;)=\[(])"
    )
    for match in re.finditer(declaration, source.code):
        if not re.search(SPACES, match[0]):
            yield match.end()


def _unqualified_instantiations(source: Source) -> Iterator[int]:
    for match in re.finditer(r"\btemplate\s*\[\[[^;{}]*?\]\][^;{}(]*\(([^;{}]*)\)\s*[^;]*;", source.code):
        if any(re.search(r"[*&]", part) and not re.search(SPACES, part) for part in split_list(match[1])):
            yield match.start()


def _program_scope_variables(source: Source) -> Iterator[int]:
    variable = (
        rf"^[ \t]*((?:static\s+|constexpr\s+|const\s+|inline\s+|device\s+|thread\s+)*){SCALARS}[234]?\s+"
        r"(?!operator)\w+\s*(?:\[[^\]]*\]\s*)*[=;]"
    )
    for match in re.finditer(variable, source.outside_braces, re.M):
        yield match.start()


def _threadgroup_outside_kernels(source: Source) -> Iterator[int]:
    bodies = [(k.body_position, k.body_position + len(k.body)) for k in source.kernels]
    for match in re.finditer(
        r"\bthreadgroup\s+[\w:]+(?:<[^<>;]*>)?\s+\w+\s*(?:\[[^\];]*\]\s*)*;", source.code
    ):
        if not any(start < match.start() < end for start, end in bodies):
            yield match.start()


def _recursion(source: Source) -> Iterator[int]:
    names = [function.name for function in source.functions]
    for function in source.functions:
        calls_itself = re.search(rf"(?<![\w.:]){function.name}\s*\(", function.body)
        # An overload that calls another overload is no recursion, and text cannot tell them apart.
        if calls_itself and names.count(function.name) == 1:
            yield function.position


def _static_locals(source: Source) -> Iterator[int]:
    for function in source.functions:
        for match in re.finditer(r"\bstatic\s+(?!const(?:ant|expr)\b)", function.body):
            yield function.body_position + match.start()


def _non_ascii(source: Source) -> Iterator[int]:
    return (match.start() for match in re.finditer(r"[^\x00-\x7f]", source.text))


def _missing_pragmas(source: Source) -> Iterator[int]:
    # What it includes of ours is linted as well.
    if re.search(r'^#include "\w+\.metal"', source.commentless, re.M):
        return
    for setting in (r"math_mode\(safe\)", r"contract\(off\)"):
        if not re.search(rf"^#pragma METAL fp {setting}", source.commentless, re.M):
            yield 0


def _unguarded_pragmas(source: Source) -> Iterator[int]:
    for match in re.finditer(r"^#pragma METAL", source.commentless, re.M):
        before = source.commentless[: match.start()]
        opened = list(re.finditer(r"^#if\b[^\n]*", before, re.M))
        closed = len(re.findall(r"^#endif\b", before, re.M))
        if len(opened) <= closed or "__METAL_VERSION__" not in opened[-1][0]:
            yield match.start()


LANGUAGE_RULES = (
    Rule(
        "address-space",
        "A pointer or reference names device, constant, threadgroup or thread.",
        "high",
        "static inline void f(thread float& a, const device float* p) { a = p[0]; }",
        "static inline void f(float& a) { a = 1.0f; }",
        _unqualified_declarations,
    ),
    Rule(
        "cast-space",
        "A pointer cast names the address space.",
        "high",
        one_kernel("device uint* u = (device uint*)x;"),
        one_kernel("device uint* u = (uint*)x;"),
        pattern(rf"\(\s*(?:const\s+)?{SCALARS}[234]?(?:\s*const)?\s*\*\s*\)"),
    ),
    Rule(
        "instantiation-space",
        "An explicit instantiation repeats the address spaces of the template.",
        "high",
        'template [[host_name("k")]] kernel void k<float>(device const float*, uint);',
        'template [[host_name("k")]] kernel void k<float>(const float*, uint);',
        _unqualified_instantiations,
    ),
    Rule(
        "program-scope",
        "A variable at program scope is in the constant address space.",
        "high",
        "constant float kScale = 2.0f;\n",
        "const float kScale = 2.0f;\n",
        _program_scope_variables,
    ),
    Rule(
        "threadgroup-scope",
        "A threadgroup variable is declared in the body of a kernel.",
        "medium",
        one_kernel("threadgroup float s[32];"),
        "static inline void f() { threadgroup float s[32]; }",
        _threadgroup_outside_kernels,
    ),
    Rule(
        "automatic-space",
        "An automatic variable carries no address space.",
        "high",
        one_kernel("float a = x[i];"),
        one_kernel("thread float a = x[i];"),
        pattern(
            rf"(?<=[;{{}}])\s*(?:const\s+)?(?:thread|device)\s+(?:const\s+)?{SCALARS}[234]?\s+\w+\s*[=;\[]"
        ),
    ),
    Rule(
        "no-double",
        "double does not exist.",
        "high",
        one_kernel("float a = 1.0f;"),
        one_kernel("double a = 1.0f;"),
        pattern(r"\bdouble[234]?\b"),
    ),
    Rule(
        "float-literal",
        "A floating-point literal ends in f or h: without, it is float on Apple and double on a host.",
        "high",
        one_kernel("x[i] = 0.5f * x[i] + 0x1p-24f;"),
        one_kernel("x[i] = 0.5 * x[i];"),
        pattern(
            r"(?<![\w.])(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])|(?<![\w.])\d+[eE][+-]?\d+(?![\w.])|\b0x[\da-fA-F.]+p[+-]?\d+(?![\w.])"
        ),
    ),
    Rule(
        "no-runtime-cpp",
        "Allocation, exceptions, virtual functions, run-time types, goto and thread_local do not exist.",
        "high",
        one_kernel("x[i] = 1.0f;"),
        one_kernel("throw 1;"),
        pattern(r"\b(?:new|delete|virtual|throw|try|catch|dynamic_cast|typeid|goto|thread_local)\b"),
    ),
    Rule(
        "no-std",
        "The C++ standard library does not exist.",
        "high",
        one_kernel("x[i] = max(x[i], 0.0f);"),
        one_kernel("x[i] = std::max(x[i], 0.0f);"),
        pattern(r"\bstd::"),
    ),
    Rule(
        "includes",
        "A source includes metal_ headers and our own; torch's headers change between releases.",
        "high",
        '#include <metal_stdlib>\n#include "exact.metal"\n',
        "#include <c10/metal/random.h>\n",
        pattern(r"#\s*include\s*<(?!metal_)"),
    ),
    Rule(
        "recursion",
        "Functions do not call themselves.",
        "medium",
        "static inline int f(int n) { return n; }\n",
        "static inline int f(int n) { return n > 0 ? f(n - 1) : 0; }\n",
        _recursion,
    ),
    Rule(
        "function-pointer",
        "Function pointers work only where the compiler inlines them.",
        "medium",
        "static inline float f(float a) { return a; }\n",
        "static inline float f(float (*g)(float)) { return g(1.0f); }\n",
        pattern(r"\(\s*\*\s*\w+\s*\)\s*\("),
    ),
    Rule(
        "static-local",
        "A static local variable is a constant.",
        "medium",
        one_kernel("static constant float a = 1.0f;"),
        one_kernel("static int calls = 0;"),
        _static_locals,
    ),
    Rule(
        "no-lambda",
        "Lambdas need Metal 3.2 (macOS 15).",
        "high",
        one_kernel("float a = x[i];"),
        one_kernel("auto f = [&](float a) { return a; };"),
        pattern(r"[=(,]\s*\[[&=\w\s,]*\]\s*\([^)]*\)\s*(?:->[^{]*)?\{"),
    ),
    Rule(
        "cpp14",
        "if constexpr and structured bindings are C++17; Metal 3 is C++14.",
        "high",
        one_kernel("if (true) {}"),
        one_kernel("if constexpr (true) {}"),
        pattern(r"\bif\s+constexpr\b|\bauto\s*&?\s*\[\s*\w+\s*,"),
    ),
    Rule(
        "bfloat-init",
        "Nothing converts to bfloat implicitly, not even a literal: write bfloat(x).",
        "high",
        one_kernel("bfloat b = bfloat(1.0f);"),
        one_kernel("bfloat b = 1.0f;"),
        pattern(r"\bbfloat\s+\w+\s*=(?!\s*(?:bfloat|static_cast)\b)[^;{]*?\d\.?\d*f\b"),
    ),
    Rule(
        "c-names",
        "Functions carry Metal's names, not those of the C library.",
        "high",
        one_kernel("x[i] = fma(x[i], x[i], x[i]);"),
        one_kernel("x[i] = fmaf(x[i], x[i], x[i]);"),
        pattern(
            r"\b(?:fmaf|sqrtf|fabsf|floorf|fminf|fmaxf|expf|logf|powf|printf|memcpy|memset|assert|nearbyintf?)\s*\("
        ),
    ),
    Rule(
        "host-extension",
        "Compiler builtins, attributes and assembly are not portable to Apple's compiler.",
        "medium",
        one_kernel("uint c = clz(i);"),
        one_kernel("uint c = __builtin_clz(i);"),
        pattern(r"\b__(?:builtin_\w+|attribute__|asm__)\b|\basm\s*\("),
    ),
    Rule(
        "approximate-power",
        "exp2, pow and fast:: functions are never exact: powers of two are built from bits.",
        "high",
        one_kernel("x[i] = as_type<float>(127u << 23);"),
        one_kernel("x[i] = exp2(-6.0f);"),
        pattern(r"(?<![\w:])(?:exp2|pow|powr)\s*\(|\bfast::"),
    ),
    Rule(
        "nan-by-bits",
        "Fast math assumes that there is no NaN: finiteness is tested and NaN is written by bits.",
        "high",
        one_kernel("bool bad = (as_type<uint>(x[i]) & 0x7f800000u) == 0x7f800000u;"),
        one_kernel("bool bad = isnan(x[i]);"),
        pattern(r"\b(?:isnan|isinf|isfinite|isnormal)\s*\(|\b(?:NAN|INFINITY)\b"),
    ),
    Rule(
        "ascii",
        "The source is ASCII, comments too: torch passes it on as ASCII.",
        "high",
        "// cafe\n",
        "// caf\u00e9\n",
        _non_ascii,
    ),
    Rule(
        "fp-pragmas",
        "A source turns fast math and contraction off: torch's safe mode still contracts.",
        "high",
        _PRAGMAS,
        "#include <metal_stdlib>\n",
        _missing_pragmas,
    ),
    Rule(
        "pragma-version",
        "#pragma METAL stands under #if __METAL_VERSION__ >= 320: older compilers do not know it.",
        "high",
        _PRAGMAS,
        "#pragma METAL fp contract(off)\n",
        _unguarded_pragmas,
    ),
    Rule(
        "atomics",
        "Atomics hold int, uint, bool, float or ulong, and their order is relaxed.",
        "high",
        "kernel void k(device atomic_uint* x) { atomic_fetch_add_explicit(x, 1u, memory_order_relaxed); }",
        "kernel void k(device atomic<half>* x) { }",
        pattern(
            r"\batomic_(?:long|double|half|char|short)\b|\batomic\s*<\s*(?:half|bfloat|long|char|uchar|short|ushort|double)\s*>"
            r"|\bmemory_order_(?!relaxed)\w+"
        ),
    ),
    Rule(
        "atomic-ulong",
        "64-bit atomics know only min and max, on recent GPUs.",
        "high",
        "kernel void k(device atomic_uint* x) { }",
        "kernel void k(device atomic_ulong* x) { }",
        in_parameters(r"\batomic_ulong\b|\batomic\s*<\s*ulong\s*>"),
    ),
)
