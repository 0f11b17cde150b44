import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmbound import InvalidInput
from firmbound.evaluation.paired_tests import holm, rank_methods, signed_rank_chance

chances = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@given(chances)
def test_holm_rejects_what_the_stepwise_definition_rejects(values):
    """Step down: the smallest against level / m, the next against level / (m - 1), until one is not rejected."""
    corrected = holm(values)
    for level in (0.01, 0.05, 0.3):
        order, rejected = np.argsort(values, kind="stable"), set()
        for step, place in enumerate(order):
            if values[place] * (len(values) - step) > level:
                break
            rejected.add(int(place))
        assert rejected == set(np.flatnonzero(corrected <= level).tolist())


@given(chances)
def test_correction_lowers_nothing_and_keeps_the_order(values):
    corrected = holm(values)
    assert np.all(corrected >= np.array(values) - 1e-15)
    assert np.all(corrected <= 1)
    order = np.argsort(values, kind="stable")
    assert np.all(np.diff(corrected[order]) >= 0)


def test_no_difference_is_no_proof():
    assert signed_rank_chance(np.zeros(10)) == 1.0


def test_signed_ranks_are_one_sided():
    assert signed_rank_chance(np.arange(1.0, 11.0)) == pytest.approx(1 / 1024)
    assert signed_rank_chance(-np.arange(1.0, 11.0)) == 1.0


def test_ranks_against_the_textbook():
    """Demsar 2006, table 6: 14 data sets and 4 classifiers; ranks 3.143, 2.000, 2.893, 1.964; distance 1.25."""
    table = """.763 .768 .771 .798 .599 .591 .590 .569 .954 .971 .968 .967 .628 .661 .654 .657 .882 .888 .886 .898
    .936 .931 .916 .931 .661 .668 .609 .685 .583 .583 .563 .625 .775 .838 .866 .875 1.000 1.000 1.000 1.000
    .940 .962 .965 .962 .619 .666 .614 .669 .972 .981 .9751 .975 .957 .978 .946 .970"""
    area = np.array([float(number) for number in table.split()]).reshape(14, 4)
    found = rank_methods(["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"], -area)
    assert found.ranks == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=0.001)
    assert found.critical == pytest.approx(1.25, abs=0.01)
    assert found.chance < 0.05


def test_neighbours_within_the_critical_distance_are_a_clique():
    random = np.random.default_rng(1)
    losses = np.column_stack([random.random(12), random.random(12), 5 + random.random(12), 9 + random.random(12)])
    found = rank_methods(["a", "b", "c", "d"], losses)
    assert (0, 1) in [tuple(sorted(clique)) for clique in found.cliques]
    for clique in found.cliques:
        assert np.ptp(found.ranks[list(clique)]) <= found.critical


@pytest.mark.parametrize("values", [[[0.5]], [-0.1], [1.5], [np.nan]])
def test_what_are_no_chances_is_refused(values):
    with pytest.raises(InvalidInput, match="p-values"):
        holm(values)


def test_one_data_set_ranks_nobody():
    with pytest.raises(InvalidInput, match="losses"):
        rank_methods(["a", "b", "c"], np.zeros((1, 3)))
