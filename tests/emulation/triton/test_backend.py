"""The backend says why it is absent, imports triton late, and starts every kernel at one place."""

import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels.backends import triton as backend
from kpop_kernels.backends.triton.launch import Launch, launch, run_by
from kpop_kernels.tuning import BlockwiseConfig

CONFIG = BlockwiseConfig(elements=32, num_warps=2)


def test_triton_is_not_imported_with_the_package():
    program = "import sys, kpop_kernels; kpop_kernels.backends.available(); sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_says_that_triton_is_missing(monkeypatch):
    monkeypatch.setattr(backend, "find_spec", lambda name: None)
    assert backend.absent_because() == "triton is not installed"


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_says_that_there_is_no_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert backend.absent_because() == "there is no CUDA or ROCm device"


def test_is_first_on_cuda_devices():
    assert backends.ORDER["cuda"][0] == "triton"


def test_an_operator_is_imported_when_it_is_called(monkeypatch):
    monkeypatch.setitem(backend.FILES, "gram_ema_", "launch")
    called = []
    monkeypatch.setattr("kpop_kernels.backends.triton.launch.gram_ema_", called.append, raising=False)
    backend.implementations()["gram_ema_"]("S")
    assert called == ["S"]


def test_a_launch_reaches_the_runner_whole():
    launches = []
    with run_by(launches.append):
        launch("kernel", (3,), ("x", 5), CONFIG, BLOCK=32)
    options = {"num_warps": 2, "num_stages": 1, "enable_fp_fusion": False}
    assert launches == [Launch("kernel", (3,), ("x", 5), {"BLOCK": 32}, options)]


def test_an_empty_grid_is_not_launched():
    launches = []
    with run_by(launches.append):
        launch("kernel", (3, 0), (), CONFIG)
    assert launches == []


@pytest.mark.parametrize(("elements", "num_warps"), [(48, 4), (64, 3), (0, 1)])
def test_configurations_are_powers_of_two(elements, num_warps):
    with pytest.raises(ValueError, match="must be a power of two"):
        BlockwiseConfig(elements, num_warps)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_a_launch_is_on_the_device_of_its_tensors_whichever_is_current(monkeypatch):
    """Elsewhere kernels for tensors on a second GPU ran on the first, and crashed or left garbage."""
    seen = []

    class Guard:
        def __init__(self, tensor):
            self.tensor = tensor

        def __enter__(self):
            seen.append(self.tensor.device)

        def __exit__(self, *_):
            seen.append("end")

    class Kernel:
        def __getitem__(self, grid):
            return lambda *arguments, **constants: seen.append("kernel")

    monkeypatch.setattr(torch.cuda, "device_of", Guard)
    launch(Kernel(), (3,), (5, torch.empty(2, device="meta"), torch.empty(2)), CONFIG)
    assert seen == [torch.device("meta"), "kernel", "end"]


def test_the_cuda_kernels_run_on_the_device_and_the_stream_of_their_tensors(monkeypatch):
    native = pytest.importorskip("kpop_kernels.backends.cuda.native")
    seen = []

    class Stream:
        cuda_stream = 1234

    @contextmanager
    def device(index):
        seen.append(index)
        yield
        seen.append("end")

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: seen.append(("stream", index)) or Stream)
    monkeypatch.setattr("kpop_kernels._native.Cuda", lambda stream: ("kernels", stream), raising=False)
    with native.kernels(torch.device("cuda", 1)) as cuda:
        assert cuda == ("kernels", 1234)
    assert seen == [torch.device("cuda", 1), ("stream", torch.device("cuda", 1)), "end"]
