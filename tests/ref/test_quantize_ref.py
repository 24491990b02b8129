"""The oracle of the 8-bit blocks against golden numbers and against the mathematics."""

import hashlib
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from python_ref import philox, quantize

GOLDEN = json.loads((Path(__file__).parents[1] / "vectors" / "golden.json").read_text())
f32 = np.float32


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


@pytest.mark.parametrize("known", GOLDEN["philox4x32_10"], ids=lambda known: known["counter"][0])
def test_philox_known_answers(known):
    counter, key = ([int(word, 16) for word in known[name]] for name in ("counter", "key"))
    assert philox.philox4x32(counter, key).tolist() == [int(word, 16) for word in known["out"].split()]


def test_random16_golden():
    golden = GOLDEN["sr_random16"]
    random = philox.random16(
        8, seed=int(golden["seed"], 16), step=golden["step"], stream=golden["stream"], offset=24
    )
    assert [f"{r:04x}" for r in random] == golden["r16"]


@pytest.mark.parametrize("offset", [3, 8, 2**32 + 5, 2**35 - 3, 2**35 + 1, 2**40])
def test_random16_depends_on_the_global_index_alone(offset):
    key = {"seed": 0xDEADBEEFCAFEBABE, "step": 7, "stream": 2}
    whole = philox.random16(64, offset=offset & ~7, **key)
    assert np.array_equal(philox.random16(40, offset=offset, **key), whole[offset & 7 :][:40])
    words = philox.philox4x32(
        (offset >> 3 & 0xFFFFFFFF, offset >> 35, 7, 2), (0xCAFEBABE, 0xDEADBEEF)
    ).tolist()
    entry = offset & 7
    assert philox.random16(1, offset=offset, **key)[0] == words[entry >> 1] >> 16 * (entry & 1) & 0xFFFF


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_int8_golden(rounding):
    golden = GOLDEN["quantize_int8"]
    x = torch.from_numpy(np.array([int(h, 16) for h in golden["x_float32_hex"]], np.uint32).view(f32))
    key = {name: golden[name] for name in ("seed", "step", "stream")}
    codes, scales, zero_points = quantize.quantize_int8(
        x, block_size=golden["group"], rounding=rounding, **key
    )
    assert f"{scales.numpy().view(np.uint32)[0]:08x}" == golden["scale_hex"]
    assert zero_points.tolist() == [golden["zero_point"]]
    assert codes.tolist() == golden[rounding]


@pytest.mark.parametrize(
    ("x", "scale", "zero_point", "codes"),
    [
        ([0, 0], 0, 0, [0, 0]),
        ([1e-39, -1e-39], 0, 0, [0, 0]),
        ([3, 3], f32(3) / f32(254), 0, [254, 254]),
        ([-2, -2], f32(2) / f32(254), 254, [0, 0]),
        ([1e30, 1e-8, 0, -1e-8], f32(1e30) / f32(254), 1, [255, 1, 1, 1]),
        ([3e38, -3e38], np.nan, 0, [0, 0]),
        ([1, np.nan], np.nan, 0, [0, 0]),
        ([1, np.inf], np.nan, 0, [0, 0]),
        ([1, -np.inf], np.nan, 0, [0, 0]),
    ],
)
def test_int8_edges(x, scale, zero_point, codes):
    result = quantize.quantize_int8(tensor(*x), seed=42, step=1, stream=2)
    assert np.array_equal(result.scales.numpy(), np.array([scale], f32), equal_nan=True)
    assert (result.zero_points.tolist(), result.codes.tolist()) == ([zero_point], codes)


def cells() -> list[tuple[float, float]]:
    """Values inside, at the borders of, and just off grid cells, with the block's lower extreme."""
    fractions = [0.0, 2.0**-17, 2.0**-16, 0.3, 0.5, 1 - 2.0**-16, 1 - 2.0**-20]
    inside = [(k + fraction, -57.3) for k in (-50, -1, 0, 3, 100) for fraction in fractions]
    return [*inside, (-57.3, -57.3), (-57.3 + 254, -57.3), (-(2.0**-26), -57.3), (-(2.0**-30), -57.3)]


@pytest.mark.parametrize(("y", "lo"), cells())
def test_stochastic_rounding_is_unbiased_over_all_thresholds(y, lo):
    y = f32(y)
    k = quantize.round_stochastic(np.full(65536, y, f32), np.arange(65536))
    codes = np.clip(k + int(np.ceil(-lo)), 0, 255)
    assert np.array_equal(codes, k + int(np.ceil(-lo))), "no value of the block is clipped"
    assert abs(k.mean() - float(y)) <= 2.0**-16


def mean_error(x: torch.Tensor, mode: str, draws: int) -> np.ndarray:
    total = np.zeros(x.numel())
    for step in range(draws):
        blocks = quantize.quantize_int8(x, seed=11, step=step, mode=mode)
        total += quantize.dequantize_int8(*blocks).numpy()
    scale = quantize.quantize_int8(x, mode=mode).scales.item()
    return (total / draws - x.numpy()) / scale


def test_means_of_a_random_block_are_unbiased_at_the_extremes_too():
    draws = 2000
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(256).astype(f32))
    four_sigma = 4 * 0.5 / draws**0.5
    error = mean_error(x, "unbiased", draws)
    assert np.abs(error).max() < four_sigma + 2.0**-16
    extremes = [int(x.argmin()), int(x.argmax())]
    paper = np.abs(mean_error(x, "paper", draws))
    assert paper[extremes].max() > 0.1 > four_sigma, "the published rule clips an extreme"
    assert np.delete(paper, extremes).max() < four_sigma + 2.0**-16


@pytest.mark.parametrize("changed", ["seed", "step", "stream"])
def test_roundings_of_two_seeds_steps_and_streams_are_independent(changed):
    key = {"seed": 5, "step": 6, "stream": 7}
    y = np.full(1 << 18, f32(0.5))
    ups = [
        quantize.round_stochastic(y, philox.random16(y.size, **key)),
        quantize.round_stochastic(y, philox.random16(y.size, **(key | {changed: 8}))),
    ]
    table = np.histogram2d(*ups, bins=2)[0]
    assert table.min() > 0
    assert stats.chi2_contingency(table).pvalue > 1e-4
    bins = np.bincount(philox.random16(y.size, **key) >> 8, minlength=256)
    assert stats.chisquare(bins).pvalue > 1e-4


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_shards_round_like_the_whole(shards):
    x = torch.from_numpy(np.random.default_rng(1).standard_normal(64 * 30 + 5).astype(f32))
    start, key = 2**35 - 64 * 7, {"block_size": 64, "seed": 3, "step": 4, "stream": 5}
    whole = quantize.quantize_int8(x, offset=start, **key)
    cuts = [64 * (30 * i // shards) for i in range(shards)] + [x.numel()]
    parts = [quantize.quantize_int8(x[a:b], offset=start + a, **key) for a, b in itertools.pairwise(cuts)]
    for name in quantize.Affine._fields:
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))


def steps(blocks: quantize.Affine) -> torch.Tensor:
    return blocks.codes.int() - blocks.zero_points.int().repeat_interleave(256)


def test_requantizing_grid_points_keeps_their_values():
    # The zero point may move by one, and all codes of the block with it: the range of the rounded values
    # starts at the border of the grid.
    x = torch.from_numpy(np.random.default_rng(2).standard_normal(256 * 400).astype(f32))
    first = quantize.quantize_int8(x, rounding="nearest")
    restored = quantize.dequantize_int8(*first)
    again = quantize.quantize_int8(restored, rounding="nearest")
    assert torch.equal(steps(again), steps(first))
    assert ((again.scales - first.scales).abs() <= 2.0**-22 * first.scales).all()
    stochastic = quantize.quantize_int8(restored, seed=1)
    assert (steps(stochastic) != steps(first)).sum() <= 16, "a step with probability 2⁻¹⁵ at most"


MAPS = {False: "unsigned", True: "signed"}


@pytest.mark.parametrize("signed", [False, True], ids=MAPS.get)
def test_dynamic_map_has_its_256_constants(signed):
    values = quantize.dynamic_map(signed)
    assert len(np.unique(values)) == 256
    assert (np.diff(values) > 0).all()
    assert {0.0, 1.0} <= set(values.tolist())
    digest = hashlib.sha256(values.astype("<f4").tobytes()).hexdigest()
    assert digest[:16] == {False: "305f002cc11278fb", True: "e732639a65f497b4"}[signed]
    if signed:
        assert values[127] == 0
        assert np.array_equal(values[:127], -values[254:127:-1])
        assert values[128] == pytest.approx(5.5e-7)
    else:
        assert values[1] == pytest.approx(3.25e-7)
        assert [int(((values > 10.0**-k / 10) & (values < 10.0**-k)).sum()) for k in range(6, -1, -1)] == [
            2, 4, 8, 16, 32, 64, 128,
        ]  # fmt: skip


@pytest.mark.parametrize("signed", [False, True], ids=MAPS.get)
def test_dynamic_codes_are_the_nearest_values_and_ties_go_down(signed):
    values = quantize.dynamic_map(signed)
    midpoints = (values[:-1] + values[1:]) * f32(0.5)
    rng = np.random.default_rng(3)
    around = np.concatenate([midpoints, np.nextafter(midpoints, f32(2)), np.nextafter(midpoints, f32(-2))])
    y = np.concatenate(
        [[1], around, rng.uniform(-1 if signed else 0, 1, 5000), 10 ** rng.uniform(-9, 0, 5000)]
    )
    y = y.astype(f32)
    codes = quantize.quantize_dynamic8(
        torch.from_numpy(y), block_size=y.size + -y.size % 8, signed=signed
    ).codes
    distance = np.abs(y.astype(np.float64)[:, None] - values.astype(np.float64))
    chosen = distance[np.arange(y.size), codes.numpy()]
    assert (chosen <= distance.min(1) + 2.0**-23 * np.abs(y)).all()
    assert np.array_equal(codes.numpy()[1:256], np.arange(255)), "a midpoint takes the lower of its codes"


@pytest.mark.parametrize(
    ("x", "signed", "absmax", "values"),
    [
        ([0, 0], False, 0, [0, 0]),
        ([0, 0], True, 0, [0, 0]),
        ([1e-39, 0], False, 0, [0, 0]),
        ([3e38, 0], False, 3e38, [3e38, 0]),
        ([-3e38, 0], True, 3e38, [-3e38 * 0.99297, 0]),
        ([2, -1], False, 2, [2, 0]),
        ([1, np.nan], False, np.nan, [np.nan, np.nan]),
        ([-np.inf, 1], True, np.nan, [np.nan, np.nan]),
    ],
)
def test_dynamic_edges(x, signed, absmax, values):
    blocks = quantize.quantize_dynamic8(tensor(*x), signed=signed)
    assert np.array_equal(blocks.absmax.numpy(), np.array([absmax], f32), equal_nan=True)
    restored = quantize.dequantize_dynamic8(*blocks, signed=signed).numpy()
    np.testing.assert_allclose(restored, np.array(values, f32), rtol=1e-5, atol=0)


def test_bf16_rounding_is_unbiased_over_all_thresholds(monkeypatch):
    thresholds = np.arange(65536, dtype=np.uint16)
    monkeypatch.setattr(quantize, "random16", lambda numel, **key: thresholds)
    for value in (1.0, 1 + 2.0**-9, -1.3, 3.1e-39, -0.0, 1e38, 123456.789):
        x = torch.full((65536,), value, dtype=torch.float32)
        mean = quantize.stochastic_round_bf16(x, seed=0, step=0, stream=0).to(torch.float64).mean()
        assert mean.item() == x[0].item()


def test_bf16_rounding_keeps_what_is_not_finite_and_never_makes_it():
    largest = torch.finfo(torch.bfloat16).max
    x = torch.tensor([np.inf, -np.inf, np.nan, torch.finfo(torch.float32).max, -3.4e38, largest]).repeat(1000)
    rounded = quantize.stochastic_round_bf16(x, seed=1, step=2, stream=3).to(torch.float32).reshape(-1, 6)
    assert torch.equal(
        rounded[:, [0, 1, 3, 4, 5]], tensor(np.inf, -np.inf, largest, -largest, largest).expand(1000, 5)
    )
    assert rounded[:, 2].isnan().all()


def test_fused_averages_start_from_zero_blocks():
    x = torch.from_numpy(np.random.default_rng(4).standard_normal(300).astype(f32))
    zero = quantize.Affine(
        torch.zeros(300, dtype=torch.uint8), torch.zeros(2), torch.zeros(2, dtype=torch.uint8)
    )
    mean, blocks = quantize.ema_int8(zero, x, beta=0.9, seed=1, step=1, stream=0)
    assert torch.equal(mean, x * f32(0.1).item())
    step = blocks.scales.repeat_interleave(256)[:300]
    assert ((quantize.dequantize_int8(*blocks) - mean).abs() <= step).all()


def test_adam8_is_adam_on_exactly_representable_moments():
    grad = torch.full((256,), 0.5)
    zeros = torch.zeros(256, dtype=torch.uint8)
    state = quantize.adam8(
        torch.ones(256), grad, quantize.Affine(zeros, torch.zeros(1), zeros[:1]),
        quantize.Dynamic(zeros, torch.zeros(1)), lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8,
        weight_decay=0.01, step=1, seed=0, stream=0,
    )  # fmt: skip
    param = torch.nn.Parameter(torch.ones(256))
    param.grad = grad
    torch.optim.AdamW([param], lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01).step()
    torch.testing.assert_close(state.param, param.detach(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("beta1", "beta2", "bound"), [(0.95, 0.95, 1.0), (0.9, 0.999, 7.27), (0.0, 0.99, 10.0)]
)
def test_adam_bound_is_cauchy_schwarz(beta1, beta2, bound):
    assert quantize.adam_bound(beta1, beta2) == pytest.approx(bound, rel=1e-3)
    t = np.arange(4000)
    worst = beta1**t / beta2**t if beta1 else np.where(t == 0, 1.0, 0.0)
    m = ((1 - beta1) * beta1**t * worst).sum()
    v = ((1 - beta2) * beta2**t * worst**2).sum()
    assert m / v**0.5 == pytest.approx(quantize.adam_bound(beta1, beta2), rel=1e-6)
