"""Secrets: whatever is logged or said, they are not in it."""

import io
import logging
import traceback
from urllib.parse import quote

import pytest
import typer
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from firmbound.errors import InvalidInput
from flows.cli import app
from flows.redaction import HIDDEN, SHORTEST, clean, install, is_secret_name, redact

# Letters that are in no other text of these tests, so that finding one means finding the secret.
SECRETS = st.text("ÄÖÜß%§&\"'\\/@:?+ \n", min_size=SHORTEST, max_size=30).filter(
    lambda text: len(text.strip()) >= SHORTEST
)
NAMES = st.sampled_from(
    ["API_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_PASSWORD", "x_credential"]
)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("github_token", True),
        ("DBPASSWORD", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("PREFECT_API_AUTH_STRING", True),
        ("MY_SECRETS", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("KEYBOARD", False),
        ("PWD", False),
        ("PATH", False),
        ("MONKEY", False),
        ("SSH_AUTH_SOCK", False),
    ],
)
def test_names_that_tell_of_secrets(name, secret):
    assert is_secret_name(name) is secret


@given(NAMES, SECRETS)
def test_a_secret_is_hidden_in_every_form_in_which_it_is_written(name, secret):
    environment = {name: secret}
    for shown in (secret, secret.strip(), repr(secret), quote(secret), quote(secret, safe=""), f"{secret}{secret}"):
        hidden = redact(f"before {shown} after", environment)
        assert secret not in hidden
        assert not set("ÄÖÜß§") & set(hidden)
        assert hidden.startswith("before")
        assert hidden.endswith("after")


@given(st.lists(SECRETS, min_size=2, max_size=4, unique=True))
def test_secrets_that_begin_alike_leave_no_end_behind(secrets):
    environment = {f"S{index}_TOKEN": "".join(secrets[: index + 1]) for index in range(len(secrets))}
    for secret in environment.values():
        assert not set("ÄÖÜß§") & set(redact(f"x {secret} y", environment))


@given(st.text("abcdefÄ:@!$%", min_size=1), st.text("ghijk%@:", min_size=1))
def test_passwords_of_addresses_are_hidden_without_any_variable(user, password):
    assume("redacted" not in user)
    address = f"postgresql+psycopg://{user}:{password}@db.example.org:5432/runs?x=1"
    assert redact(f"cannot reach {address}!", {}) == (
        f"cannot reach postgresql+psycopg://{HIDDEN}@db.example.org:5432/runs?x=1!"
    )


@pytest.mark.parametrize(
    "text",
    [
        "GET https://host/a?access_token=abc123&x=1",
        "headers: {'Authorization': 'Bearer abc123'}",
        "Authorization: Basic abc123",
        "https://abc123@host/api",
        "https://host/?a=1&api_key=abc123",
    ],
)
def test_other_places_of_secrets(text):
    assert "abc123" not in redact(text, {})


@pytest.mark.parametrize(
    "text",
    ["an address http://127.0.0.1:4200/api?page=2", "mail me@example.org", "key=3 of 5", "100 % @ t=3", "a://b c@d"],
)
def test_what_is_no_secret_stays(text):
    assert redact(text, {"SOME_TOKEN": "1", "OTHER_KEY": "true", "THIRD_SECRET": ""}) == text


def test_a_key_of_many_lines_is_hidden_line_by_line():
    key = "-----BEGIN-----\nabcdefgh\nijklmnop\n-----END-----"
    assert "ijklmnop" not in redact("line two is ijklmnop", {"PRIVATE_KEY": key})


@pytest.fixture
def log(monkeypatch):
    """A logger whose records are clean from birth, and what its console shows."""
    before = logging.getLogRecordFactory()
    install()
    install()  # a second time changes nothing
    shown = io.StringIO()
    logger = logging.Logger("watched")
    logger.addHandler(logging.StreamHandler(shown))
    monkeypatch.setenv("THEIR_TOKEN", "hunter2-hunter2")
    yield logger, shown
    logging.setLogRecordFactory(before)


def test_records_are_clean_for_whoever_handles_them(log):
    logger, shown = log
    logger.warning("plain hunter2-hunter2")
    logger.warning("as an argument %s, 100 %%", "hunter2-hunter2")
    logger.warning("%(by)s", {"by": "hunter2-hunter2"})
    logger.warning("%d", "hunter2-hunter2")  # does not fit: logging would print the arguments to complain
    try:
        raise ValueError("inner hunter2-hunter2")
    except ValueError as problem:
        try:
            raise RuntimeError("https://me:pw12345@host") from problem
        except RuntimeError:
            logger.exception("it failed")
    said = shown.getvalue()
    assert "hunter2" not in said
    assert "pw12345" not in said
    assert "as an argument [hidden], 100 %" in said
    assert "RuntimeError: https://[hidden]@host" in said
    assert "Traceback" in said


def test_a_record_without_secrets_is_left_alone():
    record = logging.makeLogRecord({"msg": "%d of %d", "args": (1, 2)})
    clean(record)
    assert (record.msg, record.args) == ("%d of %d", (1, 2))


@given(SECRETS)
def test_records_of_any_secret_are_clean(secret):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANY_SECRET", secret)
        try:
            raise InvalidInput("name", "be another", secret)
        except InvalidInput as problem:
            told = (InvalidInput, problem, problem.__traceback__)
        record = logging.makeLogRecord({"msg": "%s and " + secret.replace("%", "%%"), "args": (secret,)})
        record.exc_info = told
        clean(record)
        formatted = logging.Formatter().format(record)
    assert secret not in formatted
    assert not set("ÄÖÜß§") & set(formatted)


def test_errors_of_commands_hold_no_secret(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2-hunter2")
    ended = CliRunner().invoke(app, ["decide", "model-hunter2-hunter2", "https://me:pw12345@host/x.npz"])
    assert ended.exit_code == 2
    assert "model-[hidden]" in ended.stderr
    ended = CliRunner().invoke(app, ["fit", "https://me:pw12345@host/x.npz", "out"])
    assert ended.exit_code == 2
    assert "pw12345" not in ended.output


def test_a_slip_of_ours_shows_no_secret_either(monkeypatch, capsys):
    from flows.cli_errors import one_line_errors

    monkeypatch.setenv("SOME_KEY", "hunter2-hunter2")
    with pytest.raises(typer.Exit) as ended, one_line_errors():
        raise AssertionError("hunter2-hunter2")
    assert "hunter2" not in "".join(traceback.format_exception_only(ended.value))
    said = capsys.readouterr().err
    assert "AssertionError: [hidden]" in said
    with pytest.raises(AssertionError, match="nothing to hide"), one_line_errors():
        raise AssertionError("nothing to hide")
