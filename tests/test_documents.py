"""What the documents name is there: files, commands of make, names of the library; and their examples are Python."""

import ast
import re
from pathlib import Path

import pytest

import firmbound
import firmbound.datasets

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
NAMES = [str(each.relative_to(ROOT)) for each in DOCUMENTS]
# Of ARCHITECTURE.md they are sketches.
FOR_USERS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(document):
    """Python between fences."""
    return re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)


def test_the_documents_are_found():
    assert {"README.md", "ARCHITECTURE.md", "docs/python.md", "docs/operations.md"} <= set(NAMES)
    assert sum(len(examples(each)) for each in FOR_USERS) >= 8


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_links_lead_to_files(document):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_commands_of_make_exist(document):
    named = set(re.findall(r"(?:^|`|&& )make ([a-z-]+)", document.read_text(), re.MULTILINE))
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= known


@pytest.mark.parametrize("document", FOR_USERS, ids=lambda each: each.name)
def test_examples_name_what_firmbound_has(document):
    for example in examples(document):
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "firmbound":
                assert hasattr(firmbound, node.attr), f"firmbound.{node.attr}"
