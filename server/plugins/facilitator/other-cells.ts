/** Payments that another cell decides about: they are verified and settled there, and answered here. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyBaseLogger } from "fastify";
import { Type, type Static } from "typebox";
import type { Hex } from "viem";
import { ApiError } from "../../errors.ts";
import { addressBucket } from "../../core/client-address.ts";
import { Id, Nullable } from "../../schemas/common.ts";
import { SettleAnswer, SettlementState, VerifyAnswer } from "../../schemas/facilitator.ts";
import { assertForwarded, type Cell } from "../../core/cells.ts";
import { networkNameOf, REASONS, type CheckContext } from "../../schemes/scheme.ts";
import { CellUnreachable, type Cells } from "../cells/index.ts";
import { callerOf, notSettled, type OwnScheme, type SettleOptions } from "./settle.ts";
import type { Outcomes } from "./stats.ts";
import type { PaymentChecker } from "./verify.ts";

const VERIFY = "/api/cells/verify";
const SETTLE = "/api/cells/settle";
const PAYMENT = "/api/cells/payment";
/** As core/ids.ts makes them; others are in no cell. */
const PAYMENT_ID = /^[a-z]{3}_[0-9a-hjkmnp-tv-z]{26}$/;
const VERIFY_MS = 5_000;
/** Longer than the other cell waits for its block. */
const SETTLE_MORE_MS = 5_000;

interface OtherCellsDeps {
  cells: Cells;
  checker: Pick<PaymentChecker, "read">;
  ownSchemes: readonly OwnScheme[];
  waitMs: number;
  outcomes: Pick<Outcomes, "reportRefusal">;
  /** Throws `rate_limited`. */
  countFor(limit: "cells", who: string): void | Promise<void>;
  log: Pick<FastifyBaseLogger, "warn" | "error">;
}

export class OtherCells {
  readonly #deps: OtherCellsDeps;

  constructor(deps: OtherCellsDeps) {
    this.#deps = deps;
  }

  /**
   * By what would be settled, read as a settle reads it: other members of the body cannot send one payment to two cells.
   * Undefined: this cell decides, or says what is wrong. What a channel owes is decided by its contract and its
   * receiver, not by a database of ours.
   */
  async #cellOf(body: unknown, purpose: CheckContext["purpose"]): Promise<Cell | undefined> {
    const { cells, checker, ownSchemes } = this.#deps;
    if (ownSchemes.some((scheme) => scheme.handles(body))) return undefined;
    const read = checker.read(body, purpose);
    if (!read.isValid) return undefined;
    const { authorization, scheme, signature } = read.payment;
    const plan = scheme.planTransfer({ ...authorization, signature: signature as Hex });
    return cells.otherCellOf(authorization, plan.sender);
  }

  /** Undefined: this cell answers. */
  async verify(
    body: unknown,
    { isBilled }: Pick<SettleOptions, "isBilled">,
  ): Promise<VerifyAnswer | undefined> {
    const { cells, outcomes, log } = this.#deps;
    const cell = await this.#cellOf(body, "verify");
    if (!cell) return undefined;
    try {
      const answer = await cells.ask<VerifyAnswer>(cell, VERIFY, { body, isBilled }, VERIFY_MS);
      // The cell where it was posted counts it, and no other one.
      if (!answer.isValid)
        outcomes.reportRefusal("verify", body, answer.invalidReason ?? "unknown");
      return answer;
    } catch (error) {
      if (error instanceof ApiError) throw error;
      log.warn({ err: error, cell: cell.id }, "another cell did not verify a payment");
      const reason = "unexpected_verify_error";
      const message = REASONS[reason];
      return { isValid: false, error: message, invalidReason: reason, invalidMessage: message };
    }
  }

  /** Undefined: this cell answers. It never settles for a cell that does not answer: that one may have settled it. */
  async settle(body: unknown, options: SettleOptions): Promise<SettleAnswer | undefined> {
    const { cells, waitMs, outcomes, log } = this.#deps;
    const cell = await this.#cellOf(body, "settle");
    if (!cell) return undefined;
    const { keyHash } = callerOf(body, options);
    const { merchant, isBilled } = options;
    const sent = {
      body,
      isBilled,
      ...(merchant !== undefined && { merchant }),
      ...(keyHash && { callerKeyHash: Buffer.from(keyHash).toString("hex") }),
    };
    // The other cell sees this connection end, and keeps the success for a repeat.
    const gone = new AbortController();
    options.onGone?.(() => gone.abort());
    if (options.isGone?.()) gone.abort();
    try {
      const waitedMs = waitMs + SETTLE_MORE_MS;
      const answer = await cells.ask<SettleAnswer>(cell, SETTLE, sent, waitedMs, gone.signal);
      if (!answer.success && answer.paymentId === undefined)
        outcomes.reportRefusal("settle", body, answer.errorReason ?? "unknown");
      return answer;
    } catch (error) {
      if (error instanceof ApiError) throw error;
      const network = networkNameOf(body);
      if (error instanceof CellUnreachable) {
        log.warn({ err: error, cell: cell.id }, "another cell could not be reached for a settle");
        return notSettled({ network }, "unexpected_settle_error");
      }
      if (!gone.signal.aborted)
        log.error({ err: error, cell: cell.id }, "it is not known what another cell did");
      return notSettled({ network }, "settlement_pending");
    }
  }

  /** Of a payment that is not here. Asked within a limit by the caller's address: most unknown ids are nowhere. */
  async payment(id: string, ip: string): Promise<SettlementState | undefined> {
    if (!PAYMENT_ID.test(id)) return undefined;
    const { cells } = this.#deps;
    await this.#deps.countFor("cells", addressBucket(ip));
    const { answers, missing } = await cells.askOthers<PaymentFound>(PAYMENT, { id });
    const found = answers.find(({ answer }) => answer.payment !== null)?.answer.payment;
    if (found) return found;
    if (missing.length === 0) return undefined;
    throw new ApiError("service_unavailable", {
      detail: `The settlement is not in this cell, and ${missing.join(", ")} does not answer now. Try again.`,
      extra: { missingCells: missing },
    });
  }
}

const PaymentFound = Type.Object({ payment: Nullable(SettlementState) });
type PaymentFound = Static<typeof PaymentFound>;

/** The longest request of a third party, and what the other cell adds to it. */
const FORWARDED_BYTES = 512 * 1024;
const Forwarded = {
  body: Type.Unknown(),
  isBilled: Type.Optional(Type.Boolean()),
};

/** What the other cells send. Registered only where there are some. */
export const cellRoutes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "cell" } as const;
  const tags = ["cells"];

  app.post(
    VERIFY,
    {
      config,
      bodyLimit: FORWARDED_BYTES,
      logLevel: "warn",
      schema: {
        tags,
        operationId: "verifyForCell",
        summary: "Verify a payment that was posted to another cell",
        body: Type.Object(Forwarded),
        response: { 200: VerifyAnswer },
      },
    },
    async ({ forward, body }) => {
      assertForwarded(forward, body);
      const isBilled = body.isBilled === true;
      return app.facilitator.verifyHere(body.body, { isBilled, isForwarded: true });
    },
  );

  app.post(
    SETTLE,
    {
      config,
      bodyLimit: FORWARDED_BYTES,
      schema: {
        tags,
        operationId: "settleForCell",
        summary: "Settle a payment that was posted to another cell",
        body: Type.Object({
          ...Forwarded,
          merchant: Type.Optional(Type.String()),
          callerKeyHash: Type.Optional(Type.String({ pattern: "^[0-9a-f]{64}$" })),
        }),
        response: { 200: SettleAnswer },
      },
    },
    async ({ forward, body }, reply) => {
      assertForwarded(forward, body);
      const { callerKeyHash, merchant, isBilled } = body;
      return app.facilitator.settleHere(body.body, {
        merchant,
        isBilled: isBilled === true,
        isForwarded: true,
        isGone: () => reply.raw.destroyed,
        ...(callerKeyHash !== undefined && {
          callerKeyHash: new Uint8Array(Buffer.from(callerKeyHash, "hex")),
        }),
      });
    },
  );

  app.post(
    PAYMENT,
    {
      config,
      schema: {
        tags,
        operationId: "getSettlementForOtherCell",
        summary: "State and transaction hash of a settlement that may be here",
        body: Type.Object({ id: Id }),
        response: { 200: PaymentFound },
      },
    },
    async ({ forward, body }) => {
      assertForwarded(forward, body);
      return { payment: (await app.facilitator.payment(body.id)) ?? null };
    },
  );
};
