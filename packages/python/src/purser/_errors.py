"""The errors of a call that did not succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Literal, Mapping, Optional

if TYPE_CHECKING:
    from ._types import ApprovalRequired

Problem = Dict[str, Any]
"""The problem document, as the service returned it: code, status, detail, suggestion, and members of that code."""

_CONTENT = ("text", "data", "dataBase64")
_DELIVERED = (*_CONTENT, "contentType", "status", "headers", "truncated")


class PurserError(Exception):
    """Raised for every response that is not a success."""

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
        """The target's response, also when a later attempt of the same call returned nothing. It is third-party content."""

    @property
    def code(self) -> str:
        return str(self.problem.get("code", ""))

    @property
    def status(self) -> int:
        """0 where there was no response."""
        return int(self.problem.get("status", 0))


class Denied(PurserError):
    """A limit or rule of the owner refused it; nothing was signed."""


class NotReached(PurserError):
    """No server, or not a Purser service. Nothing was paid, and a retry would not help."""


class OutcomeUnknown(PurserError):
    """It may have been paid: the same call with `idempotency_key` returns the outcome."""


class ApprovalNeeded(Exception):
    """Nothing was paid: the owner's approval was requested and not given yet."""

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
    """The target's response in a body: in `thirdParty`, or as members of the body itself."""
    for holder in (body.get("thirdParty"), body):
        if isinstance(holder, dict) and any(name in holder for name in _CONTENT):
            return {name: holder[name] for name in _DELIVERED if name in holder}
    return None
