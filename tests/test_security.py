"""What comes from elsewhere cannot run code, leave its folder or be listened to from elsewhere."""

import builtins
import hashlib
import io
import json
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import firmbound
from firmbound.bundle import ARRAYS, HEADER, header_sum, write_bundle
from firmbound.datasets.archive import archive_recordings
from firmbound.datasets.array_files import array_recordings
from firmbound.datasets.recordings import SourceError
from firmbound.errors import BundleError, FirmboundError, InvalidInput, ParameterError, StoreError
from firmbound.readers.prefixes import HARMLESS, KIND, PrefixClassifiers
from firmbound.store import TrajectoryStore
from firmbound.tandem.training import KIND as CHECKPOINT
from flows.cli_data import read_data
from flows.params import is_space, read_params
from flows.registry import model_name
from tests.code_dangers import dangers
from tests.test_architecture import ROOT

CODE = sorted(file for part in ("firmbound", "flows", "benchmarks") for file in (ROOT / part).rglob("*.py"))


@pytest.mark.parametrize("file", CODE, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_code_of_ours_is_dangerous(file):
    assert dangers(file.read_text()) == []


BAD = [
    "import pickle",
    "from pickle import load",
    "import cloudpickle as cp",
    "import joblib",
    "from sklearn.externals import joblib",
    "import dill",
    "import shelve",
    "import marshal",
    "import importlib\nimportlib.import_module('pickle')",
    "import numpy as np\nnp.load('x', allow_pickle=True)",
    "from numpy import load\nload('x', allow_pickle=wanted)",
    "import torch\ntorch.load('x')",
    "import torch\ntorch.load('x', weights_only=False)",
    "from torch import load as read\nread('x')",
    "weights.get_state_dict(weights_only=False)",
    "import torch\ntorch.hub.load_state_dict_from_url('https://x')",
    "import torch\ntorch.hub.load('a', 'b')",
    "import torch.export\ntorch.export.load('x.pt2')",
    "import pandas as pd\npd.read_pickle('x')",
    "import mlflow\nmlflow.pyfunc.log_model(name='m', python_model=Model())",
    "import mlflow\nmlflow.pyfunc.save_model('m', python_model=model)",
    "import mlflow.sklearn\nmlflow.sklearn.load_model('m')",
    "import mlflow\nmlflow.pyfunc.load_model('m')",
    "import yaml\nyaml.load(text)",
    "import yaml\nyaml.load(text, Loader=yaml.Loader)",
    "from yaml import full_load\nfull_load(text)",
    "from ruamel.yaml import YAML\nYAML(typ='unsafe')",
    "from skops.io import loads\nloads(b)",
    "from skops.io import loads\nloads(b, trusted=True)",
    "import skops.io as sio\nsio.load(f, trusted=sio.get_untrusted_types(file=f))",
    "eval(text)",
    "exec(text)",
    "compile(text, 'x', 'exec')",
    "__import__(name)",
    "import subprocess\nsubprocess.run('ls', shell=True)",
    "import os\nos.system('ls')",
    "from os import popen\npopen('ls')",
    "import tempfile\ntempfile.mktemp()",
    "import requests\nrequests.get('https://x', verify=False)",
    "import requests\nrequests.get('http://example.org')",
    "from urllib.request import urlopen\nurlopen(f'http://{host}/x')",
    "serve(host='0.0.0.0')",
    "command = ['--host=0.0.0.0']",
    "socket.bind(('', 80))",
    "serve('::')",
    "model.from_pretrained('x', trust_remote_code=True)",
]
HARMLESS_CODE = [
    "import numpy as np\nnp.load('x')\nnp.load('x', allow_pickle=False)",
    "import torch\ntorch.load('x', weights_only=True)",
    "import yaml\nyaml.safe_load(text)\nyaml.load(text, Loader=yaml.SafeLoader)",
    "import re\nre.compile('x')\nmodel.eval()",
    "import subprocess\nsubprocess.run(['ls'])",
    "import mlflow\nmlflow.pyfunc.log_model(name='m', python_model=str(CODE))",
    "from skops.io import loads\nloads(b, trusted=names)",
    "serve('127.0.0.1')\nversion = '10.0.0.0.1'\nurl = 'http://127.0.0.1:4200/api'",
    "namespace = 'http://www.w3.org/2000/svg'",
    "'''Words about pickle and eval, and Write it as http://host:port.'''",
]


@pytest.mark.parametrize("code", BAD)
def test_the_walker_finds_each_danger(code):
    assert dangers(code), code


@pytest.mark.parametrize("code", HARMLESS_CODE)
def test_the_walker_leaves_harmless_code_alone(code):
    assert dangers(code) == []


@pytest.fixture
def trap(tmp_path):
    """Something that makes a file when it is unpickled, and that file."""
    sprung = tmp_path / "sprung"

    class Trap:
        def __reduce__(self):
            return (builtins.open, (str(sprung), "w"))

    pickle.loads(pickle.dumps(Trap())).close()
    assert sprung.exists(), "the trap must work, else these tests say nothing"
    sprung.unlink()
    return Trap(), sprung


def object_array(trap):
    file = io.BytesIO()
    np.save(file, np.array([trap] * 4, dtype=object), allow_pickle=True)
    return file.getvalue()


class TestTraps:
    """Each way in by which data or models come, with a pickle where an array should be."""

    def test_npz_and_npy_of_the_command_line(self, trap, tmp_path):
        trap, sprung = trap
        (tmp_path / "x.npy").write_bytes(object_array(trap))
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            archive.writestr("X.npy", object_array(trap))
        (tmp_path / "raw.npy").write_bytes(pickle.dumps(trap))
        for name in ("x.npy", "x.npz", "raw.npy"):
            with pytest.raises(InvalidInput, match="readable"):
                read_data(tmp_path / name, labels=False, beliefs=False)
        assert not sprung.exists()

    def test_recorded_arrays(self, trap, tmp_path):
        trap, sprung = trap
        (tmp_path / "folder").mkdir()
        for name in ("X", "y"):
            (tmp_path / "folder" / f"{name}.npy").write_bytes(object_array(trap))
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            for name in ("X.npy", "y.npy"):
                archive.writestr(name, object_array(trap))
        for place in ("folder", "x.npz"):
            with pytest.raises(SourceError, match="without objects"):
                array_recordings(tmp_path / place)
        assert not sprung.exists()

    @pytest.mark.parametrize(
        "change",
        [
            {"dtype": "|O", "fill_value": "", "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 4}]},
            {"compressor": {"id": "pickle", "protocol": 4}},
            {"filters": [{"id": "pickle", "protocol": 4}]},
        ],
        ids=["objects", "compressor", "filter"],
    )
    def test_zarr_s_older_format(self, trap, tmp_path, change):
        trap, sprung = trap
        about = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<f8", "fill_value": 0, "order": "C"}
        about |= {"compressor": None, "filters": None} | change
        for name in ("X", "y"):
            (tmp_path / "group" / name).mkdir(parents=True)
            text = json.dumps(about).replace("pickle", "\\u0070ickle")  # JSON has more than one way to write it
            (tmp_path / "group" / name / ".zarray").write_text(text)
            (tmp_path / "group" / name / "0").write_bytes(pickle.dumps(trap))
        (tmp_path / "group" / ".zgroup").write_text('{"zarr_format": 2}')
        with pytest.raises(SourceError, match="asks for pickle"):
            array_recordings(tmp_path / "group")
        assert not sprung.exists()

    @pytest.mark.parametrize("kind", ["stopping-rule", "tandem", CHECKPOINT, KIND])
    def test_bundles_whose_arrays_are_a_pickle_with_the_right_checksums(self, trap, tmp_path, kind):
        trap, sprung = trap
        for number, content in enumerate((pickle.dumps(trap), object_array(trap), torch_file(trap))):
            folder = tmp_path / str(number)
            write_bundle(folder, kind=kind, header={}, arrays={"x": np.zeros(2)})
            (folder / ARRAYS).write_bytes(content)
            header = json.loads((folder / HEADER).read_text())
            header["sha256"][ARRAYS] = hashlib.sha256(content).hexdigest()
            header["sha256"][HEADER] = header_sum(header)
            (folder / HEADER).write_text(json.dumps(header))
            loaders = (firmbound.StoppingRule.load, firmbound.EarlyClassifier.load, PrefixClassifiers.load)
            for load in (*loaders, lambda path: firmbound.bundle.read_bundle(path, kind=kind)):
                with pytest.raises(BundleError):
                    load(folder)
        assert not sprung.exists()

    def test_classifiers_of_scikit_learn_are_made_of_known_types_alone(self, trap, tmp_path):
        """The bytes that stand for a classifier, replaced by a pickle; the checksums are right."""
        trap, sprung = trap
        arrays = {
            "shares": np.full(2, 0.5),
            "asked": np.array([1]),
            "prior": np.full(2, 0.5),
            "temperatures": np.ones(1),
        }
        arrays["classifier/1"] = np.frombuffer(pickle.dumps(trap), np.uint8)
        write_bundle(tmp_path / "model", kind=KIND, header={"dimension": 1, "sequences": 9}, arrays=arrays)
        with pytest.raises(BundleError, match="no classifiers"):
            PrefixClassifiers.load(tmp_path / "model")
        assert not sprung.exists()

    def test_types_that_are_trusted_unseen_hold_numbers_alone(self):
        """Functions, and what reads or runs files, can never be among them."""
        from skops.io import dumps, get_untrusted_types

        assert all(name.startswith("sklearn.") and "tree" not in name and "neighbors" not in name for name in HARMLESS)
        named = get_untrusted_types(data=dumps([subprocess.Popen, builtins.open]))
        assert not set(named) & set(HARMLESS)


def torch_file(trap):
    file = io.BytesIO()
    torch.save({"a": trap}, file)
    return file.getvalue()


NAMES = ["../up", "/etc/passwd", "a/b", ".", "..", ".hidden", "-rf", "a b", "a;touch x", "$(touch x)", "a\n"]


class TestNames:
    """Names stay in their folders, and no shell takes them for more than a word."""

    @pytest.mark.parametrize("name", NAMES)
    def test_of_data_sets(self, name, tmp_path, monkeypatch):
        """Checked by whoever reads params.yaml, and by the first stage, which DVC starts before any other."""
        import yaml

        params = yaml.safe_load((ROOT / "params.yaml").read_text())
        for section in ("features", "tandem", "refinement", "boundary"):
            params[section][name] = params[section]["gauss2"]
        params["datasets"] = [name]
        monkeypatch.chdir(tmp_path)
        Path("params.yaml").write_text(yaml.safe_dump(params))
        with pytest.raises(ParameterError, match="datasets"):
            read_params()
        command = [sys.executable, "-m", "flows.sources"]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert ended.returncode == 1
        assert "`datasets` must hold names" in ended.stderr
        assert [file.name for file in tmp_path.iterdir()] == ["params.yaml"]

    @pytest.mark.parametrize("name", NAMES)
    def test_of_registered_models_and_search_spaces(self, name):
        with pytest.raises(InvalidInput, match="name"):
            model_name(name)
        assert not is_space(name)

    def test_of_archives(self, tmp_path):
        (tmp_path / "x_TRAIN.ts").write_text("")
        (tmp_path / "in").mkdir()
        with pytest.raises(SourceError, match="without folders"):
            archive_recordings(tmp_path / "in", "../x")

    @pytest.mark.parametrize("name", ["../outside", "/etc/hostname"])
    def test_of_files_that_a_store_lists(self, tmp_path, name):
        (tmp_path / "outside").write_text("secret")
        store = tmp_path / "x.zarr"
        store.mkdir()
        about = {"schema_version": 1, "files": {name: (store / name).stat().st_size if (store / name).exists() else 1}}
        described = {"zarr_format": 3, "node_type": "group", "attributes": {"firmbound": about}}
        (store / "zarr.json").write_text(json.dumps(described))
        with pytest.raises(StoreError, match="lies outside of it"):
            TrajectoryStore(store)

    def test_of_the_classifier_that_a_registered_model_names(self, tmp_path, monkeypatch):
        """A model whose description leads out of its own folder."""
        from mlflow.models import Model

        from flows import registry

        folder = tmp_path / "model"
        folder.mkdir()
        flavors = {"python_function": {"artifacts": {"classifier": {"path": "../elsewhere"}}, "loader_module": "x"}}
        Model(flavors=flavors).save(str(folder / "MLmodel"))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
        (tmp_path / "mlflow.db").touch()
        with pytest.raises(FirmboundError, match="outside of its own folder"):
            registry.load_classifier(folder.as_uri())


def test_servers_that_we_start_listen_on_loopback_alone():
    """Every command line of a server in our code names its host, and it is 127.0.0.1."""
    from flows import cluster, servers

    assert servers.LOOPBACK == cluster.LOOPBACK == "127.0.0.1"
    starts = re.compile(r'"(prefect|mlflow)", "server"|"dask_scheduler"')
    hosts = re.compile(r'"--host", (LOOPBACK|"127\.0\.0\.1")')
    started = {file: len(starts.findall(file.read_text())) for file in CODE}
    assert sum(started.values()) >= 2
    for file, count in started.items():
        assert len(hosts.findall(file.read_text())) >= count, file
