/** What the payment checker asks one chain, in as few calls as possible. */
import type { Address, Hex } from "viem";
import type { Deployment } from "../../schemes/exact-eip3009/signatures.ts";
import type { Diagnosis } from "../../schemes/exact-eip3009/terms.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import {
  decodeAggregate,
  encodeAggregate,
  type AggregateCall,
  type AggregateResult,
} from "../../infra/chain/multicall.ts";
import type { ChainClient } from "../../infra/chain/clients.ts";
import { Coalescer } from "../../infra/chain/coalesced-reads.ts";
import {
  authorizationState,
  balanceOf,
  isValidSignature,
  transferWithAuthorization,
} from "../../infra/chain/token.ts";

const COALESCED = { maxBatch: 100, maxInFlight: 2 };
const READ_TIMEOUT_MS = 8_000;
/** Gas around the one call that is capped: the transaction itself, its calldata, Multicall3's loop. */
const OVERHEAD_GAS = 120_000n;
const DEPLOYMENT_GAS = 1_500_000n;
const ERC1271_MAGIC = "0x1626ba7e";
/** Payers with code are rehearsed alone: their code could burn the gas of a shared call. */
const MAX_REMEMBERED_WALLETS = 10_000;

export class ChainPaymentReads {
  readonly #chain: ChainClient;
  readonly #gasCapPerItem: bigint;
  readonly #rehearsals: Coalescer<SignedAuthorization, boolean>;
  readonly #diagnoses: Coalescer<SignedAuthorization, Diagnosis>;
  readonly #wallets = new Set<Address>();

  constructor(chain: ChainClient, gasCapPerItem: bigint) {
    this.#chain = chain;
    this.#gasCapPerItem = gasCapPerItem;
    this.#rehearsals = new Coalescer((items) => this.#rehearseTogether(items), COALESCED);
    this.#diagnoses = new Coalescer((items) => this.#diagnoseTogether(items), COALESCED);
  }

  rehearse(authorization: SignedAuthorization): Promise<boolean> {
    return this.#wallets.has(authorization.from)
      ? this.rehearseAlone(authorization)
      : this.#rehearsals.ask(authorization);
  }

  async rehearseAlone(
    authorization: SignedAuthorization,
    deployment?: Deployment,
  ): Promise<boolean> {
    const calls: AggregateCall[] = deployment
      ? [{ target: deployment.factory, data: deployment.data }]
      : [];
    calls.push({ target: authorization.asset, data: transferWithAuthorization(authorization) });
    const results = await this.#call(calls, deployment ? DEPLOYMENT_GAS : 0n);
    return results.at(-1)?.success === true;
  }

  diagnose(authorization: SignedAuthorization): Promise<Diagnosis> {
    return this.#diagnoses.ask(authorization);
  }

  async hasCode(address: Address): Promise<boolean> {
    const code = await this.#limited(
      this.#chain.client.request({ method: "eth_getCode", params: [address, "latest"] }),
    );
    const isContract = code !== "0x" && code !== null;
    if (isContract && this.#wallets.size < MAX_REMEMBERED_WALLETS) this.#wallets.add(address);
    return isContract;
  }

  async acceptsSignature(wallet: Address, digest: Hex, signature: Hex): Promise<boolean> {
    const data = isValidSignature(digest, signature);
    const [result] = await this.#call([{ target: wallet, data }], 0n);
    return result?.success === true && result.data.startsWith(ERC1271_MAGIC);
  }

  async #rehearseTogether(authorizations: SignedAuthorization[]): Promise<boolean[]> {
    // The same payment asked twice is one transfer: a second would fail after the first.
    const places = new Map<string, number>();
    const transfers: AggregateCall[] = [];
    const placeOf = authorizations.map((authorization) => {
      const data = transferWithAuthorization(authorization);
      const place = places.get(data) ?? transfers.length;
      if (place === transfers.length) {
        places.set(data, place);
        transfers.push({ target: authorization.asset, data });
      }
      return place;
    });
    // Money received earlier in this call is not there on chain: such payers show their balance first.
    const receivers = new Set(authorizations.map(({ to }) => to));
    const shown = authorizations.filter(({ from, to }) => from !== to && receivers.has(from));
    const balances = shown.map(({ asset, from }) => ({ target: asset, data: balanceOf(from) }));
    const results = await this.#callOrGiveUp([...balances, ...transfers]);
    if (!results) return authorizations.map(() => false);
    const balanceOfPayer = new Map(
      shown.map(({ from }, index) => [from, toUint(results[index]) ?? 0n]),
    );
    return authorizations.map((authorization, index) => {
      const transfer = results[balances.length + (placeOf[index] ?? 0)];
      const balance = balanceOfPayer.get(authorization.from) ?? authorization.value;
      return transfer?.success === true && balance >= authorization.value;
    });
  }

  /** One payer's code may have spoiled the whole call: then each is looked at alone. */
  async #callOrGiveUp(calls: AggregateCall[]): Promise<AggregateResult[] | undefined> {
    try {
      return await this.#call(calls);
    } catch (error) {
      if (isAnswer(error)) return undefined;
      throw error;
    }
  }

  async #diagnoseTogether(authorizations: SignedAuthorization[]): Promise<Diagnosis[]> {
    const calls = authorizations.flatMap(({ asset, from, nonce }) => [
      { target: asset, data: balanceOf(from) },
      { target: asset, data: authorizationState(from, nonce) },
    ]);
    const results = await this.#call(calls);
    return authorizations.map((_, index) => {
      const state = toUint(results[index * 2 + 1]);
      return {
        balanceAtomic: toUint(results[index * 2]),
        used: state === undefined ? undefined : state !== 0n,
      };
    });
  }

  /** With `extraGas` given, the call is capped at one item's gas and that. */
  async #call(calls: AggregateCall[], extraGas?: bigint): Promise<AggregateResult[]> {
    const data = encodeAggregate(calls);
    const gas =
      extraGas === undefined
        ? {}
        : { gas: `0x${(this.#gasCapPerItem + OVERHEAD_GAS + extraGas).toString(16)}` as const };
    const answer = await this.#limited(
      this.#chain.client.request({
        method: "eth_call",
        params: [{ to: MULTICALL3_ADDRESS, data, ...gas }, "latest"],
      }),
    );
    return decodeAggregate(answer, calls.length);
  }

  async #limited<T>(work: Promise<T>): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(new ReadTimeout()), READ_TIMEOUT_MS);
    });
    return Promise.race([work, late]).finally(() => clearTimeout(timer));
  }
}

export class ReadTimeout extends Error {
  override name = "ReadTimeout";
  constructor() {
    super(`the chain did not answer within ${READ_TIMEOUT_MS} ms`);
  }
}

/** The node answered, with an error: in contrast to not being reached. */
function isAnswer(error: unknown): boolean {
  let cause: unknown = error;
  for (let depth = 0; depth < 5 && cause instanceof Error; depth += 1) {
    if (cause.name === "RpcRequestError") return true;
    cause = cause.cause;
  }
  return false;
}

function toUint(result: AggregateResult | undefined): bigint | undefined {
  return result?.success === true && /^0x[0-9a-f]{64}$/.test(result.data)
    ? BigInt(result.data)
    : undefined;
}
