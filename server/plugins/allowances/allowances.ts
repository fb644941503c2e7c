/**
 * ERC-20 allowances of agents' wallets for payment contracts (Permit2). A payment through such a contract is signed
 * only when the wallet's allowance on the chain covers it and all other open payments through that contract. Otherwise
 * the wallet signs a permit of the token, our relayers submit it, and the payment waits. Only one such increase per
 * wallet is in progress at a time.
 */
import type { Address } from "viem";
import { ApiError } from "../../errors.ts";
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import { paymentSchemeOf, type AllowanceWanted } from "../../schemes/index.ts";
import type { Cover } from "../custody/covers.ts";
import type { SettlementOutcome } from "../settlement/types.ts";

/** The state on the chain, all as of one block. */
interface AllowanceState {
  atomic: bigint;
  /** The token's permit nonce of the wallet. */
  count: bigint;
  /** Whether the contract of the payment is deployed. */
  isThere: boolean;
  blockNumber: bigint;
  timestampSeconds: bigint;
}

export interface WalletRef {
  chainId: number;
  asset: Address;
  from: Address;
}

/** The newest permit of a wallet. */
export interface Raise {
  id: string;
  isOpen: boolean;
  /** The block in which it was executed. */
  blockNumber: bigint | null;
}

interface Covered {
  agentId: string;
  authorization: Authorization;
  cover: Cover;
}

/** The points at which a crash test kills the process. */
export type AllowanceFault = "permit-signed" | "permit-sent";

export interface AllowancesDeps {
  /** At this process's head, or at `notBefore` if that is newer. */
  read(
    wallet: WalletRef,
    spender: Address,
    options: { notBefore: bigint; payment?: Authorization },
  ): Promise<AllowanceState>;
  store: {
    newest(args: { agentId: string; chainId: number }): Promise<Raise | undefined>;
    /**
     * The amount of open payments through contracts with an allowance that may be executed after this block, and of
     * those executed after it.
     */
    promised(args: {
      agentId: string;
      chainId: number;
      afterBlock: bigint;
      atSeconds: bigint;
    }): Promise<bigint>;
    /** The most recently archived first. */
    toRevoke(): Promise<(WalletRef & { agentId: string; spender: Address })[]>;
  };
  /** What the agent's limits still allow today, minus reservations. */
  leftOfDay(agentId: string): Promise<bigint>;
  custody: {
    signAllowance(
      agentId: string,
      payment: { authorization: Authorization; cover: Cover },
      wanted: Pick<AllowanceWanted, "value" | "count" | "deadline">,
    ): Promise<SignedAuthorization>;
    signRevocation(
      agentId: string,
      wallet: Pick<WalletRef, "chainId" | "asset">,
      wanted: Pick<AllowanceWanted, "spender" | "count" | "deadline">,
    ): Promise<SignedAuthorization>;
  };
  /** Undefined if this wallet has another permit in progress. */
  accept(request: {
    agentId: string;
    authorization: SignedAuthorization;
    acceptedBlock: bigint;
  }): Promise<string | undefined>;
  wait(id: string, timeoutMs: number): Promise<SettlementOutcome>;
  /** How long a payment waits for its allowance. */
  waitMs: number;
  nowSeconds(): bigint;
  fault(point: AllowanceFault): Promise<void>;
  log: { warn(fields: object, message: string): void };
}

/** The validity of a permit. After it, the token refuses the permit and another one can be signed. */
const PERMIT_SECONDS = 120n;

/** Limits the revocations per round if many agents were archived together. */
const REVOKED_AT_ONCE = 8;
/**
 * An unused permit could still raise an allowance of zero, so it is checked again long after any permit has expired.
 */
const ZERO_MS = 3_600_000;
const MAX_ZEROS = 100_000;

export class Allowances {
  readonly #deps: AllowancesDeps;
  /** When an archived agent's allowance was last seen to be zero: losing this costs one read each. */
  readonly #zeroAtMs = new Map<string, number>();

  constructor(deps: AllowancesDeps) {
    this.#deps = deps;
  }

  /** Returns once this reserved payment may be signed. */
  async cover(payment: Covered): Promise<void> {
    const { agentId, authorization } = payment;
    const { spender } = paymentSchemeOf(authorization);
    if (spender === undefined) return;
    const deps = this.#deps;
    const until = performance.now() + deps.waitMs;
    const { chainId } = authorization;
    let raised: { id: string; count: bigint } | undefined;
    for (;;) {
      const newest = await deps.store.newest({ agentId, chainId });
      if (newest?.isOpen === true) {
        await deps.wait(newest.id, Math.max(until - performance.now(), 0));
      } else {
        const notBefore = newest?.blockNumber ?? 0n;
        const options = { notBefore, payment: authorization };
        const state = await deps.read(authorization, spender, options);
        if (!state.isThere)
          throw new ApiError("chain_unavailable", {
            detail:
              "The contract for this payment is not deployed on the network. Nothing was signed.",
          });
        // Read after the chain: earlier executions are already deducted from the allowance, later ones are included
        // here.
        const afterBlock = state.blockNumber;
        const atSeconds = state.timestampSeconds;
        const promised = await deps.store.promised({ agentId, chainId, afterBlock, atSeconds });
        if (state.atomic >= promised) return;
        // The permit has ended without being executed: another one now would end in the same way.
        if (raised?.count === state.count) throw notInTime(await deps.wait(raised.id, 0));
        if (performance.now() < until) raised = await this.#raise(payment, state, newest);
      }
      if (performance.now() >= until) throw notInTime();
    }
  }

  /**
   * Raises the allowance to the open amount plus what today's limits still allow, so that the next payments of the day
   * need no permit. Undefined if another payment of this wallet raised it since the chain was read: the token would not
   * accept a second permit.
   */
  async #raise(
    { agentId, authorization, cover }: Covered,
    state: AllowanceState,
    newest: Raise | undefined,
  ): Promise<{ id: string; count: bigint } | undefined> {
    const deps = this.#deps;
    const { chainId } = authorization;
    // The remaining limit is read first: a concurrent reservation is then counted twice, and not missed.
    const left = await deps.leftOfDay(agentId);
    const promised = await deps.store.promised({
      agentId,
      chainId,
      afterBlock: state.blockNumber,
      atSeconds: state.timestampSeconds,
    });
    const value = promised + left;
    const terms = { value, count: state.count, deadline: this.#deadline(state) };
    const signed = await deps.custody.signAllowance(agentId, { authorization, cover }, terms);
    // The limits were lowered since the open payments were reserved: those must end first.
    if (signed.value < promised) throw notInTime();
    await deps.fault("permit-signed");
    const isNewest = (await deps.store.newest({ agentId, chainId }))?.id === newest?.id;
    if (!isNewest) return undefined;
    const acceptedBlock = state.blockNumber;
    const id = await deps.accept({ agentId, authorization: signed, acceptedBlock });
    await deps.fault("permit-sent");
    return id === undefined ? undefined : { id, count: state.count };
  }

  /** Revokes the allowances of archived agents; failures are retried in the next round. */
  async revokeArchived(): Promise<void> {
    const { store, log } = this.#deps;
    const left = (await store.toRevoke())
      .map((one) => ({ ...one, key: `${one.agentId} ${one.chainId} ${one.spender}` }))
      .filter(({ key }) => {
        const atMs = this.#zeroAtMs.get(key);
        return atMs === undefined || performance.now() - atMs >= ZERO_MS;
      });
    for (let from = 0; from < left.length; from += REVOKED_AT_ONCE)
      await Promise.all(
        left
          .slice(from, from + REVOKED_AT_ONCE)
          .map(async ({ agentId, spender, key, ...wallet }) => {
            try {
              if (await this.#isRevoked(agentId, wallet, spender)) this.#rememberZero(key);
            } catch (err) {
              log.warn({ err, agentId, spender }, "an allowance is not revoked yet");
            }
          }),
      );
  }

  #rememberZero(key: string): void {
    if (this.#zeroAtMs.size >= MAX_ZEROS) this.#zeroAtMs.clear();
    this.#zeroAtMs.set(key, performance.now());
  }

  /** True if there is nothing to revoke; otherwise a revocation is in progress. */
  async #isRevoked(agentId: string, wallet: WalletRef, spender: Address): Promise<boolean> {
    const deps = this.#deps;
    const newest = await deps.store.newest({ agentId, chainId: wallet.chainId });
    if (newest?.isOpen === true) return false;
    const state = await deps.read(wallet, spender, { notBefore: newest?.blockNumber ?? 0n });
    if (state.atomic === 0n) return true;
    const terms = { spender, count: state.count, deadline: this.#deadline(state) };
    const authorization = await deps.custody.signRevocation(agentId, wallet, terms);
    await deps.accept({ agentId, authorization, acceptedBlock: state.blockNumber });
    return false;
  }

  #deadline({ timestampSeconds }: AllowanceState): bigint {
    const now = this.#deps.nowSeconds();
    // The newest block of an idle chain may be old.
    return (timestampSeconds > now ? timestampSeconds : now) + PERMIT_SECONDS;
  }
}

const notInTime = (ended?: SettlementOutcome): ApiError => {
  const why = ended && "message" in ended ? ` (${ended.message})` : "";
  return new ApiError("service_unavailable", {
    detail: `The wallet's allowance for the payment contract was not raised in time${why}. Nothing was paid. Try again.`,
  });
};
