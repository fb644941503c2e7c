"""The response types of the service. Generated from its schemas by `npm run derive`: change the schemas instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, TypedDict, Union

if TYPE_CHECKING:
    # Every type checker has this module; at run time it is not needed.
    from typing_extensions import NotRequired


class AgentSelfBalancesItem(TypedDict):
    network: str
    asset: str
    balance: Optional[str]


class AgentSelfLimitsWeekly(TypedDict):
    limit: str
    spent: str
    reserved: str
    remaining: str
    nextReleaseAt: Optional[str]


class AgentSelfLimitsMonthly(TypedDict):
    limit: str
    spent: str
    reserved: str
    remaining: str
    nextReleaseAt: Optional[str]


class AgentSelfLimitsHourly(TypedDict):
    limit: int
    spent: int
    reserved: int
    remaining: int
    nextReleaseAt: Optional[str]


class AgentSelfLimitsBudgetsItem(TypedDict):
    id: str
    name: str
    window: str
    limit: str
    available: str
    availableAt: NotRequired[str]


class AgentSelfLimits(TypedDict):
    limit: str
    spent: str
    reserved: str
    remaining: str
    nextReleaseAt: Optional[str]
    available: Optional[str]
    boundBy: Optional[Literal["pause_after_failures", "pause_at_rate", "pause_on_price_jump", "status", "expiry", "pay_times", "allowlist", "per_payment_limit", "payments_per_hour", "daily_limit", "weekly_limit", "monthly_limit", "budget", "balance", "floor", "gas"]]
    weekly: Optional[AgentSelfLimitsWeekly]
    monthly: Optional[AgentSelfLimitsMonthly]
    hourly: Optional[AgentSelfLimitsHourly]
    budgets: List[AgentSelfLimitsBudgetsItem]


class AgentSelfTasksNewestItem(TypedDict):
    id: str
    left: str
    expiresAt: Optional[str]


class AgentSelfTasks(TypedDict):
    open: int
    newest: List[AgentSelfTasksNewestItem]


class AgentSelfAllowlistItemLimits(TypedDict):
    limit: str
    spent: str
    reserved: str
    remaining: str
    nextReleaseAt: Optional[str]


class AgentSelfAllowlistItem(TypedDict):
    address: str
    label: str
    site: NotRequired[str]
    readableSite: NotRequired[Optional[str]]
    dailyLimit: NotRequired[Optional[str]]
    perPaymentLimit: NotRequired[Optional[str]]
    expiresAt: NotRequired[Optional[str]]
    channelHeld: NotRequired[Optional[str]]
    createdAt: NotRequired[str]
    limits: NotRequired[AgentSelfAllowlistItemLimits]
    denied: NotRequired[Literal[True]]


class AgentSelfKey(TypedDict):
    id: NotRequired[str]
    label: str
    prefix: str
    last4: str
    createdAt: NotRequired[str]
    expiresAt: Optional[str]


class AgentSelf(TypedDict):
    id: str
    name: str
    status: Literal["active", "paused", "expired", "archived"]
    expired: NotRequired[bool]
    wallet: str
    walletAddress: NotRequired[str]
    network: str
    asset: str
    balance: Optional[str]
    balances: NotRequired[List[AgentSelfBalancesItem]]
    limits: AgentSelfLimits
    tasks: NotRequired[AgentSelfTasks]
    perPaymentLimit: Optional[str]
    fetch: Literal["any", "sites"]
    expiresAt: Optional[str]
    channelHeld: str
    channelDelay: int
    payHours: Optional[str]
    payDays: Optional[str]
    pauseAfterFailures: Optional[int]
    pauseAtRate: Optional[int]
    pauseOnPriceJump: Optional[int]
    allowlist: List[AgentSelfAllowlistItem]
    key: AgentSelfKey


class SpendResult(TypedDict):
    success: Literal[True]
    txHash: str
    paymentId: str
    recipient: str
    amount: str
    network: str
    settledAt: str
    remaining: str
    task: NotRequired[str]
    replayed: NotRequired[Literal[True]]
    next: NotRequired[str]


class FetchResultChannel(TypedDict):
    id: str
    balance: str
    charged: str


class FetchResultReceiptEvidenceOffer(TypedDict):
    verified: bool
    why: Optional[str]
    format: Optional[Literal["eip712", "jws"]]
    signer: Optional[str]


class FetchResultReceiptEvidenceReceipt(TypedDict):
    verified: bool
    why: Optional[str]
    format: Optional[Literal["eip712", "jws"]]
    signer: Optional[str]
    issuedAt: Optional[str]
    transaction: Optional[str]


class FetchResultReceiptEvidenceThirdParty(TypedDict):
    untrusted: Literal[True]
    key: Optional[str]
    offer: NotRequired[Any]
    receipt: NotRequired[Any]


class FetchResultReceiptEvidence(TypedDict):
    verified: bool
    why: Optional[str]
    offer: Optional[FetchResultReceiptEvidenceOffer]
    receipt: Optional[FetchResultReceiptEvidenceReceipt]
    thirdParty: FetchResultReceiptEvidenceThirdParty


class FetchResultReceipt(TypedDict):
    scheme: NotRequired[str]
    amount: NotRequired[str]
    maximum: NotRequired[str]
    evidence: NotRequired[FetchResultReceiptEvidence]


class FetchResultRequirementExtra(TypedDict):
    name: str
    version: str


class FetchResultRequirement(TypedDict):
    scheme: str
    network: str
    amount: str
    asset: str
    payTo: str
    maxTimeoutSeconds: float
    extra: FetchResultRequirementExtra


class FetchResultOffersItemRefused(TypedDict):
    code: str
    detail: str
    approvable: NotRequired[Literal[True]]


class FetchResultOffersItem(TypedDict):
    offer: int
    protocol: Union[Literal["x402"], Literal["mpp"]]
    scheme: Optional[str]
    network: Optional[str]
    payTo: Optional[str]
    amount: Optional[str]
    maximum: NotRequired[Literal[True]]
    chosen: NotRequired[Literal[True]]
    refused: NotRequired[FetchResultOffersItemRefused]


class FetchResultThirdParty(TypedDict):
    untrusted: Literal[True]
    serviceName: NotRequired[Optional[str]]
    description: NotRequired[Optional[str]]
    mimeType: NotRequired[Optional[str]]
    reasons: NotRequired[List[str]]
    paymentResponse: NotRequired[Any]


class FetchResultVerdictRulesItem(TypedDict):
    rule: str
    passed: Optional[bool]
    detail: NotRequired[str]
    liftable: NotRequired[Literal[True]]
    availableAt: NotRequired[Optional[str]]


class FetchResultVerdict(TypedDict):
    allowed: bool
    code: Optional[str]
    detail: Optional[str]
    choice: NotRequired[List[str]]
    rules: List[FetchResultVerdictRulesItem]
    policy: NotRequired[Optional[Dict[str, Any]]]
    availableAt: NotRequired[Optional[str]]
    nextReleaseAt: NotRequired[Optional[str]]


class FetchResult(TypedDict):
    success: Literal[True]
    paid: bool
    amountPaid: str
    txHash: Optional[str]
    channel: NotRequired[FetchResultChannel]
    text: NotRequired[str]
    data: NotRequired[Any]
    dataBase64: NotRequired[str]
    contentEncoding: NotRequired[str]
    truncated: NotRequired[bool]
    truncatedBy: NotRequired[Union[Literal["size"], Literal["connection"], Literal["timeout"], Literal["encoding"]]]
    bytes: NotRequired[int]
    headers: NotRequired[Dict[str, str]]
    omittedHeaders: NotRequired[List[str]]
    note: NotRequired[str]
    receipt: NotRequired[FetchResultReceipt]
    task: NotRequired[str]
    budgetReturnsAt: NotRequired[str]
    cached: NotRequired[Literal[True]]
    cachedAt: NotRequired[str]
    ageSeconds: NotRequired[int]
    cachedPaymentId: NotRequired[str]
    signedIn: NotRequired[Literal[True]]
    source: NotRequired[str]
    status: int
    contentType: NotRequired[Optional[str]]
    network: NotRequired[Optional[str]]
    payTo: NotRequired[Optional[str]]
    paymentId: Optional[str]
    evidence: Optional[Union[Literal["verified"], Literal["not verified"]]]
    delivered: bool
    remaining: str
    replayed: NotRequired[Literal[True]]
    next: NotRequired[str]
    dryRun: NotRequired[Literal[True]]
    maxBytes: NotRequired[int]
    price: NotRequired[Optional[str]]
    maximum: NotRequired[Literal[True]]
    requirement: NotRequired[FetchResultRequirement]
    offers: NotRequired[List[FetchResultOffersItem]]
    thirdParty: NotRequired[FetchResultThirdParty]
    verdict: NotRequired[FetchResultVerdict]


class PaymentChannel(TypedDict):
    id: str
    ceiling: Optional[str]
    charged: Optional[str]
    voucher: NotRequired[Optional[str]]


class PaymentApiKey(TypedDict):
    id: str
    label: str
    prefix: str
    last4: str


class PaymentDenialPolicyBudget(TypedDict):
    id: str
    name: str
    usedByOthers: str


class PaymentDenialPolicy(TypedDict):
    rule: str
    window: str
    limit: str
    spent: str
    reserved: str
    remaining: str
    requested: str
    denied: NotRequired[str]
    budget: NotRequired[PaymentDenialPolicyBudget]


class PaymentDenialNeeds(TypedDict):
    channelHeld: NotRequired[str]
    channelDelay: NotRequired[int]
    payeeChannelHeld: NotRequired[str]


class PaymentDenial(TypedDict):
    code: str
    suggestion: str
    policy: PaymentDenialPolicy
    site: NotRequired[str]
    expectedPayee: NotRequired[str]
    seenPayee: NotRequired[str]
    needs: NotRequired[PaymentDenialNeeds]
    availableAt: Optional[str]
    nextReleaseAt: Optional[str]


class PaymentTraceItem(TypedDict):
    rule: str
    passed: Optional[bool]
    detail: str
    liftable: NotRequired[Literal[True]]


class PaymentX402ThirdParty(TypedDict):
    untrusted: Literal[True]
    requirement: Any


class PaymentX402EvidenceOffer(TypedDict):
    verified: bool
    why: Optional[str]
    format: Optional[Literal["eip712", "jws"]]
    signer: Optional[str]


class PaymentX402EvidenceReceipt(TypedDict):
    verified: bool
    why: Optional[str]
    format: Optional[Literal["eip712", "jws"]]
    signer: Optional[str]
    issuedAt: Optional[str]
    transaction: Optional[str]


class PaymentX402EvidenceThirdParty(TypedDict):
    untrusted: Literal[True]
    key: Optional[str]
    offer: NotRequired[Any]
    receipt: NotRequired[Any]


class PaymentX402Evidence(TypedDict):
    verified: bool
    why: Optional[str]
    offer: Optional[PaymentX402EvidenceOffer]
    receipt: Optional[PaymentX402EvidenceReceipt]
    thirdParty: PaymentX402EvidenceThirdParty


class PaymentX402(TypedDict):
    url: Optional[str]
    listingId: Optional[str]
    thirdParty: PaymentX402ThirdParty
    upstreamStatus: Optional[int]
    delivered: Optional[bool]
    evidence: Optional[PaymentX402Evidence]


class PaymentFailure(TypedDict):
    code: str
    detail: Optional[str]


class Payment(TypedDict):
    id: str
    agentId: str
    agentName: str
    kind: Literal["spend", "x402", "withdrawal", "incoming", "deposit"]
    status: Literal["blocked", "reserved", "submitted", "settled", "voided", "unknown"]
    network: str
    asset: str
    recipient: Optional[str]
    sender: Optional[str]
    amount: str
    maximum: Optional[str]
    channel: Optional[PaymentChannel]
    memo: Optional[str]
    task: Optional[str]
    createdAt: str
    updatedAt: str
    settledAt: Optional[str]
    txHash: Optional[str]
    blockNumber: Optional[str]
    final: bool
    requestId: Optional[str]
    apiKey: Optional[PaymentApiKey]
    nonce: Optional[str]
    validBefore: Optional[str]
    repeats: int
    denial: Optional[PaymentDenial]
    trace: List[PaymentTraceItem]
    x402: Optional[PaymentX402]
    failure: Optional[PaymentFailure]


class PaymentSummaryChannel(TypedDict):
    id: str
    ceiling: Optional[str]
    charged: Optional[str]
    voucher: NotRequired[Optional[str]]


class PaymentSummaryApiKey(TypedDict):
    id: str
    label: str
    prefix: str
    last4: str


class PaymentSummaryDenialPolicyBudget(TypedDict):
    id: str
    name: str
    usedByOthers: str


class PaymentSummaryDenialPolicy(TypedDict):
    rule: str
    window: str
    limit: str
    spent: str
    reserved: str
    remaining: str
    requested: str
    denied: NotRequired[str]
    budget: NotRequired[PaymentSummaryDenialPolicyBudget]


class PaymentSummaryDenialNeeds(TypedDict):
    channelHeld: NotRequired[str]
    channelDelay: NotRequired[int]
    payeeChannelHeld: NotRequired[str]


class PaymentSummaryDenial(TypedDict):
    code: str
    suggestion: str
    policy: PaymentSummaryDenialPolicy
    site: NotRequired[str]
    expectedPayee: NotRequired[str]
    seenPayee: NotRequired[str]
    needs: NotRequired[PaymentSummaryDenialNeeds]
    availableAt: Optional[str]
    nextReleaseAt: Optional[str]


class PaymentSummaryTraceItem(TypedDict):
    rule: str
    passed: Optional[bool]
    detail: str
    liftable: NotRequired[Literal[True]]


class PaymentSummaryX402ThirdParty(TypedDict):
    untrusted: Literal[True]
    requirement: Any


class PaymentSummaryX402EvidenceOffer(TypedDict):
    verified: bool
    why: Optional[str]
    format: Optional[Literal["eip712", "jws"]]
    signer: Optional[str]


class PaymentSummaryX402EvidenceReceipt(TypedDict):
    verified: bool
    why: Optional[str]
    format: Optional[Literal["eip712", "jws"]]
    signer: Optional[str]
    issuedAt: Optional[str]
    transaction: Optional[str]


class PaymentSummaryX402EvidenceThirdParty(TypedDict):
    untrusted: Literal[True]
    key: Optional[str]
    offer: NotRequired[Any]
    receipt: NotRequired[Any]


class PaymentSummaryX402Evidence(TypedDict):
    verified: bool
    why: Optional[str]
    offer: Optional[PaymentSummaryX402EvidenceOffer]
    receipt: Optional[PaymentSummaryX402EvidenceReceipt]
    thirdParty: PaymentSummaryX402EvidenceThirdParty


class PaymentSummaryX402(TypedDict):
    url: Optional[str]
    delivered: Optional[bool]
    upstreamStatus: Optional[int]
    listingId: NotRequired[Optional[str]]
    thirdParty: NotRequired[PaymentSummaryX402ThirdParty]
    evidence: NotRequired[Optional[PaymentSummaryX402Evidence]]


class PaymentSummaryFailure(TypedDict):
    code: str
    detail: Optional[str]


class PaymentSummary(TypedDict):
    id: str
    agentId: NotRequired[str]
    agentName: NotRequired[str]
    kind: Literal["spend", "x402", "withdrawal", "incoming", "deposit"]
    status: Literal["blocked", "reserved", "submitted", "settled", "voided", "unknown"]
    network: str
    asset: str
    recipient: Optional[str]
    sender: NotRequired[Optional[str]]
    amount: str
    maximum: NotRequired[Optional[str]]
    channel: NotRequired[Optional[PaymentSummaryChannel]]
    memo: NotRequired[Optional[str]]
    task: NotRequired[Optional[str]]
    createdAt: str
    updatedAt: NotRequired[str]
    settledAt: Optional[str]
    txHash: Optional[str]
    blockNumber: NotRequired[Optional[str]]
    final: NotRequired[bool]
    requestId: NotRequired[Optional[str]]
    apiKey: NotRequired[Optional[PaymentSummaryApiKey]]
    nonce: NotRequired[Optional[str]]
    validBefore: NotRequired[Optional[str]]
    repeats: NotRequired[int]
    denial: NotRequired[Optional[PaymentSummaryDenial]]
    trace: NotRequired[List[PaymentSummaryTraceItem]]
    x402: NotRequired[Optional[PaymentSummaryX402]]
    failure: NotRequired[Optional[PaymentSummaryFailure]]


class ListingSource(TypedDict):
    catalogue: str


class ListingThirdParty(TypedDict):
    untrusted: Literal[True]
    name: str
    description: str
    category: str
    sample: Optional[str]
    mimeType: Optional[str]
    tags: List[str]


class Listing(TypedDict):
    id: str
    mine: bool
    source: Union[Literal["owner"], Literal["bazaar"], Literal["built-in"], Literal["well-known"], Literal["cell"], ListingSource]
    cell: NotRequired[str]
    url: str
    host: str
    method: Union[Literal["GET"], Literal["POST"], Literal["PUT"], Literal["PATCH"], Literal["DELETE"]]
    network: str
    asset: str
    payTo: str
    price: str
    maximum: NotRequired[Literal[True]]
    maxPrice: str
    status: Union[Literal["active"], Literal["failing"], Literal["paused"]]
    flag: Optional[str]
    statusReason: Optional[str]
    thirdParty: ListingThirdParty
    x402Version: int
    uses: int
    payers: int
    similarTo: Optional[str]
    lastProbedAt: Optional[str]
    createdAt: str
    updatedAt: str


class ListingSummarySource(TypedDict):
    catalogue: str


class ListingSummaryThirdParty(TypedDict):
    untrusted: Literal[True]
    name: str
    description: str
    category: str
    sample: NotRequired[Optional[str]]
    mimeType: NotRequired[Optional[str]]
    tags: NotRequired[List[str]]


class ListingSummary(TypedDict):
    id: str
    mine: NotRequired[bool]
    source: NotRequired[Union[Literal["owner"], Literal["bazaar"], Literal["built-in"], Literal["well-known"], Literal["cell"], ListingSummarySource]]
    cell: NotRequired[str]
    url: str
    host: NotRequired[str]
    method: Union[Literal["GET"], Literal["POST"], Literal["PUT"], Literal["PATCH"], Literal["DELETE"]]
    network: str
    asset: NotRequired[str]
    payTo: NotRequired[str]
    price: str
    maximum: NotRequired[Literal[True]]
    maxPrice: NotRequired[str]
    status: NotRequired[Union[Literal["active"], Literal["failing"], Literal["paused"]]]
    flag: NotRequired[Optional[str]]
    statusReason: NotRequired[Optional[str]]
    thirdParty: ListingSummaryThirdParty
    x402Version: NotRequired[int]
    uses: int
    payers: NotRequired[int]
    similarTo: NotRequired[Optional[str]]
    lastProbedAt: NotRequired[Optional[str]]
    createdAt: NotRequired[str]
    updatedAt: NotRequired[str]


class ApprovalDenial(TypedDict):
    code: str
    rule: str
    detail: str
    policy: Dict[str, str]


class Approval(TypedDict):
    approvalId: str
    expiresAt: str
    payee: str
    amount: str
    network: str
    site: Optional[str]
    reason: Optional[str]
    denial: ApprovalDenial
    idempotencyKey: str
    waitUrl: str
    next: str
    status: Union[Literal["open"], Literal["granted"], Literal["declined"], Literal["expired"], Literal["used"]]
    paymentId: Optional[str]


class ApprovalRequiredDenial(TypedDict):
    code: str
    rule: str
    detail: str
    policy: Dict[str, str]


class ApprovalRequired(TypedDict):
    success: Literal[False]
    status: Literal["approval_required"]
    state: Union[Literal["open"], Literal["granted"]]
    paid: Literal[False]
    approvalId: str
    expiresAt: str
    payee: str
    amount: str
    network: str
    site: Optional[str]
    reason: Optional[str]
    denial: ApprovalRequiredDenial
    idempotencyKey: str
    waitUrl: str
    next: str


class Task(TypedDict):
    id: str
    name: Optional[str]
    state: Literal["open", "ended", "closed"]
    limit: str
    spent: str
    reserved: str
    left: str
    payments: int
    expiresAt: Optional[str]
    closedAt: Optional[str]
    createdAt: str


class ValidationFindingsItemThirdParty(TypedDict):
    untrusted: Literal[True]
    found: str


class ValidationFindingsItem(TypedDict):
    code: str
    severity: Union[Literal["error"], Literal["warning"], Literal["note"]]
    message: str
    where: str
    fix: Optional[str]
    offer: Optional[int]
    thirdParty: NotRequired[ValidationFindingsItemThirdParty]


class ValidationOffersItemSimulation(TypedDict):
    result: Union[Literal["holds"], Literal["refused"], Literal["not_run"]]
    why: str


class ValidationOffersItemThirdParty(TypedDict):
    untrusted: Literal[True]
    scheme: str
    network: str
    asset: str
    amount: str


class ValidationOffersItem(TypedDict):
    offer: int
    where: str
    protocol: Union[Literal["x402"], Literal["mpp"]]
    x402Version: Optional[int]
    network: Optional[str]
    networkName: Optional[str]
    asset: Optional[str]
    payTo: Optional[str]
    price: Optional[str]
    maximum: NotRequired[Literal[True]]
    simulation: ValidationOffersItemSimulation
    thirdParty: ValidationOffersItemThirdParty


class ValidationClientsItem(TypedDict):
    client: Union[Literal["purser"], Literal["x402-2"], Literal["x402-1"], Literal["mpp"]]
    name: str
    outcome: Union[Literal["pays"], Literal["refuses"], Literal["fails"], Literal["unknown"]]
    offer: Optional[int]
    why: str


class ValidationListed(TypedDict):
    wouldBe: bool
    byPayment: bool
    why: str
    listingId: Optional[str]


class ValidationWellKnown(TypedDict):
    outcome: Union[Literal["found"], Literal["broken"], Literal["missing"]]
    resources: int


class ValidationThirdParty(TypedDict):
    untrusted: Literal[True]
    serviceName: Optional[str]
    description: Optional[str]
    mimeType: Optional[str]


class Validation(TypedDict):
    url: str
    method: Union[Literal["GET"], Literal["POST"]]
    ok: bool
    status: Optional[int]
    findings: List[ValidationFindingsItem]
    offers: List[ValidationOffersItem]
    clients: List[ValidationClientsItem]
    listed: ValidationListed
    wellKnown: Optional[ValidationWellKnown]
    thirdParty: ValidationThirdParty
    checkedAt: str


class PaymentPage(TypedDict):
    items: List[PaymentSummary]
    nextCursor: Optional[str]


class TaskPage(TypedDict):
    items: List[Task]
    nextCursor: Optional[str]


class ListingPage(TypedDict):
    items: List[ListingSummary]
    nextCursor: Optional[str]
