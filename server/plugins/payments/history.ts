/** A ledger row as everybody reads it: the decision explained, the numbers as decimal strings. */
import { getAddress } from "viem";
import { formatAtomic } from "../../core/money.ts";
import { type PageOf, toPage } from "../../core/paging.ts";
import { ApiError, ERRORS, type ErrorCode } from "../../errors.ts";
import type { Payment, PaymentFilters } from "../../schemas/payments.ts";
import { evaluate, policyOf } from "../guardrails/explain.ts";
import { readSnapshot } from "../guardrails/reservations.ts";
import { CSV_HEADER, csvLine } from "./csv.ts";
import { readPaymentFilters } from "./filters.ts";
import type { PaymentFilter, PaymentRow } from "./store.ts";

export function presentPayment(row: PaymentRow, networkOf: (chainId: number) => string): Payment {
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
    memo: row.memo,
    createdAt: row.createdAt.toISOString(),
    updatedAt: row.updatedAt.toISOString(),
    settledAt: row.settledAt?.toISOString() ?? null,
    txHash: row.txHash,
    blockNumber: row.blockNumber === null ? null : String(row.blockNumber),
    requestId: row.requestId,
    apiKey: row.apiKey,
    nonce: row.nonce,
    validBefore:
      row.validBefore === null ? null : new Date(Number(row.validBefore) * 1000).toISOString(),
    ...decision(row),
    x402:
      row.kind === "x402"
        ? {
            url: row.url,
            listingId: row.listingId,
            requirement: acceptedTerms(row.requirement),
            upstreamStatus: row.upstreamStatus,
            delivered: row.delivered,
          }
        : null,
    failure: row.failureCode === null ? null : { code: row.failureCode, detail: row.failureDetail },
  };
}

/** Stored with what a second showing of the proof needs; read, it is the seller's entry as received. */
const acceptedTerms = (stored: unknown): unknown =>
  typeof stored === "object" && stored !== null && "accepted" in stored ? stored.accepted : stored;

function decision(row: PaymentRow): Pick<Payment, "denial" | "trace"> {
  if (row.policy === null) return { denial: null, trace: [] };
  const snapshot = readSnapshot(row.policy);
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
      availableAt: time(row.policy.availableAt),
      nextReleaseAt: time(row.policy.nextReleaseAt),
    },
  };
}

/** Reading an agent's payments: pages, one, or all of them as CSV. */

export interface HistoryDeps {
  list(filter: PaymentFilter): Promise<PaymentRow[]>;
  find(key: { agentId: string; paymentId: string }): Promise<PaymentRow | undefined>;
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

  async one(agentId: string, paymentId: string): Promise<Payment> {
    const row = await this.#deps.find({ agentId, paymentId });
    if (!row)
      throw new ApiError("not_found", { detail: "There is no such payment of this agent." });
    return this.present(row);
  }

  /** All that match, newest first, read in chunks: an export of any size takes little memory. */
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
