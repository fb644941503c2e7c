/**
 * The spans of a lane's transaction. A single payment's transaction is a part of that payment's trace. A batch has a
 * trace of its own, linked with those of the payments it carries; in each of theirs a span with its end links back.
 * The lane may run in another process than the request: the trace ids come with the rows.
 */
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import { openSpan, recordSpan, type OpenSpan } from "../../infra/tracing.ts";
import type { BatchItem } from "./batch.ts";
import type { EngineContext } from "./context.ts";
import type { CarriedItem } from "./lane-store.ts";
import type { ProvenOutcome, SettlementRecord } from "./store.ts";

type Carried = Pick<CarriedItem, "from" | "asset" | "nonce" | "traceparent">;

const TRANSACTION = "settlement.transaction";

export class TransactionTrace {
  readonly #span: OpenSpan;
  /** In each payment's own trace, where several share the transaction. */
  readonly #payments: ReadonlyMap<string, OpenSpan>;
  #sentMs = Date.now();

  private constructor(span: OpenSpan, payments: ReadonlyMap<string, OpenSpan>) {
    this.#span = span;
    this.#payments = payments;
  }

  /** Undefined when none of these requests was traced. */
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

  /** What was claimed, and is about to be sent: how long each waited, and that what can go was found out. */
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
          startMs: Math.min(record.created_at.getTime(), takenMs),
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

  /** From the node's answer to a block that holds it. */
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

/** An outcome that was found on the chain, whoever caused it. */
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
