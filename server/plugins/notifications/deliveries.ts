/**
 * Sends webhook deliveries: many concurrently, because each may take fifteen seconds, in three lanes with separate
 * capacity: targets that respond, new ones, and those that failed last. Owners take turns in each lane.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Timings } from "../../core/timings.ts";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";
import { OutboundError } from "../../infra/outbound/guard.ts";
import type { Claimed, ClaimedBatch, ClaimRequest, Targets } from "./deliveries-store.ts";
import { bodyOf, headersOf, readAnswer, type Outcome } from "./message.ts";

interface DeliveryDeps {
  timings: Pick<Timings, "webhookTimeoutMs" | "webhookRefillMs">;
  claim(request: ClaimRequest): Promise<ClaimedBatch>;
  finish(claimed: Claimed, outcome: Outcome): Promise<"delivered" | "failed" | "given_up">;
  send(request: OutboundRequest): Promise<OutboundResponse>;
  openSecret(webhookId: string, sealed: Uint8Array): Promise<string>;
  now(): Date;
  /** A fault of our own: the claim expires, and the delivery is tried again. */
  trouble(error: unknown, claimed: Claimed | undefined): void;
  counted(outcome: string): void;
}

const MAX_ANSWER_BYTES = 1_024;
/** After this the queue starts a new round, perhaps on another replica. */
const ROUND_MS = 10 * 60_000;

interface Lane {
  targets: Targets;
  places: number;
  /** The most concurrent deliveries to one webhook, and to all webhooks of one owner. */
  perWebhook: number;
  perOwner: number;
}
export const LANES: readonly Lane[] = [
  { targets: "trusted", places: 40, perWebhook: 4, perOwner: 12 },
  { targets: "new", places: 12, perWebhook: 1, perOwner: 2 },
  { targets: "failing", places: 12, perWebhook: 1, perOwner: 2 },
];

interface OpenLane extends Lane {
  /** The owner served last. */
  afterOwner: string;
  /** How often the last owner was reached since the last claim: after two times, all were visited. */
  ends: number;
  running: Map<Promise<void>, Claimed>;
}

export class Deliveries {
  readonly #deps: DeliveryDeps;
  readonly #lanes = LANES.map((lane): OpenLane => ({
    ...lane,
    afterOwner: "",
    ends: 0,
    running: new Map(),
  }));
  #draining: Promise<void> | undefined;
  #isStopping = false;

  constructor(deps: DeliveryDeps) {
    this.#deps = deps;
  }

  get isDraining(): boolean {
    return this.#draining !== undefined;
  }

  /** Delivers until nothing is due. Concurrent calls share one run. */
  drain(): Promise<void> {
    this.#draining ??= this.#drain().finally(() => (this.#draining = undefined));
    return this.#draining;
  }

  /** Finishes deliveries in progress and starts no more. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.#draining?.catch(() => undefined);
  }

  async #drain(): Promise<void> {
    for (const lane of this.#lanes) lane.ends = 0;
    const endMs = performance.now() + ROUND_MS;
    try {
      while (!this.#isStopping && performance.now() < endMs) {
        // A delivery that ended meanwhile may have made room, so "nothing due" only counts if none was running.
        const wasIdle = this.#running().length === 0;
        const claimed = await Promise.all(this.#lanes.map((lane) => this.#fill(lane)));
        if (claimed.includes(true)) continue;
        if (wasIdle) return;
        await Promise.race([...this.#running(), delay(this.#deps.timings.webhookRefillMs)]);
      }
    } finally {
      await Promise.all(this.#running());
    }
  }

  #running(): Promise<void>[] {
    return this.#lanes.flatMap(({ running }) => [...running.keys()]);
  }

  /** Returns whether there may be more due now. */
  async #fill(lane: OpenLane): Promise<boolean> {
    const free = lane.places - lane.running.size;
    if (free <= 0) return false;
    const busy = [...lane.running.values()];
    const { afterOwner, targets, perWebhook, perOwner } = lane;
    const batch = await this.#deps.claim({
      afterOwner,
      targets,
      limit: free,
      perWebhook,
      perOwner,
      busyWebhooks: busy.map(({ webhookId }) => webhookId),
      busyOwners: busy.map(({ ownerId }) => ownerId),
    });
    for (const claimed of batch.claimed) {
      const work: Promise<void> = this.#deliver(claimed)
        .catch((error: unknown) => this.#deps.trouble(error, claimed))
        .finally(() => lane.running.delete(work));
      lane.running.set(work, claimed);
    }
    lane.afterOwner = batch.nextAfter;
    if (batch.claimed.length > 0) lane.ends = 0;
    else if (batch.nextAfter === "") lane.ends += afterOwner === "" ? 2 : 1;
    return lane.ends < 2;
  }

  async #deliver(claimed: Claimed): Promise<void> {
    const outcome = await this.#attempt(claimed);
    this.#deps.counted(await this.#deps.finish(claimed, outcome));
  }

  async #attempt(claimed: Claimed): Promise<Outcome> {
    const { webhookId, event, url } = claimed;
    let secrets: string[];
    try {
      secrets = await Promise.all(
        claimed.secrets.map((sealed) => this.#deps.openSecret(webhookId, sealed)),
      );
    } catch (error) {
      this.#deps.trouble(error, claimed);
      const reason = "This webhook's secret cannot be decrypted right now; create a new secret";
      return { kind: "failed", status: null, error: reason, isGone: false };
    }
    const body = bodyOf(event);
    return this.#post(url, headersOf(event.id, body, { secrets, at: this.#deps.now() }), body);
  }

  async #post(url: string, headers: Record<string, string>, body: string): Promise<Outcome> {
    try {
      const { status } = await this.#deps.send({
        url,
        method: "POST",
        headers,
        body,
        timeoutMs: this.#deps.timings.webhookTimeoutMs,
        maxBytes: MAX_ANSWER_BYTES,
        isPartialWanted: true,
      });
      return readAnswer(status);
    } catch (error) {
      if (!(error instanceof OutboundError)) throw error;
      return { kind: "failed", status: null, error: error.message, isGone: false };
    }
  }
}
