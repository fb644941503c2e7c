/**
 * Trace spans of a lane's transaction. The transaction of a single payment belongs to that payment's trace. A
 * batch has its own trace, linked to those of its payments; each of those has a span with the result that links
 * back.
 * The lane may run in another process than the request, so the trace ids are stored in the rows.
 */
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import { openSpan, recordSpan, type OpenSpan } from "../../infra/tracing.ts";
import type { BatchItem } from "./batch.ts";
import type { EngineContext } from "./context.ts";
import type { CarriedItem } from "./lane-store.ts";
import type { ProvenOutcome, SettlementRecord } from "./types.ts";

type Carried = Pick<CarriedItem, "from" | "asset" | "nonce" | "traceparent">;

const TRANSACTION = "settlement.transaction";

export class TransactionTrace {
  readonly #span: OpenSpan;
  /** One span in each payment's own trace, when several share the transaction. */
  readonly #payments: ReadonlyMap<string, OpenSpan>;
  #sentMs = Date.now();

  private constructor(span: OpenSpan, payments: ReadonlyMap<string, OpenSpan>) {
    this.#span = span;
    this.#payments = payments;
  }

  /** Undefined when none of the requests was traced. */
  static begin(
    ctx: Pick<EngineContext, "network">,
    lane: string,
    items: readonly Carried[],
    startMs = Date.now(),
  ): TransactionTrace | undefined {
    const links = items.flatMap(({ traceparent }) => traceparent ?? []);
    const [first] = links;
    if (first === undefined) return undefined;
    const attributes = {
      "purser.network": ctx.network.id,
      "purser.lane": lane,
      "purser.payments": items.length,
    };
    const isAlone = items.length === 1;
    const span = openSpan(TRANSACTION, {
      parent: isAlone ? first : null,
      links: isAlone ? [] : links,
      attributes,
      startMs,
    });
    if (!span) return undefined;
    const payments = new Map<string, OpenSpan>();
    for (const item of isAlone ? [] : items) {
      const { traceparent: parent } = item;
      if (typeof parent !== "string") continue;
      const own = openSpan(TRANSACTION, { parent, links: [span.traceparent], attributes, startMs });
      if (own) payments.set(nameOf(item), own);
    }
    return new TransactionTrace(span, payments);
  }

  /**
   * For a claimed batch that is about to be sent: records how long each payment was queued, and the preflight
   * simulation.
   */
  static ofBatch(
    ctx: Pick<EngineContext, "network">,
    lane: string,
    items: readonly BatchItem[],
    takenMs: number,
  ): TransactionTrace | undefined {
    for (const { traceparent: parent, record } of items)
      if (typeof parent === "string")
        recordSpan("settlement.queue", {
          parent,
          attributes: { "purser.payment_id": record.id },
          startMs: Math.min(record.createdAt.getTime(), takenMs),
          endMs: takenMs,
        });
    const trace = TransactionTrace.begin(ctx, lane, items, takenMs);
    if (trace)
      recordSpan("settlement.simulate", { parent: trace.#span.traceparent, startMs: takenMs });
    return trace;
  }

  within<T>(name: string, work: () => Promise<T>): Promise<T> {
    return this.#span.within(name, work);
  }

  sent(): void {
    this.#sentMs = Date.now();
  }

  /** Records the time from the node's response until a block contained the transaction. */
  mined(receipt: RpcReceipt): void {
    recordSpan("settlement.block", {
      parent: this.#span.traceparent,
      attributes: placeOf(receipt),
      startMs: this.#sentMs,
    });
  }

  end(receipt: RpcReceipt | undefined, outcomes: readonly ProvenOutcome[] = []): void {
    const place = receipt ? placeOf(receipt) : { "purser.outcome": "unknown" };
    const isAlone = this.#payments.size === 0;
    this.#span.end({
      ...place,
      ...(isAlone && { "purser.outcome": outcomes[0]?.status ?? "unknown" }),
    });
    const proven = new Map(outcomes.map((outcome) => [nameOf(outcome), outcome.status]));
    for (const [name, span] of this.#payments)
      span.end({ ...place, "purser.outcome": proven.get(name) ?? "unknown" });
  }
}

const nameOf = ({ from, asset, nonce }: { from: string; asset: string; nonce: string }): string =>
  `${from} ${asset} ${nonce}`.toLowerCase();

const placeOf = (receipt: RpcReceipt) => ({
  "purser.transaction": receipt.transactionHash,
  "purser.block": Number(receipt.blockNumber),
});

/** Records an outcome that was found on chain, whoever caused it. */
export function traceProven({ traceparent }: SettlementRecord, outcome: ProvenOutcome): void {
  if (traceparent === null) return;
  const { status, proof } = outcome;
  recordSpan("settlement.proven", {
    parent: traceparent,
    attributes: {
      "purser.outcome": status,
      ...(proof && { "purser.block": Number(proof.block) }),
      ...(proof?.kind === "receipt" && { "purser.transaction": proof.tx }),
    },
  });
}
