// The contents of every local chain: USDC, Permit2, x402's two proxies of it, x402's payment channels with their two
// deposit collectors (our own sources, in contracts/), Multicall3 (viem's code of it) and our batcher at their usual
// addresses, an admin (the faucet) that may mint, and native balance for senders of transactions. anvil itself has the
// CREATE2 deployer.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { numberToHex, pad, type Address, type Hex } from "viem";
import { MULTICALL3_ADDRESS } from "../core/networks.ts";
import batcher from "../infra/chain/batcher/Batcher.json" with { type: "json" };
import { ROOT } from "../infra/root.ts";
import { rpcBatch, type RpcCall } from "./anvil.ts";

export const LOCAL_USDC: Address = "0x3600000000000000000000000000000000000000";
export const MULTICALL3 = MULTICALL3_ADDRESS;
/** Our own contracts in place of published ones, by the published address. */
export const STAND_INS = {
  LocalPermit2: "0x000000000022D473030F116dDEE9F6B43aC78BA3",
  LocalExactPermit2Proxy: "0x402085c248EeA27D92E8b30b2C58ed07f9E20001",
  LocalUptoPermit2Proxy: "0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002",
  LocalBatchSettlement: "0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003",
  LocalErc3009DepositCollector: "0x4020806089470a89826cB9fB1f4059150b550004",
  LocalPermit2DepositCollector: "0x4020425FAf3B746C082C2f942b4E5159887B0005",
} as const;

interface ChainSetup {
  usdc: Address;
  /** May mint, pause and block accounts. */
  admin: Address;
  /** Native balance in wei for each; the caller leaves larger balances as they are. */
  funded: { address: Address; wei: bigint }[];
}

interface PlacedArtifact {
  deployedBytecode: Hex;
  slots: Record<string, number>;
}

function usdcArtifact(): PlacedArtifact {
  return readArtifact("LocalUsdc");
}

export async function placeContracts(rpcUrl: string, setup: ChainSetup): Promise<void> {
  const token = usdcArtifact();
  const calls: RpcCall[] = [
    ...placedCode(setup).map(({ address, code }) => setCode(address, code)),
    {
      method: "anvil_setStorageAt",
      params: [setup.usdc, numberToHex(slotOf(token, "_admin"), { size: 32 }), pad(setup.admin)],
    },
    ...setup.funded.map(({ address, wei }) => ({
      method: "anvil_setBalance",
      params: [address, numberToHex(wei)],
    })),
  ];
  await rpcBatch(rpcUrl, calls);
}

/** Whether a contract or the admin differs from what this build places. */
export async function setupMissing(rpcUrl: string, setup: ChainSetup): Promise<boolean> {
  const adminSlot = numberToHex(slotOf(usdcArtifact(), "_admin"), { size: 32 });
  const placed = placedCode(setup);
  const [adminWord, ...codes] = (await rpcBatch(rpcUrl, [
    { method: "eth_getStorageAt", params: [setup.usdc, adminSlot, "latest"] },
    ...placed.map(({ address }) => ({ method: "eth_getCode", params: [address, "latest"] })),
  ])) as [Hex, ...Hex[]];
  // The rest of this storage word is the pause flag, which is not compared.
  const admin = `0x${adminWord.slice(-40)}`;
  return (
    admin !== setup.admin.toLowerCase() || placed.some(({ code }, index) => codes[index] !== code)
  );
}

const placedCode = (setup: ChainSetup): { address: Address; code: Hex }[] => [
  { address: setup.usdc, code: usdcArtifact().deployedBytecode },
  { address: MULTICALL3, code: multicall3Code() },
  { address: batcher.address as Address, code: batcher.deployedBytecode as Hex },
  ...Object.entries(STAND_INS).map(([name, address]) => ({
    address,
    code: readArtifact(name).deployedBytecode,
  })),
];

/** viem has its creation code and does not export it by name, so it is read from the package's file. */
function multicall3Code(): Hex {
  const require = createRequire(import.meta.url);
  const file = join(dirname(require.resolve("viem")), "constants", "contracts.js");
  const { multicall3Bytecode } = require(file) as { multicall3Bytecode: Hex };
  // Creation code is a prologue, which ends with RETURN and INVALID, and the code that it returns.
  const end = "f3fe";
  return `0x${multicall3Bytecode.slice(multicall3Bytecode.indexOf(end) + end.length)}`;
}

function slotOf(artifact: PlacedArtifact, label: string): number {
  const slot = artifact.slots[label];
  if (slot === undefined) throw new Error(`the artifact names no slot for ${label}`);
  return slot;
}

function setCode(address: Address, code: Hex): RpcCall {
  return { method: "anvil_setCode", params: [address, code] };
}

function readArtifact(name: string): PlacedArtifact {
  const path = new URL(`server/local/contracts/${name}.json`, ROOT);
  return JSON.parse(readFileSync(path, "utf8")) as PlacedArtifact;
}
