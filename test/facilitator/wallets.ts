// Smart wallets for tests: deployed ones (ERC-1271) and ones that sign before their deployment (ERC-6492).
import { readFileSync } from "node:fs";
import { randomBytes } from "node:crypto";
import {
  concat,
  encodeFunctionData,
  getAddress,
  pad,
  serializeErc6492Signature,
  type Abi,
  type Address,
  type Hex,
} from "viem";
import type { PrivateKeyAccount } from "viem/accounts";
import type { TestChain } from "../helpers/chain.ts";

interface Artifact {
  abi: Abi;
  bytecode: Hex;
}
const artifact = (name: string): Artifact =>
  JSON.parse(
    readFileSync(new URL(`../helpers/contracts/${name}.json`, import.meta.url), "utf8"),
  ) as Artifact;
const WALLET = artifact("TestWallet");
const FACTORY = artifact("TestWalletFactory");

/** In the order of the contract's enum. */
export const MODES = [
  "Honest",
  "WrongValue",
  "Reverts",
  "BurnsAllGas",
  "Expensive",
  "TwoFaced",
  "Anything",
  "ApprovedHash",
] as const;
type Mode = (typeof MODES)[number];

async function deploy(chain: TestChain, { abi, bytecode }: Artifact, args: unknown[]) {
  const client = chain.walletClient(chain.admin);
  const hash = await client.deployContract({ abi, bytecode, args });
  const receipt = await chain.publicClient.waitForTransactionReceipt({ hash });
  if (!receipt.contractAddress) throw new Error("not deployed");
  return getAddress(receipt.contractAddress);
}

export const deployWallet = (chain: TestChain, owner: Address, mode: Mode): Promise<Address> =>
  deploy(chain, WALLET, [owner, MODES.indexOf(mode)]);

/** Signs like an owner of a Safe: approves the hash on chain, and returns 65 bytes that are no key's signature. */
export async function approveHash(
  chain: TestChain,
  wallet: Address,
  owner: PrivateKeyAccount,
  hash: Hex,
): Promise<Hex> {
  const sent = await chain
    .walletClient(owner)
    .writeContract({ address: wallet, abi: WALLET.abi, functionName: "approveHash", args: [hash] });
  await chain.publicClient.waitForTransactionReceipt({ hash: sent });
  return concat([pad(owner.address), pad("0x0"), "0x01"]);
}

/** A wallet's address before its deployment, and a function that wraps its signatures. */
export async function futureWallet(chain: TestChain, owner: Address, mode: Mode = "Honest") {
  const factory = await deploy(chain, FACTORY, []);
  const args = [owner, MODES.indexOf(mode), `0x${randomBytes(32).toString("hex")}`];
  const address = (await chain.publicClient.readContract({
    address: factory,
    abi: FACTORY.abi,
    functionName: "addressOf",
    args,
  })) as Address;
  const data = encodeFunctionData({ abi: FACTORY.abi, functionName: "create", args });
  return {
    address,
    factory,
    wrap: (signature: Hex): Hex => serializeErc6492Signature({ address: factory, data, signature }),
  };
}
