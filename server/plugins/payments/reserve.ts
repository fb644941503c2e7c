/** Decides on an agent's payment and reserves it: what spends and fetches share before anything is signed. */
import { randomBytes } from "node:crypto";
import type { Address, Hex } from "viem";
import type { AuthorizationRef } from "../../core/authorization.ts";
import { ApiError } from "../../errors.ts";
import { mark, traced, type TraceAttributes } from "../../infra/tracing.ts";
import type { Approvals } from "../approvals/approvals.ts";
import type { Guardrails } from "../guardrails/decide.ts";
import type { ReservedChannel } from "../guardrails/rules.ts";
import type {
  Policy,
  ReserveRequest,
  ReserveResult,
  TargetRefusal,
  Verdict,
} from "../guardrails/types.ts";
import type { Screening } from "../screening/screening.ts";
import type { Settlement } from "../settlement/types.ts";
import type { ApprovalRequired } from "../../schemas/approvals.ts";
import { canceled, type NotReserved } from "./idempotency.ts";
import { MAX_VALID_SECONDS, type Reserved } from "./steps.ts";
import { plainWords } from "../../core/foreign-text.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { TOKEN_SCHEME } from "../../schemes/index.ts";
import type { Fields, Scheme } from "../../schemes/scheme.ts";

/** The paying agent, as authenticated. */
export interface Payer {
  id: string;
  walletAddress: Address;
  /** Null when the owner tries out the agent. */
  apiKeyId: string | null;
}

/** Members of a ReserveRequest that follow from the members of a PayRequest. */
type Derived =
  | "agentId"
  | "apiKeyId"
  | "walletAddress"
  | "isMaximum"
  | "nonce"
  | "prescribed"
  | "validForSeconds"
  | "balance"
  | "gas";

/** A payment from an agent's wallet, whether we or the seller relay it. */
export interface PayRequest extends Omit<ReserveRequest, Derived | "to"> {
  payer: Payer;
  to: Address;
  /** Set when the payee prescribes the nonce (MPP). A nonce that was used before is refused. */
  nonce?: Hex;
  /** Used instead of a random nonce, and as new as one: it binds the payment to the seller's route. */
  boundNonce?: Hex;
  /** How it is paid, and the seller's terms, unless it goes through a channel. A spend transfers the token directly. */
  scheme?: Scheme;
  extra?: Fields;
  /** At most MAX_VALID_SECONDS, counted from the database clock. */
  validForSeconds?: number;
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

interface AgentReserveDeps {
  /** Whether the authorization is already used or canceled on chain. */
  isEnded(chainId: number, ref: AuthorizationRef): Promise<boolean>;
  settlement: Pick<Settlement, "assertAvailable" | "gasHold">;
  minPaymentAtomic: bigint;
  balances: {
    balances(
      chainId: number,
      addresses: readonly Address[],
    ): Promise<{ blockNumber: bigint; timestampSeconds: bigint; balances: Map<string, bigint> }>;
    /** The newest known block. */
    knownHeadOf(chainId: number): Promise<{ timestampSeconds: bigint }>;
  };
  guardrails: Guardrails;
  approvals: Pick<Approvals, "request">;
  networkOf(chainId: number): NetworkFacts;
  /** Undefined: addresses are not screened. */
  screening?: Pick<Screening, "refusalOfAgent"> | undefined;
}

export interface AgentReservation extends Reserved {
  kind: "reserved";
  /** The remaining part of the daily limit. */
  remainingAtomic: bigint;
}

/** Reserved to be paid through a channel: its voucher is signed, and no authorization of the token. */
export interface ChannelReservation {
  kind: "through_channel";
  agentId: string;
  paymentId: string;
  channel: ReservedChannel;
  validBeforeSeconds: bigint;
  remainingAtomic: bigint;
}

interface ChannelBusy {
  kind: "channel_busy";
  paymentId: string | null;
}

export class AgentReserve {
  readonly #deps: AgentReserveDeps;

  constructor(deps: AgentReserveDeps) {
    this.#deps = deps;
  }

  /** A payment that goes through no channel. */
  async reserve(request: PayRequest): Promise<AgentReservation | NotReserved> {
    const reserved = await this.reserveFetch(request);
    if (reserved.kind === "through_channel" || reserved.kind === "channel_busy")
      throw new Error("a payment without a channel was reserved for one");
    return reserved;
  }

  /** A payment that may go through a channel. */
  async reserveFetch(
    request: PayRequest,
  ): Promise<AgentReservation | ChannelReservation | ChannelBusy | NotReserved> {
    const { payer, chainId, to, amountAtomic, scheme = TOKEN_SCHEME, extra = {} } = request;
    const { settlement } = this.#deps;
    // A voucher takes nothing from the wallet: only a deposit needs its balance.
    const readsBalance = !request.channel;
    const [first] = await Promise.all([
      this.#withFacts(request, { readsBalance }),
      settlement.assertAvailable(chainId, { kind: request.kind }),
    ]);
    let reserveRequest = first;
    let reserved = await this.#decide(reserveRequest);
    if (reserved.kind === "balance_needed") {
      reserveRequest = await this.#withFacts(request);
      reserved = await this.#decide(reserveRequest);
    }
    if (reserved.kind === "denied") {
      const error = withApprovability(request, reserved.error);
      const liftable = reserved.liftable && error === reserved.error;
      if (liftable && request.requestApproval)
        return { kind: "approval_requested", body: await this.#requestApproval(request, reserved) };
      return { kind: "denied", error };
    }
    if (reserved.kind === "balance_needed") throw new Error("the balance was given");
    if (reserved.kind !== "reserved") return reserved;
    const { approval, channel } = reserved.snapshot;
    if (channel) {
      const { paymentId, validBeforeSeconds, remainingAtomic } = reserved;
      const kind = "through_channel";
      return { kind, agentId: payer.id, paymentId, channel, validBeforeSeconds, remainingAtomic };
    }
    return {
      kind: "reserved",
      agentId: payer.id,
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

  #decide(request: ReserveRequest): Promise<ReserveResult> {
    return traced("guardrails.reserve", { "purser.agent_id": request.agentId }, async () => {
      if (request.idempotency?.isGone?.() === true) throw canceled();
      const decided = await this.#deps.guardrails.reserve(request);
      mark({ "purser.decision": decided.kind, ...decisionOf(decided) });
      return decided;
    });
  }

  #requestApproval(
    request: PayRequest,
    { error, paymentId }: Extract<ReserveResult, { kind: "denied" }>,
  ): Promise<ApprovalRequired> {
    const { idempotency, payer, requestApproval } = request;
    if (idempotency === undefined) throw new Error("an approval is asked for without a key");
    const { kind, chainId, amountAtomic } = request;
    const { budget, ...policy } = error.extra["policy"] as Policy;
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
        policy: { ...policy, ...(budget && { budgetId: budget.id, budgetName: budget.name }) },
      },
    });
  }

  /** The decision that a payment would get now. Reserves, signs and writes nothing. */
  async evaluate(request: PayRequest): Promise<Verdict> {
    const verdict = await this.#deps.guardrails.evaluate(await this.#withFacts(request));
    const error = verdict.error && withApprovability(request, verdict.error);
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
      ...reserveRequestOf(request),
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

  /** With what the decision needs to know of the chain, and a refusal by screening or by the chain. */
  async #withFacts(request: PayRequest, { readsBalance = true } = {}): Promise<ReserveRequest> {
    const { chainId, payer } = request;
    const { balances, settlement, minPaymentAtomic } = this.#deps;
    const [known, hold, refusal] = await Promise.all([
      request.balance,
      settlement.gasHold(chainId),
      refusalOf(this.#deps, request),
    ]);
    const readTime = async () => {
      const { timestampSeconds } = await balances.knownHeadOf(chainId);
      return { timestampSeconds };
    };
    const balance =
      known ?? (readsBalance ? await this.readBalance(chainId, payer) : await readTime());
    // A voucher costs no gas, and the seller's side pays for a deposit.
    const gas = request.channel
      ? { hold: 0n, floorAtomic: 0n }
      : { hold, floorAtomic: minPaymentAtomic };
    return { ...reserveRequestOf(request), ...(refusal && { refusal }), balance, gas };
  }
}

/** Without what is read from the chain. */
function reserveRequestOf(
  request: Omit<PayRequest, "to"> & { to: Address | null },
): Omit<ReserveRequest, "balance"> {
  const {
    payer,
    validForSeconds = MAX_VALID_SECONDS,
    scheme = TOKEN_SCHEME,
    extra: _extra,
    boundNonce: _boundNonce,
    requestApproval: _requestApproval,
    balance: _balance,
    ...members
  } = request;
  return {
    ...members,
    ...(scheme.isMetered === true && { isMaximum: true }),
    agentId: payer.id,
    apiKeyId: payer.apiKeyId,
    walletAddress: payer.walletAddress,
    // With this prefix no approval replaces it.
    ...(request.channel
      ? { nonce: `channel:${request.channel.id}` as const }
      : nonceFor(request, scheme)),
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

/** Random, or chosen by the seller (MPP: the hash of its challenge). */
const nonceFor = (
  { nonce, boundNonce }: Pick<PayRequest, "nonce" | "boundNonce">,
  { noncePrefix }: Pick<Scheme, "noncePrefix">,
): Pick<ReserveRequest, "nonce" | "prescribed"> =>
  nonce === undefined
    ? { nonce: boundNonce ?? `${noncePrefix ?? ""}0x${randomBytes(32).toString("hex")}` }
    : { nonce, prescribed: true };

/**
 * Our own rows are checked under the agent's lock. They may be deleted one day; the chain keeps its record.
 */
async function refusalOf(
  deps: Pick<AgentReserveDeps, "isEnded" | "screening">,
  { nonce, chainId, asset, payer, to, refusal }: PayRequest,
): Promise<TargetRefusal | undefined> {
  if (refusal !== undefined) return refusal;
  const screened = await deps.screening?.refusalOfAgent(payer, to);
  if (screened !== undefined || nonce === undefined) return screened;
  const isUsed = await deps.isEnded(chainId, { asset, from: payer.walletAddress, nonce });
  return isUsed ? { code: "challenge_already_used" } : undefined;
}

/**
 * Why an approval cannot allow this payment: it allows only the authorization whose nonce is its own digest.
 */
function whyNotApprovable({
  nonce,
  scheme,
  channel,
}: Pick<PayRequest, "nonce" | "scheme" | "channel">): string | undefined {
  if (channel !== undefined)
    return "it would be paid through a payment channel, whose vouchers have no nonce";
  if (nonce !== undefined) return "the seller uses MPP, which sets the authorization's nonce";
  if (scheme?.noncePrefix !== undefined)
    return "it would be paid through Permit2, which has its own nonces";
  return undefined;
}

/** A denial is reported as approvable only if an approval could allow the payment. */
function withApprovability(request: PayRequest, denial: ApiError): ApiError {
  const why = whyNotApprovable(request);
  if (why === undefined || denial.extra["approvable"] !== true) return denial;
  const { code, message, headers, extra } = denial;
  const detail = `${message} An approval cannot allow this: ${why}.`;
  return new ApiError(code, { detail, headers, extra: { ...extra, approvable: false } });
}
