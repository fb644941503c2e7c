/** The modules' interface to the agents' wallets: seals change in their transactions, and a mismatch raises an alarm. */
import { isKeysUnavailable } from "../../infra/kms.ts";
import type { SIWxPayload } from "@x402/extensions/sign-in-with-x";
import type { Address, Hex } from "viem";
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import { rulesDigest, type RulesInForce } from "../../core/rules.ts";
import { ApiError } from "../../errors.ts";
import type { Db } from "../../infra/db/prisma.ts";
import type { Cover } from "./covers.ts";
import { CustodyError, NotSignedFor, type SealedWallet } from "./envelope.ts";
import type { HeldWallet, KeyVault, NewRules, Resealed, SiteSignInRequest } from "./key-vault.ts";
import { lockWallet, updateSeal } from "./store.ts";
import type { SignedMove, Owner } from "./seal-changes.ts";

export interface Deps {
  /** In this process, or in another. */
  vault: KeyVault;
  /** Stored rules do not match the owner's signatures: raises an alarm, and notifies the owner. Never fails. */
  alarm(about: { agentId: string; error: Error }): void;
}

type VaultArguments<Name extends keyof KeyVault> = Parameters<KeyVault[Name]>;

export class Custody {
  readonly #deps: Deps;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** A new random wallet for this agent, sealed for its owner alone; the key itself is gone when this returns. */
  createWallet(agentId: string, owner: Owner): Promise<{ address: Address; sealed: SealedWallet }> {
    return this.#deps.vault.createWallet(agentId, ownerOf(owner));
  }

  /** A wallet that was made for an order, sealed for it now that it is signed. */
  async adopt(
    wallet: VaultArguments<"adopt">[0],
    first: VaultArguments<"adopt">[1],
  ): Promise<Resealed> {
    const { agentId, owner } = wallet;
    return this.#ringing(agentId, () =>
      this.#deps.vault.adopt({ ...wallet, owner: ownerOf(owner) }, first),
    );
  }

  /**
   * Seals the wallet for other rules, in the transaction that writes them and holds the agent's row. Narrower ones need
   * nothing but that; others need the policy the owner just signed. Where rows were tampered with, a narrowing only
   * leaves the wallet as it is: it opens for nothing then, until the owner signs again.
   */
  async reseal(
    tx: Db,
    { agentId, owner }: { agentId: string; owner: Owner },
    rules: NewRules,
  ): Promise<void> {
    const wallet = await held(tx, agentId, owner);
    if (!rules.signed && rulesDigest(rules.wanted) === wallet.rulesDigest) return;
    try {
      const { seal, sealed } = await this.#deps.vault.reseal(wallet, rules);
      await updateSeal(tx, agentId, seal, sealed);
    } catch (error) {
      // What narrows acts at once, also while the keys are away: the old seal opens for nothing then.
      if (!rules.signed && isKeysUnavailable(error)) return;
      if (!(error instanceof NotSignedFor)) throw error;
      this.#deps.alarm({ agentId, error });
      if (rules.signed) throw notSigned(error);
    }
  }

  /**
   * Seals the wallet for another owner, who has signed nothing yet: for the same rules or narrower ones, and for no
   * payment before that owner's first policy. In the transaction that moves the agent, and holds its row.
   */
  async reown(
    tx: Db,
    { agentId, from, to }: { agentId: string; from: Owner; to: Owner },
    rules: { current: RulesInForce; wanted: RulesInForce; signed: SignedMove },
  ): Promise<void> {
    const wallet = await held(tx, agentId, from);
    await this.#ringing(agentId, async () => {
      const { seal, sealed } = await this.#deps.vault.reown(wallet, ownerOf(to), rules);
      await updateSeal(tx, agentId, seal, sealed);
    });
  }

  /** A transfer of our USDC from this agent's wallet, if the owner's signature covers it. */
  signAuthorization(agentId: string, authorization: Authorization, cover: Cover): Promise<Hex> {
    return this.#ringing(agentId, () =>
      this.#deps.vault.signAuthorization(agentId, authorization, cover),
    );
  }

  /** Lets the contract that a payment goes through take money of this wallet. */
  signAllowance(...asked: VaultArguments<"signAllowance">): Promise<SignedAuthorization> {
    return this.#ringing(asked[0], () => this.#deps.vault.signAllowance(...asked));
  }

  /** Takes such an allowance back. */
  signRevocation(...asked: VaultArguments<"signRevocation">): Promise<SignedAuthorization> {
    return this.#deps.vault.signRevocation(...asked);
  }

  /** Makes an unused authorization of this wallet worthless. */
  signCancel(...asked: VaultArguments<"signCancel">): Promise<Hex> {
    return this.#deps.vault.signCancel(...asked);
  }

  /** Tells a site which wallet is asking, and nothing else. */
  signIn(asked: SiteSignInRequest): Promise<SIWxPayload | undefined> {
    return this.#ringing(asked.agentId, () => this.#deps.vault.signIn(asked));
  }

  /** What the owner's signature does not cover is not signed, and is an alarm. */
  async #ringing<T>(agentId: string, sign: () => Promise<T>): Promise<T> {
    try {
      return await sign();
    } catch (error) {
      if (!(error instanceof NotSignedFor)) throw error;
      this.#deps.alarm({ agentId, error });
      throw notSigned(error);
    }
  }
}

/** Nothing else of an owner's row goes on. */
const ownerOf = ({ address, chainId }: Owner): Owner => ({ address, chainId });

/** The wallet's row, locked; of the owner whom the caller holds. */
async function held(tx: Db, agentId: string, owner: Owner): Promise<HeldWallet> {
  const wallet = await lockWallet(tx, agentId);
  if (!wallet) throw new CustodyError(`agent ${agentId} has no wallet`);
  return { ...wallet, agentId, ownerAddress: owner.address, ownerChainId: owner.chainId };
}

/** Says nothing of what was found: that is for the operator's log and the owner. */
const notSigned = (cause: Error): ApiError => new ApiError("policy_not_signed", { cause });
