"""The CUDA sources compile for every target, and their machine code is what it should be."""

import pytest

from tests.emulation import test_cuda_emulator_ptx as ptx_tests
from tests.emulation.tools import require_tool
from tests.machine_code import cuda_toolchain, report, sass
from tests.machine_code.cuda_expectations import CUDA_EXPECTATIONS
from tests.machine_code.cuda_toolchain import TARGETS, compile_cuda, compiled
from tests.machine_code.expectations import MMA_SYNC, Expect, violations


@pytest.fixture(autouse=True)
def tools(request):
    require_tool(request, "nvcc", cuda_toolchain.available())
    require_tool(request, "cuobjdump and nvdisasm (they come with triton)", sass.readers_available())


def compile_text(folder, text, targets=TARGETS):
    source = folder / "kernels.cu"
    source.write_text(text)
    return compile_cuda(source, targets)


def test_every_source_has_expectations():
    assert {path.name for path in cuda_toolchain.CSRC.glob("*.cu")} == set(CUDA_EXPECTATIONS)


@pytest.mark.parametrize("source", CUDA_EXPECTATIONS)
def test_every_kernel_is_there_for_every_target_and_expected(source):
    names = {name for name, _ in compiled(source)}
    assert set(compiled(source)) == {(name, target) for name in names for target in TARGETS}
    matches = {
        name: [start for start in CUDA_EXPECTATIONS[source] if name.startswith(start)] for name in names
    }
    assert all(len(starts) == 1 for starts in matches.values()), matches
    assert {starts[0] for starts in matches.values()} == set(CUDA_EXPECTATIONS[source])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "source, start", [(source, start) for source, table in CUDA_EXPECTATIONS.items() for start in table]
)
def test_machine_code_meets_expectations(source, start, target, report_row):
    expect = CUDA_EXPECTATIONS[source][start]
    kernels = [code for (name, t), code in compiled(source).items() if name.startswith(start) and t == target]
    assert kernels
    for code in kernels:
        report_row(report.cuda_row(code))
    assert [violation for code in kernels for violation in violations(code, expect)] == []


@pytest.mark.parametrize("dtype", ["float", "__half", "__nv_bfloat16"])
def test_four_quantization_blocks_divide_twice(dtype):
    for target in TARGETS:
        code = compiled("quantize_int8.cu")[f"kpop::quantize_int8_by_256<{dtype}, true>", target]
        assert sass.count(code.ptx, "div.rn.f32") == 2
        assert code.count("BAR") == 0


def test_the_instructions_of_ptx_cuh_are_what_they_are_called(tmp_path):
    kept = ", ".join(f"reinterpret_cast<void*>(&{name})" for name in ptx_tests.INSTANTIATIONS)
    kernels = compile_text(tmp_path, f"{ptx_tests.SOURCE.read_text()}\nvoid* kept[] = {{{kept}}};\n")
    assert {name for name, _ in kernels} == set(ptx_tests.INSTANTIATIONS)
    # The emulation's tests check what these do; here it is that nvcc makes of them what the names say.
    expected = {
        "multiply<__half>": {"HMMA.16816.F32": 1},
        "multiply<__nv_bfloat16>": {"HMMA.16816.F32.BF16": 1},
        "multiply_ldmatrix<__half>": {"HMMA.16816.F32": 1, "LDSM.M88.4": 1, "LDSM.MT88.2": 1},
        "multiply_tf32": {"HMMA.1688.F32.TF32": 1},
        "load_matrices<4>": {"LDSM.M88.4": 1, "LDSM.MT88.4": 1},
        "load_matrices<2>": {"LDSM.M88.2": 1, "LDSM.MT88.2": 1},
        "load_matrices<1>": {"LDSM.M88": 1, "LDSM.MT88": 1},
        "arithmetic": {"FMUL.FTZ": 1, "I2IP.U8.S32.SAT": 1},
        "copy_groups<1>": {"LDGSTS.BYPASS.128": 3, "LDGDEPBAR": 2, "DEPBAR": 1},
    }
    for name, counts in expected.items():
        for target in TARGETS:
            expect = Expect(
                vector_loads=False,
                vector_stores=False,
                no_fma=False,
                no_approximate_division=False,
                tensor_cores=MMA_SYNC if name.startswith("multiply") else {},
                counts=counts,
            )
            assert violations(kernels[name, target], expect) == []


BAD_KERNELS = r"""
__global__ void fused(const float* x, float* y, float a) { y[threadIdx.x] = x[threadIdx.x] * a + 1.0f; }

__global__ void approximate(const float* x, float* y) {
  y[threadIdx.x] = __fdividef(x[0], x[1]) + rsqrtf(x[threadIdx.x]);
}

__global__ void local_array(const int* x, int* y) {
  int values[64];
  for (int i = 0; i < 64; ++i) values[i] = 0;
  for (int i = 0; i < 64; ++i) values[x[i] & 63] += i;
  y[threadIdx.x] = values[x[threadIdx.x] & 63];
}

__global__ void __launch_bounds__(1024, 2) spilling(const float4* x, float4* y) {
  float4 values[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) values[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 16; ++i) y[i * 1024 + threadIdx.x] = values[15 - i];
}

__global__ void large_shared(const float4* x, float4* y) {
  __shared__ float4 staged[2048];
  for (int i = threadIdx.x; i < 2048; i += blockDim.x) staged[i] = x[i];
  __syncthreads();
  y[threadIdx.x] = staged[threadIdx.x * 7 % 2048];
}
"""


@pytest.fixture(scope="module")
def bad_kernels(request, tmp_path_factory):
    require_tool(request, "nvcc", cuda_toolchain.available())
    return compile_text(tmp_path_factory.mktemp("bad"), BAD_KERNELS, ["sm_90"])


@pytest.mark.parametrize(
    "name, expect, words",
    [
        ("fused", Expect(), ["no 16-byte load", "no 16-byte store", "1 fused multiply-adds"]),
        (
            "approximate",
            Expect(no_fma=False),
            ["no 16-byte", "no 16-byte", "1 of div.approx", "1 of rsqrt.approx"],
        ),
        (
            "local_array",
            Expect(vector_loads=False, vector_stores=False),
            ["keeps 256 bytes in local memory", "accesses local memory in"],
        ),
        ("spilling", Expect(), ["spills", "keeps", "accesses local memory"]),
        (
            "large_shared",
            Expect(max_shared=32767, max_registers=8, tensor_cores={"sm_90": "HGMMA"}, counts={"BAR": 2}),
            [
                "registers, more than 8",
                "32768 bytes of shared memory, more than 32767",
                "no HGMMA",
                "1 of BAR, not 2",
            ],
        ),
    ],
)
def test_each_violation_is_found(bad_kernels, name, expect, words):
    found = violations(bad_kernels[name, "sm_90"], expect)
    assert len(found) == len(words), found
    for violation, word in zip(found, words, strict=True):
        assert violation.startswith(f"{name} on sm_90: ") and word in violation


def test_a_source_that_does_not_compile_shows_the_compilers_words(tmp_path):
    with pytest.raises(RuntimeError, match="undeclared_name"):
        compile_text(tmp_path, "__global__ void broken(int* x) { *x = undeclared_name; }", ["sm_90"])
