/** Ledger rows as the API returns them: the decision explained, and amounts as decimal strings. */
import { getAddress } from "viem";
import { formatAtomic } from "../../core/money.ts";
import { type PageOf, type PageRequest, readPage, toPage } from "../../core/paging.ts";
import { ApiError, ERRORS, type ErrorCode } from "../../errors.ts";
import type { Payment, PaymentFilters } from "../../schemas/payments.ts";
import type { OwnerPaymentFilters } from "../../schemas/spending.ts";
import { evaluate, policyOf } from "../guardrails/decide.ts";
import { channelNeeds, readFacts, siteChange } from "../guardrails/rules.ts";
import { presentEvidence } from "./evidence.ts";
import type { PaymentFilter, PaymentRow } from "./store.ts";

function presentPayment(row: PaymentRow, networkOf: (chainId: number) => string): Payment {
  const counterparty = row.counterparty === null ? null : getAddress(row.counterparty);
  const wallet = getAddress(row.walletAddress);
  const isIncoming = row.kind === "incoming";
  return {
    id: row.id,
    agentId: row.agentId,
    agentName: row.agentName,
    kind: row.kind,
    status: row.status,
    network: networkOf(Number(row.chainId)),
    asset: getAddress(row.asset),
    recipient: isIncoming ? wallet : counterparty,
    sender: isIncoming ? counterparty : wallet,
    amount: formatAtomic(row.amountAtomic),
    maximum: row.maximumAtomic === null ? null : formatAtomic(row.maximumAtomic),
    channel:
      row.channelId === null
        ? null
        : {
            id: row.channelId,
            ceiling: row.ceilingAtomic === null ? null : formatAtomic(row.ceilingAtomic),
            charged: row.chargedAtomic === null ? null : formatAtomic(row.chargedAtomic),
          },
    memo: row.memo,
    task: row.taskId,
    createdAt: row.createdAt.toISOString(),
    updatedAt: row.updatedAt.toISOString(),
    settledAt: row.settledAt?.toISOString() ?? null,
    txHash: row.txHash,
    blockNumber: row.blockNumber === null ? null : String(row.blockNumber),
    // Incoming payments are read only from final blocks.
    final: row.status === "settled" && (row.finalAt !== null || row.kind === "incoming"),
    requestId: row.requestId,
    apiKey: row.apiKey,
    nonce: row.nonce,
    validBefore:
      row.validBefore === null ? null : new Date(Number(row.validBefore) * 1000).toISOString(),
    repeats: row.repeats,
    ...decision(row),
    x402:
      row.kind === "x402"
        ? {
            url: row.url,
            listingId: row.listingId,
            thirdParty: { untrusted: true, requirement: acceptedTerms(row.requirement) },
            upstreamStatus: row.upstreamStatus,
            delivered: row.delivered,
            evidence: presentEvidence(row.evidence),
          }
        : null,
    failure: row.failureCode === null ? null : { code: row.failureCode, detail: row.failureDetail },
  };
}

/**
 * The seller's payment requirement. Some rows store it as `accepted`, with what is needed to present the proof
 * again.
 */
const acceptedTerms = (stored: unknown): unknown =>
  typeof stored === "object" && stored !== null && "accepted" in stored ? stored.accepted : stored;

function decision(row: PaymentRow): Pick<Payment, "denial" | "trace"> {
  // A code that is missing here is of a newer release's rule, which this release cannot explain.
  const isUnknown = row.denialCode !== null && !Object.hasOwn(ERRORS, row.denialCode);
  if (row.policy === null || isUnknown) return { denial: null, trace: [] };
  const snapshot = readFacts(row.policy);
  const evaluation = evaluate(snapshot);
  if (evaluation.allowed || row.denialCode === null)
    return { denial: null, trace: evaluation.trace };
  const time = (text: string | null | undefined): string | null =>
    text === null || text === undefined ? null : new Date(text).toISOString();
  return {
    trace: evaluation.trace,
    denial: {
      code: row.denialCode,
      suggestion: ERRORS[row.denialCode as ErrorCode].help,
      policy: policyOf(snapshot, evaluation.rule),
      ...siteChange(snapshot),
      ...(evaluation.rule === "channels" && { needs: channelNeeds(snapshot) }),
      availableAt: time(row.policy.availableAt ?? snapshot.opensAt),
      nextReleaseAt: time(row.policy.nextReleaseAt),
    },
  };
}

/** Reads an agent's payments: in pages, a single one, or all as CSV. */

interface HistoryDeps {
  list(filter: PaymentFilter): Promise<PaymentRow[]>;
  find(key: { agentId: string; paymentId: string }): Promise<PaymentRow | undefined>;
  search(ownerId: string, query: OwnerPaymentFilters): Promise<PaymentRow[]>;
  networkOf(chainId: number): string;
}

const CSV_CHUNK = 500;

export class PaymentHistory {
  readonly #deps: HistoryDeps;

  constructor(deps: HistoryDeps) {
    this.#deps = deps;
  }

  async page(agentId: string, query: PaymentFilters): Promise<PageOf<Payment>> {
    const filter = readPaymentFilters(query);
    const rows = await this.#deps.list({ agentId, ...filter });
    return toPage(rows, filter.page.limit, (row) => this.present(row));
  }

  /** Across the agents of an owner. */
  async search(ownerId: string, query: OwnerPaymentFilters): Promise<PageOf<Payment>> {
    const rows = await this.#deps.search(ownerId, query);
    return toPage(rows, readPage(query).limit, (row) => this.present(row));
  }

  async one(agentId: string, paymentId: string): Promise<Payment> {
    const row = await this.#deps.find({ agentId, paymentId });
    if (!row)
      throw new ApiError("not_found", { detail: "This agent has no payment with this id." });
    const payment = this.present(row);
    const voucher = row.voucher && `0x${Buffer.from(row.voucher).toString("hex")}`;
    return payment.channel ? { ...payment, channel: { ...payment.channel, voucher } } : payment;
  }

  /** All matching payments, newest first, read in chunks, so an export of any size needs little memory. */
  async *csv(agentId: string, query: PaymentFilters): AsyncGenerator<string> {
    const filter = readPaymentFilters(query);
    yield CSV_HEADER;
    let { after } = filter.page;
    for (;;) {
      const page = { limit: CSV_CHUNK, after };
      const rows = await this.#deps.list({ agentId, ...filter, page });
      const shown = rows.slice(0, CSV_CHUNK);
      yield shown.map((row) => csvLine(this.present(row))).join("");
      if (rows.length <= CSV_CHUNK) return;
      after = shown.at(-1);
    }
  }

  present(row: PaymentRow): Payment {
    return presentPayment(row, (chainId) => this.#deps.networkOf(chainId));
  }
}

interface PaymentQuery {
  statuses?: readonly string[];
  kinds?: readonly string[];
  task?: string;
  from?: Date;
  to?: Date;
  page: PageRequest;
}

function readPaymentFilters(query: PaymentFilters): PaymentQuery {
  return {
    statuses: query.status?.split(","),
    kinds: query.kind?.split(","),
    task: query.task,
    from: readTime(query.from, "query.from"),
    to: readTime(query.to, "query.to"),
    page: readPage(query),
  };
}

const RFC3339 = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2}))?$/;

/** A date without a time is its first moment in UTC. */
export function readTime(text: string | undefined, path: string): Date | undefined {
  if (text === undefined) return undefined;
  const time = RFC3339.test(text) ? new Date(text) : undefined;
  if (time && !Number.isNaN(time.getTime())) return time;
  const message = "must be a time such as 2026-05-01T12:00:00Z or a date";
  throw new ApiError("validation_failed", {
    detail: `${path} ${message}`,
    extra: { errors: [{ path, message }] },
  });
}

/** Payments as CSV (RFC 4180), protected against formula injection in spreadsheets. */

const COLUMNS: readonly [string, (payment: Payment) => string | null | undefined][] = [
  ["createdAt", (payment) => payment.createdAt],
  ["id", (payment) => payment.id],
  ["agentId", (payment) => payment.agentId],
  ["agent", (payment) => payment.agentName],
  ["kind", (payment) => payment.kind],
  ["status", (payment) => payment.status],
  ["amount", (payment) => payment.amount],
  ["network", (payment) => payment.network],
  ["asset", (payment) => payment.asset],
  ["sender", (payment) => payment.sender],
  ["recipient", (payment) => payment.recipient],
  ["memo", (payment) => payment.memo],
  ["url", (payment) => payment.x402?.url],
  ["txHash", (payment) => payment.txHash],
  ["settledAt", (payment) => payment.settledAt],
  ["final", (payment) => String(payment.final)],
  ["denial", (payment) => payment.denial?.code],
  ["repeats", (payment) => String(payment.repeats)],
  ["failure", (payment) => payment.failure?.code],
  ["apiKey", (payment) => payment.apiKey?.label],
  ["requestId", (payment) => payment.requestId],
  ["maximum", (payment) => payment.maximum],
  ["evidence", (payment) => evidenceState(payment)],
  ["evidenceWhy", (payment) => payment.x402?.evidence?.why],
  ["receiptSigner", (payment) => payment.x402?.evidence?.receipt?.signer],
  ["channel", (payment) => payment.channel?.id],
  ["ceiling", (payment) => payment.channel?.ceiling],
  ["charged", (payment) => payment.channel?.charged],
  ["task", (payment) => payment.task],
];

const evidenceState = ({ x402 }: Payment): string | undefined =>
  x402?.evidence ? (x402.evidence.verified ? "verified" : "not verified") : undefined;

const CSV_HEADER = `${COLUMNS.map(([name]) => name).join(",")}\r\n`;

function csvLine(payment: Payment): string {
  return `${COLUMNS.map(([, read]) => csvCell(read(payment) ?? "")).join(",")}\r\n`;
}

/** Characters that spreadsheets take for the start of a formula; a leading apostrophe makes the cell text. */
const FORMULA_START = /^[\s\p{Cf}]*[=+\-@|%\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/u;

export function csvCell(text: string): string {
  const safe = FORMULA_START.test(text) ? `'${text}` : text;
  return /[",\r\n\t;]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
