/**
 * The interface to the agents' wallets for other modules: seals change in their transactions, and a mismatch raises an
 * alarm.
 */
import { isKeysUnavailable } from "../../infra/kms.ts";
import type { SIWxPayload } from "@x402/extensions/sign-in-with-x";
import type { Address, Hex, LocalAccount } from "viem";
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import { assertKnown, versionFor } from "../../core/orders.ts";
import { refusingUnknownVersion } from "../../core/policy-version.ts";
import { rulesDigest, type RulesInForce } from "../../core/rules.ts";
import { ApiError } from "../../errors.ts";
import { transactionAccount } from "../../infra/relayer-signer.ts";
import type { ChannelSignatures } from "../../schemes/batch-settlement/paying.ts";
import type { Db } from "../../infra/db/prisma.ts";
import type { Cover } from "./covers.ts";
import { CustodyError, NotSignedFor, type SealedWallet } from "./envelope.ts";
import type { HeldWallet, KeyVault, NewRules, Resealed, SiteSignInRequest } from "./key-vault.ts";
import { lockWallet, rulesVersionOf, updateSeal, type ResealedWallet } from "./store.ts";
import type { SignedMove, Owner } from "./seal-changes.ts";

interface Deps {
  /** In this process, or in the custody process. */
  vault: KeyVault;
  /**
   * Called if stored rules do not match the owner's signatures: raises an alarm and notifies the owner. Never fails.
   */
  alarm(about: { agentId: string; error: Error }): void;
}

type VaultArguments<Name extends keyof KeyVault> = Parameters<KeyVault[Name]>;

export class Custody {
  readonly #deps: Deps;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** Creates a random wallet for this agent, sealed for its owner; the plaintext key is gone when this returns. */
  createWallet(agentId: string, owner: Owner): Promise<{ address: Address; sealed: SealedWallet }> {
    return this.#deps.vault.createWallet(agentId, ownerOf(owner));
  }

  /** Seals a wallet that was created for an order, now that the order is signed. */
  async adopt(
    wallet: VaultArguments<"adopt">[0],
    first: VaultArguments<"adopt">[1],
  ): Promise<ResealedWallet> {
    const { agentId, owner } = wallet;
    const resealed = await this.#withAlarm(agentId, () =>
      this.#deps.vault.adopt({ ...wallet, owner: ownerOf(owner) }, first),
    );
    return resealedFor(first.rules, resealed);
  }

  /**
   * Throws if a newer release last changed this agent's rules: a policy that this release writes would lack settings
   * that it does not know.
   */
  async assertKnownRules(db: Db, agentId: string): Promise<void> {
    const version = await rulesVersionOf(db, agentId);
    refusingUnknownVersion(() => assertKnown(version));
  }

  /**
   * Seals the wallet for other rules, in the transaction that writes them and holds a lock on the agent's row. Narrower
   * rules need nothing else; wider rules need the policy that the owner just signed. If rows were tampered with, or a
   * newer release wrote rules that this one cannot read as a whole, narrowing raises an alarm and leaves the wallet
   * unchanged: it signs nothing then, until the owner signs again.
   */
  async reseal(
    tx: Db,
    { agentId, owner }: { agentId: string; owner: Owner },
    rules: NewRules,
  ): Promise<void> {
    const { rulesVersion, ...wallet } = await held(tx, agentId, owner);
    if (!rules.signed && rulesDigest(rules.wanted) === wallet.rulesDigest) return;
    const isStop = !rules.signed && rules.wanted.status !== "active";
    // A stop is sealed whatever version the row names: an edited one must not keep a pause out of the seal.
    if (!isStop) refusingUnknownVersion(() => assertKnown(rulesVersion));
    try {
      const resealed = await this.#deps.vault.reseal(wallet, rules);
      await updateSeal(tx, agentId, resealedFor(rules.wanted, resealed));
    } catch (error) {
      // Narrowing takes effect at once, also while the keys are unavailable: the old seal matches no payment then.
      if (!rules.signed && isKeysUnavailable(error)) return;
      if (!(error instanceof NotSignedFor)) throw error;
      this.#deps.alarm({ agentId, error });
      if (rules.signed) throw notSigned(error);
    }
  }

  /**
   * Seals the wallet for another owner, who has not signed a policy yet: for the same rules or narrower ones, and for
   * no payment before that owner's first policy. Runs in the transaction that moves the agent and locks its row.
   */
  async reown(
    tx: Db,
    { agentId, from, to }: { agentId: string; from: Owner; to: Owner },
    rules: { current: RulesInForce; wanted: RulesInForce; signed: SignedMove },
  ): Promise<void> {
    const { rulesVersion, ...wallet } = await held(tx, agentId, from);
    refusingUnknownVersion(() => assertKnown(rulesVersion));
    await this.#withAlarm(agentId, async () => {
      const resealed = await this.#deps.vault.reown(wallet, ownerOf(to), rules);
      await updateSeal(tx, agentId, resealedFor(rules.wanted, resealed));
    });
  }

  /** A USDC transfer from this agent's wallet, if the owner's signature covers it. */
  signAuthorization(agentId: string, authorization: Authorization, cover: Cover): Promise<Hex> {
    return this.#withAlarm(agentId, () =>
      this.#deps.vault.signAuthorization(agentId, authorization, cover),
    );
  }

  /** An allowance for the contract through which a payment is made. */
  signAllowance(...args: VaultArguments<"signAllowance">): Promise<SignedAuthorization> {
    return this.#withAlarm(args[0], () => this.#deps.vault.signAllowance(...args));
  }

  /** Revokes such an allowance. */
  signRevocation(...args: VaultArguments<"signRevocation">): Promise<SignedAuthorization> {
    return this.#deps.vault.signRevocation(...args);
  }

  /** Cancels an unused authorization of this wallet. */
  signCancel(...args: VaultArguments<"signCancel">): Promise<Hex> {
    return this.#deps.vault.signCancel(...args);
  }

  /** The accounts that sign vouchers, the first for new channels; none if this service has no channels. */
  channelSigners(): Promise<Address[]> {
    return this.#deps.vault.channelSigners();
  }

  /** The same, as accounts that pay gas. */
  async channelAccounts(): Promise<LocalAccount[]> {
    const { vault } = this.#deps;
    const signers = await vault.channelSigners();
    return signers.map((signer) =>
      transactionAccount(signer, (transaction) => vault.signWithdrawal(signer, transaction)),
    );
  }

  /** The voucher of a request that is paid through a channel, and its deposit, if the owner's signature covers them. */
  signVoucher(...args: VaultArguments<"signVoucher">): Promise<ChannelSignatures> {
    return this.#withAlarm(args[0], () => this.#deps.vault.signVoucher(...args));
  }

  /** Proves to a site which wallet sends the request, and nothing else (sign-in-with-x). */
  signIn(args: SiteSignInRequest): Promise<SIWxPayload | undefined> {
    return this.#withAlarm(args.agentId, () => this.#deps.vault.signIn(args));
  }

  /**
   * If the owner's signature does not cover the request, nothing is signed and an alarm is raised. So it is for rules of
   * an unknown version: a newer release wrote them, or somebody edited them.
   */
  async #withAlarm<T>(agentId: string, sign: () => Promise<T>): Promise<T> {
    try {
      return await sign();
    } catch (error) {
      const isUnknown = error instanceof ApiError && error.code === "policy_version_unknown";
      if (isUnknown) this.#deps.alarm({ agentId, error });
      if (!(error instanceof NotSignedFor)) throw error;
      this.#deps.alarm({ agentId, error });
      throw notSigned(error);
    }
  }
}

/** Passes only these two members of an owner's row. */
const ownerOf = ({ address, chainId }: Owner): Owner => ({ address, chainId });

/** A custody process of an older release would seal the wallet without the settings that it does not know. */
function resealedFor(rules: RulesInForce, resealed: Resealed): ResealedWallet {
  if (resealed.seal.rulesDigest !== rulesDigest(rules))
    throw new ApiError("policy_version_unknown", {
      detail: "The custody process does not know all settings of this agent. Nothing was changed.",
    });
  return { ...resealed, rulesVersion: versionFor(rules) };
}

/** The wallet's row, locked; its owner is the one whom the caller has locked. */
async function held(
  tx: Db,
  agentId: string,
  owner: Owner,
): Promise<HeldWallet & { rulesVersion: number }> {
  const wallet = await lockWallet(tx, agentId);
  if (!wallet) throw new CustodyError(`agent ${agentId} has no wallet`);
  return { ...wallet, agentId, ownerAddress: owner.address, ownerChainId: owner.chainId };
}

/** Without details: those are for the operator's log and the owner. */
const notSigned = (cause: Error): ApiError => new ApiError("policy_not_signed", { cause });
