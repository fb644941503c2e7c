"""One request to the service, and what can be said of what came back."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Dict, Literal, Optional

from ._errors import Problem

_GATEWAY = frozenset((408, 429, 502, 503, 504))
"""What a gateway in front of a service says while the service is away."""

_NO_TLS = frozenset(("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"))
"""What came was no TLS."""

_UNCONNECTED = frozenset(
    (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL)
)


@dataclass
class Answer:
    """
    success, problem: the service's own word. lost: it may have arrived, and the same key finds out. elsewhere: nobody
    was there, or somebody else; nothing was done.
    """

    kind: Literal["success", "problem", "lost", "elsewhere"]
    body: Dict[str, Any]
    retry_after: float = 0.0
    may_pass: bool = True
    is_connected: bool = False


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Followed, the key would travel to wherever it leads."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def ask(
    base_url: str,
    method: str,
    path: str,
    body: Optional[Dict[str, Any]],
    headers: Dict[str, str],
    timeout: float,
    member: str,
    is_known: bool,
) -> Answer:
    """
    `member`: what each successful answer to this has. `is_known`: the service has answered there before, so nobody else
    is suspected.
    """
    if urllib.parse.urlsplit(base_url).scheme not in ("http", "https"):
        return _not_reached(base_url, "it is not an http:// or https:// URL")
    data = None if body is None else json.dumps(body).encode()
    sent = headers if body is None else {**headers, "content-type": "application/json"}
    status = 0
    try:
        request = urllib.request.Request(base_url + path, data=data, method=method, headers=sent)
        try:
            with _opener.open(request, timeout=timeout) as response:
                status, received = response.status, response.headers
                text = response.read()
        except urllib.error.HTTPError as answered:
            with answered:
                status, received = answered.code, answered.headers
                text = answered.read()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return _unanswered(base_url, error, may_be_other=not is_known and status == 0)
    retry_after = _seconds(received.get("retry-after"))
    value = _read_object(text)
    if value is not None and 200 <= status < 300 and member in value:
        return Answer("success", value)
    if value is not None and status >= 400 and isinstance(value.get("code"), str):
        return Answer("problem", value, retry_after)
    if status >= 500 or status in _GATEWAY:
        why = f"HTTP {status} from {base_url} did not come from the service itself"
        return Answer("lost", _no_answer(why, status), retry_after, may_pass=status in _GATEWAY)
    location = received.get("location")
    what = f"HTTP {status} ({received.get('content-type') or 'no content type'})"
    return _not_purser(base_url, status, f"a redirect to {location}" if location else what)


def _unanswered(base_url: str, error: Exception, may_be_other: bool) -> Answer:
    # What goes wrong while the answer is read comes as it is: then the request has gone out.
    is_sent = not isinstance(error, urllib.error.URLError)
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLError) and not is_sent:
        if isinstance(reason, ssl.SSLCertVerificationError) or reason.reason in _NO_TLS:
            why = f"the encrypted connection fails ({reason.reason or reason})"
            return _not_reached(base_url, why)
    if isinstance(reason, (ValueError, http.client.InvalidURL)):
        return _not_reached(base_url, f"it is not a URL ({reason})")
    if isinstance(reason, socket.gaierror):
        return _not_reached(base_url, "there is no such host")
    if isinstance(reason, OSError) and not is_sent and reason.errno in _UNCONNECTED:
        return _not_reached(base_url, errno.errorcode[reason.errno])
    # One that hung up without a word is both.
    is_cut = isinstance(reason, (http.client.RemoteDisconnected, http.client.IncompleteRead))
    if isinstance(reason, http.client.HTTPException) and not is_cut:
        why = f"The server at {base_url} does not use HTTP, or its response was garbled ({reason!r})"
        return Answer("lost", _no_answer(why), may_pass=False)
    is_hung_up = isinstance(reason, (ConnectionResetError, BrokenPipeError))
    if may_be_other and is_hung_up and _speaks_only_tls(base_url):
        return _not_reached(base_url, "the server uses TLS; use https:// instead")
    return Answer("lost", _no_answer(f"The service did not respond: {reason}"))


def _speaks_only_tls(base_url: str) -> bool:
    """A server of TLS hangs up on plain HTTP without a word; one that speaks both would answer this."""
    url = urllib.parse.urlsplit(base_url)
    if url.scheme != "http":
        return False
    context = ssl.create_default_context()
    # Nothing is sent over it.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((url.hostname or "", url.port or 80), timeout=1) as plain:
            with context.wrap_socket(plain, server_hostname=url.hostname):
                pass
    except (OSError, ValueError):
        return False
    try:
        with _opener.open(urllib.request.Request(base_url, method="HEAD"), timeout=1):
            return False
    except urllib.error.HTTPError as answered:
        answered.close()
        return False
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return isinstance(reason, (ConnectionResetError, BrokenPipeError))


def _read_object(text: bytes) -> Optional[Dict[str, Any]]:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _seconds(text: Optional[str]) -> float:
    return float(text) if text is not None and text.isdigit() else 0.0


def _problem(code: str, status: int, detail: str, suggestion: str, retryable: bool) -> Problem:
    return {
        "code": code,
        "status": status,
        "detail": detail,
        "suggestion": suggestion,
        "retryable": retryable,
        "requestId": "",
    }


def _not_reached(base_url: str, why: str) -> Answer:
    detail = f"No Purser service can be reached at {base_url}: {why}. Nothing was paid."
    suggestion = "Check the URL (PURSER_URL, or base_url) and that the service is running there."
    return Answer("elsewhere", _problem("not_reached", 0, detail, suggestion, False))


def _not_purser(base_url: str, status: int, what: str) -> Answer:
    detail = f"The server at {base_url} is not a Purser service: {what}. Nothing was paid."
    suggestion = (
        "Check the URL (PURSER_URL, or base_url): scheme, host and port of the service, without a path."
    )
    problem = _problem("not_purser", status, detail, suggestion, False)
    return Answer("elsewhere", problem, is_connected=True)


def _no_answer(detail: str, status: int = 0) -> Problem:
    suggestion = (
        "Check the base URL and the network. Repeat a payment only with the same Idempotency-Key."
    )
    return _problem("no_answer", status, detail, suggestion, True)
