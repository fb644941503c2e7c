"""The typed client for agents."""

from __future__ import annotations

import math
import os
import time
import urllib.parse
import uuid
from typing import Any, Dict, Literal, Mapping, Optional, cast

from ._errors import ApprovalNeeded, Problem, delivered_in, error_of
from ._transport import Answer, send_request
from ._types import (
    AgentSelf,
    Approval,
    ApprovalRequired,
    FetchResult,
    ListingPage,
    Payment,
    PaymentPage,
    SpendResult,
    Task,
    TaskPage,
)

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
Detail = Literal["short", "full"]

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
"""Codes after which a retry is safe: the request cannot have paid, or the same key returns its outcome."""

_FETCH = "/api/agents/x402-fetch"
_WAIT_SECONDS = 30
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0


class Purser:
    """Every paying call has its own idempotency key, and is retried only where that cannot pay twice."""

    def __init__(
        self,
        api_key: Optional[str] = None,
        base_url: Optional[str] = None,
        *,
        timeout: float = 60.0,
    ) -> None:
        """`timeout`: the time limit of one call in seconds, retries included."""
        self._api_key = api_key or os.environ.get("AGENT_API_KEY", "")
        url = base_url or os.environ.get("PURSER_URL") or "http://localhost:3000"
        self._base_url = url.rstrip("/")
        self._timeout = timeout
        self._is_known = False

    def me(self, *, detail: Optional[Detail] = None) -> AgentSelf:
        """Name, wallet, balance, limits and allowlist of this agent."""
        path = "/api/agents/me" + _query(detail=detail)
        return cast(AgentSelf, self._call("GET", path, "wallet"))

    def spend(
        self,
        recipient: str,
        amount: str,
        *,
        network: Optional[str] = None,
        memo: Optional[str] = None,
        task: Optional[str] = None,
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
            task=task,
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
        task: Optional[str] = None,
        request_approval: bool = False,
        reason: Optional[str] = None,
        wait_for_approval: float = 0.0,
        idempotency_key: Optional[str] = None,
        detail: Optional[Detail] = None,
    ) -> FetchResult:
        """Fetches a URL, or a marketplace listing, and pays if payment is required. A string `body` is sent unchanged.
        `mcp={"tool": name, "arguments": {...}}` calls that tool of the MCP server at the URL. `detail="full"` returns
        every member of the answer."""
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
            task=task,
            requestApproval=request_approval or None,
            reason=reason,
            detail=detail,
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
        task: Optional[str] = None,
        detail: Optional[Detail] = None,
    ) -> FetchResult:
        """What a call would cost and whether the limits allow it; pays nothing, and returns only the terms."""
        request = _given(
            url=url,
            listingId=listing_id,
            mcp=None if mcp is None else dict(mcp),
            method=method,
            headers=None if headers is None else dict(headers),
            maxAmount=max_amount,
            task=task,
            dryRun=True,
            detail=detail,
        )
        return cast(FetchResult, self._call("POST", _FETCH, "success", request))

    def payments(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        task: Optional[str] = None,
        detail: Optional[Detail] = None,
    ) -> PaymentPage:
        path = "/api/agents/me/payments" + _query(limit=limit, cursor=cursor, task=task, detail=detail)
        return cast(PaymentPage, self._call("GET", path, "items"))

    def payment(self, payment_id: str) -> Payment:
        path = f"/api/agents/me/payments/{urllib.parse.quote(payment_id, safe='')}"
        return cast(Payment, self._call("GET", path, "id"))

    def open_task(
        self,
        task_id: str,
        limit: str,
        *,
        expires_at: Optional[str] = None,
        name: Optional[str] = None,
    ) -> Task:
        """Opens a task: a ceiling for all payments that name it (`task`), within this agent's own limits. Opening it
        again with the same terms changes nothing. `expires_at` is a time such as `2026-12-31T18:00:00Z`."""
        body = _given(id=task_id, limit=limit, expiresAt=expires_at, name=name)
        return cast(Task, self._call("POST", "/api/agents/tasks", "id", body))

    def task(self, task_id: str) -> Task:
        """What a task cost, what is reserved, and what is left."""
        return cast(Task, self._call("GET", _task_path(task_id), "id"))

    def close_task(self, task_id: str) -> Task:
        """From now on it pays nothing."""
        return cast(Task, self._call("POST", _task_path(task_id) + "/close", "id", {}))

    def tasks(
        self,
        *,
        state: Optional[Literal["open", "all"]] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> TaskPage:
        path = "/api/agents/tasks" + _query(state=state, limit=limit, cursor=cursor)
        return cast(TaskPage, self._call("GET", path, "items"))

    def listings(
        self,
        *,
        search: Optional[str] = None,
        category: Optional[str] = None,
        network: Optional[str] = None,
        max_price: Optional[str] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        detail: Optional[Detail] = None,
    ) -> ListingPage:
        """Searches the marketplace."""
        query = _query(
            search=search,
            category=category,
            network=network,
            maxPrice=max_price,
            limit=limit,
            cursor=cursor,
            detail=detail,
        )
        return cast(ListingPage, self._call("GET", "/api/listings" + query, "items"))

    def approval(self, approval_id: str, *, wait: int = 0) -> Approval:
        """The state of an approval request. With `wait` (at most 30 s) the service responds once it is decided."""
        path = f"/api/agents/approvals/{urllib.parse.quote(approval_id, safe='')}?wait={wait}"
        return cast(Approval, self._call("GET", path, "status"))

    def wait_for_approval(self, approval_id: str, *, timeout: float = 600.0) -> Approval:
        """Waits until the owner has decided or the time has passed; then the status is still `open`."""
        deadline = time.monotonic() + timeout
        # The service's wait must end before the client's own timeout, with time for the round trip.
        longest_wait = min(_WAIT_SECONDS, int(self._timeout / 2))
        while True:
            left = max(0.0, deadline - time.monotonic())
            wait = min(longest_wait, math.ceil(left))
            approval = self.approval(approval_id, wait=wait)
            if approval["status"] != "open" or time.monotonic() >= deadline:
                return approval
            if wait == 0:
                # The request did not wait at the service, so pause here.
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
            required = cast(ApprovalRequired, answer)
            timeout = deadline - time.monotonic()
            if timeout <= 0:
                raise ApprovalNeeded(required)
            decided = self.wait_for_approval(required["approvalId"], timeout=timeout)
            if decided["status"] in ("open", "declined"):
                required["next"] = decided["next"]
                raise ApprovalNeeded(required, "open" if decided["status"] == "open" else "declined")
            key = required["idempotencyKey"]

    def _call(
        self,
        method: str,
        path: str,
        member: str,
        body: Optional[Dict[str, Any]] = None,
        key: Optional[str] = None,
    ) -> Dict[str, Any]:
        deadline = time.monotonic() + self._timeout
        headers = {"authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        if key is not None:
            headers["idempotency-key"] = key
        results = _AttemptResults()
        pause = _FIRST_PAUSE
        while True:
            timeout = max(0.001, deadline - time.monotonic())
            answer = send_request(self._base_url, method, path, body, headers, timeout, member, self._is_known)
            if answer.kind in ("success", "problem"):
                self._is_known = True
            if answer.kind == "success":
                return results.complete(answer.body)
            results.note(answer)
            wait = max(pause, answer.retry_after)
            if not self._may_help(answer, results) or time.monotonic() + wait >= deadline:
                raise error_of(results.last, key, results.delivered)
            time.sleep(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _may_help(self, answer: Answer, results: "_AttemptResults") -> bool:
        """Whether a retry can end differently: if no service was ever reached, only if an earlier attempt may have arrived."""
        if answer.kind == "problem":
            return answer.body.get("code") in _SAFE_TO_REPEAT
        if answer.kind == "lost":
            return answer.may_pass
        return results.may_have_arrived or (self._is_known and not answer.is_connected)


class _AttemptResults:
    """The results of all attempts of one call: a later attempt that reports less does not replace earlier results."""

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
        """The result of the call, with the content that an earlier attempt delivered."""
        if self.delivered is None or delivered_in(value) is not None:
            return value
        return {**self.delivered, **value}


def _given(**members: Any) -> Dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _task_path(task_id: str) -> str:
    return f"/api/tasks/{urllib.parse.quote(task_id, safe='')}"


def _query(**members: Any) -> str:
    text = urllib.parse.urlencode(_given(**members))
    return f"?{text}" if text else ""
