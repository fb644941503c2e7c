"""The typed client for agents: one key, one call."""

from __future__ import annotations

import math
import os
import time
import urllib.parse
import uuid
from typing import Any, Dict, Literal, Mapping, Optional, cast

from ._errors import ApprovalNeeded, Problem, delivered_in, error_of
from ._transport import Answer, ask
from ._types import (
    AgentSelf,
    Approval,
    ApprovalRequired,
    FetchResult,
    ListingPage,
    Payment,
    PaymentPage,
    SpendResult,
)

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

_SAFE_TO_REPEAT = frozenset(
    (
        "idempotency_in_progress",
        "rate_limited",
        "fetch_capacity",
        "chain_unavailable",
        "keys_unavailable",
        "relayer_unfunded",
        "service_unavailable",
        "payment_status_unknown",
    )
)
"""The request cannot have paid, or the same key finds out what it did. Denials and bad input are not here."""

_FETCH = "/api/agents/x402-fetch"
_LOOK_SECONDS = 30
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0


class Purser:
    """Every paying call has an idempotency key of its own, and is repeated only where that cannot pay twice."""

    def __init__(
        self,
        api_key: Optional[str] = None,
        base_url: Optional[str] = None,
        *,
        timeout: float = 60.0,
    ) -> None:
        """`timeout`: seconds one call may take, retries included."""
        self._api_key = api_key or os.environ.get("AGENT_API_KEY", "")
        url = base_url or os.environ.get("PURSER_URL") or "http://localhost:3000"
        self._base_url = url.rstrip("/")
        self._timeout = timeout
        self._is_known = False

    def me(self) -> AgentSelf:
        """Name, wallet, balance, limits and allowlist of this agent."""
        return cast(AgentSelf, self._call("GET", "/api/agents/me", "wallet"))

    def spend(
        self,
        recipient: str,
        amount: str,
        *,
        network: Optional[str] = None,
        memo: Optional[str] = None,
        request_approval: bool = False,
        reason: Optional[str] = None,
        wait_for_approval: float = 0.0,
        idempotency_key: Optional[str] = None,
    ) -> SpendResult:
        """Pays an allowlisted address. `amount` is USDC as a decimal string."""
        body = _given(
            recipient=recipient,
            amount=amount,
            network=network,
            memo=memo,
            requestApproval=request_approval or None,
            reason=reason,
        )
        paid = self._pay("/api/agents/spend", body, idempotency_key, wait_for_approval)
        return cast(SpendResult, paid)

    def fetch(
        self,
        url: Optional[str] = None,
        *,
        listing_id: Optional[str] = None,
        mcp: Optional[Mapping[str, Any]] = None,
        method: Optional[Method] = None,
        headers: Optional[Mapping[str, str]] = None,
        body: Any = None,
        max_amount: Optional[str] = None,
        max_age: Optional[int] = None,
        timeout_ms: Optional[int] = None,
        request_approval: bool = False,
        reason: Optional[str] = None,
        wait_for_approval: float = 0.0,
        idempotency_key: Optional[str] = None,
    ) -> FetchResult:
        """Fetches a URL, or a marketplace listing, and pays if it must. A `body` that is a string is sent as it is.
        `mcp={"tool": name, "arguments": {...}}` calls that tool of the MCP server at the URL."""
        request = _given(
            url=url,
            listingId=listing_id,
            mcp=None if mcp is None else dict(mcp),
            method=method,
            headers=None if headers is None else dict(headers),
            body=body,
            maxAmount=max_amount,
            maxAge=max_age,
            timeoutMs=timeout_ms,
            requestApproval=request_approval or None,
            reason=reason,
        )
        fetched = self._pay(_FETCH, request, idempotency_key, wait_for_approval)
        return cast(FetchResult, fetched)

    def quote(
        self,
        url: Optional[str] = None,
        *,
        listing_id: Optional[str] = None,
        mcp: Optional[Mapping[str, Any]] = None,
        method: Optional[Literal["GET", "HEAD"]] = None,
        headers: Optional[Mapping[str, str]] = None,
        max_amount: Optional[str] = None,
    ) -> FetchResult:
        """What it would cost and whether the limits allow it; pays nothing, and tells terms only."""
        request = _given(
            url=url,
            listingId=listing_id,
            mcp=None if mcp is None else dict(mcp),
            method=method,
            headers=None if headers is None else dict(headers),
            maxAmount=max_amount,
            dryRun=True,
        )
        return cast(FetchResult, self._call("POST", _FETCH, "success", request))

    def payments(
        self, *, limit: Optional[int] = None, cursor: Optional[str] = None
    ) -> PaymentPage:
        path = "/api/agents/me/payments" + _query(limit=limit, cursor=cursor)
        return cast(PaymentPage, self._call("GET", path, "items"))

    def payment(self, payment_id: str) -> Payment:
        path = f"/api/agents/me/payments/{urllib.parse.quote(payment_id, safe='')}"
        return cast(Payment, self._call("GET", path, "id"))

    def listings(
        self,
        *,
        search: Optional[str] = None,
        category: Optional[str] = None,
        network: Optional[str] = None,
        max_price: Optional[str] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> ListingPage:
        """Searches the marketplace."""
        query = _query(
            search=search,
            category=category,
            network=network,
            maxPrice=max_price,
            limit=limit,
            cursor=cursor,
        )
        return cast(ListingPage, self._call("GET", "/api/listings" + query, "items"))

    def approval(self, approval_id: str, *, wait: int = 0) -> Approval:
        """What the owner was asked: where it stands. With `wait` (at most 30 s) it is answered once it is decided."""
        path = f"/api/agents/approvals/{urllib.parse.quote(approval_id, safe='')}?wait={wait}"
        return cast(Approval, self._call("GET", path, "status"))

    def wait_for_approval(self, approval_id: str, *, timeout: float = 600.0) -> Approval:
        """Until the owner has decided, or the time is over: then it is still `open`."""
        deadline = time.monotonic() + timeout
        # A call must end before its time is over, the way there and back included.
        longest_look = min(_LOOK_SECONDS, int(self._timeout / 2))
        while True:
            left = max(0.0, deadline - time.monotonic())
            wait = min(longest_look, math.ceil(left))
            approval = self.approval(approval_id, wait=wait)
            if approval["status"] != "open" or time.monotonic() >= deadline:
                return approval
            if wait == 0:
                # The service did not wait for us.
                time.sleep(min(1.0, left))

    def _pay(
        self, path: str, body: Dict[str, Any], key: Optional[str], wait_for_approval: float
    ) -> Dict[str, Any]:
        deadline = time.monotonic() + wait_for_approval
        key = key or str(uuid.uuid4())
        while True:
            answer = self._call("POST", path, "success", body, key)
            if answer.get("status") != "approval_required":
                return answer
            asked = cast(ApprovalRequired, answer)
            timeout = deadline - time.monotonic()
            if timeout <= 0:
                raise ApprovalNeeded(asked)
            decided = self.wait_for_approval(asked["approvalId"], timeout=timeout)
            if decided["status"] in ("open", "declined"):
                asked["next"] = decided["next"]
                raise ApprovalNeeded(asked, "open" if decided["status"] == "open" else "declined")
            key = asked["idempotencyKey"]

    def _call(
        self,
        method: str,
        path: str,
        member: str,
        body: Optional[Dict[str, Any]] = None,
        key: Optional[str] = None,
    ) -> Dict[str, Any]:
        deadline = time.monotonic() + self._timeout
        headers = {"authorization": f"Bearer {self._api_key}"}
        if key is not None:
            headers["idempotency-key"] = key
        heard = _Heard()
        pause = _FIRST_PAUSE
        while True:
            timeout = max(0.001, deadline - time.monotonic())
            answer = ask(self._base_url, method, path, body, headers, timeout, member, self._is_known)
            if answer.kind in ("success", "problem"):
                self._is_known = True
            if answer.kind == "success":
                return heard.complete(answer.body)
            heard.note(answer)
            wait = max(pause, answer.retry_after)
            if not self._may_help(answer, heard) or time.monotonic() + wait >= deadline:
                raise error_of(heard.last, key, heard.delivered)
            time.sleep(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _may_help(self, answer: Answer, heard: "_Heard") -> bool:
        """Whether asking again can end otherwise: where no service was ever seen, only if a request may have arrived."""
        if answer.kind == "problem":
            return answer.body.get("code") in _SAFE_TO_REPEAT
        if answer.kind == "lost":
            return answer.may_pass
        return heard.may_have_arrived or (self._is_known and not answer.is_connected)


class _Heard:
    """What the tries of one call have told so far: a later one that tells less takes nothing away."""

    def __init__(self) -> None:
        self.may_have_arrived = False
        self.delivered: Optional[Dict[str, Any]] = None
        self.last: Problem = {}

    def note(self, answer: Answer) -> None:
        problem = answer.body
        code = problem.get("code")
        if answer.kind == "problem":
            self.delivered = delivered_in(problem) or self.delivered
        is_unknown = code == "payment_status_unknown"
        is_decided = (
            answer.kind == "problem"
            and code not in _SAFE_TO_REPEAT
            and problem.get("status") != 401
        )
        if self.may_have_arrived and not is_unknown and not is_decided:
            return
        self.may_have_arrived = self.may_have_arrived or answer.kind == "lost" or is_unknown
        self.last = problem

    def complete(self, value: Dict[str, Any]) -> Dict[str, Any]:
        """The answer of a repeated call, with what an earlier try of it had brought."""
        if self.delivered is None or delivered_in(value) is not None:
            return value
        return {**self.delivered, **value}


def _given(**members: Any) -> Dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _query(**members: Any) -> str:
    text = urllib.parse.urlencode(_given(**members))
    return f"?{text}" if text else ""
