"""Everything firmbound raises: one tree, each message says name, rule, what came and what to do."""

from __future__ import annotations

from typing import Any


class FirmboundError(Exception):
    """Base of all errors raised on purpose. Whole in another process too: what is no plain value travels as text."""

    def __reduce__(self) -> tuple[Any, ...]:
        plain = {k: v if isinstance(v, str | int | float | None) else str(v) for k, v in self.__dict__.items()}
        return _rebuild, (type(self), str(self), plain)


def _rebuild(kind: type[FirmboundError], message: str, values: dict[str, Any]) -> FirmboundError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(values)
    return error


class InvalidInput(FirmboundError, ValueError):
    """A value broke a rule before any work was done.

    The message reads "`name` must ...; got .... advice".
    """

    def __init__(self, name: str, rule: str, got: object, advice: str = "") -> None:
        self.name, self.rule, self.got, self.advice = name, rule, got, advice
        super().__init__(f"`{name}` must {rule}; got {got}." + (f" {advice}" if advice else ""))


class ParameterError(InvalidInput):
    """params.yaml holds an unknown, missing or impossible value."""


class StoreError(FirmboundError):
    """A trajectory store is missing, incomplete, damaged or of another schema version."""


class PublishingError(FirmboundError):
    """A result cannot be written now; nothing was changed."""


class BundleError(FirmboundError):
    """A saved model folder is missing, damaged, tampered with or of another schema version."""


class NumericalError(FirmboundError, ArithmeticError):
    """A solver failed; carries its numbers."""

    def __init__(self, what: str, *, step: int | None = None, residual: float, tolerance: float, advice: str = ""):
        self.step, self.residual, self.tolerance = step, residual, tolerance
        where = "" if step is None else f" at step {step}"
        super().__init__(f"{what}{where}: residual {residual:.3g}, tolerance {tolerance:.3g}. {advice}".rstrip())


class TrainingDiverged(NumericalError):
    """The loss is no number any more."""

    def __init__(self, loss: float, *, step: int, rate: float, advice: str) -> None:
        self.loss, self.step, self.rate = loss, step, rate
        FirmboundError.__init__(
            self, f"Training diverged with a learning rate of {rate:.3g} at step {step}: the loss is {loss}. {advice}"
        )


class NotConvergedWarning(UserWarning):
    """An iterative method ended above its tolerance; the message holds both numbers."""
