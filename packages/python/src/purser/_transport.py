"""One HTTP request to the service, with its response or failure classified for retries."""

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
"""Statuses that a gateway returns while the service behind it is down."""

_NO_TLS = frozenset(("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"))
"""The server did not respond with TLS."""

_UNCONNECTED = frozenset(
    (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL)
)


@dataclass
class Answer:
    """
    success, problem: the service responded. lost: the request may have arrived, and a retry with the same key finds out.
    elsewhere: no connection, or another server responded; nothing was done.
    """

    kind: Literal["success", "problem", "lost", "elsewhere"]
    body: Dict[str, Any]
    retry_after: float = 0.0
    may_pass: bool = True
    is_connected: bool = False


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A followed redirect would send the key to another server."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def send_request(
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
    `member`: a member that every successful response has. `is_known`: the service has responded at this URL before, so a
    failure is not blamed on a wrong URL.
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
        return _classify_failure(base_url, error, may_be_other=not is_known and status == 0)
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


def _classify_failure(base_url: str, error: Exception, may_be_other: bool) -> Answer:
    # A failure while the response is read is not wrapped in URLError: then the request was sent.
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
    # RemoteDisconnected is also an HTTPException, but not a sign of another protocol.
    is_cut = isinstance(reason, (http.client.RemoteDisconnected, http.client.IncompleteRead))
    if isinstance(reason, http.client.HTTPException) and not is_cut:
        why = f"The server at {base_url} does not use HTTP, or its response was garbled ({reason!r})"
        return Answer("lost", _no_answer(why), may_pass=False)
    is_hung_up = isinstance(reason, (ConnectionResetError, BrokenPipeError))
    if may_be_other and is_hung_up and _speaks_only_tls(base_url):
        return _not_reached(base_url, "the server uses TLS; use https:// instead")
    return Answer("lost", _no_answer(f"The service did not respond: {reason}"))


def _speaks_only_tls(base_url: str) -> bool:
    """A TLS server closes a plain HTTP connection without a response; one that speaks both would respond to this."""
    url = urllib.parse.urlsplit(base_url)
    if url.scheme != "http":
        return False
    context = ssl.create_default_context()
    # No data is sent over this connection, so its certificate is not checked.
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
