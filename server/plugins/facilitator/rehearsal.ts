/** The payment checker's reads of one chain, in as few calls as possible. */
import type { Address, Hex } from "viem";
import { uintOf, type CallResult, type ContractCall } from "../../core/abi.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import { Coalescer } from "../../core/shared-answers.ts";
import { classifyChainError, revertReason } from "../../infra/chain/errors.ts";
import {
  callAs,
  decodeAggregate,
  encodeAggregate,
  balanceOf,
  isValidSignature,
} from "../../infra/chain/contracts.ts";
import type { ChainRpc } from "../../infra/chain/rpc.ts";
import type { Rehearsed } from "./check.ts";
import { paymentSchemeOf, schemeOf } from "../../schemes/index.ts";
import type { Diagnosis } from "../../schemes/scheme.ts";
import { DEPLOYMENT_GAS } from "../../core/signatures.ts";

const COALESCED = { maxBatch: 100, maxInFlight: 2 };
/** Gas in addition to the capped call: the transaction itself, its calldata, and Multicall3's loop. */
const OVERHEAD_GAS = 120_000n;
const ERC1271_MAGIC = "0x1626ba7e";
/** Payers with contract code are rehearsed alone, because their code could burn the gas of a shared call. */
const MAX_REMEMBERED_WALLETS = 10_000;

interface Rehearsal {
  authorization: SignedAuthorization;
  /** The transfer, exactly as it would be sent. */
  calls: readonly ContractCall[];
}

export class ChainPaymentReads {
  readonly #rpc: Pick<ChainRpc, "call">;
  readonly #gasCapPerItem: bigint;
  readonly #rehearsals: Coalescer<Rehearsal, boolean>;
  readonly #diagnoses: Coalescer<SignedAuthorization, Diagnosis>;
  readonly #wallets = new Set<Address>();

  constructor(rpc: Pick<ChainRpc, "call">, gasCapPerItem: bigint) {
    this.#rpc = rpc;
    this.#gasCapPerItem = gasCapPerItem;
    this.#rehearsals = new Coalescer((items) => this.#rehearseTogether(items), COALESCED);
    this.#diagnoses = new Coalescer((items) => this.#diagnoseTogether(items), COALESCED);
  }

  async rehearse(authorization: SignedAuthorization): Promise<boolean> {
    const plan = schemeOf(authorization).planTransfer(authorization);
    return plan.sender !== undefined || this.#wallets.has(authorization.from)
      ? (await this.rehearseAlone(authorization)).goesThrough
      : this.#rehearsals.fetch({ authorization, calls: plan.calls() });
  }

  async rehearseAlone(authorization: SignedAuthorization): Promise<Rehearsed> {
    const plan = schemeOf(authorization).planTransfer(authorization);
    const { deployment, sender } = plan;
    const calls = plan.calls();
    if (sender !== undefined) {
      // In a batch, Multicall3 would be the sender.
      const gas = this.#gasCapPerItem + OVERHEAD_GAS;
      const { success, data } = await callAs(this.#rpc, sender, calls[0], { gas });
      return { goesThrough: success, revert: success ? undefined : revertReason(data) };
    }
    const last = (await this.#call(calls, deployment ? DEPLOYMENT_GAS : 0n)).at(-1);
    return { goesThrough: last?.success === true, revert: last && revertReason(last.data) };
  }

  diagnose(authorization: SignedAuthorization): Promise<Diagnosis> {
    return this.#diagnoses.fetch(authorization);
  }

  async hasCode(address: Address): Promise<boolean> {
    const code = await this.#rpc.call<Hex | null>("eth_getCode", [address, "latest"]);
    const isContract = code !== "0x" && code !== null;
    if (isContract && this.#wallets.size < MAX_REMEMBERED_WALLETS) this.#wallets.add(address);
    return isContract;
  }

  async acceptsSignature(wallet: Address, digest: Hex, signature: Hex): Promise<boolean> {
    const data = isValidSignature(digest, signature);
    const [result] = await this.#call([{ target: wallet, data }], 0n);
    return result?.success === true && result.data.startsWith(ERC1271_MAGIC);
  }

  async #rehearseTogether(rehearsals: Rehearsal[]): Promise<boolean[]> {
    // The same payment twice is simulated once: the second transfer would fail after the first.
    const places = new Map<string, number>();
    const transfers: ContractCall[] = [];
    const placeOf = rehearsals.map(({ calls }) => {
      const name = calls.map(({ data }) => data).join();
      const known = places.get(name);
      if (known !== undefined) return known;
      transfers.push(...calls);
      const place = transfers.length - 1;
      places.set(name, place);
      return place;
    });
    const authorizations = rehearsals.map(({ authorization }) => authorization);
    // Money that a payer receives earlier in this call is not there on chain, so the balance of such payers is
    // read first.
    const receivers = new Set(authorizations.map(({ to }) => to));
    const shown = authorizations.filter(({ from, to }) => from !== to && receivers.has(from));
    const balances = shown.map(({ asset, from }) => ({ target: asset, data: balanceOf(from) }));
    const results = await this.#callOrGiveUp([...balances, ...transfers]);
    if (!results) return authorizations.map(() => false);
    const balanceOfPayer = new Map(
      shown.map(({ from }, index) => [from, uintOf(results[index]) ?? 0n]),
    );
    return authorizations.map((authorization, index) => {
      const transfer = results[balances.length + (placeOf[index] ?? 0)];
      const balance = balanceOfPayer.get(authorization.from) ?? authorization.value;
      return transfer?.success === true && balance >= authorization.value;
    });
  }

  /** One payer's code may have made the whole call fail: then each is simulated alone. */
  async #callOrGiveUp(calls: readonly ContractCall[]): Promise<CallResult[] | undefined> {
    try {
      return await this.#call(calls);
    } catch (error) {
      if (classifyChainError(error).kind === "unreachable") throw error;
      return undefined;
    }
  }

  async #diagnoseTogether(authorizations: SignedAuthorization[]): Promise<Diagnosis[]> {
    const questions = authorizations.map((authorization) => {
      const scheme = paymentSchemeOf(authorization);
      return [
        { target: authorization.asset, data: balanceOf(authorization.from) },
        scheme.stateCall(authorization),
        ...(scheme.diagnosisCalls?.(authorization) ?? []),
      ];
    });
    const results = await this.#call(questions.flat());
    return authorizations.map((authorization, index) => {
      const [balance, state, ...reads] = results.splice(0, questions[index]?.length);
      return {
        balanceAtomic: uintOf(balance),
        used: state && schemeOf(authorization).isEnded(authorization, state),
        reads,
      };
    });
  }

  /** With `extraGas`, the gas of the call is capped at one item's cap plus `extraGas`. */
  async #call(calls: readonly ContractCall[], extraGas?: bigint): Promise<CallResult[]> {
    const data = encodeAggregate(calls);
    const gas =
      extraGas === undefined
        ? {}
        : { gas: `0x${(this.#gasCapPerItem + OVERHEAD_GAS + extraGas).toString(16)}` as const };
    const call = { to: MULTICALL3_ADDRESS, data, ...gas };
    return decodeAggregate(await this.#rpc.call<Hex>("eth_call", [call, "latest"]), calls.length);
  }
}
