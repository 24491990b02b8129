"""The oracles of eigenbases, sketches and parts: mathematics."""

import pytest
import torch

from python_ref.block_project import lift, project
from python_ref.eigenbasis import refresh
from python_ref.nystrom import nystrom
from tests.matrices import covariance, normal, orthogonal, signed_permutation


def test_eigh_makes_a_factor_diagonal_with_falling_entries_and_old_signs(generator):
    S, old = covariance(generator, 7, 7), orthogonal(generator, 7, 7)
    Q, eigvals, P = refresh(S, old)
    torch.testing.assert_close(Q.T @ S @ Q, torch.diag(eigvals))
    assert eigvals.diff().max() < 0 and ((Q * old).sum(0) > 0).all()
    torch.testing.assert_close(Q @ P, old)


@pytest.mark.parametrize("qr", [False, True])
def test_eigenvectors_stay_in_whatever_order_they_come(generator, qr):
    S = covariance(generator, 7, 7)
    exact, eigvals, _ = refresh(S, torch.eye(7))
    Q, found, P = refresh(S, exact @ signed_permutation(generator, 7), qr=qr)
    torch.testing.assert_close(Q.abs(), exact.abs())
    torch.testing.assert_close(found, eigvals)
    torch.testing.assert_close(P.abs().sum(0), torch.ones(7).double())


def test_steps_of_qr_become_eigenvectors(generator):
    S, Q = covariance(generator, 5, 5), orthogonal(generator, 5, 5)
    for _ in range(500):
        Q = refresh(S, Q, qr=True)[0]
    torch.testing.assert_close(Q.abs(), refresh(S, Q)[0].abs())


def test_a_sketch_of_a_matrix_of_low_rank_is_all_of_it(generator):
    X = normal(generator, 30, 5)
    U, eigvals = nystrom(X @ X.T, normal(generator, 30, 8), None, 5, 1)
    torch.testing.assert_close(U * eigvals @ U.T, X @ X.T, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(U.T @ U, torch.eye(5).double())


@pytest.mark.parametrize("orthonormal", [False, True])
def test_lifts_of_the_parts_add_up(generator, orthonormal):
    G, U_L, U_R = (
        normal(generator, 2, 9, 7),
        orthogonal(generator, 2, 9, 9)[..., :4],
        normal(generator, 2, 7, 3),
    )
    U_R = torch.linalg.qr(U_R).Q if orthonormal else U_R
    parts = project(G, U_L, U_R)
    torch.testing.assert_close(lift(*parts, U_L, U_R), G)
    if orthonormal:
        assert (parts[3] @ U_R).abs().max() < 1e-13 and (U_L.mT @ parts[3]).abs().max() < 1e-13
        squares = sum(part.square().sum() for part in parts)
        torch.testing.assert_close(squares, G.square().sum())
