// Goal: sellers with the published middleware open, use, claim, settle and refund payment channels through our
// facilitator, and money moves exactly as they and their payers signed.
import { HTTPFacilitatorClient } from "@x402/core/server";
import t from "tap";
import { encodeFunctionData, type Address } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import {
  CHANNELS,
  CHANNELS_ABI,
  channelIdOf,
  type ChannelConfig,
} from "../helpers/batch-settlement.ts";
import { ERC20_ABI, PERMIT2 } from "../helpers/permit2.ts";
import { expectFromDepositToRefund, stockSeller } from "../helpers/stock-channels.ts";
import { deployWallet } from "./wallets.ts";

const account = () => privateKeyToAccount(generatePrivateKey());

t.test("channels", async (t) => {
  const made = await testApp(t, {
    listen: true,
    env: { PAYER_APPROVALS_5042002: "true" },
  });
  const { chain } = made;
  const facilitator = new HTTPFacilitatorClient({ url: `${made.baseUrl}/api/x402` });
  const stateOf = async (config: ChannelConfig) => {
    const [balance, claimed] = await chain.publicClient.readContract({
      address: CHANNELS,
      abi: CHANNELS_ABI,
      functionName: "channels",
      args: [channelIdOf(chain, config)],
    });
    return { balance, claimed };
  };

  /** A contract wallet cannot sign a transaction. */
  const approveAs = async (from: Address) => {
    await chain.testClient.impersonateAccount({ address: from });
    await chain.testClient.setBalance({ address: from, value: 10n ** 18n });
    const args = [PERMIT2, 10n ** 9n] as const;
    const data = encodeFunctionData({ abi: ERC20_ABI, functionName: "approve", args });
    await chain.testClient.sendUnsignedTransaction({ from, to: chain.usdc, data });
    await chain.testClient.stopImpersonatingAccount({ address: from });
  };

  await t.test("are announced", async (t) => {
    const supported = await facilitator.getSupported();
    t.match(
      supported.kinds.filter(({ scheme }) => scheme === "batch-settlement"),
      [{ x402Version: 2, network: `eip155:${chain.chainId}` }],
    );
  });

  for (const way of ["eip3009", "permit2", "permit2, approved by the payer"] as const)
    await t.test(`the published client and server, ${way}`, async (t) => {
      const owner = account();
      const method = way === "eip3009" ? "eip3009" : "permit2";
      const isWallet = way === "permit2";
      const approves = way.includes("approved");
      const from = isWallet ? await deployWallet(chain, owner.address, "Honest") : owner.address;
      await chain.mint(from, 100_000n);
      if (isWallet) await approveAs(from);
      if (approves) await chain.testClient.setBalance({ address: from, value: 10n ** 18n });
      const receiver = account().address;
      const seller = await stockSeller(t, chain, {
        method,
        receiver,
        authorizer: account(),
        delegates: false,
        facilitator,
        payer: { address: from, owner, ...(isWallet ? {} : { voucherKey: account() }) },
        approves,
      });
      await expectFromDepositToRefund(t, chain, { seller, from, receiver, stateOf });
      const sent = await chain.publicClient.getTransactionCount({ address: from });
      if (!isWallet) t.equal(sent, approves ? 1 : 0, "the payer sent its approval, or nothing");
      t.same(await seller.refusals(), {
        "another ceiling": "invalid_batch_settlement_evm_voucher_signature",
        "nothing to settle": "invalid_batch_settlement_evm_nothing_to_settle",
        "a claim above the balance": "invalid_batch_settlement_evm_claim_simulation_failed",
        // A repeat gets the answer of the first: its response may have been lost.
        "a deposit a second time": undefined,
      });
    });
});
