// The contents of every local chain: USDC, Multicall3, our batcher, the CREATE2 deployer, Permit2 and x402's two
// proxies of it at their usual addresses, an admin (the faucet) that may mint, and native balance for senders of
// transactions.
import { readFileSync } from "node:fs";
import { encodeAbiParameters, keccak256, numberToHex, pad, type Address, type Hex } from "viem";
import { CREATE2_DEPLOYER } from "../core/networks.ts";
import batcher from "../infra/chain/batcher/Batcher.json" with { type: "json" };
import { rpcBatch, type RpcCall } from "./anvil.ts";

export const LOCAL_USDC: Address = "0x3600000000000000000000000000000000000000";
export const MULTICALL3: Address = "0xcA11bde05977b3631167028862bE2a173976CA11";
const CREATE2_DEPLOYER_CODE: Hex =
  "0x7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe03601600081602082378035828234f58015156039578182fd5b8082525050506014600cf3";

export interface ChainSetup {
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

/**
 * A contract that the CREATE2 deployer creates on other networks, so its address proves its creation code. Here its
 * runtime code of Arc Testnet's chain id is placed; on any other chain id, Permit2 computes its domain with each call.
 */
export interface Create2Artifact {
  address: Address;
  salt: Hex;
  creationCode: Hex;
  deployedBytecode: Hex;
}
export const CREATE2_CONTRACTS = [
  "Permit2",
  "X402ExactPermit2Proxy",
  "X402UptoPermit2Proxy",
] as const;

export const create2Artifact = (name: (typeof CREATE2_CONTRACTS)[number]): Create2Artifact =>
  readArtifact(name) as Create2Artifact;

export function usdcArtifact(): PlacedArtifact {
  return readArtifact("LocalUsdc") as PlacedArtifact;
}

export async function placeContracts(rpcUrl: string, setup: ChainSetup): Promise<void> {
  const token = usdcArtifact();
  const calls: RpcCall[] = [
    ...placedCode(setup).map(({ address, code }) => setCode(address, code)),
    setCode(CREATE2_DEPLOYER, CREATE2_DEPLOYER_CODE),
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
  { address: MULTICALL3, code: (readArtifact("Multicall3") as PlacedArtifact).deployedBytecode },
  { address: batcher.address as Address, code: batcher.deployedBytecode as Hex },
  ...CREATE2_CONTRACTS.map((name) => {
    const { address, deployedBytecode } = create2Artifact(name);
    return { address, code: deployedBytecode };
  }),
];

/** The storage slot of an account's token balance (a mapping entry). */
export function balanceSlot(account: Address): Hex {
  const base = slotOf(usdcArtifact(), "_balanceWords");
  return keccak256(
    encodeAbiParameters([{ type: "address" }, { type: "uint256" }], [account, BigInt(base)]),
  );
}

function slotOf(artifact: PlacedArtifact, label: string): number {
  const slot = artifact.slots[label];
  if (slot === undefined) throw new Error(`the artifact names no slot for ${label}`);
  return slot;
}

function setCode(address: Address, code: Hex): RpcCall {
  return { method: "anvil_setCode", params: [address, code] };
}

function readArtifact(name: string): unknown {
  const path = new URL(`./contracts/${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(path, "utf8"));
}
