"""What a call ends with when it does not succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Literal, Mapping, Optional

if TYPE_CHECKING:
    from ._types import ApprovalRequired

Problem = Dict[str, Any]
"""The problem document, as the service wrote it: code, status, detail, suggestion, and what belongs to the code."""

_CONTENT = ("text", "data", "dataBase64")
_DELIVERED = (*_CONTENT, "contentType", "status", "headers", "truncated")


class PurserError(Exception):
    """Raised for every answer that is not a success."""

    def __init__(
        self,
        problem: Problem,
        idempotency_key: Optional[str] = None,
        delivered: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(str(problem.get("detail", "")))
        self.problem = problem
        self.idempotency_key = idempotency_key
        """Repeat with this key, and only with this key, when the outcome is unknown."""
        self.delivered = delivered
        """What the target sent, also when a later try of the same call brought nothing. A stranger's words."""

    @property
    def code(self) -> str:
        return str(self.problem.get("code", ""))

    @property
    def status(self) -> int:
        """0: there was no answer."""
        return int(self.problem.get("status", 0))


class Denied(PurserError):
    """A limit or rule of the owner's refused it; nothing was signed."""


class NotReached(PurserError):
    """Nobody is there, or not a Purser service. Nothing was paid, and asking again would not help."""


class OutcomeUnknown(PurserError):
    """It may have been paid: the same call with `idempotency_key` finds out."""


class ApprovalNeeded(Exception):
    """Nothing was paid: the owner is asked, and has not allowed it."""

    def __init__(
        self, approval: "ApprovalRequired", status: Literal["open", "declined"] = "open"
    ) -> None:
        super().__init__(approval["next"])
        self.approval = approval
        self.status = status

    @property
    def idempotency_key(self) -> str:
        return self.approval["idempotencyKey"]


def error_of(
    problem: Problem,
    idempotency_key: Optional[str] = None,
    delivered: Optional[Mapping[str, Any]] = None,
) -> PurserError:
    kind = PurserError
    if problem.get("blocked") is True:
        kind = Denied
    elif problem.get("code") in ("not_reached", "not_purser"):
        kind = NotReached
    elif problem.get("code") in ("payment_status_unknown", "no_answer"):
        kind = OutcomeUnknown
    return kind(problem, idempotency_key, delivered)


def delivered_in(body: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """What of a target's answer a body carries: in `thirdParty`, or as its own members."""
    for holder in (body.get("thirdParty"), body):
        if isinstance(holder, dict) and any(name in holder for name in _CONTENT):
            return {name: holder[name] for name in _DELIVERED if name in holder}
    return None
