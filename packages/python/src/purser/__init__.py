"""An AI agent's USDC wallet: typed client for a Purser service."""

from ._client import Purser
from ._errors import ApprovalNeeded, Denied, NotReached, OutcomeUnknown, Problem, PurserError
from ._types import (
    AgentSelf,
    Approval,
    ApprovalRequired,
    FetchResult,
    Listing,
    ListingPage,
    Payment,
    PaymentPage,
    SpendResult,
    Task,
    TaskPage,
)

__all__ = [
    "AgentSelf",
    "Approval",
    "ApprovalNeeded",
    "ApprovalRequired",
    "Denied",
    "FetchResult",
    "Listing",
    "ListingPage",
    "NotReached",
    "OutcomeUnknown",
    "Payment",
    "PaymentPage",
    "Problem",
    "Purser",
    "PurserError",
    "SpendResult",
    "Task",
    "TaskPage",
]
