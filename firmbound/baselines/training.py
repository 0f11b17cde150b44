"""How the rivals' networks are trained: mini-batches, and the epoch of the least validation loss is kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from firmbound.arrays import Ints, is_count
from firmbound.baselines.rival import ends_of, features_of
from firmbound.devices import Device, torch_device
from firmbound.errors import InvalidInput, TrainingDiverged
from firmbound.tandem.augmentation import augmented
from firmbound.tandem.data import ArraySource, LabelledBatch, in_order, shuffled_batches
from firmbound.tandem.options import Optimizer
from firmbound.tandem.training import make_optimizer
from firmbound.trajectories import Batch

N = TypeVar("N", bound=nn.Module)
Singles = NDArray[np.float32]
AfterEpoch = Callable[[int, float], None]


@dataclass(frozen=True)
class RivalTraining:
    """optimizer, learning_rate, weight_decay, batch and epochs as in the paper's tables; the rate falls as a cosine
    does. clip: the longest gradient. dropout: share of a network's numbers that are left out.

    shift, noise, offset, mask: how training sequences are changed each time they are seen, as TrainingOptions has it.
    after_epoch: is told the number of each epoch, from 1, and its validation loss; what it raises ends the training. It
    is no option, but goes wherever they go, so that whoever watches need not know which networks a rival trains.
    """

    optimizer: Optimizer = "adam"
    learning_rate: float = 3e-3
    weight_decay: float = 0.0
    batch: int = 100
    epochs: int = 20
    dropout: float = 0.0
    clip: float = 1.0
    device: Device = "auto"
    shift: int = 0
    noise: float = 0.0
    offset: float = 0.0
    mask: int = 0
    after_epoch: AfterEpoch | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        for name, holds, rule in (
            ("optimizer", self.optimizer in get_args(Optimizer), f"be one of {get_args(Optimizer)}"),
            ("learning_rate", 0 < self.learning_rate < math.inf, "be positive and finite"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "be non-negative and finite"),
            ("batch", is_count(self.batch, 1), "be a whole number from 1"),
            ("epochs", is_count(self.epochs, 1), "be a whole number from 1"),
            ("dropout", 0 <= self.dropout < 1, "lie in [0, 1)"),
            ("clip", 0 < self.clip < math.inf, "be positive and finite"),
            ("shift", is_count(self.shift, 0), "be a whole number from 0"),
            ("noise", 0 <= self.noise < math.inf, "be non-negative and finite"),
            ("offset", 0 <= self.offset < math.inf, "be non-negative and finite"),
            ("mask", is_count(self.mask, 0), "be a whole number from 0"),
            ("device", self.device in get_args(Device), f"be one of {get_args(Device)}"),
        ):
            if not holds:
                raise InvalidInput(name, rule, repr(getattr(self, name)))


class Lesson(NamedTuple):
    """A batch as losses see it: features (m, T, d), labels (m,), there (m, T): which steps are data.

    Features are 0 where there is no data. progress: share of the epochs that lie behind.
    """

    features: Tensor
    labels: Tensor
    there: Tensor
    progress: float = 1.0


Loss = Callable[[N, Lesson], Tensor]


def train(
    make: Callable[[], N], loss: Loss[N], train: Batch, validation: Batch, options: RivalTraining, seed: int
) -> N:
    """The network that `make` builds, with weights of the epoch whose validation loss is least."""
    place = torch_device(options.device)
    source, held_out = (
        ArraySource.of(features_of(part), part.labels, part.classes, part.lengths) for part in (train, validation)
    )
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.manual_seed(seed)
        network = make().to(place)
        optimizer = make_optimizer(network, options)
        steps = -(-len(source.labels) // options.batch) * options.epochs
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        least, kept = math.inf, network.state_dict()
        for epoch in range(options.epochs):
            network.train()
            for batch in shuffled_batches(source, options.batch, (seed, epoch)):
                lesson = changed(lesson_of(batch, place, epoch / options.epochs), options)
                _step(network, optimizer, loss(network, lesson), options, epoch)
                falling.step()
            found = _mean_loss(network, loss, held_out, options, place)
            _check_finite(found, options, epoch)
            if found < least:
                least, kept = found, {name: value.clone() for name, value in network.state_dict().items()}
            if options.after_epoch is not None:
                options.after_epoch(epoch + 1, found)
    network.load_state_dict(kept)
    return network.eval()


def outputs(network: Callable[[Tensor], Tensor], batch: Batch, device: Device, together: int = 1_000) -> Singles:
    """What a trained network makes of all sequences, (n, T, d) -> (n, ...); after their ends it is shown zeros."""
    place, features = torch_device(device), features_of(batch)
    ends, parts = ends_of(batch, features.shape[1]), []
    with torch.no_grad():
        for start in range(0, len(features), together):
            rows = slice(start, start + together)
            shown, _ = _data_alone(features[rows], ends[rows], place)
            parts.append(network(shown).float().cpu().numpy())
    return np.concatenate(parts)


def lesson_of(batch: LabelledBatch, place: torch.device, progress: float = 1.0) -> Lesson:
    features, there = _data_alone(batch.features, batch.lengths, place)
    return Lesson(features, torch.as_tensor(batch.labels, device=place), there, progress)


def changed(lesson: Lesson, options: RivalTraining) -> Lesson:
    """The lesson as it might also have been; after the ends there are still zeros."""
    features = augmented(lesson.features, lesson.there.sum(dim=1), options)
    return lesson._replace(features=features.where(lesson.there[..., None], 0.0))


def _data_alone(features: NDArray[Any], ends: Ints, place: torch.device) -> tuple[Tensor, Tensor]:
    """Features (m, T, d) with zeros after the ends, and which steps are data (m, T).

    Numbers after an end that are large enough to overflow would reach the gradients, whatever is masked later.
    """
    values = torch.as_tensor(np.ascontiguousarray(features), dtype=torch.float32, device=place)
    there = torch.arange(values.shape[1], device=place) < torch.as_tensor(ends, device=place)[:, None]
    return values.where(there[..., None], 0.0), there


def cross_entropy_over_time(scores: Tensor, labels: Tensor) -> Tensor:
    """-log softmax(scores) of the true class at every step.  (m, T, K), (m,) -> (m, T)."""
    targets = labels[:, None].expand(scores.shape[:2])
    return functional.cross_entropy(scores.transpose(1, 2), targets, reduction="none")


def mean_over_steps(values: Tensor, there: Tensor) -> Tensor:
    """Mean over sequences of the mean over their steps.  (m, T) -> ()."""
    return (values.where(there, 0.0).sum(dim=1) / there.sum(dim=1)).mean()


def _step(
    network: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, options: RivalTraining, epoch: int
) -> None:
    _check_finite(loss.item(), options, epoch)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(network.parameters(), options.clip)
    optimizer.step()


def _check_finite(loss: float, options: RivalTraining, epoch: int) -> None:
    if not math.isfinite(loss):
        advice = f"Lower learning_rate, which is {options.learning_rate:g}, or clip."
        raise TrainingDiverged(loss, step=epoch, rate=options.learning_rate, advice=advice)


def _mean_loss(network: N, loss: Loss[N], source: ArraySource, options: RivalTraining, place: torch.device) -> float:
    network.eval()
    total = 0.0
    with torch.no_grad():
        for batch in in_order(source, options.batch):
            total += loss(network, lesson_of(batch, place)).item() * len(batch.labels)
    return total / len(source.labels)
