"""Secrets never get into logs or messages: values of variables that are named as secrets, and what URLs hold of them.

`install` makes every log record of the process clean at its birth, whoever handles it later: console, file, Prefect.
"""

from __future__ import annotations

import json
import logging
import os
import re
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote, quote_plus, urlsplit

from firmbound.errors import FirmboundError

P = ParamSpec("P")
R = TypeVar("R")

HIDDEN = "[hidden]"
# Shorter values (`1`, `on`) protect nothing, and hiding them would make logs unreadable; so would these words.
SHORTEST = 4
HARMLESS = {"true", "false", "none", "null", "auto", "default"}
WORDS = {"KEY", "KEYS", "PASS", "PAT", "CREDENTIAL", "CREDENTIALS", "AUTHORIZATION", "COOKIE", "PASSPHRASE"}
ENDINGS = ("TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "APIKEY", "PASSPHRASE")
# Variables that hold a secret though no word of their names says so.
NAMED = {"PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING", "PGPASSWORD"}

# scheme://user:password@host, up to the last @ before a slash: passwords may hold one. Paths turn // into /.
USERINFO = re.compile(r"(?i)\b([a-z][a-z0-9+.\-]*:/{1,3})[^\s/?#'\"<>]*@")
QUERY = re.compile(
    r"(?i)([?&;](?:access_?|api_?|auth_?|refresh_?)?(?:token|key|password|passwd|secret|signature|sig)=)[^&\s'\"]+"
)
HEADER = re.compile(r"(?i)\b((?:proxy-)?authorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic|token)\s+)[^\s'\"]+")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret: API_KEY and GITHUB_TOKEN do, TOKENIZERS_PARALLELISM does not."""
    words = name.upper().split("_")
    return name.upper() in NAMED or any(word in WORDS or word.endswith(ENDINGS) for word in words)


def redact(text: str, environment: Mapping[str, str] | None = None) -> str:
    """The text with HIDDEN in place of secrets."""
    secrets = _secrets(os.environ if environment is None else environment)
    if secrets:
        text = _pattern(secrets).sub(HIDDEN, text)
    if ":/" in text:
        text = USERINFO.sub(rf"\1{HIDDEN}@", text)
    text = QUERY.sub(rf"\1{HIDDEN}", text)
    return HEADER.sub(rf"\1{HIDDEN}", text)


def without_userinfo(address: str) -> str:
    """An address that everybody may see, and that still leads there."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    values = {value for name, value in environment.items() if is_secret_name(name)}
    return tuple(sorted(value for value in values if _worth_hiding(value.strip())))


def _worth_hiding(value: str) -> bool:
    return len(value) >= SHORTEST and value.lower() not in HARMLESS


@lru_cache(maxsize=4)
def _pattern(secrets: tuple[str, ...]) -> re.Pattern[str]:
    """One pattern for all, as they are and as they look inside URLs, JSON and Python's own writing."""
    forms: set[str] = set()
    for secret in secrets:
        # A key of many lines may be shown line by line.
        parts = {secret, secret.strip(), *(line.strip() for line in secret.splitlines())}
        for part in filter(_worth_hiding, parts):
            forms |= {part, quote(part), quote(part, safe=""), quote_plus(part), json.dumps(part)[1:-1]}
            forms |= {json.dumps(part, ensure_ascii=False)[1:-1], repr(part)[1:-1], ascii(part)[1:-1]}
    # The longest first: a secret that begins like another must not leave its end behind.
    return re.compile("|".join(re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form))))


def hides_secrets(work: Callable[P, R]) -> Callable[P, R]:
    """`work` whose errors hold no secrets. Prefect keeps an error's words, also on a server that others look at.

    An error with something to hide becomes one of ours if it was, else a RuntimeError that names its kind.
    """

    @wraps(work)
    def body(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return work(*args, **kwargs)
        except Exception as problem:
            said = str(problem) if isinstance(problem, FirmboundError) else f"{type(problem).__name__}: {problem}"
            hidden = redact(said)
            if hidden == said:
                raise
            raise (FirmboundError if isinstance(problem, FirmboundError) else RuntimeError)(hidden) from None

    return body


def install() -> None:
    """From now on, records of this process hold no secrets: neither message nor arguments nor traceback."""
    before = logging.getLogRecordFactory()
    if getattr(before, "redacts", False):
        return

    def clean_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = before(*args, **kwargs)
        clean(record)
        return record

    clean_record.redacts = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(clean_record)


def clean(record: logging.LogRecord) -> None:
    """Take secrets out of a record; one without any is left as it is, arguments and all."""
    try:
        said = record.getMessage()
    except Exception:  # arguments do not fit the message; logging would print both to complain
        said = f"{record.msg!r} with {record.args!r}"
        record.msg, record.args = redact(said), ()
    else:
        hidden = redact(said)
        if hidden != said:
            record.msg, record.args = hidden, ()
    if isinstance(record.exc_info, tuple) and record.exc_info[0] is not None:
        told = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        hidden = redact(told)
        if hidden != told:
            record.exc_text, record.exc_info = hidden, None
