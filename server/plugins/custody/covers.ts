/**
 * Checks before each signature whether the owner's signature covers the payment. The signed documents decide: database
 * columns count only if they agree with them. Verified policies are cached by their digests, so that a payment costs
 * one shared statement.
 */
import type { Address, Hex } from "viem";
import type { Authorization } from "../../core/authorization.ts";
import {
  assertKnown,
  formOf,
  FORMS,
  orderDigest,
  readOrder,
  rulesOfPolicy,
  type OrderKind,
  type PayoutAddressOrder,
  type Orders,
} from "../../core/orders.ts";
import { isPasskeySignature } from "../../core/passkeys.ts";
import { payoutAt } from "../../core/payout.ts";
import { hasNoWallet, isTeamSignature, purposeOf, TEAMS_CHAIN } from "../../core/teams.ts";
import { refusingUnknownVersion } from "../../core/policy-version.ts";
import {
  coverOf,
  loosens,
  mostOfDay,
  refusesApproved,
  rulesDigest,
  type Payee,
  payeeKey,
  type PaymentFacts,
  type RulesInForce,
} from "../../core/rules.ts";
import { ApiError } from "../../errors.ts";
import { growthOf, type ChannelOrder } from "../../schemes/batch-settlement/paying.ts";
import type { Identity, StoredOrder, Time, Verdict } from "../orders/signatures.ts";
import type { Signed } from "../orders/types.ts";
import { columnsText, payeeText } from "./columns.ts";
import {
  CustodyError,
  NOTHING,
  NotSignedFor,
  type SealedWallet,
  type WalletName,
} from "./envelope.ts";

/**
 * What covers the payment: the policy in force (`site`: where an x402 payment goes), an approval of this payment, or a
 * withdrawal order.
 */
export type Cover =
  | { kind: "policy"; site?: string }
  | { kind: "approval"; approvalId: string; site?: string }
  | { kind: "withdrawal"; orderNonce: Hex };

export interface Sealed extends WalletName, SealedWallet {
  address: Address;
}

/** A wallet with the columns that a decision used, in one snapshot of the database. */
export interface LoadedWallet extends Sealed {
  /** `columnsText` and `payeeText` of the current rows. */
  columns: string;
  payeeColumns: string | null;
  /** A stop or a rule paused the agent, which is in no seal. */
  isHeld: boolean;
  /** The version of the policy document that the sealed rules need. */
  rulesVersion: number;
  latestVersion: number | null;
  nowSeconds: bigint;
}

export type SignedDocument = StoredOrder;

/** The same with all rules and the policy they come from; read when this seal is seen for the first time. */
export interface Evidence extends LoadedWallet {
  rules: RulesInForce;
  policy: SignedDocument | null;
}

/** A withdrawal as ordered by the owner. */
export interface WithdrawalRow {
  to: Address;
  amountAtomic: bigint;
  deadlineSeconds: bigint;
  signature: Hex;
}

/** The payee and the site ("" for none), which decide the entry of the list that applies. */
export interface PaidAt {
  agentId: string;
  payee: string;
  site: string;
}

export interface CoversDeps {
  load(paidAt: PaidAt): Promise<LoadedWallet | undefined>;
  loadEvidence(paidAt: PaidAt): Promise<Evidence | undefined>;
  findWithdrawal(agentId: string, nonce: Hex): Promise<WithdrawalRow | undefined>;
  /** The newest order in which the owner of this agent named a second wallet. */
  findSecond(agentId: string): Promise<SignedDocument | undefined>;
  findApproval(agentId: string, approvalId: string): Promise<SignedDocument | undefined>;
  /** The orders in which this owner named a payout address. */
  findPayouts(owner: Identity): Promise<SignedDocument[]>;
  isSigned(owner: Identity, signed: Signed, time: Time): Promise<Verdict>;
}

interface Verified {
  columns: string;
  /** By payeeKey. */
  payees: ReadonlyMap<string, Payee>;
  rules: RulesInForce;
  /** The most that may be spent in a day, by all time-based limits. */
  mostOfDayAtomic: bigint;
  version: number;
  judge(payment: PaymentFacts): { covered: true } | { covered: false; why: string };
}

interface CoverRequest {
  agentId: string;
  authorization: Authorization;
  cover: Cover;
}

/** The longest validity of a token permit. */
const MAX_PERMIT_SECONDS = 300n;
/** How many policies, and payees in them, are cached: about 20 MB at most. */
const REMEMBERED = { policies: 20_000, payees: 100_000 };

export class Covers {
  readonly #deps: CoversDeps;
  readonly #most: typeof REMEMBERED;
  readonly #verified = new Map<string, Verified>();
  #payees = 0;
  /** The newest known seal revision of each agent: an older one means that old rows were restored. */
  readonly #revisions = new Map<string, number>();

  constructor(deps: CoversDeps, most = REMEMBERED) {
    this.#deps = deps;
    this.#most = most;
  }

  /** Returns the wallet if the owner's signature covers the payment. Otherwise throws, and nothing was signed. */
  async check({ agentId, authorization, cover }: CoverRequest): Promise<Sealed> {
    const site = (cover.kind === "withdrawal" ? undefined : cover.site) ?? "";
    const paidAt = { agentId, payee: authorization.to.toLowerCase(), site };
    const loaded = await this.load(paidAt);
    if (cover.kind === "withdrawal") {
      await this.#checkWithdrawal(loaded, authorization, cover.orderNonce);
      return loaded;
    }
    const { wallet, verified } = await this.#policyOf(loaded, paidAt);
    if (cover.kind === "approval")
      await this.#checkApproval(wallet, verified, { authorization, cover });
    else assertCovered(wallet, verified, { authorization, site: cover.site });
    return wallet;
  }

  /**
   * Returns the wallet and the allowance to sign, if the policy in force covers this payment. (An approval lifts
   * limits, but an allowance must stay within them.) The allowance is the requested amount, at most a day's limit,
   * which must suffice for the payment.
   */
  async checkAllowance(
    { agentId, authorization, cover }: CoverRequest,
    wanted: { value: bigint; deadline: bigint },
  ): Promise<{ wallet: Sealed; value: bigint }> {
    if (cover.kind !== "policy")
      throw new NotSignedFor(
        `agent ${agentId}: an allowance is only for payments that the policy covers`,
      );
    const paidAt = { agentId, payee: authorization.to.toLowerCase(), site: cover.site ?? "" };
    const { wallet, verified } = await this.#policyOf(await this.load(paidAt), paidAt);
    assertCovered(wallet, verified, { authorization, site: cover.site });
    const { mostOfDayAtomic } = verified;
    const value = wanted.value < mostOfDayAtomic ? wanted.value : mostOfDayAtomic;
    if (value < authorization.value) throw changedMeanwhile();
    if (wanted.deadline > wallet.nowSeconds + MAX_PERMIT_SECONDS)
      throw new CustodyError("this allowance could be granted too late, so it is not signed");
    return { wallet, value };
  }

  /**
   * Returns the wallet if the policy in force covers this voucher, and the deposit that comes with it: the growth of the
   * ceiling is a payment to the receiver, and channels are allowed with this deposit and this withdraw delay.
   */
  async checkChannel(agentId: string, order: ChannelOrder, site: string): Promise<Sealed> {
    const { receiver, withdrawDelay } = order.config;
    const paidAt = { agentId, payee: receiver, site };
    const { wallet, verified } = await this.#policyOf(await this.load(paidAt), paidAt);
    const channel = {
      depositAtomic: order.deposit?.amount ?? 0n,
      withdrawDelaySeconds: BigInt(withdrawDelay),
    };
    const authorization = { to: receiver, value: growthOf(order) };
    assertCovered(wallet, verified, { authorization, site, channel });
    return wallet;
  }

  /** Returns the wallet if the policy in force allows payments to this payee at this site; nothing is paid. */
  async checkSite(paidAt: PaidAt): Promise<Sealed> {
    const { payee, site } = paidAt;
    const { wallet, verified } = await this.#policyOf(await this.load(paidAt), paidAt);
    assertCovered(wallet, verified, { authorization: { to: payee as Address, value: 1n }, site });
    return wallet;
  }

  async load(paidAt: PaidAt): Promise<LoadedWallet> {
    const loaded = await this.#deps.load(paidAt);
    if (!loaded) throw new CustodyError(`agent ${paidAt.agentId} has no wallet`);
    if (!this.#isOld(loaded)) return loaded;
    // Concurrent statements may finish out of order; this new read cannot be older.
    const again = await this.#deps.load(paidAt);
    if (!again || this.#isOld(again)) throw putBack(paidAt.agentId);
    return again;
  }

  /** Throws if an old seal was restored, before the wallet is sealed again. */
  assertNewest({ agentId, revision }: WalletName): void {
    if (revision < (this.#revisions.get(agentId) ?? 0)) throw putBack(agentId);
  }

  #isOld({ agentId, revision }: LoadedWallet): boolean {
    const newest = this.#revisions.get(agentId) ?? 0;
    if (revision < newest) return true;
    if (revision > newest) {
      this.#revisions.delete(agentId);
      this.#revisions.set(agentId, revision);
      const [oldest] = this.#revisions.keys();
      if (this.#revisions.size > this.#most.policies && oldest !== undefined)
        this.#revisions.delete(oldest);
    }
    return false;
  }

  /** The verified policy and rules for which this wallet is sealed. */
  async #policyOf(
    loaded: LoadedWallet,
    paidAt: PaidAt,
  ): Promise<{ wallet: LoadedWallet; verified: Verified }> {
    if (loaded.isHeld) throw changedMeanwhile();
    refusingUnknownVersion(() => assertKnown(loaded.rulesVersion));
    const known = this.#verified.get(keyOf(loaded));
    if (known) {
      assertSameColumns(loaded, known, paidAt);
      return { wallet: loaded, verified: known };
    }
    const evidence = await this.#deps.loadEvidence(paidAt);
    if (!evidence) throw new CustodyError(`agent ${loaded.agentId} has no wallet`);
    const verified = await this.#verify(evidence);
    assertSameColumns(evidence, verified, paidAt);
    this.#remember(keyOf(evidence), verified);
    return { wallet: evidence, verified };
  }

  async #verify(evidence: Evidence): Promise<Verified> {
    const { agentId, rules, policy } = evidence;
    const fail = (what: string) => new NotSignedFor(`agent ${agentId}: ${what}`);
    // The agent moved to an owner who has not signed a policy yet; earlier decisions are not paid.
    if (
      evidence.policyDigest === NOTHING &&
      rules.status !== "active" &&
      rulesDigest(rules) === evidence.rulesDigest
    )
      throw changedMeanwhile();
    if (policy?.digest !== evidence.policyDigest) throw fail("the sealed policy is missing");
    const order = await this.#read("AgentPolicy", policy, evidence);
    if (!order) throw fail("its owner did not sign its policy");
    if (order.agent !== agentId || order.wallet.toLowerCase() !== evidence.address)
      throw fail("its policy is of a different agent");
    if (rulesDigest(rules) !== evidence.rulesDigest)
      throw fail("its rules differ from the sealed rules");
    if (loosens({ ...rulesOfPolicy(order), status: "active" }, rules))
      throw fail("its rules allow more than its signed policy");
    return {
      columns: columnsText(`eip155:${policy.chainId}`, rules),
      payees: new Map(rules.payees.map((payee) => [payeeKey(payee), payee])),
      rules,
      mostOfDayAtomic: mostOfDay(rules),
      version: Number(order.version),
      // The rules in force are the policy or narrower, so the policy covers what they cover.
      judge: coverOf(rules),
    };
  }

  /** The document, if it matches its digest and has the owner's signature. */
  async #read<K extends OrderKind>(
    kind: K,
    { document, digest, signature, chainId }: SignedDocument,
    wallet: WalletName,
  ): Promise<Orders[K] | undefined> {
    const order = refusingUnknownVersion(() => readOrder(kind, document as Orders[K]));
    if (!order || formOf(kind, order, chainId, digest) === undefined) return undefined;
    // A contract wallet was called before its digest was sealed, which only this service does; it may respond
    // differently today.
    const isByKeys = hasNoWallet(wallet.ownerChainId) || isPasskeySignature(signature);
    if (wallet.ownerChainId !== 0 && !isByKeys && kind === "AgentPolicy") return order;
    // An approval is used at once; the others stay in force when a passkey is removed. The recovery wallet of a team is one
    // that the members of today named: it moves money without them.
    const isOfToday =
      kind === "ApprovePayment" || (kind === "SecondWallet" && wallet.ownerChainId === TEAMS_CHAIN);
    const signed = { hash: digest, signature, purpose: purposeOf(kind, order) };
    return (await this.#isSigned(wallet, signed, isOfToday ? "now" : "ever")) ? order : undefined;
  }

  async #isSigned(wallet: WalletName, signed: Signed, time: Time): Promise<boolean> {
    const verdict = await this.#deps.isSigned(ownerOf(wallet), signed, time);
    if (verdict === "unavailable") throw chainUnavailable();
    return verdict === "valid";
  }

  #remember(key: string, verified: Verified): void {
    this.#verified.set(key, verified);
    this.#payees += verified.payees.size;
    for (const [oldest, { payees }] of this.#verified) {
      if (this.#verified.size <= this.#most.policies && this.#payees <= this.#most.payees) break;
      this.#verified.delete(oldest);
      this.#payees -= payees.size;
    }
  }

  async #checkWithdrawal(
    wallet: LoadedWallet,
    authorization: Authorization,
    nonce: Hex,
  ): Promise<void> {
    const row = await this.#deps.findWithdrawal(wallet.agentId, nonce);
    const fail = (what: string) => new NotSignedFor(`agent ${wallet.agentId}: ${what}`);
    if (!row) throw fail("there is no order for this withdrawal");
    const { chainId, asset, to, value } = authorization;
    const order = readOrder("Withdraw", {
      wallet: wallet.address,
      to: row.to,
      asset,
      amount: String(row.amountAtomic),
      nonce,
      deadline: String(row.deadlineSeconds),
    });
    const isSame =
      to.toLowerCase() === row.to &&
      value === row.amountAtomic &&
      authorization.nonce.toLowerCase() === nonce &&
      authorization.validBefore <= row.deadlineSeconds;
    if (!order || !isSame) throw fail("the withdrawal is not what was ordered");
    const signatures = FORMS.map((form) => ({
      hash: orderDigest("Withdraw", order, chainId, form),
      signature: row.signature,
    }));
    // A wallet may name any payee. A passkey, a team and the recovery wallet withdraw only to where the owner's money goes.
    const isByPasskey = isPasskeySignature(row.signature) || isTeamSignature(row.signature);
    const isHome = row.to === (await this.#homeOf(wallet));
    if (isHome || !isByPasskey)
      for (const signed of signatures) if (await this.#isSigned(wallet, signed, "now")) return;
    if (isHome)
      for (const signed of signatures) if (await this.#isSignedBySecond(wallet, signed)) return;
    throw fail("its owner did not sign this withdrawal");
  }

  /** The owner's wallet; for an owner without one, the payout address in force. */
  async #homeOf(wallet: LoadedWallet): Promise<string | undefined> {
    if (!hasNoWallet(wallet.ownerChainId)) return wallet.ownerAddress;
    const stored = await this.#deps.findPayouts(ownerOf(wallet));
    const orders = await Promise.all(stored.map((one) => this.#read("PayoutAddress", one, wallet)));
    const own = orders.filter((order) => order?.owner.toLowerCase() === wallet.ownerAddress);
    return payoutAt(own as PayoutAddressOrder[], wallet.nowSeconds)?.address;
  }

  /**
   * Whether the recovery wallet signed it, which the sealed owner named in an order that is verified like any other.
   */
  async #isSignedBySecond(
    wallet: WalletName,
    signed: { hash: Hex; signature: Hex },
  ): Promise<boolean> {
    const named = await this.#deps.findSecond(wallet.agentId);
    const order = named && (await this.#read("SecondWallet", named, wallet));
    if (order?.owner.toLowerCase() !== wallet.ownerAddress) return false;
    const second = {
      address: order.second.toLowerCase() as Address,
      chainId: Number(order.secondChain),
    };
    return (await this.#deps.isSigned(second, signed, "now")) === "valid";
  }

  async #checkApproval(
    wallet: LoadedWallet,
    verified: Verified,
    payment: { authorization: Authorization; cover: Extract<Cover, { kind: "approval" }> },
  ): Promise<void> {
    const { agentId, nowSeconds } = wallet;
    const { authorization, cover } = payment;
    const { rules } = verified;
    if (
      rules.status !== "active" ||
      refusesApproved(rules, { valueAtomic: authorization.value, nowSeconds })
    )
      throw changedMeanwhile();
    const found = await this.#deps.findApproval(agentId, cover.approvalId);
    const order = found && (await this.#read("ApprovePayment", found, wallet));
    const isSame =
      order?.agent === agentId &&
      order.approvalId === cover.approvalId &&
      order.payee.toLowerCase() === authorization.to.toLowerCase() &&
      order.asset.toLowerCase() === authorization.asset.toLowerCase() &&
      BigInt(order.maxAmount) >= authorization.value &&
      order.site === (cover.site ?? "") &&
      // One order allows one authorization: the token's contract decides whether it was used, not its row.
      authorization.nonce.toLowerCase() === found?.digest &&
      authorization.validBefore <= BigInt(order.deadline) &&
      found?.chainId === authorization.chainId;
    if (!isSame) throw new NotSignedFor(`agent ${agentId}: its owner did not approve this payment`);
  }
}

/** Nothing is signed unless the columns equal the verified rules. */
function assertSameColumns(loaded: LoadedWallet, verified: Verified, paidAt: PaidAt): void {
  const address = paidAt.payee as Address;
  const known =
    verified.payees.get(payeeKey({ address, site: paidAt.site })) ??
    verified.payees.get(payeeKey({ address, site: "" }));
  const fail = (what: string) => new NotSignedFor(`agent ${loaded.agentId}: ${what}`);
  if (loaded.columns !== verified.columns) throw fail("its columns are not what was sealed");
  if (loaded.payeeColumns !== (known ? payeeText(known) : null))
    throw fail("the row of its payee is not what was sealed");
  if (loaded.latestVersion !== verified.version) throw fail("its policy is not the latest one");
}

/** The rows are consistent, so a payment that is not covered is no forgery: the rules changed after the decision. */
function assertCovered(
  { nowSeconds }: LoadedWallet,
  verified: Verified,
  {
    authorization,
    site,
    channel,
  }: {
    authorization: Pick<Authorization, "to" | "value">;
    site: string | undefined;
    channel?: Pick<PaymentFacts, "depositAtomic" | "withdrawDelaySeconds">;
  },
): void {
  const payment = {
    payee: authorization.to,
    valueAtomic: authorization.value,
    nowSeconds,
    ...(site === undefined ? {} : { site }),
    ...channel,
  };
  if (verified.rules.status !== "active" || !verified.judge(payment).covered)
    throw changedMeanwhile();
}

const changedMeanwhile = (): ApiError =>
  new ApiError("service_unavailable", {
    detail: "The agent's rules changed during this payment. Nothing was signed. Try again.",
  });

export const chainUnavailable = (): ApiError =>
  new ApiError("chain_unavailable", {
    detail: "The owner's contract could not be read to check this signature.",
  });

const putBack = (id: string) => new NotSignedFor(`an older seal of agent ${id} was put back`);

const ownerOf = ({ ownerAddress, ownerChainId }: WalletName): Identity => ({
  address: ownerAddress as Address,
  chainId: ownerChainId,
});

const keyOf = (wallet: WalletName): string =>
  `${wallet.agentId}|${wallet.address}|${wallet.ownerAddress}|${wallet.ownerChainId}|${wallet.policyDigest}|${wallet.rulesDigest}`;
