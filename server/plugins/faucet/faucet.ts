/** Gives out USDC on the local chain, by a real mint transaction of the key that may mint. */
import {
  createPublicClient,
  createWalletClient,
  defineChain,
  http,
  type Address,
  type Hash,
} from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { parsePayable, type ParsedAmount } from "../../core/money.ts";

export interface Faucet {
  /** Resolves when the transaction is in a block. */
  send(options: { to: Address; amountAtomic: bigint }): Promise<Hash>;
}

const MINT_ABI = [
  {
    type: "function",
    name: "mint",
    stateMutability: "nonpayable",
    inputs: [
      { name: "to", type: "address" },
      { name: "amount", type: "uint256" },
    ],
    outputs: [{ type: "bool" }],
  },
] as const;

const RECEIPT_TIMEOUT_MS = 15_000;

export function createFaucet(options: {
  rpcUrl: string;
  chainId: number;
  privateKey: `0x${string}`;
  usdc: Address;
}): Faucet {
  const account = privateKeyToAccount(options.privateKey);
  const chain = defineChain({
    id: options.chainId,
    name: "local chain",
    nativeCurrency: { name: "Native", symbol: "NATIVE", decimals: 18 },
    rpcUrls: { default: { http: [options.rpcUrl] } },
  });
  const transport = http(options.rpcUrl);
  const reader = createPublicClient({ chain, transport, pollingInterval: 100 });
  const sender = createWalletClient({ account, chain, transport });
  // One at a time: the node's pending count is the next nonce only when nobody else is between.
  let last: Promise<unknown> = Promise.resolve();

  async function mint(to: Address, amountAtomic: bigint): Promise<Hash> {
    const nonce = await reader.getTransactionCount({
      address: account.address,
      blockTag: "pending",
    });
    return sender.writeContract({
      address: options.usdc,
      abi: MINT_ABI,
      functionName: "mint",
      args: [to, amountAtomic],
      nonce,
    });
  }

  return {
    async send({ to, amountAtomic }) {
      const sending = last.then(() => mint(to, amountAtomic));
      last = sending.catch(() => undefined);
      const hash = await sending;
      const receipt = await reader.waitForTransactionReceipt({
        hash,
        timeout: RECEIPT_TIMEOUT_MS,
      });
      if (receipt.status !== "success") throw new Error(`the faucet's mint ${hash} was reverted`);
      return hash;
    },
  };
}

/** Toy money, but not so much that a mistyped demo becomes unreadable. */
export const FAUCET = { usualAmount: "100", maxAmount: "10000", perMinute: 600 } as const;

export function readFaucetAmount(text: string = FAUCET.usualAmount): ParsedAmount {
  const parsed = parsePayable(text);
  const max = parsePayable(FAUCET.maxAmount);
  if (parsed.ok && max.ok && parsed.atomic > max.atomic)
    return { ok: false, reason: `must be at most ${FAUCET.maxAmount}` };
  return parsed;
}
