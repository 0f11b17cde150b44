"""Summaries of the past: causal, the same in a stream as on whole sequences, blind to the names of classes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from firmbound.errors import InvalidInput
from firmbound.memory import SUMMARIES, Memory, check_summaries, memory_of, remember

N, T, K = 3, 6, 4
EVIDENCE = arrays(np.float64, (N, T, K), elements=st.floats(-60, 60))


@given(EVIDENCE)
def test_whole_sequences_are_streams(evidence):
    whole = memory_of(evidence)
    assert whole.shape == (N, T, len(SUMMARIES))
    together = Memory.start(N, K)
    alone = [Memory.start(1, K) for _ in range(N)]
    for t in range(T):
        together = together.advance(evidence[:, t])
        alone = [each.advance(evidence[i, t][None]) for i, each in enumerate(alone)]
        assert np.array_equal(together.summaries(), whole[:, t])
        assert np.array_equal(np.concatenate([each.summaries() for each in alone]), whole[:, t])
    assert np.array_equal(remember(lambda t: evidence[:, t - 1], T, K), np.moveaxis(whole, 1, 0))


@given(EVIDENCE, EVIDENCE, st.integers(1, T - 1))
def test_the_future_changes_nothing(evidence, other, t):
    mixed = np.concatenate([evidence[:, :t], other[:, t:]], axis=1)
    assert np.array_equal(memory_of(mixed)[:, :t], memory_of(evidence)[:, :t])


@given(EVIDENCE, st.permutations(range(K)), st.floats(-30, 30))
def test_names_of_classes_and_common_constants_do_not_matter(evidence, order, shift):
    renamed = evidence[:, :, order] + shift
    assert np.allclose(memory_of(renamed), memory_of(evidence), atol=1e-6)


@given(EVIDENCE)
def test_all_is_bounded_and_finite(evidence):
    agreement, movement, gain = np.moveaxis(memory_of(evidence), 2, 0)
    assert np.all((agreement >= 0) & (agreement <= 1 + 1e-6))
    assert np.all((movement >= 0) & (movement <= np.sqrt(2) + 1e-6))
    assert np.abs(gain).max() <= 1


def test_by_hand():
    certain = np.array([[[500.0, 0.0], [0.0, 500.0], [0.0, 500.0]]])
    half = np.sqrt(0.5)
    first = 2 - 2 * half  # from even to certain
    expected = [
        [1, np.sqrt(first), 1 - half],
        [1 / 2, np.sqrt((first + 2) / 2), 0],
        [2 / 3, np.sqrt((first + 2) / 3), 0],
    ]
    assert np.allclose(memory_of(certain)[0], expected, atol=1e-6)


def test_a_belief_that_stays_agrees_with_itself():
    still = memory_of(np.repeat(np.array([[[1.0, 0.0, -2.0]]]), 50, axis=1))
    assert np.allclose(still[0, :, 0], 1.0)
    assert np.all(np.diff(still[0, :, 1]) < 0)


def test_some_may_go_on_alone_and_begin_again(random):
    evidence = random.standard_normal((5, 4, 3))
    memory = Memory.start(5, 3).advance(evidence[:, 0])
    some = np.array([0, 3])
    memory.put(some, memory.take(some).advance(evidence[some, 1]))
    assert np.array_equal(memory.take(some).summaries(), memory_of(evidence)[some, 1])
    assert np.array_equal(memory.take([1, 2, 4]).summaries(), memory_of(evidence)[[1, 2, 4], 0])
    memory.put(some, Memory.start(2, 3))
    assert memory.steps.tolist() == [0, 1, 1, 0, 1]


def test_saved_is_loaded_and_does_not_grow(random):
    evidence = random.standard_normal((2, 300, 3))
    memory, sizes = Memory.start(2, 3), set()
    for t in range(300):
        memory = memory.advance(evidence[:, t])
        sizes.add(sum(part.nbytes for part in memory.arrays().values()))
    assert len(sizes) == 1
    again = Memory.from_arrays(memory.arrays(), count=2, classes=3)
    assert np.array_equal(again.summaries(), memory.summaries())


@pytest.mark.parametrize(
    "change",
    [
        {"roots": np.zeros((1, 3))},
        {"moved": np.array([np.nan])},
        {"moved": np.array([-1.0])},
        {"steps": np.array([1.5])},
        {"steps": np.array([-1])},
    ],
)
def test_what_is_no_memory_is_refused(change):
    good = dict(Memory.start(1, 2).arrays())
    with pytest.raises(ValueError, match="its memory"):
        Memory.from_arrays(good | change, count=1, classes=2)


@pytest.mark.parametrize(
    ("memory", "wanted", "message"),
    [
        (None, True, "be given"),
        (np.zeros((2, 3)), False, "left out"),
        (np.zeros((3, 3)), True, r"\(2, 3\)"),
        (np.zeros((2, 2)), True, r"\(2, 3\)"),
        (np.zeros(3), True, r"\(2, 3\)"),
        (np.full((2, 3), np.nan), True, "finite"),
        ("yesterday", True, "numeric"),
    ],
)
def test_summaries_that_do_not_fit_are_refused(memory, wanted, message):
    with pytest.raises(InvalidInput, match=f"`memory` must.*{message}"):
        check_summaries(memory, count=2, wanted=wanted)
