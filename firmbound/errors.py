"""Everything firmbound raises: one tree, each message says name, rule, what came and what to do."""

from __future__ import annotations


class FirmboundError(Exception):
    """Base of all errors raised on purpose."""


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


class NotConvergedWarning(UserWarning):
    """An iterative method ended above its tolerance; the message holds both numbers."""
