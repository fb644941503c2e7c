// One interface to anvil and to the simulated chain, so that the same properties run against both.
import type { Test } from "tap";
import { Agent } from "undici";
import { encodeFunctionData, parseAbi, parseGwei, type Address, type Hex } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { encodeAggregate } from "../../server/infra/chain/contracts.ts";
import {
  ChainRefusal,
  classifyChainError,
  revertData,
  revertReason,
} from "../../server/infra/chain/errors.ts";
import type { Caller, RpcCall } from "../../server/infra/chain/rpc.ts";
import { BATCHER_ADDRESS, packTransfers } from "../../server/core/batcher.ts";
import type { ContractCall } from "../../server/core/abi.ts";
import { MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import { postJson } from "../../server/infra/post.ts";
import { rpcBatch } from "../../server/local/anvil.ts";
import { testAccount, testChain, type TestAccount } from "../helpers/chain.ts";
import type { Random } from "../helpers/random.ts";
import { respond, SimulatedChain } from "./chain/chain.ts";
import type { Contract } from "./chain/execution.ts";

const BLOCK_SECONDS = 2;
export const BASE_FEE_WEI = parseGwei("1");
const BLOCK_GAS = 30_000_000;

/** One of the two chains. Blocks are made only by `mine`, at a given time. */
interface Subject extends Caller {
  mine(timestampSeconds: number, baseFeeWei: bigint): Promise<void>;
  mint(accounts: readonly Address[], atomic: bigint): Promise<void>;
  fund(account: Address, wei: bigint): Promise<void>;
  setCode(address: Address, code: Hex, behaviour: Contract): Promise<void>;
  forgetPool(): Promise<void>;
  /** The last blocks are replaced by empty ones with the same times, and their transactions are gone. */
  reorganise(timestampsSeconds: readonly number[], baseFeeWei: bigint): Promise<void>;
}

type AdminCall = "pause" | "unpause" | "blacklist" | "unBlacklist";
const ADMIN_ABI = parseAbi([
  "function pause()",
  "function unpause()",
  "function blacklist(address)",
  "function unBlacklist(address)",
]);

export class TwoChains {
  readonly anvil: Subject;
  readonly simulated: Subject;
  /** Its inspection, which anvil does not have. */
  readonly model: SimulatedChain;
  readonly chainId: number;
  readonly usdc: Address;
  readonly admin: TestAccount;
  baseFeeWei = BASE_FEE_WEI;
  readonly #times: number[];
  #accounts = 1_000;

  constructor(
    anvil: Subject,
    model: SimulatedChain,
    facts: { chainId: number; usdc: Address; admin: TestAccount; times: number[] },
  ) {
    this.anvil = anvil;
    this.model = model;
    this.simulated = subjectOf(model);
    this.chainId = facts.chainId;
    this.usdc = facts.usdc;
    this.admin = facts.admin;
    this.#times = facts.times;
  }

  /** Of the newest block. */
  get nowSeconds(): bigint {
    return BigInt(this.#times.at(-1) ?? 0);
  }

  get height(): bigint {
    return BigInt(this.#times.length - 1);
  }

  /** An account with native balance on both chains. */
  async account(wei = 10n ** 21n): Promise<TestAccount> {
    const account = testAccount((this.#accounts += 1));
    await this.fund(account.address, wei);
    return account;
  }

  async fund(account: Address, wei: bigint): Promise<void> {
    await this.each((chain) => chain.fund(account, wei));
  }

  async payer(atomic: bigint): Promise<TestAccount> {
    const account = testAccount((this.#accounts += 1));
    await this.each((chain) => chain.mint([account.address], atomic));
    return account;
  }

  async mine(seconds = BLOCK_SECONDS): Promise<void> {
    const next = Number(this.nowSeconds) + seconds;
    await this.each((chain) => chain.mine(next, this.baseFeeWei));
    this.#times.push(next);
  }

  /** What waits in the pools is forgotten too. */
  async reorganise(depth: number): Promise<void> {
    const times = this.#times.slice(-depth);
    await this.each((chain) => chain.forgetPool());
    await this.each((chain) => chain.reorganise(times, this.baseFeeWei));
  }

  /** The results on both chains, of which the caller compares what must agree. */
  async each<T>(run: (chain: Subject) => Promise<T>): Promise<{ anvil: T; simulated: T }> {
    return { anvil: await run(this.anvil), simulated: await run(this.simulated) };
  }

  /** Fails unless both chains give the same; returns it. */
  async same<T>(t: Test, what: string, run: (chain: Subject) => Promise<T>): Promise<T> {
    const { anvil, simulated } = await this.each((chain) => outcomeOf(() => run(chain)));
    t.strictSame(simulated, anvil, what);
    if ("failed" in anvil) return anvil as never;
    return anvil.result;
  }

  /** Sends to both; the hash, or how it was refused. */
  send(t: Test, raw: Hex, what = "the same response to a send"): Promise<Hex | Refused> {
    return this.same(t, what, (chain) => chain.call<Hex>("eth_sendRawTransaction", [raw]));
  }

  sign(sender: TestAccount, given: Partial<Signed> & { nonce: number }): Promise<Hex> {
    return sender.signTransaction({
      type: "eip1559",
      chainId: this.chainId,
      to: this.usdc,
      gas: 500_000n,
      maxFeePerGas: parseGwei("10"),
      maxPriorityFeePerGas: parseGwei("1"),
      ...given,
    });
  }

  adminCall(functionName: AdminCall, account?: Address): Hex {
    return encodeFunctionData({
      abi: ADMIN_ABI,
      functionName,
      args: account === undefined ? [] : [account],
    });
  }
}

interface Signed {
  nonce: number;
  to: Address;
  data: Hex;
  gas: bigint;
  value: bigint;
  chainId: number;
  maxFeePerGas: bigint;
  maxPriorityFeePerGas: bigint;
}

export interface Refused {
  failed: string;
  reason: string | undefined;
}

export const isRefused = (answer: unknown): answer is Refused =>
  typeof answer === "object" && answer !== null && "failed" in answer;

/** As the product reads a failure: its kind, and the revert reason. */
export async function outcomeOf<T>(run: () => Promise<T>): Promise<{ result: T } | Refused> {
  try {
    return { result: await run() };
  } catch (error) {
    if (!(error instanceof ChainRefusal)) throw error;
    return { failed: classifyChainError(error).kind, reason: revertReason(revertData(error)) };
  }
}

/** As the product sends several calls in one transaction. */
export const throughMulticall = (calls: readonly ContractCall[]): { to: Address; data: Hex } => ({
  to: MULTICALL3_ADDRESS,
  data: encodeAggregate(calls),
});
export function throughBatcher(
  calls: readonly ContractCall[],
  gasEach = 100_000n,
): { to: Address; data: Hex } {
  const data = packTransfers(calls, gasEach);
  if (!data) throw new Error("the calls do not fit the batcher");
  return { to: BATCHER_ADDRESS, data };
}

export async function twoChains(t: Test): Promise<TwoChains> {
  const chain = await testChain(t, {
    flags: ["--no-mining", `--gas-limit=${BLOCK_GAS}`, `--block-base-fee-per-gas=${BASE_FEE_WEI}`],
  });
  const { rpcUrl, chainId, usdc, admin } = chain;
  const send = async (calls: RpcCall[]): Promise<unknown[]> => rpcBatch(rpcUrl, calls);
  const agent = new Agent();
  t.teardown(() => agent.close());
  const snapshots = new Map<number, Hex>();
  const keep = async (height: number): Promise<void> => {
    const [id] = await send([{ method: "evm_snapshot", params: [] }]);
    snapshots.set(height, id as Hex);
  };
  const [first] = (await send([{ method: "eth_getBlockByNumber", params: ["latest", false] }])) as [
    { timestamp: Hex; number: Hex },
  ];
  if (Number(first.number) !== 1) throw new Error("a fresh chain has one block");
  let height = 1;
  await keep(height);
  const anvil: Subject = {
    call: (method, params) => callAnvil(agent, rpcUrl, method, params),
    async mine(timestampSeconds, baseFeeWei) {
      await send([
        { method: "evm_setNextBlockTimestamp", params: [timestampSeconds] },
        { method: "anvil_setNextBlockBaseFeePerGas", params: [`0x${baseFeeWei.toString(16)}`] },
      ]);
      await send([{ method: "evm_mine", params: [] }]);
      await keep((height += 1));
    },
    async mint(accounts, atomic) {
      await chain.mint([...accounts], atomic);
      await keep(height);
    },
    async fund(address, value) {
      await chain.testClient.setBalance({ address, value });
      await keep(height);
    },
    async setCode(address, bytecode) {
      await chain.testClient.setCode({ address, bytecode });
      await keep(height);
    },
    async forgetPool() {
      await send([{ method: "anvil_dropAllTransactions", params: [] }]);
    },
    async reorganise(timestampsSeconds, baseFeeWei) {
      height -= timestampsSeconds.length;
      await send([{ method: "evm_revert", params: [snapshots.get(height)] }]);
      await keep(height);
      for (const timestampSeconds of timestampsSeconds)
        await anvil.mine(timestampSeconds, baseFeeWei);
    },
  };
  const start = Number(first.timestamp);
  let nowSeconds = start - BLOCK_SECONDS;
  const model = new SimulatedChain({
    chainId,
    usdc,
    nowMs: () => nowSeconds * 1_000,
    relayers: [],
    admin: admin.address,
    baseFeeWei: BASE_FEE_WEI,
    blockGasLimit: BLOCK_GAS,
  });
  clocks.set(model, (seconds) => void (nowSeconds = seconds));
  nowSeconds = start;
  model.mine();
  const both = new TwoChains(anvil, model, {
    chainId,
    usdc,
    admin,
    times: [start - BLOCK_SECONDS, start],
  });
  await both.fund(admin.address, 10n ** 21n);
  return both;
}

const clocks = new WeakMap<SimulatedChain, (seconds: number) => void>();

function subjectOf(model: SimulatedChain): Subject {
  return {
    call: async (method, params) => callModel(model, method, params),
    async mine(timestampSeconds, baseFeeWei) {
      clocks.get(model)?.(timestampSeconds);
      model.setBaseFee(baseFeeWei);
      model.mine();
    },
    async mint(accounts, atomic) {
      for (const account of accounts) model.mint(account, atomic);
    },
    fund: async (address, wei) => model.fund(address, wei - model.nativeBalanceOf(address)),
    setCode: async (address, code, behaviour) => model.setCode(address, code, behaviour),
    forgetPool: async () => model.evictMempool(),
    reorganise: async (times) => model.reorganise(times.length, { drop: "all" }),
  };
}

/** What the product's transport makes of an error. */
export async function callModel<T>(
  model: SimulatedChain,
  method: string,
  params: unknown[],
  endpoint = 0,
): Promise<T> {
  const { result, error } = respond(model, endpoint, { id: 1, method, params }) as RpcAnswer<T>;
  if (error) throw new ChainRefusal(error.message, error.code, error.data);
  // A network does not pass objects on.
  return JSON.parse(JSON.stringify(result)) as T;
}

interface RpcAnswer<T> {
  result: T;
  error?: { code: number; message: string; data?: unknown };
}

/** The product's transport: `fetch` is slow for so many small calls. */
async function callAnvil<T>(
  agent: Agent,
  url: string,
  method: string,
  params: unknown[],
): Promise<T> {
  const sent = { jsonrpc: "2.0", id: 1, method, params };
  const answer = await postJson(agent, url, sent, { budgetMs: 30_000 });
  const { result, error } = answer as RpcAnswer<T>;
  if (error) throw new ChainRefusal(error.message, error.code, error.data);
  return result;
}

export function randomWord(random: Random): Hex {
  const digits = Array.from({ length: 64 }, () => random.int(0, 15).toString(16));
  return `0x${digits.join("")}`;
}

export function randomAccount(random: Random): TestAccount {
  const privateKey = randomWord(random);
  return { ...privateKeyToAccount(privateKey), privateKey };
}
