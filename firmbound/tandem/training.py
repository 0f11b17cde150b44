"""Training a TANDEM network: resumable, deterministic on the CPU, stopped when validation no longer improves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firmbound.arrays import Floats
from firmbound.bundle import read_bundle, write_bundle
from firmbound.devices import torch_device
from firmbound.errors import BundleError, InvalidInput, TrainingDiverged
from firmbound.publishing import recover
from firmbound.tandem.augmentation import augmented
from firmbound.tandem.data import LabelledBatch, SequenceSource, in_order, shuffled_batches
from firmbound.tandem.formula import evidence_of_windows
from firmbound.tandem.integrators import release_memory
from firmbound.tandem.losses import log_sum_exp_loss, multiplet_cross_entropy, over_time, ratio_loss
from firmbound.tandem.network import TandemNetwork
from firmbound.tandem.options import NetworkOptions, Optimizer, TrainingOptions, check_sizes

KIND = "tandem-checkpoint"
Progress = Callable[[int, int, float, float], None]  # epoch, epochs, training and validation loss
Advance = Callable[[int, int], None]  # batches done, of how many


@dataclass
class Progressing:
    """Where training stands; all that a checkpoint needs beside network and optimiser."""

    epoch: int = 0
    best_loss: float = math.inf
    best_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best_weights: dict[str, Tensor] = field(default_factory=dict)


class Trainer:
    """One network, its optimiser and where they stand; `run` trains to the end, from a checkpoint if there is one."""

    def __init__(
        self,
        source: SequenceSource,
        validation: SequenceSource,
        classes: int,
        network: NetworkOptions,
        training: TrainingOptions,
    ) -> None:
        check_sources(source, validation, classes, network, training)
        self.source, self.validation, self.options = source, validation, training
        self.place = torch_device(training.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(training.seed)
            self.network = TandemNetwork(source.dimension, classes, network)
        self.network.to(self.place)
        # Posteriors that are learned from these sequences hold their shares, so those are what the formula takes off.
        self.shares = label_shares(source, classes)
        self.log_shares = torch.as_tensor(np.log(self.shares), dtype=torch.float32, device=self.place)
        self.optimizer = make_optimizer(self.network, training)
        self.steps = -(-len(source.labels) // training.batch)
        self.state = Progressing()

    def run(
        self, checkpoint: Path | None = None, progress: Progress | None = None, advance: Advance | None = None
    ) -> TandemNetwork:
        """Train, writing a checkpoint after every epoch; the network of the best validation loss is handed back.

        `progress` hears of every epoch, also of those that a checkpoint had behind it; `advance` of every batch.
        """
        if checkpoint is not None:
            recover(checkpoint)
            if (checkpoint / "header.json").is_file():
                self.load(checkpoint)
        options, state = self.options, self.state
        for epoch, losses in enumerate(state.history, start=1):
            if progress is not None:
                progress(epoch, options.epochs, losses["train_loss"], losses["validation_loss"])
        while state.epoch < options.epochs and not self._has_stalled():
            train_loss = self._train_epoch(checkpoint, advance)
            loss = self.validation_loss()
            if not math.isfinite(loss):
                last = (state.epoch + 1) * self.steps - 1
                self._diverged(loss, last, options.rate(last, options.epochs * self.steps), checkpoint)
            state.history.append({"train_loss": train_loss, "validation_loss": loss})
            state.epoch += 1
            if loss < state.best_loss:
                state.best_loss, state.best_epoch = loss, state.epoch
                state.best_weights = {name: value.clone() for name, value in self.network.state_dict().items()}
            if checkpoint is not None:
                self.save(checkpoint)
            if progress is not None:
                progress(state.epoch, options.epochs, train_loss, loss)
        self.network.load_state_dict(state.best_weights)
        release_memory()
        return self.network.eval()

    def loss(self, batch: LabelledBatch, shares: Tensor) -> Tensor:
        """Weighted sum of the losses of one batch of data in which classes have these shares."""
        features, labels, ends = self._tensors(batch)
        options = self.options
        if self.network.training:
            features = augmented(features, ends, options)
        windows = self.network(features)
        total = features.new_zeros(())
        if options.ratio_weight:
            evidence = evidence_of_windows(windows, self.log_shares)
            compare = log_sum_exp_loss if options.ratio_loss == "lsel" else ratio_loss
            total = total + options.ratio_weight * compare(evidence, labels, shares, ends)
        if options.multiplet_weight:
            total = total + options.multiplet_weight * multiplet_cross_entropy(windows, labels, ends)
        return total

    def validation_loss(self) -> float:
        self.network.eval()
        total, count = 0.0, 0
        shares = torch.as_tensor(label_shares(self.validation, len(self.shares)), device=self.place).float()
        with torch.no_grad():
            for batch in in_order(self.validation, self.options.batch):
                total += self.loss(batch, shares).item() * len(batch.labels)
                count += len(batch.labels)
        return total / count

    def macro_error(self) -> float:
        """1 - macro recall of the class of most evidence on validation data, mean over t: what tuning lowers."""
        self.network.eval()
        classes = len(self.shares)
        right, count = np.zeros(classes), np.bincount(self.validation.labels, minlength=classes)
        with torch.no_grad():
            for batch in in_order(self.validation, self.options.batch):
                features, labels, ends = self._tensors(batch)
                leading = evidence_of_windows(self.network(features), self.log_shares).argmax(dim=-1)
                share = over_time((leading == labels[:, None]).double(), ends).cpu().numpy()
                right += np.bincount(batch.labels, share, classes)
        return float(1.0 - np.mean(right / count))

    def _train_epoch(self, checkpoint: Path | None, advance: Advance | None) -> float:
        """One pass over the data. Order and dropout depend on seed and epoch alone: a resumed run is the same run."""
        options, epoch = self.options, self.state.epoch
        self.network.train()
        total, shares = 0.0, self.log_shares.exp()
        with torch.random.fork_rng(devices=[self.place] if self.place.type == "cuda" else []):
            torch.manual_seed(int(np.random.SeedSequence((options.seed, epoch)).generate_state(1)[0]))
            batches = shuffled_batches(self.source, options.batch, (options.seed, epoch))
            for index, batch in enumerate(batches):
                step = epoch * self.steps + index
                rate = options.rate(step, options.epochs * self.steps)
                for group in self.optimizer.param_groups:
                    group["lr"] = rate
                self.optimizer.zero_grad()
                with torch.autocast(self.place.type, torch.bfloat16, enabled=self.place.type == "cuda"):
                    loss = self.loss(batch, shares)
                if not torch.isfinite(loss):
                    self._diverged(loss.item(), step, rate, checkpoint)
                loss.backward()  # type: ignore[no-untyped-call]
                if options.clip is not None:
                    torch.nn.utils.clip_grad_norm_(self.network.parameters(), options.clip)
                self.optimizer.step()
                total += loss.item() * len(batch.labels)
                if advance is not None:
                    advance(step + 1, options.epochs * self.steps)
        return total / len(self.source.labels)

    def _tensors(self, batch: LabelledBatch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Features, labels and, where some sequence ends before the horizon, where each ends."""
        x = torch.as_tensor(np.ascontiguousarray(batch.features), dtype=torch.float32).to(self.place)
        early = bool((batch.lengths < batch.features.shape[1]).any())
        ends = torch.as_tensor(batch.lengths).to(self.place) if early else None
        return x, torch.as_tensor(batch.labels).to(self.place), ends

    def _has_stalled(self) -> bool:
        patience = self.options.patience
        return patience is not None and self.state.epoch - self.state.best_epoch >= patience

    def _diverged(self, loss: float, step: int, rate: float, checkpoint: Path | None) -> None:
        kept = f"The last good checkpoint, of epoch {self.state.epoch}, is {checkpoint}."
        if checkpoint is None or not self.state.epoch:
            kept = "There is no checkpoint to go back to."
        raise TrainingDiverged(loss, step=step, rate=rate, advice=f"Lower learning_rate or set clip. {kept}")

    def save(self, path: Path) -> None:
        arrays = {f"network/{name}": value.cpu().numpy() for name, value in self.network.state_dict().items()}
        arrays |= {f"best/{name}": value.cpu().numpy() for name, value in self.state.best_weights.items()}
        for index, parts in self.optimizer.state_dict()["state"].items():
            arrays |= {f"optimizer/{index}/{name}": np.atleast_1d(value.cpu().numpy()) for name, value in parts.items()}
        stands = {"epoch": self.state.epoch, "best_loss": self.state.best_loss, "best_epoch": self.state.best_epoch}
        header = {**self._identity(), **stands, "history": self.state.history}
        write_bundle(path, kind=KIND, header=header, arrays=arrays)

    def load(self, path: Path) -> None:
        """Go on where a checkpoint ended; one of another network, training or data is refused."""
        header, arrays = read_bundle(path, kind=KIND)
        mine = self._identity()
        for name, value in mine.items():
            if header.get(name) != value:
                raise BundleError(
                    f"{path} is a checkpoint of other {name}: {header.get(name)} instead of {value}. "
                    "Remove it to train anew, or go back to the settings it was made with."
                )
        self.state = Progressing(header["epoch"], header["best_loss"], header["best_epoch"], header["history"])
        self.network.load_state_dict(_tensors_of(arrays, "network/"))
        self.state.best_weights = {name: value.to(self.place) for name, value in _tensors_of(arrays, "best/").items()}
        groups = self.optimizer.state_dict()["param_groups"]
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in _tensors_of(arrays, "optimizer/").items():
            index, part = name.split("/")
            state.setdefault(int(index), {})[part] = value[0] if part == "step" else value
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def _identity(self) -> dict[str, Any]:
        """What must agree for a checkpoint to be gone on with."""
        data = [*self._data, len(self.shares)]
        return {"network": asdict(self.network.options), "training": asdict(self.options), "data": data}

    @cached_property
    def _data(self) -> list[int | str]:
        sizes = [len(self.source.labels), self.source.horizon, self.source.dimension]
        return [*sizes, self.source.fingerprint(), self.validation.fingerprint()]


def label_shares(source: SequenceSource, classes: int) -> Floats:
    counts = np.bincount(source.labels, minlength=classes)
    return np.asarray(counts / counts.sum())


def _tensors_of(arrays: dict[str, NDArray[Any]], start: str) -> dict[str, Tensor]:
    return {name.removeprefix(start): torch.as_tensor(part) for name, part in arrays.items() if name.startswith(start)}


class Descent(Protocol):
    """How weights go down a loss: of the options of any network."""

    @property
    def optimizer(self) -> Optimizer: ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def weight_decay(self) -> float: ...


def make_optimizer(network: torch.nn.Module, options: Descent) -> torch.optim.Optimizer:
    rate, decay = options.learning_rate, options.weight_decay
    if options.optimizer == "adam":
        return torch.optim.Adam(network.parameters(), lr=rate, weight_decay=decay)
    if options.optimizer == "rmsprop":
        return torch.optim.RMSprop(network.parameters(), lr=rate, weight_decay=decay)
    from lion_pytorch import Lion

    lion: torch.optim.Optimizer = Lion(network.parameters(), lr=rate, weight_decay=decay)
    return lion


def check_sources(
    source: SequenceSource, validation: SequenceSource, classes: int, network: NetworkOptions, training: TrainingOptions
) -> None:
    if classes < 2:
        raise InvalidInput("labels", "hold two classes at least", "one")
    for name, part in (("labels", source), ("validation labels", validation)):
        missing = np.flatnonzero(np.bincount(part.labels, minlength=classes) == 0)
        if len(missing):
            raise InvalidInput(
                name,
                "hold a sequence of every class",
                f"none of {missing.tolist()}",
                "Leave the class out or add some.",
            )
    if (validation.horizon, validation.dimension) != (source.horizon, source.dimension):
        raise InvalidInput(
            "validation",
            f"have sequences of shape ({source.horizon}, {source.dimension}) too",
            (validation.horizon, validation.dimension),
        )
    check_sizes(network, training, sequences=len(source.labels), horizon=source.horizon)
