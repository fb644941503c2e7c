// Sellers paid through Permit2: published packages in front of any facilitator, and a helper that settles a proof directly.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { x402Facilitator } from "@x402/core/facilitator";
import type { FacilitatorClient } from "@x402/core/server";
import {
  toFacilitatorEvmSigner,
  x402ExactPermit2ProxyABI,
  x402UptoPermit2ProxyABI,
} from "@x402/evm";
import { ExactEvmScheme as ExactFacilitator } from "@x402/evm/exact/facilitator";
import { ExactEvmScheme as ExactServer } from "@x402/evm/exact/server";
import { UptoEvmScheme as UptoFacilitator } from "@x402/evm/upto/facilitator";
import { UptoEvmScheme as UptoServer } from "@x402/evm/upto/server";
import { paymentMiddleware, setSettlementOverrides, x402ResourceServer } from "@x402/express";
import express from "express";
import type { Test } from "tap";
import { publicActions, type Address, type Hex } from "viem";
import type { TestAccount, TestChain } from "../helpers/chain.ts";
import { ERC20_ABI, EXACT_PROXY, PERMIT2, UPTO_PROXY } from "../helpers/permit2.ts";
import type { Market } from "./market.ts";

/** The reference facilitator in this process. */
export function referencePermit2(chain: TestChain, account: TestAccount): FacilitatorClient {
  const wallet = chain.walletClient(account).extend(publicActions);
  const signer = toFacilitatorEvmSigner({ ...wallet, address: account.address } as never);
  const network = `eip155:${chain.chainId}` as const;
  const facilitator = new x402Facilitator()
    .register(network, new ExactFacilitator(signer))
    .register(network, new UptoFacilitator(signer));
  return {
    verify: (payload, requirements) => facilitator.verify(payload, requirements),
    settle: (payload, requirements) => facilitator.settle(payload, requirements),
    getSupported: async () => facilitator.getSupported() as never,
  };
}

/** `GET /exact` costs 2000; `GET /upto/<amount>` charges that amount of 50000. Returns the origin. */
export async function permit2Seller(
  t: Pick<Test, "teardown">,
  options: { chain: TestChain; payTo: Address; facilitator: FacilitatorClient },
): Promise<string> {
  const { chain, payTo, facilitator } = options;
  const network = `eip155:${chain.chainId}` as const;
  const price = (amount: string, more = {}) => ({
    amount,
    asset: chain.usdc,
    extra: { name: "USDC", version: "2", ...more },
  });
  const api = express();
  const server = new x402ResourceServer(facilitator)
    .register(network, new ExactServer())
    .register(network, new UptoServer());
  const accepts = { network, payTo, maxTimeoutSeconds: 60 };
  api.use(
    paymentMiddleware(
      {
        "GET /exact": {
          accepts: {
            ...accepts,
            scheme: "exact",
            price: price("2000", { assetTransferMethod: "permit2" }),
          },
          description: "An answer",
        },
        "GET /upto/*": {
          accepts: { ...accepts, scheme: "upto", price: price("50000") },
          description: "Words, by the word",
        },
      },
      server,
    ),
  );
  api.get("/exact", (_request, response) => void response.json({ sold: "exact" }));
  api.get("/upto/:amount", (request, response) => {
    const { amount } = request.params;
    setSettlementOverrides(response, { amount });
    response.json({ used: amount });
  });
  const listening = createServer(api).listen(0, "127.0.0.1");
  t.teardown(() => {
    listening.closeAllConnections();
    listening.close();
  });
  await new Promise((resolve) => listening.once("listening", resolve));
  return `http://127.0.0.1:${(listening.address() as AddressInfo).port}`;
}

/** The payment that an agent sends to a seller. */
export interface Permit2Proof {
  payload: {
    signature: Hex;
    permit2Authorization: {
      from: Address;
      permitted: { token: Address; amount: string };
      spender: Address;
      nonce: string;
      deadline: string;
      witness: { to: Address; facilitator?: Address; validAfter: string };
    };
  };
}

/** Settles the payment from the given account, which need not be the named facilitator. */
export async function settlePermit2(
  chain: TestChain,
  account: TestAccount,
  { payload }: Permit2Proof,
  charged?: bigint,
): Promise<Hex> {
  const { signature, permit2Authorization: signed } = payload;
  const { permitted, nonce, deadline, from, witness } = signed;
  const permit = {
    permitted: { token: permitted.token, amount: BigInt(permitted.amount) },
    nonce: BigInt(nonce),
    deadline: BigInt(deadline),
  };
  const { to, facilitator } = witness;
  const validAfter = BigInt(witness.validAfter);
  const client = chain.walletClient(account);
  const hash = facilitator
    ? await client.writeContract({
        address: UPTO_PROXY,
        abi: x402UptoPermit2ProxyABI,
        functionName: "settle",
        args: [
          permit,
          charged ?? BigInt(permitted.amount),
          from,
          { to, facilitator, validAfter },
          signature,
        ],
      })
    : await client.writeContract({
        address: EXACT_PROXY,
        abi: x402ExactPermit2ProxyABI,
        functionName: "settle",
        args: [permit, from, { to, validAfter }, signature],
      });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  return hash;
}

export const allowanceOf = ({ chain, agent }: Pick<Market, "chain" | "agent">): Promise<bigint> =>
  chain.publicClient.readContract({
    address: chain.usdc,
    abi: ERC20_ABI,
    functionName: "allowance",
    args: [agent.walletAddress, PERMIT2],
  });

/** No overspend, the window equals the sum of the ledger, and the wallet paid exactly the settled amounts. */
export async function assertLedgerIsWallet(
  t: Test,
  made: Market,
  funds = 5_000_000n,
): Promise<void> {
  const { rows } = await made.database.pool.query<{
    settled: string;
    counted: string;
    window: string;
    summed: string | null;
  }>(
    `SELECT coalesce(sum(p.amount) FILTER (WHERE p.status = 'settled'), 0)::text AS settled,
            coalesce(sum(p.amount) FILTER (WHERE p.counted), 0)::text AS counted,
            a.window_sum::text AS window
       FROM agents a LEFT JOIN payments p ON p.agent_id = a.id AND p.kind <> 'incoming'
      WHERE a.id = $1 GROUP BY a.id`,
    [made.agent.id],
  );
  t.equal(await made.balanceOf(made.agent.walletAddress), funds - BigInt(rows[0]?.settled ?? "0"));
  t.equal(rows[0]?.window, rows[0]?.counted, "the window equals the sum of the ledger");
}
