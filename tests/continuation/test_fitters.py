"""One contract for every fitter: what backward induction may rely on, whichever estimator is behind it."""

import numpy as np
import pytest

from firmbound.continuation.affine import MinAffineSurface
from firmbound.continuation.compression import bin_line, random_subsample, split_cells
from firmbound.continuation.convex import AnchoredPoints, ConvexFitter, ConvexOptions
from firmbound.continuation.cross_validation import choose_regularisation
from firmbound.continuation.gaussian_process import ProcessFitter, ProcessOptions
from firmbound.continuation.kinds import SURFACES
from firmbound.continuation.memory_fitter import MemoryFitter
from firmbound.continuation.pruning import prune
from firmbound.errors import InvalidInput
from firmbound.posterior import log_likelihood_ratios, ranked


def convex(classes):
    return ConvexFitter(np.zeros(classes), ConvexOptions(points=80, regularisation=1e-5))


def admm(classes):
    return ConvexFitter(np.zeros(classes), ConvexOptions(points=60, regularisation=1e-3, tolerance=1e-4, solver="admm"))


def max_affine(classes):
    options = ConvexOptions(points=60, pieces=40, regularisation=1e-5, tolerance=1e-5, solver="max-affine")
    return ConvexFitter(np.zeros(classes), options)


def process(classes, **options):
    chosen = ProcessOptions(**({"points": 200, "inducing": 30} | options))
    even = np.full(classes, 1 / classes)
    return ProcessFitter(chosen.frame(even, 1 - np.eye(classes)), chosen)


def process_on_posteriors(classes):
    return process(classes, statistic="posterior", kernel="matern-2.5")


def variational(classes):
    return process(classes, solver="variational", scaling="risk", batch=200, epochs=20, learning_rate=0.05)


def on_ranks(classes):
    return ConvexFitter(np.zeros(1), ConvexOptions(points=80, regularisation=1e-5, statistic="ranked"))


def process_on_ranks(classes):
    return process(classes, statistic="ranked")


def with_memory(classes):
    return MemoryFitter(convex(classes))


def process_with_memory(classes):
    return process(classes, statistic="memory", points=400)


CONVEX = [pytest.param(convex, k, id=f"cfl-{k}") for k in (2, 3, 5)]
CONVEX += [pytest.param(admm, 3, id="admm-3"), pytest.param(max_affine, 5, id="max-affine-5")]
FITTERS = [*CONVEX, *[pytest.param(process, k, id=f"gp-{k}") for k in (2, 3, 5)]]
FITTERS += [pytest.param(process_on_posteriors, 3, id="gp-posterior-3")]
FITTERS += [pytest.param(variational, 2, id="variational-2"), pytest.param(variational, 3, id="variational-3")]


FITTERS += [pytest.param(with_memory, k, id=f"cfl-memory-{k}") for k in (2, 3)]
FITTERS += [pytest.param(process_with_memory, k, id=f"gp-memory-{k}") for k in (2, 3)]
FITTERS += [pytest.param(on_ranks, k, id=f"cfl-ranked-{k}") for k in (2, 3)]
FITTERS += [pytest.param(process_on_ranks, k, id=f"gp-ranked-{k}") for k in (2, 3)]


def sample(random, classes, n=3_000):
    return random.dirichlet(np.full(classes, 0.6), n)


def truth(posterior):
    """Concave, zero at the corners, and no more than deciding at random would risk."""
    return 1.2 * (1 - np.linalg.norm(posterior, axis=1))


def prepare(fitter, posterior):
    return fitter.prepare(known(fitter, posterior))


def known(fitter, posterior):
    """The statistic that a fitter asks for; a past that says nothing new, where it wants one."""
    if fitter.statistic == "posterior":
        return posterior
    if fitter.statistic == "llr":
        return ratios(posterior)
    if fitter.statistic == "ranked":
        return ranked(posterior)
    past = [posterior.max(axis=1), posterior.min(axis=1), np.sin(100 * posterior[:, 0])]
    return np.column_stack([posterior, *past])


def ratios(posterior):
    return log_likelihood_ratios(np.log(np.maximum(posterior, 1e-300)))


def heights(fitter, surface, posterior):
    return surface(known(fitter, posterior))


@pytest.mark.parametrize(("make", "classes"), FITTERS)
class TestFitterContract:
    def test_learns_a_concave_function_through_noise(self, make, classes, random):
        x, fitter = sample(random, classes), make(classes)
        target = truth(x) + 0.1 * random.standard_normal(len(x))
        surface = prepare(fitter, x).fit(target[:, None])
        fresh = sample(random, classes)
        error = np.sqrt(np.mean((heights(fitter, surface, fresh)[:, 0] - truth(fresh)) ** 2))
        assert error < (0.02 if classes < 5 else 0.05)

    def test_costs_together_equal_costs_alone(self, make, classes, random):
        x, fitter = sample(random, classes, 800), make(classes)
        targets = np.column_stack([truth(x), 0.5 * truth(x) + 0.05 * random.standard_normal(800)])
        prepared = prepare(fitter, x)
        together = prepared.fit(targets)
        for column in range(2):
            alone = prepared.fit(targets[:, column : column + 1])
            seen, seen_alone = heights(fitter, together, x)[:, column], heights(fitter, alone, x)[:, 0]
            # Between its points a least-squares fit is not unique in many dimensions, so not to the last digit; and
            # processes share what they know of kernel and noise.
            assert np.sqrt(np.mean((seen - seen_alone) ** 2)) < (5e-3 if make is convex else 2e-2)
            # one column of a matrix product may differ from the product of one column in the last bit, and bits of
            # weights count more where many inputs differ little
            close = 1e-10 if make in (process_with_memory, process_on_ranks) else 1e-13
            assert np.allclose(heights(fitter, together.select(column), x)[:, 0], seen, rtol=0, atol=close)

    def test_order_of_rows_does_not_matter(self, make, classes, random):
        x, fitter = sample(random, classes, 800), make(classes)
        target = truth(x)[:, None]
        shuffled = random.permutation(800)
        one = prepare(fitter, x).fit(target)
        two = prepare(fitter, x[shuffled]).fit(target[shuffled])
        apart = heights(fitter, one, x) - heights(fitter, two, x)
        if make is variational:  # its batches differ
            assert np.sqrt(np.mean(apart**2)) < 2e-2
        else:
            assert np.abs(apart).max() < 1e-4

    def test_one_point_at_a_time_equals_many(self, make, classes, random):
        x, fitter = sample(random, classes, 500), make(classes)
        surface = prepare(fitter, x).fit(np.column_stack([truth(x), 0.5 * truth(x)])).select(1)
        points = known(fitter, x[:20])
        assert np.allclose([surface.at(point) for point in points], surface(points)[:, 0], rtol=0, atol=1e-12)

    def test_saved_equals_loaded(self, make, classes, random):
        x, fitter = sample(random, classes, 500), make(classes)
        surface = prepare(fitter, x).fit(truth(x)[:, None])
        again = SURFACES[surface.kind](**surface.arrays())
        assert np.array_equal(heights(fitter, surface, x), heights(fitter, again, x))
        np.testing.assert_equal(again.facts(), surface.facts())

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_few_sequences_are_enough(self, make, classes, random, n):
        x, fitter = sample(random, classes, n), make(classes)
        surface = prepare(fitter, x).fit(truth(x)[:, None])
        close = {convex: 1e-3, with_memory: 1e-3, variational: 0.2}.get(make, 1e-2)  # a few steps of Adam
        assert np.allclose(heights(fitter, surface, x)[:, 0], truth(x), atol=close)

    def test_certain_and_repeated_sequences_do_no_harm(self, make, classes, random):
        certain, fitter = np.eye(classes)[random.integers(0, classes, 400)], make(classes)
        surface = prepare(fitter, certain).fit(np.zeros((400, 1)))
        assert np.allclose(heights(fitter, surface, certain), 0.0, atol=1e-6)
        same = np.repeat(sample(random, classes, 1), 400, axis=0)
        surface = prepare(fitter, same).fit(truth(same)[:, None])
        assert np.allclose(heights(fitter, surface, same)[:, 0], truth(same), atol=1e-3 if make is convex else 1e-2)

    def test_constant_targets_give_a_constant(self, make, classes, random):
        x, fitter = sample(random, classes, 600), make(classes)
        inside = x[x.max(axis=1) < 0.9]
        surface = prepare(fitter, inside).fit(np.full((len(inside), 1), 0.1))
        assert np.abs(heights(fitter, surface, inside) - 0.1).mean() < 0.02

    def test_targets_that_are_not_numbers_are_refused(self, make, classes, random):
        prepared = prepare(make(classes), sample(random, classes, 50))
        with pytest.raises(InvalidInput, match="finite"):
            prepared.fit(np.full((50, 1), np.nan))
        with pytest.raises(InvalidInput, match="shape"):
            prepared.fit(np.zeros(50))


@pytest.mark.parametrize(("make", "classes"), CONVEX)
def test_is_concave_along_segments(make, classes, random):
    x = sample(random, classes)
    surface = make(classes).prepare(x).fit(random.random((len(x), 1)))
    one, other, share = sample(random, classes, 500), sample(random, classes, 500), random.random((500, 1))
    middle = surface(share * one + (1 - share) * other)
    assert np.all(middle >= share * surface(one) + (1 - share) * surface(other) - 1e-9)


@pytest.mark.parametrize(("compress", "classes"), [(bin_line, 2), (split_cells, 2), (split_cells, 4)])
def test_compression_keeps_every_sequence(compress, classes, random):
    x = sample(random, classes)
    cells = compress(x, 50)
    assert len(cells.weights) <= 50
    assert cells.weights.sum() == len(x)
    assert np.array_equal(np.bincount(cells.cell), cells.weights)
    assert np.allclose(cells.points.sum(axis=1), 1.0)
    values = random.random((len(x), 2))
    assert np.allclose((cells.weights[:, None] * cells.average(values)).sum(axis=0), values.sum(axis=0))
    assert np.allclose(cells.average(x), cells.points)


def test_more_points_mean_smaller_cells(random):
    x = sample(random, 3)

    def spread(count):
        cells = split_cells(x, count)
        return ((x - cells.points[cells.cell]) ** 2).sum()

    assert spread(20) > 2 * spread(100) > 2 * spread(400) * 2


def test_surfaces_without_pieces_are_refused():
    with pytest.raises(InvalidInput, match="piece for each cost"):
        MinAffineSurface(np.zeros((1, 2)), np.zeros(1), np.array([0, 1, 1]), np.zeros((2, 4)))


BAD_OPTIONS = [{"points": 1}, {"regularisation": -1.0}, {"regularisation": "often"}, {"tolerance": 1.0}]
BAD_OPTIONS += [{"solver": "magic"}, {"pieces": 0}, {"compression": "zip"}, {"device": "abacus"}, {"statistic": "llr"}]


@pytest.mark.parametrize("options", BAD_OPTIONS)
def test_bad_options_are_refused(options):
    (name,) = options
    with pytest.raises(InvalidInput, match=name):
        ConvexOptions(**options)


def test_a_line_has_two_classes():
    with pytest.raises(InvalidInput, match="two classes"):
        ConvexFitter(np.zeros(3), ConvexOptions(solver="line"))


def test_solvers_agree_on_one_problem(random):
    """Two classes can be given to any of them."""
    x = sample(random, 2)
    target = truth(x) + 0.05 * random.standard_normal(len(x))
    surfaces = {
        solver: ConvexFitter(np.zeros(2), ConvexOptions(points=40, regularisation=1e-3, solver=solver, pieces=60))
        .prepare(x)
        .fit(target[:, None])
        for solver in ("line", "interior-point", "admm")
    }
    objectives = [surface.quality[0, 0] for surface in surfaces.values()]
    assert objectives == pytest.approx([objectives[0]] * 3, rel=1e-3)
    assert np.allclose(surfaces["line"](x), surfaces["interior-point"](x), atol=2e-3)


def test_a_subsample_leaves_the_others_out(random):
    x, values = sample(random, 3), random.random((3_000, 2))
    cells = random_subsample(x, 100, seed=1)
    chosen = cells.cell >= 0
    assert chosen.sum() == 100
    assert cells.weights.sum() == 100
    assert np.array_equal(cells.points[cells.cell[chosen]], x[chosen])
    assert np.allclose(cells.average(values)[cells.cell[chosen]], values[chosen])
    fitter = ConvexFitter(np.zeros(3), ConvexOptions(points=300, compression="subsample"), seed=1)
    surface = fitter.prepare(x).fit(truth(x)[:, None])
    assert np.sqrt(np.mean((surface(x)[:, 0] - truth(x)) ** 2)) < 0.01


def test_cross_validation_finds_the_scale_of_the_noise(random):
    """Heavy noise asks for flatter fits than none; and what is chosen has the least error of all that was tried."""
    x = sample(random, 2, 2_000)
    chosen = []
    for noise in (0.0, 3.0):
        target = (truth(x) + noise * random.standard_normal(len(x)))[:, None]
        prepared = ConvexFitter(np.zeros(2), ConvexOptions(points=100, regularisation="cv")).prepare(x)
        choice = choose_regularisation(prepared.solver, prepared.anchored.folds(target, seed=0))
        assert choice.tried[choice.tried[:, 1].argmin(), 0] == pytest.approx(choice.regularisation)
        assert prepared.fit(target).quality[0, 3] == pytest.approx(choice.regularisation)
        chosen.append(choice.regularisation)
    assert chosen[0] < 1e-4 < chosen[1]


@pytest.mark.parametrize("size", [1.0, 0.03, 0.003])
def test_cross_validation_leaves_the_plateau_of_flat_fits(random, size):
    x = sample(random, 2, 2_000)
    surface = (
        ConvexFitter(np.zeros(2), ConvexOptions(points=100, regularisation="cv"))
        .prepare(x)
        .fit(size * truth(x)[:, None])
    )
    assert np.abs(surface(x)[:, 0] - size * truth(x)).max() < 0.05 * size


@pytest.mark.parametrize("n", [1, 3])
def test_cross_validation_without_folds_takes_the_default(random, n):
    fitter = ConvexFitter(np.zeros(3), ConvexOptions(regularisation="cv"))
    for x in (sample(random, 3, n), np.eye(3)[random.integers(0, 3, 200)]):
        surface = fitter.prepare(x).fit(truth(x)[:, None])
        assert np.allclose(surface(x)[:, 0], truth(x), atol=1e-2)


def test_folds_leave_their_sequences_out(random):
    x, target = sample(random, 3, 400), random.random((400, 2))
    anchored = AnchoredPoints.around(split_cells(x, 30), np.zeros(3), 0.1)
    folds = anchored.folds(target, seed=0)
    assert sum(fold.held_weights.sum() for fold in folds) == 400
    for fold in folds:
        whole = fold.weights[:, None] * fold.targets + fold.held_weights[:, None] * fold.held_targets
        assert np.allclose(-whole, anchored.weights[:, None] * anchored.targets(target), atol=1e-3)


@pytest.mark.parametrize("classes", [2, 3, 4, 6])
def test_pruning_changes_nothing_but_the_number_of_pieces(random, classes):
    slopes, offsets = random.standard_normal((60, classes)), random.random(60)
    slopes, offsets = np.vstack([slopes, slopes[:5]]), np.concatenate([offsets, offsets[:5] + 0.3])  # five above others
    kept = prune(slopes, offsets, sample(random, classes, 50))
    everywhere = np.vstack([sample(random, classes, 20_000), np.eye(classes)])
    before = (everywhere @ slopes.T + offsets).min(axis=1)
    after = (everywhere @ kept[0].T + kept[1]).min(axis=1)
    assert np.allclose(after, before, atol=1e-8)
    assert len(kept[1]) <= 60
    # and each that stays is needed: without it the surface rises somewhere
    lowest = np.unique((everywhere @ kept[0].T + kept[1]).argmin(axis=1))
    assert len(lowest) >= 0.5 * len(kept[1])
