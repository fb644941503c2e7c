// A real chain for one test: anvil with USDC, Multicall3 and funded accounts, set up like local mode.
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Test } from "tap";
import {
  createPublicClient,
  createTestClient,
  createWalletClient,
  defineChain,
  encodeAbiParameters,
  erc20Abi,
  http,
  keccak256,
  numberToHex,
  type Address,
  type Chain,
  type Hex,
} from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import {
  resolveAnvil,
  PortTaken,
  rpc,
  rpcBatch,
  startAnvil,
  type Anvil,
} from "../../server/local/anvil.ts";
import { LOCAL_USDC, MULTICALL3, placeContracts } from "../../server/local/chain-contracts.ts";
import usdcArtifact from "../../server/local/contracts/LocalUsdc.json" with { type: "json" };
import { freePort } from "../../server/local/free-port.ts";

export interface TestChainOptions {
  /** Seconds between blocks, or "auto" (default): each transaction is mined at once, and an idle chain gets a block now and then. */
  blockTimeSeconds?: number | "auto";
  chainId?: number;
  /** The address of USDC; with another network's address this chain stands in for that network. */
  usdc?: Address;
  /** More anvil flags, such as `--block-base-fee-per-gas=20000000000`. */
  flags?: string[];
}

export interface TestAccount extends PrivateKeyAccount {
  readonly privateKey: Hex;
}

const DEFAULT_CHAIN_ID = 5042002;
const ACCOUNT_COUNT = 10;
const NATIVE_WEI = 10_000n * 10n ** 18n;
const BALANCE_BITS = (1n << 255n) - 1n;

/**
 * `admin` mints, pauses and blocks; `relayer` and `accounts` hold native balance and no USDC. `stop` and `start` end the
 * node and restart it on the same port with its state; `freeze` and `thaw` make it hang.
 */
export async function testChain(t: Pick<Test, "teardown">, options: TestChainOptions = {}) {
  const dir = mkdtempSync(join(tmpdir(), "purser-chain-"));
  let port = await freePort();
  const chainId = options.chainId ?? DEFAULT_CHAIN_ID;
  const usdc = options.usdc ?? LOCAL_USDC;
  const binary = await resolveAnvil(dir, () => undefined);
  const blockTime = options.blockTimeSeconds ?? "auto";
  const launch = (): Promise<Anvil> =>
    startAnvil({
      binary,
      dir,
      port,
      chainId,
      keepState: true,
      removeIfAbandoned: dir,
      flags: options.flags ?? [],
      ...(blockTime !== "auto" && { blockTimeSeconds: blockTime }),
    });

  let node: Anvil | undefined = await launch().catch(async (error: unknown) => {
    if (!(error instanceof PortTaken)) throw error;
    port = await freePort();
    return launch();
  });
  const { rpcUrl } = node;
  const idle = blockTime === "auto" ? mineWhenIdle(rpcUrl) : undefined;
  t.teardown(async () => {
    const idleEnded = idle?.end();
    await stop();
    await idleEnded;
    rmSync(dir, { recursive: true, force: true });
  });

  const admin = testAccount(0);
  const relayer = testAccount(1);
  const accounts = Array.from({ length: ACCOUNT_COUNT }, (_, index) => testAccount(index + 2));
  await placeContracts(rpcUrl, {
    usdc,
    admin: admin.address,
    funded: [admin, relayer, ...accounts].map(({ address }) => ({ address, wei: NATIVE_WEI })),
  });

  const chain = viemChain(chainId, rpcUrl);
  // No batching and no caching: a test sees the current state of the chain.
  const transport = http(rpcUrl, { retryCount: 0 });
  const publicClient = createPublicClient({ chain, transport, pollingInterval: 20, cacheTime: 0 });
  const testClient = createTestClient({ chain, transport, mode: "anvil", cacheTime: 0 });

  async function stop(): Promise<void> {
    const stopping = node;
    node = undefined;
    if (stopping === undefined) return;
    process.kill(stopping.pid, "SIGCONT"); // A frozen process could not handle the signal to stop.
    await stopping.stop();
  }

  return {
    rpcUrl,
    chainId,
    usdc,
    chain,
    admin,
    relayer,
    relayerPrivateKey: relayer.privateKey,
    accounts,
    publicClient,
    testClient,
    /** A client that signs with this account's key and sends to this chain. */
    walletClient: (account: PrivateKeyAccount) =>
      createWalletClient({ account, chain, transport, pollingInterval: 20, cacheTime: 0 }),
    usdcOf: (account: Address) =>
      publicClient.readContract({
        address: usdc,
        abi: erc20Abi,
        functionName: "balanceOf",
        args: [account],
      }),
    /** See `raiseBalances`. */
    mint: (to: Address | Address[], amountAtomic: bigint) =>
      raiseBalances(rpcUrl, usdc, [to].flat(), amountAtomic),
    stop,
    async start(): Promise<void> {
      node ??= await launch();
    },
    /** Kills the node as a power cut would: unsaved state is lost. */
    async kill(): Promise<void> {
      const killed = node;
      node = undefined;
      if (killed === undefined) return;
      process.kill(killed.pid, "SIGKILL");
      await killed.ended;
    },
    freeze: () => void (node && process.kill(node.pid, "SIGSTOP")),
    thaw: () => void (node && process.kill(node.pid, "SIGCONT")),
    /** Whether the node left a saved state. */
    hasState: () => existsSync(join(dir, "state.json")),
  };
}

const LOOK_EVERY_MS = 10_000;
const IDLE_SECONDS = 30;

/**
 * Payments are refused on a chain whose newest block is old, and a busy machine may take minutes between two transactions
 * of a test. A test that mines by hand (automine is off) gets no block from here.
 */
function mineWhenIdle(rpcUrl: string): { end(): Promise<unknown> } {
  const look = async (): Promise<void> => {
    if (!(await rpc(rpcUrl, "anvil_getAutomine"))) return;
    const head = (await rpc(rpcUrl, "eth_getBlockByNumber", ["latest", false])) as {
      timestamp: Hex;
    };
    if (Date.now() / 1_000 - Number(head.timestamp) > IDLE_SECONDS) await rpc(rpcUrl, "evm_mine");
  };
  let underWay: Promise<unknown> = Promise.resolve();
  // The node may be stopped or frozen by its test.
  const timer = setInterval(() => {
    underWay = underWay.then(look).catch(() => undefined);
  }, LOOK_EVERY_MS);
  return {
    end: () => {
      clearInterval(timer);
      return underWay;
    },
  };
}

export type TestChain = Awaited<ReturnType<typeof testChain>>;

/** The same keys in every run; they hold nothing on any other chain. */
export function testAccount(index: number): TestAccount {
  const privateKey = numberToHex(0x7e57_0000_0000n + BigInt(index), { size: 32 });
  return { ...privateKeyToAccount(privateKey), privateKey };
}

function viemChain(chainId: number, rpcUrl: string): Chain {
  return defineChain({
    id: chainId,
    name: "test chain",
    nativeCurrency: { name: "Native", symbol: "NATIVE", decimals: 18 },
    rpcUrls: { default: { http: [rpcUrl] } },
    contracts: { multicall3: { address: MULTICALL3 } },
    // viem's search for a replaced transaction skips new blocks. Where each transaction has its own block no further block
    // follows, so it would not return a receipt that exists.
    supportsTransactionReplacementDetection: false,
  });
}

/** The same chain for another test, with its own relayer and its own third-party account. */
export async function withOwnAccounts(chain: TestChain): Promise<TestChain> {
  const [relayer, thirdParty] = [generatePrivateKey(), generatePrivateKey()].map((privateKey) => ({
    ...privateKeyToAccount(privateKey),
    privateKey,
  })) as [TestAccount, TestAccount];
  for (const { address } of [relayer, thirdParty])
    await chain.testClient.setBalance({ address, value: NATIVE_WEI });
  return { ...chain, relayer, relayerPrivateKey: relayer.privateKey, accounts: [thirdParty] };
}

/** The storage slot of an account's token balance (a mapping entry). */
export function balanceSlot(account: Address): Hex {
  const base = BigInt(usdcArtifact.slots._balanceWords);
  return keccak256(
    encodeAbiParameters([{ type: "address" }, { type: "uint256" }], [account, base]),
  );
}

/** Raises balances at once, without a block, a transaction or a Transfer event. */
export async function raiseBalances(
  rpcUrl: string,
  usdc: Address,
  accounts: Address[],
  amountAtomic: bigint,
): Promise<void> {
  const slots = accounts.map(balanceSlot);
  const words = await rpcBatch(
    rpcUrl,
    slots.map((slot) => ({ method: "eth_getStorageAt", params: [usdc, slot, "latest"] })),
  );
  await rpcBatch(
    rpcUrl,
    slots.map((slot, index) => {
      const word = BigInt(words[index] as Hex);
      if ((word & BALANCE_BITS) + amountAtomic > BALANCE_BITS) throw new Error("amount too large");
      const raised = numberToHex(word + amountAtomic, { size: 32 });
      return { method: "anvil_setStorageAt", params: [usdc, slot, raised] };
    }),
  );
}
