"""The formula against direct sums, losses against their definitions, streams against whole sequences."""

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from benchmarks.windowed_first import WindowedFirst
from firmbound.tandem import integrators
from firmbound.tandem.formula import evidence_of_windows
from firmbound.tandem.integrators import B2BSqrt
from firmbound.tandem.losses import log_sum_exp_loss, multiplet_cross_entropy, ratio_loss
from firmbound.tandem.network import TandemNetwork
from firmbound.tandem.options import NetworkOptions
from firmbound.tandem.streaming import TandemStream

NETWORKS = [NetworkOptions(order=order, projection=8, hidden=6) for order in (0, 1, 3)]
NETWORKS += [
    NetworkOptions(integrator="transformer", order=order, projection=8, heads=2, blocks=2, feed_forward=8, units=7)
    for order in (0, 2)
]
IDS = [f"{o.integrator}-{o.order}" for o in NETWORKS]


def log_prior(classes=3):
    weights = torch.arange(1.0, classes + 1)
    return torch.log(weights / weights.sum())


def network(options, classes=3, dimension=4):
    torch.manual_seed(0)
    return TandemNetwork(dimension, classes, options).eval()


def prefix_evidence(net, sequence, prior, t):
    """The paper's sums, written out with windows taken one by one."""
    order = net.options.order

    def of(first, last):  # window of observations first..last, counted from 1
        if last < first:
            return prior
        return net(sequence[None, first - 1 : last])[0, 0, -1]

    if t <= order:
        return of(1, t) - prior
    total = sum(of(s - order, s) for s in range(order + 1, t + 1))
    return total - sum(of(s - order, s - 1) for s in range(order + 2, t + 1)) - prior


@pytest.mark.parametrize("options", NETWORKS, ids=IDS)
def test_evidence_is_the_papers_sum(options):
    net, prior = network(options), log_prior()
    sequence = torch.randn(7, 4)
    with torch.no_grad():
        found = evidence_of_windows(net(sequence[None]), prior)[0]
        for t in range(1, 8):
            assert torch.allclose(found[t - 1], prefix_evidence(net, sequence, prior, t), atol=1e-5)


@pytest.mark.parametrize("options", NETWORKS, ids=IDS)
def test_the_oblivious_variant_sees_the_last_window_alone(options):
    net, prior = network(options), log_prior()
    sequence = torch.randn(6, 4)
    with torch.no_grad():
        found = evidence_of_windows(net(sequence[None]), prior, oblivious=True)[0]
        for t in range(1, 7):
            window = sequence[None, max(t - 1 - options.order, 0) : t]
            assert torch.allclose(found[t - 1], net(window)[0, 0, -1] - prior, atol=1e-5)


@pytest.mark.parametrize("oblivious", [False, True])
@pytest.mark.parametrize("options", NETWORKS, ids=IDS)
def test_streaming_equals_batch(options, oblivious):
    net, prior = network(options), log_prior()
    sequences = torch.randn(5, 9, 4)
    with torch.no_grad():
        whole = evidence_of_windows(net(sequences), prior, oblivious=oblivious)
    for sequence, expected in zip(sequences, whole, strict=True):
        stream = TandemStream(net, prior, oblivious)
        for observation, wanted in zip(sequence, expected, strict=True):
            assert np.allclose(stream.push(observation.numpy()), wanted.numpy() - wanted.max().item(), atol=1e-5)
        assert stream.time == 9


@pytest.mark.parametrize("options", NETWORKS, ids=IDS)
def test_the_future_changes_nothing(options):
    net, prior = network(options), log_prior()
    one = torch.randn(4, 8, 4)
    other = one.clone()
    other[:, 5:] = torch.randn(4, 3, 4)
    with torch.no_grad():
        before, after = (evidence_of_windows(net(x), prior)[:, :5] for x in (one, other))
    assert torch.allclose(before, after, atol=1e-6)


@pytest.mark.parametrize("activation", ["b2bsqrt", "tanh"])
@pytest.mark.parametrize(
    "options", [*NETWORKS, NetworkOptions(order=10, projection=8, hidden=6)], ids=[*IDS, "lstm-10"]
)
def test_projecting_once_changes_neither_values_nor_slopes(options, activation, monkeypatch):
    """Against windows cut first, with torch's LSTM and torch's attention, in double precision; blocks are small."""
    monkeypatch.setattr(integrators, "BLOCK_ROWS", 10)
    monkeypatch.setattr(integrators, "BLOCK_NUMBERS", 17)
    ours = network(replace(options, activation=activation)).double()
    plain = deepcopy(WindowedFirst(ours))
    x = torch.randn(4, 13, 4, dtype=torch.float64)
    toward = torch.randn(ours(x).shape, dtype=torch.float64)
    found = []
    for net in (ours, plain):
        given = x.clone().requires_grad_()
        windows = net(given)
        (windows * toward).sum().backward()
        found.append((windows.detach(), given.grad, net.project[0].weight.grad, net.classify.weight.grad))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-10)
    if options.integrator == "lstm":
        state = ours.integrate.from_state.weight.grad.view(4, 6, 6)[[0, 1, 3, 2]]
        assert torch.allclose(state, plain.read.lstm.weight_hh_l0.grad.view(4, 6, 6), atol=1e-10)
    else:
        for one, other in zip(ours.integrate.parameters(), plain.read.ours.parameters(), strict=True):
            slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in (one, other)]
            assert torch.allclose(*slopes, atol=1e-10)


@pytest.mark.parametrize("options", NETWORKS, ids=IDS)
def test_half_precision_computes_nearly_the_same(options):
    """What mixed precision on a GPU does, on the CPU: no type meets another that it cannot be used with."""
    net, x = network(options), torch.randn(3, 8, 4)
    with torch.autocast("cpu", torch.bfloat16):
        rough = net(x)
    rough.sum().backward()
    assert torch.allclose(rough.float(), net(x), atol=0.05)
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


def test_small_numbers_survive_half_precision():
    values = torch.tensor([0.004, -0.02], dtype=torch.bfloat16)
    assert torch.allclose(B2BSqrt()(values), values.float() / 2, rtol=0.02)


def test_reading_without_slopes_is_the_same(monkeypatch):
    monkeypatch.setattr(integrators, "BLOCK_ROWS", 10)
    net, x = network(NETWORKS[2]), torch.randn(4, 9, 4)
    recorded = net(x).detach()

    def never(*_):
        raise AssertionError("kept what only a derivative needs")

    monkeypatch.setattr(integrators, "_take_memory", never)
    with torch.no_grad():
        assert torch.allclose(net(x), recorded, atol=1e-6)


def test_a_step_is_differentiated_once():
    """The memory of a step is handed to the next, so a second derivative would read what is not its own."""
    loss = network(NETWORKS[1])(torch.randn(2, 5, 4)).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        loss.backward()


def test_exact_posteriors_give_exact_evidence():
    """A Markov chain of order one: with the posteriors of its windows known, the formula is the likelihood itself."""
    random = np.random.default_rng(0)
    first = random.dirichlet(np.ones(4), 3)  # (K, states)
    move = random.dirichlet(np.ones(4), (3, 4))  # (K, from, to)
    chain = random.integers(0, 4, 8)
    prior = np.array([0.2, 0.3, 0.5])
    # p(x_s | k) at every s, then windows (s) and (s, s + 1)
    marginal = [first]
    for _ in range(7):
        marginal.append(np.einsum("ki,kij->kj", marginal[-1], move))
    singles = np.array([np.log(marginal[s][:, chain[s]]) for s in range(8)])
    pairs = np.array([singles[s] + np.log(move[:, chain[s], chain[s + 1]]) for s in range(7)])
    windows = np.stack([singles[:-1], pairs], axis=1) + np.log(prior)  # (S, 2, K)
    windows -= np.logaddexp.reduce(windows, axis=-1, keepdims=True)
    found = evidence_of_windows(torch.as_tensor(windows)[None], torch.as_tensor(np.log(prior)))[0].numpy()
    exact = np.log(first[:, chain[0]]) + np.cumsum(
        [np.zeros(3), *(np.log(move[:, a, b]) for a, b in pairwise(chain))], axis=0
    )
    differences = (found - found[:, :1]) - (exact - exact[:, :1])
    assert np.abs(differences).max() < 1e-10


class TestLosses:
    def test_lsel_is_its_definition(self):
        evidence, labels = torch.randn(6, 4, 3), torch.tensor([0, 0, 0, 0, 1, 2])
        shares = torch.tensor([4, 1, 1]) / 6
        total = 0.0
        for k in range(3):
            members = [i for i in range(6) if labels[i] == k]
            for i in members:
                for t in range(4):
                    ratios = evidence[i, t, k] - evidence[i, t]
                    others = torch.cat([ratios[:k], ratios[k + 1 :]])
                    total += torch.log(1 + torch.exp(-others).sum()).item() / (3 * 4 * len(members))
        assert log_sum_exp_loss(evidence, labels, shares).item() == pytest.approx(total, rel=1e-5)

    def test_lllr_is_its_definition(self):
        evidence, labels = torch.randn(4, 5, 2), torch.tensor([0, 1, 1, 1])
        total = 0.0
        for i in range(4):
            own = int(labels[i])
            size = 2 * (labels == own).sum().item()
            total += torch.sigmoid(evidence[i, :, 1 - own] - evidence[i, :, own]).mean().item() / size
        assert ratio_loss(evidence, labels, torch.tensor([0.25, 0.75])).item() == pytest.approx(total, rel=1e-5)

    def test_mce_is_its_definition(self):
        windows, labels = torch.log_softmax(torch.randn(3, 4, 2, 3), dim=-1), torch.tensor([0, 2, 1])
        total = -sum(windows[i, :, :, labels[i]].sum().item() for i in range(3)) / (3 * 4)
        assert multiplet_cross_entropy(windows, labels).item() == pytest.approx(total, rel=1e-5)

    @pytest.mark.parametrize("loss", [log_sum_exp_loss, ratio_loss])
    @pytest.mark.parametrize("batch", [1, 2, 5])
    def test_batches_average_to_the_whole(self, loss, batch):
        """Also where a batch lacks a class: rare classes weigh as much as they should however small the batches."""
        evidence, labels = torch.randn(10, 5, 3), torch.tensor([0, 0, 1, 0, 0, 0, 2, 0, 0, 0])
        shares = torch.tensor([0.8, 0.1, 0.1])
        parts = [loss(evidence[i : i + batch], labels[i : i + batch], shares) for i in range(0, 10, batch)]
        assert torch.stack(parts).mean().item() == pytest.approx(loss(evidence, labels, shares).item(), rel=1e-5)


def test_b2bsqrt_is_odd_and_slow():
    values = torch.linspace(-100, 100, 11)
    found = B2BSqrt()(values)
    assert torch.allclose(found, -found.flip(0))
    assert found[-1].item() == pytest.approx(np.sqrt(101) - 1)
