"""The compiled kernels: pointers, sizes, strides and thread counts are integers."""

from collections.abc import Sequence
from enum import Enum

CUDA_COMPILED: bool

_BasisBatch = tuple[int, int, int, int, int, int, int, int]
"""S, the basis so far, the new one, eigenvalues, change of basis, flags; number of matrices, n."""

_Matrices = tuple[int, int, int, bool, bool]
"""Number of matrices, rows, columns, and whether each has a left and a right factor of its own."""

class Float(Enum):
    """Element types of tensors that are computed in float32."""

    float32 = ...
    bfloat16 = ...
    float16 = ...

def dynamic_map_bytes(is_signed: bool) -> bytes:
    """Return the tables of the dynamic map as the kernels read them."""

class RandomStream:
    """Names the random numbers of a tensor."""

    def __init__(self, *, seed: int, step: int, stream: int, offset: int) -> None: ...

class Adam8Step:
    """Scalars of one Adam step on 8-bit moments."""

    def __init__(
        self,
        *,
        beta1: float,
        one_minus_beta1: float,
        beta2: float,
        one_minus_beta2: float,
        correction1: float,
        correction2: float,
        eps: float,
        sign: float,
        lr: float,
        decay: float,
        limit: float,
    ) -> None: ...

class BlockItem:
    """One tensor of a list: addresses of what a kernel on 8-bit blocks reads and writes of it."""

    def __init__(
        self,
        count: int,
        x: int = 0,
        x_type: Float = ...,
        out: int = 0,
        out_type: Float = ...,
        codes: int = 0,
        scales: int = 0,
        zero_points: int = 0,
        dynamic_codes: int = 0,
        absmax: int = 0,
        stream: int = 0,
        offset: int = 0,
    ) -> None: ...

class Cpu:
    """The CPU kernels of one instruction set."""

    def __init__(self, isa: str = "best") -> None: ...
    @property
    def isa(self) -> str: ...
    def adam(
        self,
        g: int,
        m: int,
        v: int,
        count: int,
        *,
        beta1: float,
        one_minus_beta1: float,
        beta2: float,
        one_minus_beta2: float,
        correction1: float,
        correction2: float,
        eps: float,
        sign: float,
        threads: int,
    ) -> None: ...
    def kron_adam(
        self,
        batches: Sequence[tuple[int, int, int, int, int, int, _Matrices, float, float]],
        *,
        beta1: float,
        one_minus_beta1: float,
        beta2: float,
        one_minus_beta2: float,
        eps: float,
        sign: float,
        lr: float,
        decay: float,
        limit: float,
        threads: int,
    ) -> None: ...
    def kron_adam8(
        self,
        batches: Sequence[tuple[BlockItem, int, int, _Matrices, float, float, int]],
        *,
        block_size: int,
        scalars: Adam8Step,
        original: bool,
        seed: int,
        threads: int,
    ) -> None: ...
    def kl_factors(
        self,
        batches: Sequence[tuple[int, int, int, int, int, int, bool, bool]],
        *,
        beta: float,
        one_minus_beta: float,
        eps: float,
        threads: int,
    ) -> None: ...
    def block_project(
        self, G: int, parts: Sequence[int], sizes: tuple[int, int, int, int, int], *, threads: int
    ) -> None: ...
    def block_lift(
        self,
        X: int,
        parts: Sequence[int],
        sizes: tuple[int, int, int, int, int],
        *,
        alpha: float,
        beta: float,
        threads: int,
    ) -> None: ...
    def two_sided(
        self,
        batches: Sequence[tuple[int, int, int, int, _Matrices, float, float]],
        *,
        left_transposed: bool,
        right_transposed: bool,
        threads: int,
    ) -> None: ...
    def quantize_int8(
        self,
        items: list[BlockItem],
        *,
        block_size: int,
        stochastic: bool,
        paper: bool,
        seed: int,
        step: int,
        threads: int,
    ) -> None: ...
    def dequantize_int8(self, items: list[BlockItem], *, block_size: int, threads: int) -> None: ...
    def quantize_dynamic8(
        self, items: list[BlockItem], *, block_size: int, is_signed: bool, threads: int
    ) -> None: ...
    def dequantize_dynamic8(
        self, items: list[BlockItem], *, block_size: int, is_signed: bool, threads: int
    ) -> None: ...
    def ema_int8(
        self,
        items: list[BlockItem],
        *,
        block_size: int,
        beta: float,
        one_minus_beta: float,
        seed: int,
        step: int,
        threads: int,
    ) -> None: ...
    def ema_sq_dynamic8(
        self, items: list[BlockItem], *, block_size: int, beta: float, one_minus_beta: float, threads: int
    ) -> None: ...
    def adam8(
        self,
        items: list[BlockItem],
        *,
        block_size: int,
        scalars: Adam8Step,
        seed: int,
        step: int,
        threads: int,
    ) -> None: ...
    def stochastic_round(self, items: list[BlockItem], *, seed: int, step: int, threads: int) -> None: ...
    def symmetric_products(
        self,
        batches: list[tuple[tuple[int, bool], tuple[int, bool], int, int, int, int, int, float]],
        *,
        beta: float,
        threads: int,
    ) -> None: ...
    def inverse_root(
        self,
        batches: list[tuple[int, int, int, int, int, int]],
        p: int,
        *,
        schedule: Sequence[float],
        shorter: Sequence[tuple[float, Sequence[float]]],
        second_stage: Sequence[float],
        damping: float,
        relative_damping: float,
        threads: int,
    ) -> None: ...
    def normalize(
        self,
        batches: list[tuple[int, int, int, int, int, int]],
        *,
        damping: float,
        relative_damping: float,
        threads: int,
    ) -> None: ...
    def refresh_eigenbasis(self, batch: _BasisBatch, *, sort: bool, threads: int) -> None: ...
    def prepare_eigenbasis(self, batch: _BasisBatch, *, shift: float, threads: int) -> None: ...
    def take_eigenbasis(
        self, batch: _BasisBatch, vectors: int, values: int, *, shift: float, sort: bool, threads: int
    ) -> None: ...

_Values = tuple[int, Float]
_KronShape = tuple[tuple[int, bool], tuple[int, bool], int, int, int]
"""Q_L and Q_R, each an address and whether there is one for each matrix; number of matrices, rows, columns."""

class Cuda:
    """The CUDA kernels on one stream of the current device, where the package was compiled with nvcc.

    A ``step``, ``device_lr`` or ``found_inf`` of 0 is absent; else it is the address of an int64, a float64 or
    a float32 in device memory. ``map`` is the address of a copy of `dynamic_map_bytes` there.
    """

    def __init__(self, stream: int) -> None: ...
    def quantize_int8(
        self,
        x: int,
        type: Float,
        count: int,
        codes: int,
        scales: int,
        zero_points: int,
        *,
        block_size: int,
        stochastic: bool,
        paper: bool,
        random: RandomStream,
        step: int,
    ) -> None: ...
    def dequantize_int8(
        self, codes: int, scales: int, zero_points: int, count: int, out: int, type: Float, *, block_size: int
    ) -> None: ...
    def quantize_dynamic8(
        self,
        x: int,
        type: Float,
        count: int,
        codes: int,
        absmax: int,
        *,
        block_size: int,
        is_signed: bool,
        map: int,
    ) -> None: ...
    def dequantize_dynamic8(
        self, codes: int, absmax: int, count: int, out: int, type: Float, *, block_size: int, map: int
    ) -> None: ...
    def ema_int8(
        self,
        codes: int,
        scales: int,
        zero_points: int,
        x: int,
        type: Float,
        count: int,
        out: int,
        *,
        block_size: int,
        beta: float,
        random: RandomStream,
        step: int,
    ) -> None: ...
    def ema_sq_dynamic8(
        self,
        codes: int,
        absmax: int,
        x: int,
        type: Float,
        count: int,
        out: int,
        *,
        block_size: int,
        beta: float,
        map: int,
    ) -> None: ...
    def adam8(
        self,
        param: int,
        param_type: Float,
        grad: int,
        grad_type: Float,
        count: int,
        exp_avg_codes: int,
        exp_avg_scales: int,
        exp_avg_zero_points: int,
        exp_avg_sq_codes: int,
        exp_avg_sq_absmax: int,
        *,
        block_size: int,
        lr: float,
        device_lr: int,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        limit: float,
        maximize: bool,
        found_inf: int,
        random: RandomStream,
        step: int,
        map: int,
    ) -> None: ...
    def quantize_int8_list(
        self,
        items: list[BlockItem],
        *,
        block_size: int,
        stochastic: bool,
        paper: bool,
        random: RandomStream,
        step: int,
    ) -> None: ...
    def dequantize_int8_list(self, items: list[BlockItem], *, block_size: int) -> None: ...
    def ema_int8_list(
        self, items: list[BlockItem], *, block_size: int, beta: float, random: RandomStream, step: int
    ) -> None: ...
    def ema_sq_dynamic8_list(
        self, items: list[BlockItem], *, block_size: int, beta: float, map: int
    ) -> None: ...
    def adam8_list(
        self,
        items: list[BlockItem],
        *,
        block_size: int,
        lr: float,
        device_lr: int,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        limit: float,
        maximize: bool,
        found_inf: int,
        random: RandomStream,
        step: int,
        map: int,
    ) -> None: ...
    def stochastic_round(self, x: int, count: int, out: int, *, random: RandomStream, step: int) -> None: ...
    def inverse_root(
        self,
        batches: list[tuple[int, int, int, int, int]],
        type: Float,
        p: int,
        *,
        float16: bool,
        first: list[float],
        second: list[float],
        damping: float,
        relative_damping: float,
    ) -> None: ...
    def kron_adam(
        self,
        batches: list[tuple[_Values, _Values, int, int, _KronShape, tuple[int, int, int]]],
        *,
        lr: float,
        device_lr: int,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        limit: float,
        maximize: bool,
        original: bool,
    ) -> None: ...
    def kron_adam8(
        self,
        batches: list[tuple[BlockItem, int, _KronShape, tuple[int, int, int]]],
        *,
        block_size: int,
        seed: int,
        map: int,
        lr: float,
        device_lr: int,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        limit: float,
        maximize: bool,
        original: bool,
    ) -> None: ...
    def kron_rotate(self, G: _Values, out: _Values, shape: _KronShape, *, inverse: bool) -> None: ...
