// Starts the settlement engine alone, on a real database and a real chain, and signs authorizations for it.
import { randomBytes } from "node:crypto";
import { inspect } from "node:util";
import type { Pool } from "pg";
import type { Test } from "tap";
import { parseAbi, type Address, type Hex, type LocalAccount } from "viem";
import { privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { HeadWatcher } from "../../server/infra/chain/heads.ts";
import { ChainRpc } from "../../server/infra/chain/rpc.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import type { NetworkConfig } from "../../server/config.ts";
import { readGasBudget } from "../../server/core/gas.ts";
import { NETWORKS } from "../../server/core/networks.ts";
import { TIMINGS, type Timings } from "../../server/core/timings.ts";
import type { FaultPoint } from "../../server/plugins/settlement/context.ts";
import type { Nonce, SignedAuthorization } from "../../server/core/authorization.ts";
import type {
  SettlementKind,
  SettlementOutcome,
  SettlementRequest,
} from "../../server/plugins/settlement/types.ts";
import { newId } from "../../server/core/ids.ts";
import { RunningEngine, type RunningEngineDeps } from "../../server/plugins/settlement/engine.ts";
import type { TestChain } from "./chain.ts";
import { TRANSFER_TYPES } from "./eip3009.ts";

export interface TestEngineOptions {
  databaseUrl: string;
  chain: Pick<TestChain, "chainId" | "usdc" | "rpcUrl" | "relayerPrivateKey">;
  rpcUrls?: string[];
  /** WebSocket endpoints that announce new blocks. */
  wsUrls?: string[];
  relayerPrivateKeys?: Hex[];
  /** Instead of `relayerPrivateKeys`: accounts with remote keys. */
  signers?: readonly LocalAccount[];
  confirmations?: number;
  inclusionDepth?: number;
  maxFeeGwei?: number;
  maxTipGwei?: number;
  blockTimeMs?: number;
  gasCapPerItem?: bigint;
  /** In the format of GAS_BUDGET_<chainId>. */
  gasBudget?: string;
  nativePriceAtomic?: bigint;
  rpcTimeoutMs?: number;
  search?: RunningEngineDeps["search"];
  timings?: Partial<Timings>;
  fault?: (point: FaultPoint) => Promise<void>;
}

/** Short intervals for tests that wait for periodic work. Leases keep their real duration: a test ends them in the database. */
export const BRISK = {
  laneRetryMs: 100,
  resendAfterMs: 200,
  refusedForMs: 300,
  giveUpAgainMs: 1_500,
  missingForMs: 300,
  unseenForMs: 500,
  refusedRestMs: 200,
  deadTokenRestMs: 200,
  watchRoundMs: 100,
  idleHeadMs: 200,
  stuckHeadMs: 1_000,
} as const satisfies Partial<Timings>;

export interface TestEngine {
  engine: RunningEngine;
  pool: Pool;
  heads: HeadWatcher;
  /** Everything it logged at warn and above. */
  logs: { level: string; message: string; fields: object }[];
  /** The logs as text, for a failure message. */
  logText: () => string;
  /** The number of items in each transaction that it sent. */
  batches: number[];
  counts: { repriced: number; resent: number; givenUp: number };
  /** Kinds of the corrections it made. */
  corrections: string[];
  stop: () => Promise<void>;
}

/** `t` may be undefined in child processes, which end by being killed. */
export async function startEngine(
  t: Pick<Test, "teardown"> | undefined,
  options: TestEngineOptions,
): Promise<TestEngine> {
  const facts = NETWORKS.find((network) => network.chainId === options.chain.chainId);
  if (!facts) throw new Error("the test chain passes for no known network");
  const network: NetworkConfig = {
    ...facts,
    usdc: { ...facts.usdc, address: options.chain.usdc },
    blockTimeMs: options.blockTimeMs ?? facts.blockTimeMs,
    confirmations: options.confirmations ?? facts.confirmations,
    inclusionDepth: options.inclusionDepth ?? facts.inclusionDepth,
    maxFeeGwei: options.maxFeeGwei ?? facts.maxFeeGwei,
    maxTipGwei: options.maxTipGwei ?? facts.maxTipGwei,
    rpcUrls: options.rpcUrls ?? [options.chain.rpcUrl],
    wsUrls: options.wsUrls ?? [],
    gasBudget: readGasBudget(options.gasBudget ?? ""),
    nativePriceAtomic: options.nativePriceAtomic ?? 1_000_000n,
  };
  const pool = createPool(options.databaseUrl);
  pool.on("error", () => undefined);
  const rpc = new ChainRpc({ urls: network.rpcUrls, timeoutMs: options.rpcTimeoutMs ?? 5_000 });
  const timings = { ...TIMINGS, ...options.timings };
  const heads = new HeadWatcher(rpc, network.blockTimeMs, network.wsUrls, timings);
  const logs: TestEngine["logs"] = [];
  const note = (level: string) => (fields: object, message: string) =>
    void logs.push({ level, message, fields });
  const batches: number[] = [];
  const counts = { repriced: 0, resent: 0, givenUp: 0 };
  const corrections: string[] = [];
  const engine = new RunningEngine({
    pool,
    connectionString: options.databaseUrl,
    signers: (
      options.signers ??
      (options.relayerPrivateKeys ?? [options.chain.relayerPrivateKey]).map((key) =>
        privateKeyToAccount(key),
      )
    ).map((account) => ({ account })),
    timings,
    gasCapPerItem: options.gasCapPerItem ?? 300_000n,
    forcedCancelsPerDay: 3n,
    chains: [
      {
        network,
        rpc,
        heads,
        isVerified: () => true,
        meter: {
          batch: (items) => void batches.push(items),
          settled: () => undefined,
          paid: () => undefined,
          timeToResult: () => undefined,
          landed: () => undefined,
          finished: () => undefined,
          moved: () => undefined,
          unseen: () => undefined,
          corrected: (kind) => void corrections.push(kind),
          repriced: () => void (counts.repriced += 1),
          resent: () => void (counts.resent += 1),
          givenUp: () => void (counts.givenUp += 1),
        },
      },
    ],
    log: { info: () => undefined, warn: note("warn"), error: note("error") },
    ...(options.fault && { fault: options.fault }),
    ...(options.search && { search: options.search }),
  });
  await engine.start();
  let stopped = false;
  const stop = async (): Promise<void> => {
    if (stopped) return;
    stopped = true;
    await engine.stop();
    heads.close();
    await rpc.close();
    await pool.end();
  };
  t?.teardown(stop);
  return {
    engine,
    pool,
    heads,
    logs,
    logText: () => inspect(logs, { depth: 5 }),
    batches,
    counts,
    corrections,
    stop,
  };
}

/** Random throw-away keys. */
export const payers = (count: number): PrivateKeyAccount[] =>
  Array.from({ length: count }, () => privateKeyToAccount(`0x${randomBytes(32).toString("hex")}`));

export const randomNonce = (): Hex => `0x${randomBytes(32).toString("hex")}`;
export const randomAddress = (): Address => `0x${randomBytes(20).toString("hex")}`;

const domainOf = (chain: Pick<TestChain, "chainId" | "usdc">) => ({
  name: "USDC",
  version: "2",
  chainId: chain.chainId,
  verifyingContract: chain.usdc,
});

type Eip3009Authorization = SignedAuthorization & { nonce: Hex };

export async function authorize(
  chain: Pick<TestChain, "chainId" | "usdc">,
  payer: PrivateKeyAccount,
  terms: {
    to: Address;
    value?: bigint;
    validAfter?: bigint;
    validBefore?: bigint;
    nonce?: Nonce;
  },
): Promise<Eip3009Authorization> {
  const message = {
    from: payer.address,
    to: terms.to,
    value: terms.value ?? 1_000n,
    validAfter: terms.validAfter ?? 0n,
    validBefore: terms.validBefore ?? BigInt(Math.floor(Date.now() / 1_000) + 600),
    nonce: (terms.nonce ?? randomNonce()) as Hex,
  };
  const signature = await payer.signTypedData({
    domain: domainOf(chain),
    primaryType: "TransferWithAuthorization",
    types: TRANSFER_TYPES,
    message,
  });
  return { chainId: chain.chainId, asset: chain.usdc, ...message, signature };
}

export function signCancel(
  chain: Pick<TestChain, "chainId" | "usdc">,
  payer: PrivateKeyAccount,
  nonce: Nonce,
): Promise<Hex> {
  return payer.signTypedData({
    domain: domainOf(chain),
    primaryType: "CancelAuthorization",
    types: {
      CancelAuthorization: [
        { name: "authorizer", type: "address" },
        { name: "nonce", type: "bytes32" },
      ],
    },
    message: { authorizer: payer.address, nonce: nonce as Hex },
  });
}

export function request<Signed extends SignedAuthorization>(
  authorization: Signed,
  rest: Partial<Pick<SettlementRequest, "id" | "relay">> & {
    kind?: SettlementKind;
    agentId?: string | null;
  } = {},
): SettlementRequest & { authorization: Signed } {
  return {
    id: rest.id ?? newId("pay"),
    kind: rest.kind ?? "facilitated",
    agentId: rest.agentId ?? null,
    authorization,
    relay: rest.relay ?? true,
  };
}

/** Accepts and waits, as the facilitator does. */
export async function settle(
  { engine, pool }: Pick<TestEngine, "engine" | "pool">,
  wanted: SettlementRequest,
  timeoutMs = 15_000,
): Promise<SettlementOutcome> {
  await engine.settlement.accept(pool, wanted);
  return engine.settlement.wait(wanted.id, timeoutMs);
}

export const TOKEN_ABI = parseAbi([
  "function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature)",
  "function cancelAuthorization(address authorizer, bytes32 nonce, bytes signature)",
  "function balanceOf(address account) view returns (uint256)",
  "function authorizationState(address authorizer, bytes32 nonce) view returns (bool)",
  "function blacklist(address account)",
  "event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)",
  "event Transfer(address indexed from, address indexed to, uint256 value)",
]);
