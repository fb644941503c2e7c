// Standard parts of the protocol around a paywall: the reference facilitator and the stock clients.
import { x402Client } from "@x402/core/client";
import { x402Facilitator } from "@x402/core/facilitator";
import { encodePaymentSignatureHeader } from "@x402/core/http";
import type { FacilitatorClient } from "@x402/core/server";
import type { PaymentPayload, PaymentRequired, SettleResponse } from "@x402/core/types";
import { toFacilitatorEvmSigner } from "@x402/evm";
import { ExactEvmScheme as ExactClient } from "@x402/evm/exact/client";
import { ExactEvmScheme as ExactFacilitator } from "@x402/evm/exact/facilitator";
import { UptoEvmScheme as UptoFacilitator } from "@x402/evm/upto/facilitator";
import { publicActions } from "viem";
import type { TestAccount, TestChain } from "../helpers/chain.ts";

interface CountedFacilitator extends FacilitatorClient {
  settled: SettleResponse[];
  settleCalls: number;
}

/** The reference facilitator in this process, which counts its settlements. */
export function referenceFacilitator(chain: TestChain): CountedFacilitator {
  // Not our relayer's account: if another sender uses up its nonces, the service takes half a minute to
  // recover.
  const account = chain.accounts.at(-1);
  if (!account) throw new Error("the test chain has no accounts");
  const wallet = chain.walletClient(account).extend(publicActions);
  const signer = toFacilitatorEvmSigner({ ...wallet, address: account.address } as never);
  const network = `eip155:${chain.chainId}` as const;
  const facilitator = new x402Facilitator()
    .register(network, new ExactFacilitator(signer))
    .register(network, new UptoFacilitator(signer))
    .registerExtension({ key: "eip2612GasSponsoring" });
  const counted: CountedFacilitator = {
    settled: [],
    settleCalls: 0,
    verify: (payload, requirements) => facilitator.verify(payload, requirements),
    async settle(payload, requirements) {
      counted.settleCalls += 1;
      const answer = await facilitator.settle(payload, requirements);
      counted.settled.push(answer);
      return answer;
    },
    getSupported: async () => facilitator.getSupported() as never,
  };
  return counted;
}

/** A stock client that can pay with the test chain's USDC, which no standard asset table contains. */
export function stockClient(chain: TestChain, account: TestAccount): x402Client {
  return x402Client.fromConfig({
    schemes: [{ network: `eip155:${chain.chainId}`, client: new ExactClient(account) }],
    spendControls: { allowedAssets: [{ network: `eip155:${chain.chainId}`, asset: chain.usdc }] },
  });
}

/** One signed proof, which a test can send repeatedly. */
export async function proofFor(
  chain: TestChain,
  account: TestAccount,
  required: PaymentRequired,
): Promise<{ payload: PaymentPayload; headers: Record<string, string> }> {
  const payload = await stockClient(chain, account).createPaymentPayload(required);
  return { payload, headers: { "payment-signature": encodePaymentSignatureHeader(payload) } };
}
