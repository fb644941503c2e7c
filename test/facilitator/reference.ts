// Runs the reference facilitator's class in this process, on the test's chain.
import { toFacilitatorEvmSigner } from "@x402/evm";
import { ExactEvmScheme } from "@x402/evm/exact/facilitator";
import { ExactEvmSchemeV1 } from "@x402/evm/exact/v1/facilitator";
import { UptoEvmScheme } from "@x402/evm/upto/facilitator";
import { publicActions } from "viem";
import type { TestAccount, TestChain } from "../helpers/chain.ts";
import { approvalsExtension } from "../helpers/stock-approvals.ts";
import type { Body } from "./payments.ts";

interface ReferenceVerdict {
  isValid: boolean;
  reason: string;
}

export function referenceFacilitator(chain: TestChain, account: TestAccount = chain.admin) {
  const client = chain.walletClient(account).extend(publicActions);
  const signer = toFacilitatorEvmSigner({
    address: account.address,
    readContract: (args) => client.readContract({ ...args, args: args.args ?? [] }),
    verifyTypedData: (args) => client.verifyTypedData(args as never),
    writeContract: (args) => client.writeContract(args),
    sendTransaction: (args) => client.sendTransaction(args),
    waitForTransactionReceipt: (args) => client.waitForTransactionReceipt(args),
    getCode: (args) => client.getCode(args),
  });
  const approvals = approvalsExtension(chain, account, signer);
  const context = {
    getExtension: (key: string) => (key === approvals.key ? approvals : undefined),
  };
  const schemes = { 1: new ExactEvmSchemeV1(signer), 2: new ExactEvmScheme(signer) };
  const upto = new UptoEvmScheme(signer);
  return {
    /** Its reason, or "throws" where its HTTP server would return an error. */
    async verify(body: Body): Promise<ReferenceVerdict> {
      const { scheme: name } = body.paymentRequirements;
      const scheme = name === "upto" ? upto : schemes[body.x402Version as 1 | 2];
      try {
        const verdict = await scheme.verify(
          body.paymentPayload as never,
          body.paymentRequirements as never,
          context as never,
        );
        return { isValid: verdict.isValid, reason: verdict.invalidReason ?? "" };
      } catch {
        return { isValid: false, reason: "throws" };
      }
    },
  };
}
