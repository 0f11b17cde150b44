"""TandemModel: a trained network with its prior, from features to evidence, whole or streaming."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats
from firmbound.bundle import read_bundle, write_bundle
from firmbound.devices import Device, torch_device
from firmbound.errors import BundleError, InvalidInput
from firmbound.posterior import class_prior
from firmbound.tandem.data import ArraySource, SequenceSource, single_precision
from firmbound.tandem.formula import evidence_of_windows
from firmbound.tandem.network import TandemNetwork
from firmbound.tandem.options import NetworkOptions, TrainingOptions
from firmbound.tandem.streaming import TandemPool, TandemStream
from firmbound.tandem.training import Advance, Progress, Trainer, label_shares
from firmbound.temperature import at_times, helpful_temperatures, read_temperatures

KIND = "tandem"
# Sequences that go through the network together.
BLOCK = 500


@dataclass(frozen=True)
class TandemModel:
    """Estimates evidence of sequences (n, T, d) of any T.

    prior: class probabilities to believe in before any observation. shares: those of the sequences the network was
    trained on; its posteriors hold them, so the formula takes them off. oblivious: forget what left the window.
    temperatures (m,): what evidence is divided by at each t, so that beliefs are as sure as they are right; the last is
    that of all times from m on.
    """

    network: TandemNetwork
    prior: Floats
    shares: Floats
    oblivious: bool = False
    temperatures: Floats = field(default_factory=lambda: np.ones(1))

    def evidence(self, features: ArrayLike) -> NDArray[np.float32]:
        """(n, T, d) -> (n, T, K), the largest class at 0."""
        values = single_precision(features)
        if values.shape[2] != self.network.dimension or values.shape[1] < 1:
            rule = f"hold an observation at least, each of {self.network.dimension} numbers"
            raise InvalidInput("features", rule, f"shape {values.shape}")
        place = next(self.network.parameters()).device
        log_shares = torch.as_tensor(np.log(self.shares), dtype=torch.float32, device=place)
        result = np.empty((*values.shape[:2], len(self.prior)), dtype=np.float32)
        temperature = torch.as_tensor(self._temperatures_until(values.shape[1]), dtype=torch.float32, device=place)
        self.network.eval()
        with torch.inference_mode():
            for start in range(0, len(values), BLOCK):
                part = torch.as_tensor(values[start : start + BLOCK]).to(place)
                found = evidence_of_windows(self.network(part), log_shares, oblivious=self.oblivious)
                shifted = (found - found.amax(dim=-1, keepdim=True)) / temperature[:, None]
                result[start : start + BLOCK] = shifted.cpu().numpy()
        return result

    def calibrated(self, held_out: SequenceSource) -> TandemModel:
        """This model with the temperatures that fit sequences it was not trained on best; 1 where none helps."""
        plain = replace(self, temperatures=np.ones(1))
        rows = range(0, len(held_out.labels), BLOCK)
        evidence = np.concatenate([plain.evidence(held_out.read(slice(start, start + BLOCK))) for start in rows])
        return self.calibrated_by(evidence, held_out)

    def calibrated_by(self, evidence: NDArray[Any], held_out: SequenceSource) -> TandemModel:
        """The same by evidence (n, T, K) as it comes, of sequences that whoever gave it was not trained on."""
        shares = label_shares(held_out, len(self.prior))
        return replace(self, temperatures=helpful_temperatures(evidence, held_out.labels, shares, held_out.lengths))

    def cooled(self, evidence: NDArray[Any]) -> NDArray[np.float32]:
        """Evidence (n, T, K) as it comes, at this model's temperatures."""
        return np.asarray(evidence / self._temperatures_until(evidence.shape[1])[:, None], dtype=np.float32)

    def _temperatures_until(self, last: int) -> Floats:
        return at_times(self.temperatures, np.arange(1, last + 1))

    def on(self, device: Device) -> TandemModel:
        """The same model, computing elsewhere."""
        return replace(self, network=deepcopy(self.network).to(torch_device(device)))

    def reading(self, mean: NDArray[Any], scale: NDArray[Any]) -> TandemModel:
        """For features as they are, of a model trained on (features - mean) / scale: its first layer takes them in."""
        network = deepcopy(self.network)
        layer = network.project[0]
        assert isinstance(layer, torch.nn.Linear)
        with torch.no_grad():
            weight, shift, stretch = (
                layer.weight.double(),
                torch.as_tensor(mean).double(),
                torch.as_tensor(scale).double(),
            )
            layer.bias.copy_(layer.bias.double() - weight @ (shift / stretch))
            layer.weight.copy_(weight / stretch)
        return replace(self, network=network)

    def stream(self) -> TandemStream:
        """Evidence one observation at a time."""
        log_shares = torch.as_tensor(np.log(self.shares), dtype=torch.float32)
        return TandemStream(self.network, log_shares, self.oblivious, self.temperatures)

    def pool(self, streams: int) -> TandemPool:
        """Evidence of many series that are advanced together, on the CPU."""
        model = self.on("cpu")
        log_shares = torch.as_tensor(np.log(self.shares), dtype=torch.float32)
        return TandemPool(model.network, log_shares, self.oblivious, self.temperatures, streams)

    @property
    def dimension(self) -> int:
        return self.network.dimension

    def save(self, path: str | Path) -> None:
        network = self.network
        header: Mapping[str, Any] = {
            "network": asdict(network.options),
            "dimension": network.dimension,
            "classes": network.classes,
            "oblivious": self.oblivious,
            "temperatures": self.temperatures.tolist(),
        }
        arrays = {f"network/{name}": value.cpu().numpy() for name, value in network.state_dict().items()}
        write_bundle(path, kind=KIND, header=header, arrays=arrays | {"prior": self.prior, "shares": self.shares})

    @classmethod
    def load(cls, path: str | Path) -> TandemModel:
        header, arrays = read_bundle(path, kind=KIND)
        try:
            options = NetworkOptions(**header["network"])
            network = TandemNetwork(header["dimension"], header["classes"], options)
            prior, shares = (class_prior(arrays.pop(name), network.classes) for name in ("prior", "shares"))
            network.load_state_dict({name.removeprefix("network/"): torch.as_tensor(a) for name, a in arrays.items()})
            temperatures = read_temperatures(header)
            model = cls(network.eval(), prior, shares, bool(header["oblivious"]), temperatures)
            model.evidence(np.zeros((1, options.order + 1, network.dimension)))  # parts that do not fit fail here
            return model
        except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as problem:
            raise BundleError(f"{path} is no TANDEM model that this version can read: {problem}") from None


def fit_tandem(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    validation: tuple[ArrayLike, ...],
    lengths: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    network: NetworkOptions | None = None,
    training: TrainingOptions | None = None,
    oblivious: bool = False,
    calibrate: bool = True,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
) -> TandemModel:
    """Train on features (n, T, d) with labels (n,); `validation` is such a pair too and decides when to stop.

    lengths: (n,) observations of each sequence, where they differ; features after the end are not looked at. Those of
    the validation sequences come third in `validation`.
    prior: (K,) class probabilities to believe in, by default the shares of the labels. calibrate: fit temperatures on
    the validation sequences and keep them if they help. With a `checkpoint` folder, training that was
    killed goes on from its last epoch and ends as it would have.

    >>> model = fit_tandem(x, y, validation=(x_valid, y_valid), network=NetworkOptions(order=2))
    >>> rule = firmbound.fit_stopping_rule(model.evidence(x), costs=[0.2], prior=model.prior)
    """
    known = np.asarray(labels)
    if known.size == 0 or known.dtype.kind not in "iuf" or not bool(np.all(known == np.floor(known))):
        raise InvalidInput("labels", "be integers 0..K-1, one a sequence", f"{known.size} of dtype {known.dtype}")
    classes = int(known.max()) + 1
    if len(validation) not in (2, 3):
        raise InvalidInput("validation", "hold features, labels and, where they differ, lengths", f"{len(validation)}")
    train = ArraySource.of(features, labels, classes, lengths)
    held_out = ArraySource.of(validation[0], validation[1], classes, *validation[2:])
    return fit_tandem_from(
        train,
        held_out,
        label_shares(train, classes) if prior is None else class_prior(prior, classes),
        network or NetworkOptions(),
        training or TrainingOptions(),
        oblivious=oblivious,
        calibrate=calibrate,
        checkpoint=checkpoint,
        progress=progress,
    )


def fit_tandem_from(
    source: SequenceSource,
    validation: SequenceSource,
    prior: Floats,
    network: NetworkOptions,
    training: TrainingOptions,
    *,
    oblivious: bool = False,
    calibrate: bool = True,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
    advance: Advance | None = None,
) -> TandemModel:
    """As `fit_tandem`, from sources that may be larger than memory; `advance` hears of every batch."""
    trainer = Trainer(source, validation, len(prior), network, training)
    trained = trainer.run(None if checkpoint is None else Path(checkpoint), progress, advance)
    model = TandemModel(trained, prior, trainer.shares, oblivious)
    return (model.calibrated(validation) if calibrate else model).on("cpu")
