/** An agent's own payments: what a spend and a fetch share before anything is signed, and the spend itself. */
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
import { withSellerNonce, numberOf, refusalOf, type SellerNonceDeps } from "./seller-nonce.ts";

/** The agent that pays, as authentication found it. */
export interface Payer {
  id: string;
  walletAddress: Address;
  /** Null when the owner tries the agent out. */
  apiKeyId: string | null;
}

/** One payment from an agent's wallet, whoever relays it. */
export interface PayRequest {
  payer: Payer;
  kind: "spend" | "x402";
  chainId: number;
  asset: Address;
  to: Address;
  /** The origin that is fetched; a plain spend has none. */
  site?: string;
  amountAtomic: bigint;
  maxAmountAtomic?: bigint;
  refusal?: TargetRefusal;
  /** Where the payee prescribes it (MPP): nobody else's is taken, and one that was used before is refused. */
  nonce?: Hex;
  /** How it is paid, and the seller's terms; a spend moves the token itself. */
  scheme?: Scheme;
  extra?: Fields;
  /** At most MAX_VALID_SECONDS; counted from the database's now. */
  validForSeconds?: number;
  requestId: string | null;
  memo?: string;
  url?: string;
  listingId?: string;
  requirement?: unknown;
  idempotency?: IdempotencyRef;
  /** The owner is asked when a rule denies that an approval can lift. */
  requestApproval?: { reason: string | null };
  /** The wallet's balance, where the caller began to read it before; read when needed otherwise. */
  balance?: Promise<WalletBalance | undefined>;
}

/** What an agent's call carries beside its payment. It does not decide whether two calls are the same. */
export interface PayingBody {
  requestApproval?: boolean;
  reason?: string;
  dryRun?: boolean;
}

/** For `PayRequest`. */
export const askedApproval = ({ requestApproval, reason }: PayingBody) =>
  requestApproval === true ? { requestApproval: { reason: reason ?? null } } : {};

export interface WalletBalance {
  atomic: bigint;
  blockNumber: bigint;
  /** Of that block. */
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
        /** The rules' word, or the owner's for this one payment. */
        cover: Cover;
        /** Left of the daily limit. */
        remainingAtomic: bigint;
      }
    | NotReserved
    | ApprovalRequested
  > {
    const { payer, chainId, to, amountAtomic, scheme = TOKEN_SCHEME, extra = {} } = request;
    const [asked] = await Promise.all([
      this.#withBalance(request),
      this.#deps.settlement.assertAvailable(chainId, { kind: request.kind }),
    ]);
    const reserved = await traced(
      "guardrails.reserve",
      { "purser.agent_id": payer.id },
      async () => {
        const decided = await this.#deps.guardrails.reserve(asked);
        mark({ "purser.decision": decided.kind, ...decisionOf(decided) });
        return decided;
      },
    );
    if (reserved.kind === "denied") {
      const error = withSellerNonce(request, reserved.error);
      const liftable = reserved.liftable && error === reserved.error;
      if (liftable && request.requestApproval)
        return { kind: "asked", body: await this.#ask(request, reserved) };
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
        // An approval's order allows one authorization, whatever its row holds: the one whose nonce is its digest.
        nonce: approval?.nonce ?? (asked.nonce.slice(-66) as Hex),
        extra,
      }),
    };
  }

  #ask(
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
      memo: shownWords(request.memo),
      reason: shownWords(requestApproval?.reason),
      denial: {
        code: error.code,
        rule: policy.rule,
        detail: error.message,
        policy: { ...policy },
      },
    });
  }

  /** The verdict a payment would get now; nothing is reserved, signed or written. */
  async evaluate(request: PayRequest): Promise<Verdict> {
    const verdict = await this.#deps.guardrails.evaluate(await this.#withBalance(request));
    const error = verdict.error && withSellerNonce(request, verdict.error);
    if (error === verdict.error) return verdict;
    const trace = verdict.trace.map((step) => ({ ...step }));
    for (const step of trace) delete step.liftable;
    return { ...verdict, error, trace };
  }

  /** Throws where nothing can be paid on this chain now. */
  assertAvailable(chainId: number): Promise<void> {
    return this.#deps.settlement.assertAvailable(chainId, { kind: "x402" });
  }

  /** Records a refusal found before a price or payee could be judged (a dry run records nothing); answers its error. */
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
  const { balance: _, requestApproval: _asks, extra: _theirs, ...asked } = rest;
  return {
    ...asked,
    ...(scheme.isMetered === true && { isMaximum: true }),
    agentId: payer.id,
    apiKeyId: payer.apiKeyId,
    walletAddress: payer.walletAddress,
    ...numberOf(request, scheme),
    validForSeconds: Math.min(validForSeconds, MAX_VALID_SECONDS),
  };
}

/** Its payment, and the code of a refusal. The text is left out because it quotes third parties. */
const decisionOf = (decided: ReserveResult): TraceAttributes => ({
  ...("paymentId" in decided &&
    decided.paymentId !== null && { "purser.payment_id": decided.paymentId }),
  ...(decided.kind === "denied" && { "purser.refusal": decided.error.code }),
});

/** What an owner reads before signing hides no characters: agents repeat third-party text. */
const shownWords = (text: string | null | undefined): string | null =>
  plainWords(text, 280) || null;

/** `POST /api/agents/spend`: pay, wait for the proof, answer. */

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
    return this.#deps.flow.run(request.idempotency, async () => this.#order(request));
  }

  #order(request: Spending): PaymentPlan {
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
