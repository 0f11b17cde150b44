"""The audit: what pip-audit's answers mean, and that no answer is not taken for a good one."""

import json
import os
import subprocess
import sys

import pytest

from flows.audit import NO_ANSWER, NONE_KNOWN, SOME_KNOWN, UNREADABLE, NoAnswer, parse, read_accepted, tell
from tests.test_architecture import ROOT

FOUND = {
    "name": "flask",
    "version": "0.5",
    "vulns": [{"id": "PYSEC-2019-179", "fix_versions": ["1.0"], "aliases": ["CVE-2019-1010083"]}],
}
CLEAN = {"name": "rich", "version": "15.0.0", "vulns": []}
SKIPPED = {"name": "ours", "skip_reason": "Dependency not found on PyPI and could not be audited: ours (1)"}


def answer(*packages):
    return json.dumps({"dependencies": packages, "fixes": []})


def test_a_known_vulnerability_is_told_with_what_mends_it(capsys):
    assert tell(parse(answer(FOUND, CLEAN, SKIPPED)), {}) == SOME_KNOWN
    said = capsys.readouterr().out
    assert "flask 0.5: PYSEC-2019-179, CVE-2019-1010083 (mended in 1.0)" in said
    assert "not audited: ours" in said
    assert "2 packages were looked up" in said


def test_none(capsys):
    assert tell(parse(answer(CLEAN)), {}) == NONE_KNOWN
    assert "None is known" in capsys.readouterr().out


def test_an_accepted_one_is_told_with_its_reason_and_one_that_is_over_is_told_too(capsys):
    accepted = {"CVE-2019-1010083": "no JSON of strangers is read", "GHSA-x": "was mended since long"}
    assert tell(parse(answer(FOUND)), accepted) == NONE_KNOWN
    said = capsys.readouterr().out
    assert "accepted: no JSON of strangers is read" in said
    assert "GHSA-x is over" in said


@pytest.mark.parametrize("said", [answer(SKIPPED, SKIPPED), answer(), "no JSON", "[]", '{"dependencies": 3}'])
def test_no_answer_is_no_good_answer(said):
    with pytest.raises(NoAnswer):
        parse(said)


def test_reasons_must_be_given(tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.firmbound.audit.accepted]\n"GHSA-x" = "later"\n')
    with pytest.raises(ValueError, match="must say why in words"):
        read_accepted(file)
    file.write_text("[")
    with pytest.raises(ValueError, match="cannot be read"):
        read_accepted(file)
    assert all(read_accepted(ROOT / "pyproject.toml").values())


def run(folder, **environment):
    command = [sys.executable, "-m", "flows.audit"]
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_a_service_out_of_reach_is_one_line_and_a_code_of_its_own(tmp_path):
    """The real pip-audit, behind a proxy that is not there."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "constraints.txt").write_text("rich==15.0.0\n")
    nowhere = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    cache = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    ended = run(tmp_path, **nowhere, **cache, NO_PROXY="", no_proxy="")
    assert ended.returncode == NO_ANSWER, ended.stdout + ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert "nothing was audited" in ended.stderr


def test_nothing_to_audit_is_an_error(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    ended = run(tmp_path)
    assert ended.returncode == UNREADABLE
    assert "constraints.txt is not here" in ended.stderr
