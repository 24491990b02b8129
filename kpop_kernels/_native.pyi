"""The compiled kernels: pointers, sizes, strides and thread counts are integers."""

CUDA_COMPILED: bool

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
    def symmetric_ema(
        self,
        S: int,
        batch_stride: int,
        row_stride: int,
        P: int,
        batch: int,
        n: int,
        *,
        beta: float,
        alpha: float,
        threads: int,
    ) -> None: ...
