/**
 * The calls by which the checker asks one chain about a payment, in as few as possible. All of them are limited in
 * time and gas.
 */
import type { Address, Hex } from "viem";
import { uintOf, type CallResult, type ContractCall } from "../../core/abi.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { MULTICALL3_ADDRESS, type NetworkFacts } from "../../core/networks.ts";
import { Coalescer } from "../../core/shared-answers.ts";
import { classifyChainError, revertReason } from "../../infra/chain/errors.ts";
import {
  callAs,
  decodeAggregate,
  encodeAggregate,
  balanceOf,
  isValidSignature,
  readNativeBalance,
  readNonce,
  tagOf,
} from "../../infra/chain/contracts.ts";
import type { ChainRpc } from "../../infra/chain/rpc.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { Diagnosis, PayerApproval } from "../../schemes/scheme.ts";
import { DEPLOYMENT_GAS } from "../../core/signatures.ts";

const COALESCED = { maxBatch: 100, maxInFlight: 2 };
/** Gas in addition to the capped call: the transaction itself, its calldata, and Multicall3's loop. */
const OVERHEAD_GAS = 120_000n;
const ERC1271_MAGIC = "0x1626ba7e";
/** Payers with contract code are simulated alone, because their code could burn the gas of a shared call. */
const MAX_REMEMBERED_WALLETS = 10_000;
const WEI_PER_ATOMIC = 10n ** 12n;

/** The result of a simulated transfer. */
interface SimulationResult {
  readonly goesThrough: boolean;
  /** The token's revert reason, if any. */
  readonly revert: string | undefined;
}

/**
 * Why the network would reject the payer's approval, or that the payment would fail after it. Undefined: both would
 * succeed.
 */
type PayerApprovalProblem = { readonly why: string } | { readonly fails: true } | undefined;

/** What the checker uses; tests answer it without a chain. */
export type PaymentReads = Pick<ChainPaymentReads, keyof ChainPaymentReads>;

const unreadable = { why: "The network could not simulate the approval." };

interface Simulation {
  authorization: SignedAuthorization;
  /** The transfer, exactly as it would be sent. */
  calls: readonly ContractCall[];
}

export class ChainPaymentReads {
  readonly #rpc: Pick<ChainRpc, "call">;
  readonly #network: Pick<NetworkFacts, "nativeSymbol">;
  readonly #gasCapPerItem: bigint;
  readonly #simulations: Coalescer<Simulation, boolean>;
  readonly #diagnoses: Coalescer<SignedAuthorization, Diagnosis>;
  readonly #wallets = new Set<Address>();

  constructor(
    rpc: Pick<ChainRpc, "call">,
    network: Pick<NetworkFacts, "nativeSymbol">,
    gasCapPerItem: bigint,
  ) {
    this.#rpc = rpc;
    this.#network = network;
    this.#gasCapPerItem = gasCapPerItem;
    this.#simulations = new Coalescer((items) => this.#simulateTogether(items), COALESCED);
    this.#diagnoses = new Coalescer((items) => this.#diagnoseTogether(items), COALESCED);
  }

  /** Whether the token would move the money now. Shared with payments that are checked at the same time. */
  async simulate(authorization: SignedAuthorization): Promise<boolean> {
    const plan = schemeOf(authorization).planTransfer(authorization);
    return plan.sender !== undefined || this.#wallets.has(authorization.from)
      ? (await this.simulateAlone(authorization)).goesThrough
      : this.#simulations.fetch({ authorization, calls: plan.calls() });
  }

  /**
   * The same, alone and under the gas cap. Deploys the payer's wallet first if the signature contains its deployment
   * (ERC-6492).
   */
  async simulateAlone(authorization: SignedAuthorization): Promise<SimulationResult> {
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

  /** What explains a transfer that fails. */
  diagnose(authorization: SignedAuthorization): Promise<Diagnosis> {
    return this.#diagnoses.fetch(authorization);
  }

  async hasCode(address: Address): Promise<boolean> {
    const code = await this.#rpc.call<Hex | null>("eth_getCode", [address, "latest"]);
    const isContract = code !== "0x" && code !== null;
    if (isContract && this.#wallets.size < MAX_REMEMBERED_WALLETS) this.#wallets.add(address);
    return isContract;
  }

  /** ERC-1271. */
  async acceptsSignature(wallet: Address, digest: Hex, signature: Hex): Promise<boolean> {
    const data = isValidSignature(digest, signature);
    const [result] = await this.#call([{ target: wallet, data }], 0n);
    return result?.success === true && result.data.startsWith(ERC1271_MAGIC);
  }

  /** Simulates the payer's own approval transaction and then the transfer, in one block. */
  async simulateAfter(
    payerApproval: PayerApproval,
    authorization: SignedAuthorization,
  ): Promise<PayerApprovalProblem> {
    const { from, nonce, gas, maxFeeWei } = payerApproval;
    const [expected, balanceWei, block, goesThrough] = await Promise.all([
      readNonce(this.#rpc, from, "latest"),
      readNativeBalance(this.#rpc, from),
      this.#rpc.call<{ baseFeePerGas?: Hex } | null>("eth_getBlockByNumber", ["latest", false]),
      this.#simulateBoth(payerApproval, authorization),
    ]);
    if (nonce !== expected)
      return { why: `The approval has nonce ${nonce}, but the payer's next nonce is ${expected}.` };
    if (!block) return unreadable;
    const baseFeeWei = BigInt(block.baseFeePerGas ?? "0x0");
    // The next block's base fee may be an eighth higher. An approval that could not be included in it would
    // only be waited for.
    const neededWei = baseFeeWei + (baseFeeWei + 7n) / 8n;
    if (maxFeeWei < neededWei)
      return {
        why: `The approval offers ${maxFeeWei} wei for gas that now costs ${baseFeeWei}. Offer at least ${neededWei}.`,
      };
    // Where gas is paid in USDC, the payment and the approval's gas come out of the same balance.
    const isUsdc = this.#network.nativeSymbol === "USDC";
    const alsoWei = isUsdc ? authorization.value * WEI_PER_ATOMIC : 0n;
    const costWei = gas * maxFeeWei;
    if (balanceWei < costWei + alsoWei)
      return {
        why: `The payer has ${balanceWei} wei of ${this.#network.nativeSymbol}; the approval needs up to ${costWei}${isUsdc ? " in addition to the payment" : ""}. This facilitator does not pay gas for approvals: sign the token's permit instead (eip2612GasSponsoring).`,
      };
    if (goesThrough === undefined) return unreadable;
    return goesThrough ? undefined : { fails: true };
  }

  /** Undefined if the node does not support `eth_simulateV1`. */
  async #simulateBoth(
    { from, call, gas }: PayerApproval,
    authorization: SignedAuthorization,
  ): Promise<boolean | undefined> {
    const plan = schemeOf(authorization).planTransfer(authorization);
    const settle = { from: plan.sender ?? MULTICALL3_ADDRESS, gas: tagOf(this.#gasCapPerItem) };
    const together = [
      { from, to: call.target, data: call.data, gas: tagOf(gas) },
      ...plan.calls().map(({ target, data }) => ({ ...settle, to: target, data })),
    ];
    try {
      const [block] = await this.#rpc.call<{ calls: { status: Hex }[] }[]>("eth_simulateV1", [
        { blockStateCalls: [{ calls: together }] },
        "latest",
      ]);
      const results = block?.calls ?? [];
      return results.length === together.length && results.every(({ status }) => status === "0x1");
    } catch (error) {
      const { kind } = classifyChainError(error);
      if (kind === "unreachable") throw error;
      return kind === "method_missing" ? undefined : false;
    }
  }

  async #simulateTogether(simulations: Simulation[]): Promise<boolean[]> {
    // The same payment twice is simulated once: the second transfer would fail after the first.
    const places = new Map<string, number>();
    const transfers: ContractCall[] = [];
    const placeOf = simulations.map(({ calls }) => {
      const name = calls.map(({ data }) => data).join();
      const known = places.get(name);
      if (known !== undefined) return known;
      transfers.push(...calls);
      const place = transfers.length - 1;
      places.set(name, place);
      return place;
    });
    const authorizations = simulations.map(({ authorization }) => authorization);
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
    const calls = authorizations.map((authorization) => {
      const scheme = schemeOf(authorization);
      return [
        { target: authorization.asset, data: balanceOf(authorization.from) },
        scheme.stateCall(authorization),
        ...(scheme.diagnosisCalls?.(authorization) ?? []),
      ];
    });
    const results = await this.#call(calls.flat());
    return authorizations.map((authorization, index) => {
      const [balance, state, ...reads] = results.splice(0, calls[index]?.length);
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
