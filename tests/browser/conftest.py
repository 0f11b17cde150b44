"""A browser for each file of tests: it must be closed before tests with event loops of their own begin."""

import pytest

from tests.browser.chromium import MISSING, find_chromium, launched


@pytest.fixture(scope="module")
def browser():
    program = find_chromium()
    if program is None:
        pytest.skip(MISSING)
    with launched(program) as found:
        yield found
