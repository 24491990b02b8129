"""SOAP against its oracle, what it must be invariant to, and when it refreshes."""

import pytest
import torch
from torch import nn

from kpop_kernels import backends, kron_rotate
from kpop_kernels.optim import SOAP, _refresh, rules_of, state_bytes
from python_ref.optim.soap import SOAP as Reference
from tests.optim.trajectories import SHAPES, gradients, run

OPTIONS = {
    "default": {},
    "refresh each step": {"precondition_frequency": 1},
    "decay": {"weight_decay": 0.1},
    "both moments carried": {"transport": "both"},
    "qr": {"method": "qr", "precondition_frequency": 3},
    "qr, both moments carried": {"method": "qr", "precondition_frequency": 3, "transport": "both"},
}


def steps_with_the_oracle(shape, dtype=torch.float64, steps=20, **options):
    """Yield as `run` does. Before the first refresh, the statistics of 64 gradients are put into the factors.

    A basis from fewer gradients than the longer side is arbitrary in the null space of its factor, and Adam's
    update depends on it: no two programs agree there.
    """

    def reference(W):
        return Reference(
            W,
            lr=1e-2,
            weight_decay=options.get("weight_decay", 0.0),
            frequency=options.get("precondition_frequency", 10),
            qr=options.get("method") == "qr",
            transport_both=options.get("transport") == "both",
            first_refresh=2,
        )

    def make(params):
        return SOAP(params, lr=1e-2, first_basis="identity", **options)

    for step, found in enumerate(run(shape, make, reference, steps=steps, dtype=dtype)):
        yield found
        if step == 0:
            _add_statistics(shape, *found[2:])


def _add_statistics(shape, optimizer, oracles):
    (state,) = optimizer.state.values()
    matrices = (len(oracles), *oracles[0].W.shape)
    for G in gradients(matrices, steps=64, seed=2):
        for i, oracle in enumerate(oracles):
            for factor, gram in (("L", G[i] @ G[i].T), ("R", G[i].T @ G[i])):
                setattr(oracle, factor, getattr(oracle, factor) + gram / 64)
    for factor in {"L", "R"} & state.keys():
        exact = torch.stack([getattr(oracle, factor) for oracle in oracles])
        state[factor] = exact.reshape(state[factor].shape).to(state[factor].dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_follows_the_oracle_in_float64(shape, options):
    with backends.trace() as served:
        for found, expected, *_ in steps_with_the_oracle(shape, **options):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert served["kron_adam_foreach_", "composite"] == 20


@pytest.mark.parametrize("shape", [(3, 5), (40, 17)], ids=str)
def test_follows_the_oracle_in_float32(shape):
    """20 steps of lr 1e-2 move entries by up to 0.2; float32 stays within 1e-5, 2e-6 were measured."""
    with backends.trace() as served:
        for found, expected, *_ in steps_with_the_oracle(shape, dtype=torch.float32):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert served["kron_adam_foreach_", "cpu"] == 20


def test_the_first_basis_is_that_of_the_first_gradient():
    """Singular vectors of G make QᵀGQ diagonal, and Adam's first step from a diagonal is orthogonal: sign(σ)."""
    parameter = nn.Parameter(torch.zeros(6, 6, dtype=torch.float64))
    (parameter.grad,) = gradients((6, 6), steps=1)
    optimizer = SOAP([parameter], lr=1.0)
    optimizer.step()
    state = optimizer.state[parameter]
    rotated = kron_rotate(parameter.grad, state["Q_L"], state["Q_R"])
    off_diagonal = rotated - torch.diag(rotated.diagonal())
    assert off_diagonal.abs().max() < 1e-14
    assert rotated.diagonal().abs().diff().max() < 0


@pytest.mark.parametrize(
    ("change", "method", "transport"),
    [("sign", "eigh", "first"), ("order", "eigh", "both"), ("sign", "qr", "first"), ("order", "qr", "first")],
)
def test_other_signs_and_another_order_of_the_basis_change_nothing(change, method, transport):
    """The same basis with other signs, or in another order, with its moments, is the same method."""
    runs = []
    for disturb in (False, True):
        options = {"method": method, "precondition_frequency": 4, "transport": transport}
        runs.append([])
        for step, (found, _, optimizer, _) in enumerate(steps_with_the_oracle((9, 12), **options)):
            runs[-1].append(found.clone())
            if disturb and step == 4:
                _disturb(next(iter(optimizer.state.values())), change)
    torch.testing.assert_close(runs[0], runs[1], rtol=0, atol=1e-10)


def _disturb(state, change):
    for basis, dim in (("Q_L", 0), ("Q_R", 1)):
        n = state[basis].shape[0]
        if change == "sign":
            signs = torch.where(torch.arange(n) % 3 == 0, -1.0, 1.0).double()
            state[basis] = state[basis] * signs
            state["exp_avg"] = state["exp_avg"] * (signs[:, None] if dim == 0 else signs)
        else:
            state[basis] = state[basis].roll(2, dims=1)
            for moment in ("exp_avg", "exp_avg_sq"):
                state[moment] = state[moment].roll(2, dims=dim)


def refresh_steps(optimizer, params, steps, monkeypatch):
    """For each step, the positions of the parameters that were decomposed in it."""
    decomposed, renewed = [], _refresh._renewed

    def recording(factors, old, **options):
        known = [optimizer.state[p].get("L") for p in params]
        decomposed.extend(i for S in factors for i, factor in enumerate(known) if factor is S)
        return renewed(factors, old, **options)

    monkeypatch.setattr(_refresh, "_renewed", recording)
    by_step = []
    for G in gradients((4, 3), steps):
        for p in params:
            p.grad = G[:, :1].expand(4, 3) + G
        optimizer.step()
        by_step.append(sorted(decomposed))
        decomposed.clear()
    return by_step


def left_only(params, **options):
    return SOAP(params, lr=1e-2, rules={"*": "left"}, precondition_frequency=4, **options)


def test_staggered_refreshes_are_spread_evenly(monkeypatch):
    params = [nn.Parameter(torch.zeros(4, 3, dtype=torch.float64)) for _ in range(8)]
    steps = refresh_steps(left_only(params, stagger=True), params, 12, monkeypatch)
    assert steps[0] == list(range(8))
    assert steps[1:9] == [[2, 6], [3, 7], [0, 4], [1, 5]] * 2
    together = refresh_steps(left_only(params), params, 12, monkeypatch)
    assert [len(refreshed) for refreshed in together] == [8, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 8]


def test_state_of_a_matrix_is_what_the_docstring_says():
    parameter = nn.Parameter(torch.zeros(5, 12))
    optimizer = SOAP([parameter])
    parameter.grad = torch.randn(5, 12)
    optimizer.step()
    assert state_bytes(optimizer) == 4 * (2 * 5 * 12 + 2 * 5**2 + 2 * 12**2) + 4


def test_a_factor_that_cannot_be_decomposed_keeps_its_basis_and_is_counted():
    parameter = nn.Parameter(torch.zeros(5, 4))
    optimizer = SOAP([parameter], precondition_frequency=2)
    for step, G in enumerate(gradients((5, 4), 4)):
        parameter.grad = G.float()
        if step == 3:
            optimizer.state[parameter]["L"][1, 1] = torch.inf
            before = optimizer.state[parameter]["Q_L"].clone(), optimizer.state[parameter]["Q_R"].clone()
        optimizer.step()
    assert optimizer.failed_refreshes == 1
    assert torch.equal(optimizer.state[parameter]["Q_L"], before[0])
    assert not torch.equal(optimizer.state[parameter]["Q_R"], before[1])
    assert parameter.isfinite().all()


def small_language_model():
    """Its hidden layer has as many outputs as there are positions, and is no head for that."""
    return nn.ModuleDict(
        {
            "embed": nn.Embedding(11, 4),
            "positions": nn.Embedding(6, 4),
            "mix": nn.Linear(4, 6),
            "head": nn.Linear(6, 11),
        }
    )


def test_rules_of_a_model_leave_embeddings_and_heads_to_adam():
    model = small_language_model()
    assert set(rules_of(model)) == {"embed.weight", "positions.weight", "head.weight"}
    assert set(rules_of(model).values()) == {"adam"}
    model["head"] = nn.Linear(4, 11, bias=False)
    model["head"].weight = model["embed"].weight
    assert set(rules_of(model)) == {"embed.weight", "positions.weight"}
    assert rules_of(nn.Linear(3, 2)) == {}


def test_hidden_layers_as_wide_as_the_vocabulary_are_no_heads():
    hidden = nn.Sequential(nn.Linear(4, 11), nn.Linear(4, 11), nn.Linear(11, 4))
    heads = nn.ModuleList([nn.Linear(4, 11), nn.Linear(4, 11)])
    model = nn.ModuleDict({"embed": nn.Embedding(11, 4), "hidden": hidden, "heads": heads})
    assert set(rules_of(model)) == {"embed.weight", "heads.0.weight", "heads.1.weight"}


def test_rules_choose_the_treatment_by_name_and_explain_says_so():
    model = small_language_model()
    optimizer = SOAP(model.named_parameters(), rules={"mix.*": "right", **rules_of(model)})
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    keys = {name: set(optimizer.state[p]) & {"L", "R"} for name, p in model.named_parameters()}
    assert {name for name, factors in keys.items() if factors} == {"mix.weight"}
    assert keys["mix.weight"] == {"R"}
    lines = {line.split()[0]: line for line in optimizer.explain().splitlines()}
    assert "Adam" in lines["embed.weight"]
    assert "rules say 'adam'" in lines["head.weight"]
    assert "right side" in lines["mix.weight"]
    assert "a vector has no second side" in lines["mix.bias"]
