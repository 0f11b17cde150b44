"""How commands end that cannot do what was asked: one line, exit code 2, and no secret in it."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from flows.redaction import redact


@contextmanager
def one_line_errors() -> Iterator[None]:
    """An error of ours, of the file system or of the registry is one line and exit code 2."""
    from firmbound.errors import FirmboundError

    try:
        yield
    except ModuleNotFoundError as problem:
        said = f"{problem.name} is not installed; `pip install firmbound[pipeline]` brings what the registry needs."
    except (FirmboundError, OSError) as problem:
        said = str(problem)
    except Exception as problem:
        if not type(problem).__module__.startswith(("mlflow", "sqlalchemy")):
            _unless_secret()
            raise
        said = f"the registry answers: {(str(problem).splitlines() or [''])[0]}"
    else:
        return
    print(f"firmbound: {' '.join(redact(said).split())}", file=sys.stderr)
    raise typer.Exit(2)


def _unless_secret() -> None:
    """A slip of ours ends in Python's own traceback, unless that would show a secret."""
    told = traceback.format_exc()
    if redact(told) != told:
        print(redact(told), file=sys.stderr)
        raise typer.Exit(1) from None
