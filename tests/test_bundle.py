import json

import numpy as np
import pytest

from firmbound.bundle import read_bundle, write_bundle
from firmbound.errors import BundleError


@pytest.fixture
def bundle(tmp_path):
    path = tmp_path / "model"
    write_bundle(path, kind="thing", header={"answer": 42}, arrays={"x": np.arange(6.0).reshape(2, 3)})
    return path


def test_what_goes_in_comes_out(bundle):
    header, arrays = read_bundle(bundle, kind="thing")
    assert header["answer"] == 42
    assert arrays["x"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_every_changed_byte_is_noticed(bundle, random):
    file = bundle / "arrays.safetensors"
    good = file.read_bytes()
    for place in random.choice(len(good), 40, replace=False):
        bad = bytearray(good)
        bad[place] ^= 1
        file.write_bytes(bytes(bad))
        with pytest.raises(BundleError, match="changed or cut short"):
            read_bundle(bundle, kind="thing")


def test_truncated_missing_and_foreign_bundles_are_refused(bundle, tmp_path):
    with pytest.raises(BundleError, match="no model at"):
        read_bundle(tmp_path / "nowhere", kind="thing")
    with pytest.raises(BundleError, match="not a 'rule'"):
        read_bundle(bundle, kind="rule")
    (bundle / "arrays.safetensors").write_bytes(b"")
    with pytest.raises(BundleError, match="cut short"):
        read_bundle(bundle, kind="thing")
    (bundle / "arrays.safetensors").unlink()
    with pytest.raises(BundleError, match="no readable"):
        read_bundle(bundle, kind="thing")


def test_another_schema_version_and_broken_headers_are_refused(bundle):
    file = bundle / "header.json"
    header = json.loads(file.read_text())
    file.write_text(json.dumps(header | {"schema_version": 99}))
    with pytest.raises(BundleError, match="schema version 99"):
        read_bundle(bundle, kind="thing")
    for broken in ("{", "[]", "null"):
        file.write_text(broken)
        with pytest.raises(BundleError):
            read_bundle(bundle, kind="thing")
