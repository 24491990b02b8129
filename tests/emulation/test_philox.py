"""Philox in C++, CUDA, Metal and aten gives the known answers: each source is compiled into a probe of its own."""

import ctypes
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from kpop_kernels.backends.composite.philox import _philox4x32
from kpop_kernels.backends.metal import _shader
from tests.emulation import cuda_emulator
from tests.emulation.metal_backend import require_clang
from tests.emulation.metal_emulator import compile_shader
from tests.emulation.metal_modes import MODES
from tests.emulation.tools import require_tool
from tests.ops.blocks import GOLDEN
from tests.ops.matrices import runs_here

KNOWN = [
    pytest.param(
        *([int(word, 16) for word in known[name]] for name in ("counter", "key")),
        known["out"].split(),
        id=known["out"].split()[0],
    )
    for known in GOLDEN["philox4x32_10"]
]
known_answers = pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)

ISA_FLAGS = {
    "baseline": (),
    "avx2": ("-mavx2",),
    "avx512": ("-mavx2", "-mavx512f", "-mavx512bw", "-mavx512vl"),
}

# One call of a group that computes several at once, each of them in turn.
CPU_PROBE = """
#include "cpu/random16.h"
using namespace kpop::cpu::KPOP_ISA;
extern "C" int calls_at_once() { return CALLS_AT_ONCE; }
extern "C" void random16_of(const uint32_t* counter, const uint32_t* key, int place, uint16_t* out) {
  const uint64_t call = uint64_t{counter[1]} << 32 | counter[0];
  const RoundKeys keys = round_keys({uint64_t{key[1]} << 32 | key[0], counter[2], counter[3], 0});
  uint16_t group[8 * CALLS_AT_ONCE];
  if (place < 0) return random16_scalar(keys, call, 1, out);
  random16_group(keys, call - static_cast<uint64_t>(place), group);
  for (int i = 0; i < 8; ++i) out[i] = group[8 * place + i];
}
"""

CUDA_PROBE = """
#include <cuda_runtime.h>
#include "../common/philox.h"
__global__ void probe(unsigned* words, unsigned c0, unsigned c1, unsigned c2, unsigned c3, unsigned k0,
                      unsigned k1) {
  const kpop::PhiloxKeys keys = kpop::philox_keys(uint64_t{k1} << 32 | k0);
  const kpop::Philox4 answer = kpop::philox4(c0, c1, c2, c3, keys);
  for (int i = 0; i < 4; ++i) words[i] = answer.word[i];
}
"""

METAL_PROBE = """
kernel void probe(device uint* words, constant long* prm, uint i [[thread_position_in_grid]]) {
  const uint4 counter = uint4(uint(prm[0]), uint(prm[1]), uint(prm[2]), uint(prm[3]));
  words[i] = philox(counter, uint2(uint(prm[4]), uint(prm[5])))[i];
}
"""


def in_hex(words):
    return [f"{int(word) & 0xFFFFFFFF:08x}" for word in words]


@known_answers
def test_composite(counter, key, answer):
    words = _philox4x32(tuple(torch.tensor(word) for word in counter), (key[0], key[1]))
    assert in_hex(words) == answer


@pytest.fixture(scope="module", params=ISA_FLAGS)
def cpu_probe(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())
    isa = request.param
    if not runs_here(isa):
        pytest.skip(f"this processor has no {isa}")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "probe.cpp", Path(folder) / "probe.so"
        source.write_text(CPU_PROBE)
        flags = ("-std=c++17", "-O1", "-fPIC", "-shared", f"-DKPOP_ISA={isa}", *ISA_FLAGS[isa])
        compiler = cuda_emulator.find_compiler()
        cuda_emulator.run_compiler(
            [compiler, *flags, f"-I{cuda_emulator.CSRC}", str(source), "-o", str(library)]
        )
        yield ctypes.CDLL(str(library))


@known_answers
def test_cpu(cpu_probe, counter, key, answer):
    counter_words, key_words = (ctypes.c_uint32 * 4)(*counter), (ctypes.c_uint32 * 2)(*key)
    lanes = cpu_probe.calls_at_once()
    for place in range(-1, lanes):
        # The kernels take no group whose calls differ in the high word; -1 is what they take instead.
        first = counter[0] - max(place, 0)
        if place >= 0 and not 0 <= first <= 2**32 - lanes:
            continue
        entries = (ctypes.c_uint16 * 8)()
        cpu_probe.random16_of(counter_words, key_words, place, entries)
        words = [entries[2 * i] | entries[2 * i + 1] << 16 for i in range(4)]
        assert in_hex(words) == answer, f"call {place} of a group of {lanes}"


@known_answers
def test_cuda(request, counter, key, answer):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())
    words = np.zeros(4, np.uint32)
    cuda_emulator.compile(CUDA_PROBE, ["probe"])["probe"](words, *counter, *key, grid=1, block=1)
    assert in_hex(words) == answer


@pytest.mark.parametrize("mode", MODES)
@known_answers
def test_metal(pytestconfig, counter, key, answer, mode):
    require_clang(pytestconfig)
    words = torch.zeros(4, dtype=torch.int32)
    probe = compile_shader(_shader.read_source("random") + METAL_PROBE, mode=mode).probe
    probe(words, [*counter, *key], threads=4, group_size=4)
    assert in_hex(words.tolist()) == answer
