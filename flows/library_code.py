"""What the library says, for names of work that goes on after a kill: results of other code are others."""

from pathlib import Path

import firmbound


def library_code() -> list[str]:
    """All of its files but those of pages."""
    files = sorted(Path(firmbound.__file__).parent.rglob("*.py"))
    return [file.read_text() for file in files if file.parent.name != "report"]
