import numpy as np
import pytest

from firmbound import Decisions, InvalidInput
from firmbound.trajectories import Batch, check_evidence, join


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (np.zeros((3, 4)), r"shape \(n, T, K\)"),
        (np.zeros((3, 1, 2)), "T >= 2"),
        (np.zeros((3, 4, 1)), "K >= 2"),
        (np.zeros((0, 4, 2)), "at least one"),
        (np.full((1, 2, 2), np.nan), "4 NaN or infinite of 4 values, the first at index"),
        (np.full((1, 2, 2), np.inf), "finite"),
        (np.array([[["a", "b"]]]), "numeric"),
    ],
)
def test_bad_evidence_is_refused(evidence, message):
    with pytest.raises(InvalidInput, match=message):
        check_evidence(evidence)


def test_evidence_keeps_its_precision_and_integers_become_floats():
    assert check_evidence(np.zeros((1, 2, 2), np.float32)).dtype == np.float32
    assert check_evidence(np.zeros((1, 2, 2), int)).dtype == np.float64


def test_batches_check_labels_and_join_in_order():
    parts = [Batch(np.array([k]), 3, evidence=np.full((1, 2, 3), float(k))) for k in range(3)]
    joined = join(parts)
    assert joined.labels.tolist() == [0, 1, 2]
    assert joined.evidence is not None
    assert joined.evidence[:, 0, 0].tolist() == [0.0, 1.0, 2.0]
    assert joined.features is None
    with pytest.raises(InvalidInput, match=r"lie in 0\.\.1"):
        Batch(np.array([2]), 2, evidence=np.zeros((1, 2, 2)))
    with pytest.raises(InvalidInput, match="class indices"):
        Batch(np.array(["a"]), 2, evidence=np.zeros((1, 2, 2)))
    with pytest.raises(InvalidInput, match="neither"):
        Batch(np.array([0]), 2)
    with pytest.raises(InvalidInput, match="one row a label"):
        Batch(np.array([0, 1]), 2, features=np.zeros((1, 2, 5)))


def test_decisions_lie_within_the_horizon():
    assert len(Decisions(np.array([1, 3]), np.array([0, 1]), 3)) == 2
    with pytest.raises(InvalidInput, match=r"1\.\.3"):
        Decisions(np.array([0]), np.array([0]), 3)
    with pytest.raises(InvalidInput, match="as many"):
        Decisions(np.array([1, 2]), np.array([0]), 3)
