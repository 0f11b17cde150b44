"""Mean and deviation of features, gathered part by part."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmbound.errors import BundleError, InvalidInput
from firmbound.scaling import Moments, Scaling


@given(st.integers(0, 10**6), st.integers(1, 30), st.sampled_from([0.0, 1e4, -3e5]))
def test_parts_give_what_the_whole_gives(seed, cut, offset):
    random = np.random.default_rng(seed)
    features = (offset + random.standard_normal((31, 7, 3))).astype(np.float32)
    lengths = random.integers(1, 8, size=31)
    there = features[np.arange(7) < lengths[:, None]].astype(np.float64)
    found = (Moments.of(features[:cut], lengths[:cut]) + Moments.of(features[cut:], lengths[cut:])).scaling()
    np.testing.assert_allclose(found.mean, there.mean(axis=0), rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(found.scale, there.std(axis=0), rtol=1e-3)


def test_blocks_add_up(random):
    features = random.standard_normal((500, 40, 30)).astype(np.float32)  # several blocks
    found = Moments.of(features).scaling()
    np.testing.assert_allclose(found.mean, features.mean(axis=(0, 1), dtype=np.float64), atol=1e-5)
    np.testing.assert_allclose(found.scale, features.std(axis=(0, 1), dtype=np.float64), rtol=1e-5)


def test_what_does_not_vary_is_not_blown_up(random):
    features = np.full((10, 4, 2), 0.1, dtype=np.float32)
    features[..., 1] = random.standard_normal((10, 4))
    scaled = Moments.of(features).scaling()(features)
    assert np.abs(scaled[..., 0]).max() < 1e-6
    assert scaled[..., 1].std() == pytest.approx(1.0, abs=1e-5)


def test_features_too_large_for_a_scale_are_refused():
    with pytest.raises(InvalidInput, match=r"features.*squares"):
        Moments.of(np.array([[[1e25], [-1e25]]], dtype=np.float32)).scaling()


def test_saved_equals_loaded_and_damage_is_refused(tmp_path, random):
    found = Moments.of(random.standard_normal((9, 4, 3)).astype(np.float32)).scaling()
    found.save(tmp_path / "scaling")
    again = Scaling.load(tmp_path / "scaling")
    np.testing.assert_array_equal(again.mean, found.mean)
    np.testing.assert_array_equal(again.scale, found.scale)
    Scaling(found.mean, -found.scale).save(tmp_path / "wrong")
    with pytest.raises(BundleError, match="positive scale"):
        Scaling.load(tmp_path / "wrong")
