"""A real Chromium for tests that look at pages: which one, and how it is started."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ASKED = "FIRMBOUND_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    f"no Chromium found: install one (apt-get install chromium, or python -m playwright install chromium), "
    f"or name its program in {ASKED}"
)
# Nothing but the page: no checks for updates, no accounts, no first steps.
QUIET = ("--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync")


def find_chromium() -> Path | None:
    """What the environment names, else what is on PATH, else Playwright's own; None if there is none."""
    asked = os.environ.get(ASKED)
    if asked:
        found = shutil.which(asked)
        if found is None:
            raise FileNotFoundError(f"{ASKED} must name a program; got {asked!r}. Unset it, or correct it.")
        return Path(found)
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return Path(found)
    with sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
    return own if own.is_file() else None


@contextmanager
def launched(program: Path) -> Iterator[Browser]:
    """A browser without a window. While it is open its thread cannot run another event loop, so close it soon."""
    rights = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has no sandbox
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*QUIET, "--no-first-run", *rights])
        try:
            yield browser
        finally:
            browser.close()


def told() -> str:
    found = find_chromium()
    return f"tests of pages use {found}" if found else f"tests of pages are skipped: {MISSING}"


if __name__ == "__main__":
    print(f"firmbound: {told()}")
