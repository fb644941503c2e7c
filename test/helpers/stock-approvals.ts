// What an operator of the published facilitator supplies for payers' own approvals: transactions in order, and their
// simulation in one block.
import type { FacilitatorEvmSigner } from "@x402/evm";
import {
  createErc20ApprovalGasSponsoringExtension,
  type TransactionRequest,
} from "@x402/extensions";
import {
  parseTransaction,
  recoverTransactionAddress,
  type Address,
  type Hex,
  type TransactionSerialized,
} from "viem";
import type { TestAccount, TestChain } from "./chain.ts";

export const approvalsExtension = (
  chain: TestChain,
  account: TestAccount,
  signer: FacilitatorEvmSigner,
) =>
  createErc20ApprovalGasSponsoringExtension({
    ...signer,
    sendTransactions: (requests: readonly TransactionRequest[]) => sent(chain, account, requests),
    simulateTransactions: (requests: readonly TransactionRequest[]) =>
      simulated(chain, account.address, requests),
  } as never);

async function sent(
  chain: TestChain,
  account: TestAccount,
  requests: readonly TransactionRequest[],
): Promise<Hex[]> {
  const client = chain.walletClient(account);
  const hashes: Hex[] = [];
  for (const request of requests) {
    const hash =
      typeof request === "string"
        ? await client.sendRawTransaction({ serializedTransaction: request })
        : await client.sendTransaction(request);
    await chain.publicClient.waitForTransactionReceipt({ hash });
    hashes.push(hash);
  }
  return hashes;
}

async function simulated(
  chain: TestChain,
  from: Address,
  requests: readonly TransactionRequest[],
): Promise<boolean> {
  const calls = await Promise.all(
    requests.map(async (request) => {
      if (typeof request !== "string") return { account: from, to: request.to, data: request.data };
      const { to, data, value, gas } = parseTransaction(request);
      const account = await recoverTransactionAddress({
        serializedTransaction: request as TransactionSerialized,
      });
      return { account, to, data, value, gas };
    }),
  );
  const [block] = await chain.publicClient.simulateBlocks({ blocks: [{ calls }] });
  return block?.calls.every(({ status }) => status === "success") ?? false;
}
