/**
 * What contracts may take of wallets. A payment that goes through such a contract is signed only once the wallet's
 * allowance on chain covers it and everything else that is open for that contract; where it does not, the wallet signs a
 * permit of the token, our lanes relay it, and the payment waits. One such raise of a wallet at a time.
 */
import type { Address } from "viem";
import { ApiError } from "../../errors.ts";
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import { paymentSchemeOf, type AllowanceWanted } from "../../schemes/index.ts";
import type { Cover } from "../custody/covers.ts";
import type { SettlementOutcome } from "../settlement/types.ts";

/** What the chain says, all as of one block. */
export interface AllowanceState {
  atomic: bigint;
  /** How many permits of this wallet the token has taken. */
  count: bigint;
  /** The contract the payment goes through is there. */
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
  /** Where it was taken. */
  blockNumber: bigint | null;
}

export interface Covered {
  agentId: string;
  authorization: Authorization;
  cover: Cover;
}

/** The points between the steps at which a crash test kills the process. */
export type AllowanceFault = "permit-signed" | "permit-sent";

export interface AllowancesDeps {
  /** At the head, or at the block where that is newer than the head this process knows. */
  read(
    wallet: WalletRef,
    spender: Address,
    options: { notBefore: bigint; payment?: Authorization },
  ): Promise<AllowanceState>;
  store: {
    newest(args: { agentId: string; chainId: number }): Promise<Raise | undefined>;
    /** What is open for contracts that take by an allowance and may be taken after this block, and what they took after it. */
    promised(args: {
      agentId: string;
      chainId: number;
      afterBlock: bigint;
      atSeconds: bigint;
    }): Promise<bigint>;
    /** Those archived last first. */
    toRevoke(): Promise<(WalletRef & { agentId: string; spender: Address })[]>;
  };
  /** What the agent's limits still allow today, what is reserved taken off. */
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
  /** Undefined where this wallet has another permit under way. */
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

/** Of a permit. The token takes it no longer, and then another can be signed. */
const PERMIT_SECONDS = 120n;

/** What is left to take back of many agents that were archived together. */
const REVOKED_AT_ONCE = 8;
/** A permit that somebody kept could still raise it: then it is looked at again, long after it was last good. */
const ZERO_MS = 3_600_000;
const MAX_ZEROS = 100_000;

export class Allowances {
  readonly #deps: AllowancesDeps;
  /** When an archived agent's allowance was last seen at zero: losing this costs a look each. */
  readonly #zeroAtMs = new Map<string, number>();

  constructor(deps: AllowancesDeps) {
    this.#deps = deps;
  }

  /** Returns once this payment, which is reserved, may be signed. */
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
        const asked = { notBefore, payment: authorization };
        const state = await deps.read(authorization, spender, asked);
        if (!state.isThere)
          throw new ApiError("chain_unavailable", {
            detail:
              "The contract for this payment is not deployed on the network. Nothing was signed.",
          });
        // After the chain was read: what was taken before is gone from the allowance, what was taken since is in here.
        const afterBlock = state.blockNumber;
        const atSeconds = state.timestampSeconds;
        const promised = await deps.store.promised({ agentId, chainId, afterBlock, atSeconds });
        if (state.atomic >= promised) return;
        // Over, and the token has taken no permit since: another one now would end as this did.
        if (raised?.count === state.count) throw notInTime(await deps.wait(raised.id, 0));
        if (performance.now() < until) raised = await this.#raise(payment, state, newest);
      }
      if (performance.now() >= until) throw notInTime();
    }
  }

  /**
   * To what is open, and what today's limits still allow: the next payments of the day need none. Undefined where another
   * payment of this wallet has raised it since the chain was read: the token would not take a second permit.
   */
  async #raise(
    { agentId, authorization, cover }: Covered,
    state: AllowanceState,
    newest: Raise | undefined,
  ): Promise<{ id: string; count: bigint } | undefined> {
    const deps = this.#deps;
    const { chainId } = authorization;
    // What is left first: what is reserved in between is in both then, and not in neither.
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
    // The limits are lower than they were when the rest was promised: it must end first.
    if (signed.value < promised) throw notInTime();
    await deps.fault("permit-signed");
    const isNewest = (await deps.store.newest({ agentId, chainId }))?.id === newest?.id;
    if (!isNewest) return undefined;
    const acceptedBlock = state.blockNumber;
    const id = await deps.accept({ agentId, authorization: signed, acceptedBlock });
    await deps.fault("permit-sent");
    return id === undefined ? undefined : { id, count: state.count };
  }

  /** Of agents that are archived; what cannot be done now is done the next time. */
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

  /** True where there is nothing to take back; else it is on its way to be. */
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
