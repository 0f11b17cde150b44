"""Cells of memory: cut where the past matters, concave in the posterior within each, whole when saved."""

import numpy as np
import pytest

from firmbound.continuation.convex import ConvexFitter, ConvexOptions
from firmbound.continuation.memory_cells import MemoryCellsSurface, MemoryTree
from firmbound.continuation.memory_fitter import FEWEST_SEQUENCES, MOST_CELLS, MemoryFitter, grow, place_between
from firmbound.errors import InvalidInput


def fitter(classes):
    return MemoryFitter(ConvexFitter(np.zeros(classes), ConvexOptions(points=100, regularisation=1e-5)))


def beliefs(random, classes, n):
    return random.dirichlet(np.full(classes, 0.8), n)


def entropy_like(belief):
    return 1 - (belief**2).sum(axis=1)


def where_the_past_matters(random, classes, n=12_000):
    """Statistics, noisy risks and true ones: concave in the belief, and twice as high where the second summary is."""
    belief, memory = beliefs(random, classes, n), random.random((n, 3))
    truth = entropy_like(belief) * np.where(memory[:, 1] > 0.6, 1.0, 0.5)
    return np.concatenate([belief, memory], axis=1), truth + 0.05 * random.standard_normal(n), truth


@pytest.mark.parametrize("classes", [2, 3])
def test_a_past_that_matters_is_found(random, classes):
    statistic, risk, truth = where_the_past_matters(random, classes)
    surface = fitter(classes).prepare(statistic).fit(risk[:, None])
    asked = surface.tree.feature[surface.tree.feature >= 0]
    assert asked[0] == 1
    assert abs(surface.tree.threshold[0] - 0.6) < 0.05
    plain = fitter(classes).plain.prepare(statistic[:, :classes]).fit(risk[:, None])
    errors = [
        np.sqrt(np.mean((found[:, 0] - truth) ** 2)) for found in (surface(statistic), plain(statistic[:, :classes]))
    ]
    assert errors[0] < 0.3 * errors[1]


@pytest.mark.parametrize("classes", [2, 3])
def test_a_past_that_says_nothing_changes_nothing(random, classes):
    belief = beliefs(random, classes, 8_000)
    risk = (entropy_like(belief) + 0.1 * random.standard_normal(8_000))[:, None]
    # The first summary is no news, the second is noise, the third is always the same.
    statistic = np.column_stack([belief, belief.max(axis=1), random.random(8_000), np.ones(8_000)])
    surface = fitter(classes).prepare(statistic).fit(risk)
    assert surface.facts()["cells"] == 1
    assert np.array_equal(surface(statistic), fitter(classes).plain.prepare(belief).fit(risk)(belief))


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_is_concave_in_the_posterior_for_every_past(random, classes):
    """Targets are noise with a step in the past: the fit has no reason to be concave but that it must be."""
    n = 6_000 if classes < 5 else 12_000
    belief, memory = beliefs(random, classes, n), random.random((n, 3))
    targets = random.random((n, 1)) + memory[:, :1] + (memory[:, 2:] > 0.5)
    surface = fitter(classes).prepare(np.concatenate([belief, memory], axis=1)).fit(targets)
    assert len(surface.surfaces) > 2
    one, other, share = beliefs(random, classes, 800), beliefs(random, classes, 800), random.random((800, 1))
    past = random.random((800, 3))

    def height(point):
        return surface(np.concatenate([point, past], axis=1))

    assert np.all(height(share * one + (1 - share) * other) >= share * height(one) + (1 - share) * height(other) - 1e-9)


def test_fewer_sequences_make_fewer_cells(random):
    counts = []
    for n in (2, 2 * FEWEST_SEQUENCES - 1, 4 * FEWEST_SEQUENCES, 40_000):
        memory = random.random((n, 3))
        residual = (10 * memory).sum(axis=1, keepdims=True)
        tree, cell = grow(*place_between(memory), residual - residual.mean(), FEWEST_SEQUENCES)
        assert np.array_equal(tree(memory), cell)
        assert [tree.at(row) for row in memory[:20]] == cell[:20].tolist()
        assert tree.cells == 1 or np.bincount(cell).min() >= FEWEST_SEQUENCES
        counts.append(tree.cells)
    assert counts[:2] == [1, 1]
    assert counts[2] < counts[3] == MOST_CELLS


def test_costs_are_looked_at_together(random):
    statistic, risk, _ = where_the_past_matters(random, 2)
    surface = fitter(2).prepare(statistic).fit(np.column_stack([risk, 0.3 * risk, np.zeros_like(risk)]))
    assert surface(statistic).shape == (len(risk), 3)
    assert np.allclose(surface(statistic)[:, 1], surface.select(1)(statistic)[:, 0], atol=1e-13)
    assert np.abs(surface(statistic)[:, 2]).max() < 1e-9


def test_saved_is_loaded(random):
    statistic, risk, _ = where_the_past_matters(random, 3)
    surface = fitter(3).prepare(statistic).fit(risk[:, None])
    assert len(surface.surfaces) > 1
    again = MemoryCellsSurface.from_arrays(**surface.arrays())
    assert np.array_equal(again(statistic), surface(statistic))
    assert again.facts() == surface.facts()
    assert again.arrays().keys() == surface.arrays().keys()


TREE = {"feature": [0, -1, -1], "threshold": [0.5, 0.0, 0.0], "below": [1, 0, 1], "above": [2, 0, 1]}


@pytest.mark.parametrize(
    "change",
    [
        {"below": [0, 0, 1]},  # round in a circle
        {"above": [3, 0, 1]},
        {"below": [1, 0, 0]},  # a cell twice
        {"below": [1, 0, 5]},
        {"threshold": [0.5]},
        {"feature": [], "threshold": [], "below": [], "above": []},
    ],
)
def test_a_tree_that_leads_nowhere_is_refused(change):
    MemoryTree(**{name: np.array(part) for name, part in TREE.items()})
    with pytest.raises(InvalidInput):
        MemoryTree(**{name: np.array(part) for name, part in (TREE | change).items()})


def test_cells_without_their_surface_are_refused(random):
    statistic, risk, _ = where_the_past_matters(random, 2)
    surface = fitter(2).prepare(statistic).fit(risk[:, None])
    with pytest.raises(InvalidInput, match="one a cell"):
        MemoryCellsSurface(surface.tree, surface.surfaces[:-1])
    with pytest.raises(InvalidInput, match="summaries"):
        surface(statistic[:, :2])
    with pytest.raises(InvalidInput, match="summaries"):
        fitter(2).prepare(statistic[:, :2])
