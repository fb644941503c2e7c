/** Agents' payments: what spends and fetches share before anything is signed, and the spend itself. */
import { getAddress, type Address, type Hex } from "viem";
import type { Authorization } from "../../core/authorization.ts";
import type { ApiError } from "../../errors.ts";
import { mark, traced, type TraceAttributes } from "../../infra/tracing.ts";
import type { Cover } from "../custody/covers.ts";
import type { Approvals } from "../approvals/approvals.ts";
import type { Guardrails } from "../guardrails/decide.ts";
import type {
  IdempotencyRef,
  Policy,
  ReserveRequest,
  ReserveResult,
  TargetRefusal,
  Verdict,
} from "../guardrails/types.ts";
import type { Settlement } from "../settlement/types.ts";
import type { ApprovalRequired } from "../../schemas/approvals.ts";
import type { PayFlow } from "./pay.ts";
import type { ApprovalRequested, NotReserved, PaymentPlan, Settled } from "./payment-plan.ts";
import { plainWords } from "../../core/foreign-text.ts";
import { formatAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { TOKEN_SCHEME } from "../../schemes/index.ts";
import type { Fields, Scheme } from "../../schemes/scheme.ts";
import type { Answer } from "./idempotency.ts";
import { withSellerNonce, nonceFor, refusalOf, type SellerNonceDeps } from "./seller-nonce.ts";

/** The paying agent, as authenticated. */
export interface Payer {
  id: string;
  walletAddress: Address;
  /** Null when the owner tries out the agent. */
  apiKeyId: string | null;
}

/** A payment from an agent's wallet, whether we or the seller relay it. */
export interface PayRequest {
  payer: Payer;
  kind: "spend" | "x402";
  chainId: number;
  asset: Address;
  to: Address;
  /** The fetched origin. Undefined for a plain spend. */
  site?: string;
  amountAtomic: bigint;
  maxAmountAtomic?: bigint;
  refusal?: TargetRefusal;
  /** Set when the payee prescribes the nonce (MPP). A nonce that was used before is refused. */
  nonce?: Hex;
  /** How it is paid, and the seller's terms. A spend transfers the token directly. */
  scheme?: Scheme;
  extra?: Fields;
  /** At most MAX_VALID_SECONDS, counted from the database clock. */
  validForSeconds?: number;
  requestId: string | null;
  memo?: string;
  url?: string;
  listingId?: string;
  requirement?: unknown;
  idempotency?: IdempotencyRef;
  /** Ask the owner for approval if a rule denies the payment that an approval can lift. */
  requestApproval?: { reason: string | null };
  /** The wallet's balance, if the caller already began to read it; otherwise it is read when needed. */
  balance?: Promise<WalletBalance | undefined>;
}

/** Fields of an agent's call besides its payment. They do not decide whether two calls are identical. */
export interface PayingBody {
  requestApproval?: boolean;
  reason?: string;
  dryRun?: boolean;
}

/** The `requestApproval` field of a PayRequest. */
export const approvalRequestOf = ({ requestApproval, reason }: PayingBody) =>
  requestApproval === true ? { requestApproval: { reason: reason ?? null } } : {};

export interface WalletBalance {
  atomic: bigint;
  blockNumber: bigint;
  /** The timestamp of that block. */
  timestampSeconds: bigint;
}

export const MAX_VALID_SECONDS = 120;

interface AgentReserveDeps extends SellerNonceDeps {
  settlement: Pick<Settlement, "assertAvailable" | "gasHold">;
  minPaymentAtomic: bigint;
  balances: {
    balances(
      chainId: number,
      addresses: readonly Address[],
    ): Promise<{ blockNumber: bigint; timestampSeconds: bigint; balances: Map<string, bigint> }>;
  };
  guardrails: Guardrails;
  approvals: Pick<Approvals, "request">;
  networkOf(chainId: number): NetworkFacts;
}

export class AgentReserve {
  readonly #deps: AgentReserveDeps;

  constructor(deps: AgentReserveDeps) {
    this.#deps = deps;
  }

  async reserve(request: PayRequest): Promise<
    | {
        kind: "reserved";
        paymentId: string;
        authorization: Authorization;
        /** The agent's policy, or the owner's approval of this payment. */
        cover: Cover;
        /** The remaining part of the daily limit. */
        remainingAtomic: bigint;
      }
    | NotReserved
    | ApprovalRequested
  > {
    const { payer, chainId, to, amountAtomic, scheme = TOKEN_SCHEME, extra = {} } = request;
    const [reserveRequest] = await Promise.all([
      this.#withBalance(request),
      this.#deps.settlement.assertAvailable(chainId, { kind: request.kind }),
    ]);
    const reserved = await traced(
      "guardrails.reserve",
      { "purser.agent_id": payer.id },
      async () => {
        const decided = await this.#deps.guardrails.reserve(reserveRequest);
        mark({ "purser.decision": decided.kind, ...decisionOf(decided) });
        return decided;
      },
    );
    if (reserved.kind === "denied") {
      const error = withSellerNonce(request, reserved.error);
      const liftable = reserved.liftable && error === reserved.error;
      if (liftable && request.requestApproval)
        return { kind: "approval_requested", body: await this.#requestApproval(request, reserved) };
      return { kind: "denied", error };
    }
    if (reserved.kind !== "reserved") return reserved;
    const { approval } = reserved.snapshot;
    return {
      kind: "reserved",
      paymentId: reserved.paymentId,
      cover: {
        ...(approval ? { kind: "approval", approvalId: approval.id } : { kind: "policy" }),
        ...(request.site !== undefined && { site: request.site }),
      },
      remainingAtomic: reserved.remainingAtomic,
      authorization: scheme.authorize({
        network: this.#deps.networkOf(chainId),
        from: payer.walletAddress,
        payTo: to,
        amountAtomic,
        validAfter: 0n,
        validBefore: reserved.validBeforeSeconds,
        // An approval allows exactly one authorization: the one whose nonce is its digest.
        nonce: approval?.nonce ?? (reserveRequest.nonce.slice(-66) as Hex),
        extra,
      }),
    };
  }

  #requestApproval(
    request: PayRequest,
    { error, paymentId }: Extract<ReserveResult, { kind: "denied" }>,
  ): Promise<ApprovalRequired> {
    const { idempotency, payer, requestApproval } = request;
    if (idempotency === undefined) throw new Error("an approval is asked for without a key");
    const { kind, chainId, amountAtomic } = request;
    const policy = error.extra["policy"] as Policy;
    return this.#deps.approvals.request({
      kind,
      chainId,
      amountAtomic,
      deniedPaymentId: paymentId,
      agentId: payer.id,
      call: idempotency.bodyHash,
      key: idempotency.key,
      asset: request.asset.toLowerCase() as Address,
      payee: request.to.toLowerCase() as Address,
      site: request.site ?? "",
      url: request.url ?? null,
      listingId: request.listingId ?? null,
      memo: visibleText(request.memo),
      reason: visibleText(requestApproval?.reason),
      denial: {
        code: error.code,
        rule: policy.rule,
        detail: error.message,
        policy: { ...policy },
      },
    });
  }

  /** The decision that a payment would get now. Reserves, signs and writes nothing. */
  async evaluate(request: PayRequest): Promise<Verdict> {
    const verdict = await this.#deps.guardrails.evaluate(await this.#withBalance(request));
    const error = verdict.error && withSellerNonce(request, verdict.error);
    if (error === verdict.error) return verdict;
    const trace = verdict.trace.map((step) => ({ ...step }));
    for (const step of trace) delete step.liftable;
    return { ...verdict, error, trace };
  }

  /** Throws if no payment can be made on this chain now. */
  assertAvailable(chainId: number): Promise<void> {
    return this.#deps.settlement.assertAvailable(chainId, { kind: "x402" });
  }

  /**
   * Records a refusal that was found before a price or payee could be checked (a dry run records nothing).
   * Returns its error.
   */
  async refuse(
    request: Omit<PayRequest, "to"> & { to: Address | null },
    { dryRun }: { dryRun: boolean },
  ): Promise<ApiError> {
    const reserveRequest = {
      ...withoutBalance(request),
      balance: { atomic: 0n, blockNumber: 0n },
    };
    if (dryRun) {
      const { error } = await this.#deps.guardrails.evaluate(reserveRequest);
      if (!error) throw new Error("a refusal ended as allowed");
      return error;
    }
    const result = await this.#deps.guardrails.reserve(reserveRequest);
    if (result.kind !== "denied") throw new Error(`a refusal ended as ${result.kind}`);
    return result.error;
  }

  async readBalance(chainId: number, payer: Pick<Payer, "walletAddress">): Promise<WalletBalance> {
    const wallet = payer.walletAddress.toLowerCase() as Address;
    const { balances, ...block } = await this.#deps.balances.balances(chainId, [wallet]);
    return { atomic: balances.get(wallet) ?? 0n, ...block };
  }

  async #withBalance(request: PayRequest): Promise<ReserveRequest> {
    const { chainId, payer } = request;
    const [known, hold, refusal] = await Promise.all([
      request.balance,
      this.#deps.settlement.gasHold(chainId),
      refusalOf(this.#deps, request),
    ]);
    const balance = known ?? (await this.readBalance(chainId, payer));
    const gas = { hold, floorAtomic: this.#deps.minPaymentAtomic };
    return { ...withoutBalance(request), ...(refusal && { refusal }), balance, gas };
  }
}

function withoutBalance(
  request: Omit<PayRequest, "to"> & { to: Address | null },
): Omit<ReserveRequest, "balance"> {
  const { payer, validForSeconds = MAX_VALID_SECONDS, scheme = TOKEN_SCHEME, ...rest } = request;
  const { balance: _, requestApproval: _requestApproval, extra: _extra, ...reserveRequest } = rest;
  return {
    ...reserveRequest,
    ...(scheme.isMetered === true && { isMaximum: true }),
    agentId: payer.id,
    apiKeyId: payer.apiKeyId,
    walletAddress: payer.walletAddress,
    ...nonceFor(request, scheme),
    validForSeconds: Math.min(validForSeconds, MAX_VALID_SECONDS),
  };
}

/** The payment id, and the code of a refusal. The text is omitted because it quotes third parties. */
const decisionOf = (decided: ReserveResult): TraceAttributes => ({
  ...("paymentId" in decided &&
    decided.paymentId !== null && { "purser.payment_id": decided.paymentId }),
  ...(decided.kind === "denied" && { "purser.refusal": decided.error.code }),
});

/**
 * Owners must see every character of what they sign, and agents repeat third-party text: invisible characters
 * are removed.
 */
const visibleText = (text: string | null | undefined): string | null =>
  plainWords(text, 280) || null;

/** `POST /api/agents/spend`: pay, wait for the proof, respond. */

interface SpendDeps {
  flow: PayFlow;
  agentReserve: Pick<AgentReserve, "reserve">;
  remainingOf(agentId: string): Promise<bigint>;
  networkOf(chainId: number): string;
}

type Spending = Omit<PayRequest, "kind">;

export class Spend {
  readonly #deps: SpendDeps;

  constructor(deps: SpendDeps) {
    this.#deps = deps;
  }

  run(request: Spending): Promise<Answer> {
    return this.#deps.flow.run(request.idempotency, async () => this.#plan(request));
  }

  #plan(request: Spending): PaymentPlan {
    const { agentReserve, flow } = this.#deps;
    const agentId = request.payer.id;
    return {
      agentId,
      kind: "spend",
      relay: true,
      reserve: async () => {
        const reserved = await agentReserve.reserve({ ...request, kind: "spend" });
        if (reserved.kind !== "reserved") return reserved;
        const { paymentId, remainingAtomic } = reserved;
        const paid = { ...request, paymentId, remainingAtomic };
        return {
          ...reserved,
          deliver: () => flow.settled(paymentId, (proof) => this.#body(paid, proof)),
        };
      },
      isOver: (payment) => flow.isDecided(payment),
      resume: (payment) =>
        flow.settled(payment.id, async (proof) => {
          const remainingAtomic = await this.#deps.remainingOf(agentId);
          const { id: paymentId, amountAtomic, chainId } = payment;
          const paid = { paymentId, amountAtomic, chainId: Number(chainId), remainingAtomic };
          return this.#body({ ...paid, to: request.to }, proof);
        }),
    };
  }

  #body(
    paid: Pick<Spending, "to" | "amountAtomic" | "chainId"> & {
      paymentId: string;
      remainingAtomic: bigint;
    },
    proof: Settled,
  ): Record<string, unknown> {
    return {
      success: true,
      txHash: proof.txHash,
      paymentId: paid.paymentId,
      recipient: getAddress(paid.to),
      amount: formatAtomic(paid.amountAtomic),
      network: this.#deps.networkOf(paid.chainId),
      settledAt: proof.settledAt.toISOString(),
      remaining: formatAtomic(paid.remainingAtomic),
    };
  }
}
