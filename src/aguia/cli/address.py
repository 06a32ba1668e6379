"""Where an agent is and what is sent along, as a person writes it on the command line."""

import re
from collections.abc import Sequence
from typing import Final

import httpx

from aguia.cli.safe import one_line
from aguia.client.http import shown_url

__all__ = ["headers_of", "is_local", "shown", "url_of"]

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def url_of(text: str) -> str:
    """The URL of an agent, with the scheme that may be left out.

    Raises `ValueError` for what is no HTTP URL.
    """
    address = text if "://" in text else f"http://{text}"
    try:
        parsed = httpx.URL(address)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > 65535:
        written = one_line(shown_url(text))
        raise ValueError(f"'{written}' is no URL of an agent; write it as http://127.0.0.1:8000/")
    return address


def shown(url: str) -> str:
    """The URL of an agent for people to read, without what may be a secret in it."""
    return shown_url(httpx.URL(url))


def is_local(url: str) -> bool:
    """Whether a URL is this machine's; a proxy has no business with an agent there."""
    return httpx.URL(url).host in ("localhost", "127.0.0.1", "::1")


def headers_of(lines: Sequence[str]) -> dict[str, str]:
    """Headers written as `Name: value`; raises `ValueError` for what is none."""
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        sendable = value.isascii() and value.strip().isprintable()
        if not colon:
            # What stands there may be a secret, and stays away.
            raise ValueError("that is no header; write it as 'Name: value'")
        if not _NAME.fullmatch(name.strip()) or not sendable:
            raise ValueError(f"no header '{one_line(name, 60)}'; write it as 'Name: value'")
        headers[name.strip()] = value.strip()
    return headers
