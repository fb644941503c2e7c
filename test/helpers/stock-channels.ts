// A seller and a buyer with payment channels as the published packages make them, with the published facilitator's class
// on the test's chain, or with another facilitator.
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { x402Facilitator } from "@x402/core/facilitator";
import { decodePaymentResponseHeader, decodePaymentSignatureHeader } from "@x402/core/http";
import type { FacilitatorClient } from "@x402/core/server";
import type { PaymentPayload } from "@x402/core/types";
import { toClientEvmSigner, toFacilitatorEvmSigner } from "@x402/evm";
import { BatchSettlementEvmScheme as BuyersScheme } from "@x402/evm/batch-settlement/client";
import { BatchSettlementEvmScheme as FacilitatorsScheme } from "@x402/evm/batch-settlement/facilitator";
import { BatchSettlementEvmScheme as SellersScheme } from "@x402/evm/batch-settlement/server";
import { declareErc20ApprovalGasSponsoringExtension } from "@x402/extensions";
import { paymentMiddleware, setSettlementOverrides, x402ResourceServer } from "@x402/express";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import express from "express";
import type { Test } from "tap";
import { publicActions, zeroAddress, type Abi, type AbiItem, type Address, type Hex } from "viem";
import type { PrivateKeyAccount } from "viem/accounts";
import { CHANNELS, signClaims, type ChannelConfig } from "./batch-settlement.ts";
import type { TestChain } from "./chain.ts";
import { approvalsExtension } from "./stock-approvals.ts";

interface Options {
  method: "eip3009" | "permit2";
  receiver: Address;
  /** Signs claims and refunds: of the seller, or of the facilitator if the seller delegates it. */
  authorizer: PrivateKeyAccount;
  delegates: boolean;
  /** Instead of the published class. */
  facilitator?: FacilitatorClient;
  /** An account that signs for itself, or a wallet with an owner. */
  payer: { address: Address; owner: PrivateKeyAccount; voucherKey?: PrivateKeyAccount };
  /** The payer signs an approval of Permit2 as a transaction, and the facilitator sends it. */
  approves?: boolean;
}

interface ChannelPayload {
  type: string;
  channelConfig: ChannelConfig;
  voucher: { channelId: Hex; maxClaimableAmount: string; signature: Hex };
}

export async function stockSeller(t: Test, chain: TestChain, options: Options) {
  const { method, receiver, authorizer, delegates, payer, approves = false } = options;
  const network = `eip155:${chain.chainId}` as const;
  const abi = new Map<string, AbiItem>();
  const note = (used: Abi) => used.forEach((item) => abi.set(JSON.stringify(item), item));
  const facilitatorClient =
    options.facilitator ?? stockFacilitator(chain, delegates ? authorizer : undefined, note);

  const sellersScheme = new SellersScheme(receiver, {
    ...(!delegates && { receiverAuthorizerSigner: authorizer }),
    withdrawDelay: 900,
  });
  const url = await listen(
    t,
    paidApi(chain, { method, receiver, network, approves }, sellersScheme, facilitatorClient),
  );

  const buyersScheme = new BuyersScheme(
    toClientEvmSigner(
      approves
        ? payer.owner
        : { address: payer.address, signTypedData: (data) => payer.owner.signTypedData(data) },
      chain.publicClient,
    ),
    payer.voucherKey ? { voucherSigner: payer.voucherKey } : { payerAuthorizer: zeroAddress },
  );
  const payments: PaymentPayload[] = [];
  const pay = wrapFetchWithPayment(
    async (input, init) => {
      const request = new Request(input, init);
      const proof = request.headers.get("payment-signature");
      if (proof) payments.push(decodePaymentSignatureHeader(proof));
      return fetch(request);
    },
    new x402Client().register(network, buyersScheme).setSpendControls({
      allowedAssets: [{ network, asset: chain.usdc, maxAmountPerPayment: "1000000" }],
    }),
  );
  const manager = sellersScheme.createChannelManager(facilitatorClient, network, chain.usdc);
  const payloadOf = (payment: PaymentPayload | undefined) =>
    payment?.payload as unknown as ChannelPayload;
  const accepted = () => payments.at(-1)?.accepted as PaymentPayload["accepted"];

  return {
    manager,
    async buy() {
      const response = await pay(url);
      const receipt = response.headers.get("payment-response");
      if (response.status !== 200 || receipt === null)
        throw new Error(`${response.status}: ${await response.text()}`);
      await response.body?.cancel();
      return decodePaymentResponseHeader(receipt);
    },
    refund: () => buyersScheme.refund(url),
    config: (): ChannelConfig => buyersScheme.buildChannelConfig(accepted()),
    /** What the facilitator's class gave its signer as the contract's ABI. */
    abi: (): Abi => [...abi.values()],
    /** Reasons for which the facilitator refuses what the contract, or a signature, does not allow. */
    async refusals(): Promise<Record<string, string | undefined>> {
      const last = payments.at(-1) as PaymentPayload;
      const { channelConfig, voucher } = payloadOf(last);
      const withPayload = (payload: object): PaymentPayload => ({
        ...last,
        payload: { ...payload },
      });
      const ceiling = String(BigInt(voucher.maxClaimableAmount) + 1n);
      const bent = { ...last.payload, voucher: { ...voucher, maxClaimableAmount: ceiling } };
      const claim = {
        voucher: { channel: channelConfig, maxClaimableAmount: voucher.maxClaimableAmount },
        signature: voucher.signature,
        totalClaimed: voucher.maxClaimableAmount,
      };
      const deposit = { ...payloadOf(payments[0]), voucher };
      const settle = async (payload: object) =>
        (await facilitatorClient.settle(withPayload(payload), last.accepted)).errorReason;
      const total = BigInt(claim.totalClaimed);
      const claimAuthorizerSignature = await signClaims(chain, authorizer, [
        {
          voucher: { channel: channelConfig, maxClaimableAmount: total },
          signature: voucher.signature,
          totalClaimed: total,
        },
      ]);
      return {
        "another ceiling": (await facilitatorClient.verify(withPayload(bent), last.accepted))
          .invalidReason,
        "nothing to settle": await settle({ type: "settle", receiver, token: chain.usdc }),
        "a claim above the balance": await settle({
          type: "claim",
          claims: [claim],
          ...(!delegates && { claimAuthorizerSignature }),
        }),
        "a deposit a second time": await settle(deposit),
      };
    },
  };
}

/** A payer's money from its deposit to the refund of the rest: three requests, a claim, a settle, one more request. */
export async function expectFromDepositToRefund(
  t: Pick<Test, "match" | "equal">,
  chain: TestChain,
  {
    seller,
    from,
    receiver,
    stateOf,
  }: {
    seller: Awaited<ReturnType<typeof stockSeller>>;
    from: Address;
    receiver: Address;
    stateOf: (config: ChannelConfig) => Promise<object>;
  },
): Promise<void> {
  // The most a request may cost is 1,000, and the seller charges 700.
  t.match(await seller.buy(), {
    success: true,
    payer: from,
    amount: "10000",
    transaction: /^0x[0-9a-f]{64}$/,
    extra: {
      chargedAmount: "700",
      channelState: { balance: "10000", totalClaimed: "0", chargedCumulativeAmount: "700" },
    },
  });
  for (const charged of ["1400", "2100"])
    t.match(await seller.buy(), {
      success: true,
      transaction: "",
      extra: { chargedAmount: "700", channelState: { chargedCumulativeAmount: charged } },
    });
  t.equal(await chain.usdcOf(from), 90_000n, "only the deposit was paid");
  const config = seller.config();
  t.match(await stateOf(config), { balance: 10_000n, claimed: 0n });

  t.match(await seller.manager.claim(), [{ vouchers: 1 }]);
  t.match(await stateOf(config), { balance: 10_000n, claimed: 2_100n });
  t.match(await seller.manager.settle(), { transaction: /^0x/ });
  t.equal(await chain.usdcOf(receiver), 2_100n);

  await seller.buy();
  t.match(await seller.refund(), {
    success: true,
    amount: "7200",
    extra: { channelState: { balance: "2800", totalClaimed: "2800", refundNonce: "1" } },
  });
  t.equal(await chain.usdcOf(from), 97_200n);
  await seller.manager.settle();
  t.equal(await chain.usdcOf(receiver), 2_800n, "what was not refunded was charged");
}

/** The published facilitator's class; only JSON passes, as over HTTP. */
export function stockFacilitator(
  chain: TestChain,
  authorizer?: PrivateKeyAccount,
  note: (abi: Abi) => void = () => undefined,
): FacilitatorClient {
  const signer = facilitatorSigner(chain, note);
  const facilitator = new x402Facilitator()
    .register(`eip155:${chain.chainId}`, new FacilitatorsScheme(signer, authorizer))
    .registerExtension(approvalsExtension(chain, chain.relayer, signer));
  const wire = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;
  return {
    verify: async (...sent) => wire(await facilitator.verify(...wire(sent))),
    settle: async (...sent) => wire(await facilitator.settle(...wire(sent))),
    getSupported: async () => wire(facilitator.getSupported()) as never,
  };
}

function facilitatorSigner(chain: TestChain, seen: (abi: Abi) => void) {
  const client = chain.walletClient(chain.relayer).extend(publicActions);
  return toFacilitatorEvmSigner({
    address: chain.relayer.address,
    readContract: (args) => {
      if (args.address === CHANNELS) seen(args.abi as Abi);
      return client.readContract({ ...args, args: args.args ?? [] });
    },
    verifyTypedData: (args) => client.verifyTypedData(args as never),
    writeContract: (args) => client.writeContract(args),
    sendTransaction: (args) => client.sendTransaction(args),
    waitForTransactionReceipt: (args) => client.waitForTransactionReceipt(args),
    getCode: (args) => client.getCode(args),
  });
}

function paidApi(
  chain: TestChain,
  {
    method,
    receiver,
    network,
    approves,
  }: { method: string; receiver: Address; network: `eip155:${number}`; approves: boolean },
  scheme: SellersScheme,
  facilitatorClient: FacilitatorClient,
) {
  const price = {
    amount: "1000",
    asset: chain.usdc,
    extra: { name: "USDC", version: "2", assetTransferMethod: method },
  };
  const routes = {
    "GET /paid": {
      accepts: { scheme: scheme.scheme, network, payTo: receiver, price },
      description: "A paid answer",
      ...(approves && { extensions: declareErc20ApprovalGasSponsoringExtension() }),
    },
  };
  const server = new x402ResourceServer(facilitatorClient).register(network, scheme);
  const app = express();
  app.use(paymentMiddleware(routes, server));
  app.get("/paid", (_request, response) => {
    setSettlementOverrides(response, { amount: "700" });
    response.json({ secret: 42 });
  });
  return app;
}

async function listen(t: Test, app: ReturnType<typeof express>): Promise<string> {
  const server: Server = createServer(app);
  t.teardown(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/paid`;
}
