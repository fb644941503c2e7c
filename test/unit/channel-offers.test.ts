// Goal: what a seller says about a payment channel is read exactly or refused, whatever it sends; and what the wallet signs and sends is
// what the published client does.
import { toClientEvmSigner } from "@x402/evm";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/client";
import * as fc from "fast-check";
import t from "tap";
import { hashTypedData, hexToBytes, zeroAddress, type Address, type Hex } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { NETWORKS } from "../../server/core/networks.ts";
import { sign } from "../../server/core/signatures.ts";
import {
  channelIdAt,
  configOf,
  depositDigestOf,
  depositOf,
  growthOf,
  ownVoucher,
  payloadOf,
  readCorrection,
  readOffer,
  readReport,
  voucherDigestOf,
  type ChannelOrder,
} from "../../server/schemes/batch-settlement/paying.ts";
import { channelsDomain, ERC3009_COLLECTOR } from "../helpers/batch-settlement.ts";
import { runsOf } from "../helpers/tier.ts";

const [network] = NETWORKS;
if (!network) throw new Error("no network");
const { chainId } = network;
const KEY: Hex = `0x${"11".repeat(32)}`;
const payer = privateKeyToAccount(KEY);
const RECEIVER: Address = "0x2222222222222222222222222222222222222222";
const AUTHORIZER: Address = "0x3333333333333333333333333333333333333333";
const MAX = 2n ** 128n - 1n;

const uint128 = fc.bigInt({ min: 0n, max: MAX });
const hex32 = fc
  .uint8Array({ minLength: 32, maxLength: 32 })
  .map((bytes): Hex => `0x${Buffer.from(bytes).toString("hex")}`);
/** Anything that JSON can hold, and what looks almost right. */
const junk = fc.oneof(
  fc.json().map((text) => JSON.parse(text) as unknown),
  fc.constantFrom(
    "",
    "0",
    "-1",
    "1.5",
    "1e3",
    "0x10",
    " 1",
    "01",
    "1 ",
    `${MAX + 1n}`,
    1,
    -1,
    1.5,
    [],
    {},
  ),
);

const EXTRA = {
  name: network.usdc.name,
  version: network.usdc.version,
  receiverAuthorizer: AUTHORIZER,
  withdrawDelay: 900,
};

t.test("an offer", async (t) => {
  const read = (over: Record<string, unknown>) => readOffer({ ...EXTRA, ...over }, network);
  t.same(read({}), { receiverAuthorizer: AUTHORIZER, withdrawDelay: 900, minDepositAtomic: 0n });
  t.match(read({ withdrawDelay: undefined }), { withdrawDelay: 900 }, "the client's default");
  t.match(read({ withdrawDelay: 2_592_000, minDeposit: "10" }), {
    withdrawDelay: 2_592_000,
    minDepositAtomic: 10n,
  });
  t.match(read({ assetTransferMethod: "eip3009" }), { withdrawDelay: 900 });
  const bent: Record<string, unknown>[] = [
    ...[899, 2_592_001, 900.5, "900", NaN, Infinity, -900, {}].map((withdrawDelay) => ({
      withdrawDelay,
    })),
    ...[undefined, null, zeroAddress, "0x12", `${AUTHORIZER}00`, 7, {}].map(
      (receiverAuthorizer) => ({
        receiverAuthorizer,
      }),
    ),
    ...["permit2", null, 1, ""].map((assetTransferMethod) => ({ assetTransferMethod })),
    ...["usdc", undefined, null, 2].map((name) => ({ name })),
    ...["3", undefined, null, 2].map((version) => ({ version })),
  ];
  for (const over of bent) t.type(read(over), "string", JSON.stringify(over));
  fc.assert(
    fc.property(
      fc.dictionary(fc.constantFrom(...Object.keys(EXTRA), "minDeposit"), junk),
      (over) => {
        const offer = read(over);
        if (typeof offer === "string") return;
        if (
          offer.receiverAuthorizer === zeroAddress ||
          !/^0x[0-9a-f]{40}$/.test(offer.receiverAuthorizer)
        )
          throw new Error("no authorizer");
        if (!(offer.withdrawDelay >= 900 && offer.withdrawDelay <= 2_592_000))
          throw new Error("delay");
        if (offer.minDepositAtomic < 0n || offer.minDepositAtomic > MAX) throw new Error("deposit");
      },
    ),
    { numRuns: runsOf(500) },
  );
});

t.test("a report counts within the rules only", async (t) => {
  const channelId: Hex = `0x${"ab".repeat(32)}`;
  const report = (extra: unknown, success: unknown = true) =>
    readReport({ success, extra }, { channelId, priceAtomic: 1_000n, chargedBefore: 5_000n });
  const state = (total: unknown, id: unknown = channelId) => ({
    channelState: { channelId: id, chargedCumulativeAmount: total },
  });
  t.same(report({ chargedAmount: "700" }), { kind: "charged", amount: 700n });
  t.same(report({ chargedAmount: "0", ...state("5000") }), { kind: "charged", amount: 0n });
  t.same(report({ chargedAmount: "1000", ...state("6000") }), { kind: "charged", amount: 1_000n });
  t.same(report(state("6000")), { kind: "charged", amount: 1_000n }, "only the total");
  const upper = channelId.toUpperCase().replace("0X", "0x");
  t.match(report({ chargedAmount: "1", ...state("5001", upper) }), { kind: "charged" });
  for (const extra of [
    { chargedAmount: "1001" },
    { chargedAmount: "-1" },
    { chargedAmount: 700 },
    { chargedAmount: null },
    { chargedAmount: "700", ...state("5701") },
    { chargedAmount: "700", ...state("5699") },
    { chargedAmount: "700", ...state(5_700) },
    { chargedAmount: "700", ...state("5700", `0x${"ac".repeat(32)}`) },
    state("4999"),
    state("6001"),
    state("x"),
    { channelState: { channelId: 7 } },
  ])
    t.match(report(extra), { kind: "broken" }, JSON.stringify(extra));
  for (const none of [
    undefined,
    null,
    "x",
    1,
    [],
    {},
    { success: false, extra: { chargedAmount: "9999" } },
  ])
    t.same(readReport(none, { channelId, priceAtomic: 1n, chargedBefore: 0n }), { kind: "none" });
  t.same(report(undefined), { kind: "none" });
  t.same(report({ channelState: { channelId } }), { kind: "none" }, "nothing about charges");
  t.same(report({ chargedAmount: "1" }, "true"), { kind: "none" });
  fc.assert(
    fc.property(junk, junk, junk, (chargedAmount, total, id) => {
      const read = report({ chargedAmount, ...state(total, id) });
      if (read.kind === "charged" && (read.amount < 0n || read.amount > 1_000n))
        throw new Error("charged outside the price");
    }),
    { numRuns: runsOf(1_000) },
  );
  fc.assert(
    fc.property(uint128, uint128, uint128, (priceAtomic, chargedBefore, charge) => {
      const total = String(chargedBefore + charge);
      const said = { success: true, extra: { chargedAmount: String(charge), ...state(total) } };
      const { kind } = readReport(said, { channelId, priceAtomic, chargedBefore });
      return kind === (charge <= priceAtomic ? "charged" : "broken");
    }),
    { numRuns: runsOf(300) },
  );
});

t.test("a correction", async (t) => {
  const channelId: Hex = `0x${"ab".repeat(32)}`;
  const error = "invalid_batch_settlement_evm_cumulative_amount_mismatch";
  const voucher = `0x${"12".repeat(65)}`;
  const extra = {
    channelState: { channelId, chargedCumulativeAmount: "700", totalClaimed: "5" },
    voucherState: { signedMaxClaimable: "1000", signature: voucher },
  };
  const read = (over: object = {}, offer: object = {}) =>
    readCorrection(
      { error, accepts: [{ scheme: "batch-settlement", extra: { ...extra, ...over } }], ...offer },
      channelId,
    );
  t.same(read(), { total: "700", signed: { ceiling: "1000", voucher } });
  t.same(read({ voucherState: undefined }), { total: "700" }, "of the chain");
  t.same(read({ channelState: { channelId, totalClaimed: "5" }, voucherState: undefined }), {
    total: "5",
  });
  t.match(read({}, { error: "invalid_batch_settlement_evm_cumulative_below_claimed" }), {
    total: "700",
  });
  for (const other of [undefined, "invalid_batch_settlement_evm_channel_busy", ""])
    t.equal(read({}, { error: other }), undefined, String(other));
  t.equal(read({}, { accepts: [{ scheme: "exact", extra }] }), undefined, "another scheme");
  t.equal(read({}, { accepts: [] }), undefined);
  for (const channelState of [
    undefined,
    "x",
    { chargedCumulativeAmount: "700" },
    { channelId: `0x${"ac".repeat(32)}`, chargedCumulativeAmount: "700" },
    { channelId: 7, chargedCumulativeAmount: "700" },
    { channelId, chargedCumulativeAmount: "-1" },
    { channelId, chargedCumulativeAmount: 700 },
    { channelId, chargedCumulativeAmount: String(MAX + 1n) },
    { channelId },
  ])
    t.equal(read({ channelState }), undefined, JSON.stringify(channelState));
  for (const voucherState of [
    { signedMaxClaimable: "-1", signature: voucher },
    { signedMaxClaimable: "1000", signature: "0xzz" },
    { signedMaxClaimable: "1000" },
    { signature: voucher },
    "x",
  ])
    t.same(read({ voucherState }), { total: "700" }, JSON.stringify(voucherState));
  fc.assert(
    fc.property(junk, junk, junk, junk, (total, claimed, ceiling, signature) => {
      const found = read({
        channelState: { channelId, chargedCumulativeAmount: total, totalClaimed: claimed },
        voucherState: { signedMaxClaimable: ceiling, signature },
      });
      for (const text of [found?.total, found?.signed?.ceiling])
        if (text !== undefined && (BigInt(text) < 0n || BigInt(text) > MAX)) throw new Error(text);
    }),
    { numRuns: runsOf(500) },
  );
});

const orders = fc.record({
  salt: hex32,
  withdrawDelay: fc.integer({ min: 900, max: 2_592_000 }),
  charged: fc.bigInt({ min: 0n, max: 10n ** 12n }),
  price: fc.bigInt({ min: 1n, max: 10n ** 9n }),
});

t.test("what is signed and sent equals the published client's", async (t) => {
  await fc.assert(
    fc.asyncProperty(
      orders,
      fc.boolean(),
      async ({ salt, withdrawDelay, charged, price }, deposits) => {
        const terms = { receiverAuthorizer: AUTHORIZER, withdrawDelay };
        const config = configOf(payer.address, {
          ...terms,
          receiver: RECEIVER,
          signer: payer.address.toLowerCase() as Address,
          token: network.usdc.address.toLowerCase() as Address,
          salt,
        });
        const id = channelIdAt(chainId, config);
        const rows = new Map<string, unknown>();
        const balance = deposits ? "0" : String(charged + price);
        rows.set(id, { chargedCumulativeAmount: String(charged), balance, totalClaimed: "0" });
        const stock = new BatchSettlementEvmScheme(
          toClientEvmSigner(
            { address: payer.address, signTypedData: (data) => payer.signTypedData(data) },
            {
              readContract: () => Promise.reject(new Error("not needed")),
            },
          ),
          {
            salt,
            depositStrategy: () => String(charged + price),
            storage: {
              get: async (key: string) => rows.get(key.toLowerCase()),
              set: async () => undefined,
              delete: async () => undefined,
            } as never,
          },
        );
        const requirements = {
          scheme: "batch-settlement",
          network: `eip155:${chainId}`,
          amount: String(price),
          asset: network.usdc.address,
          payTo: RECEIVER,
          maxTimeoutSeconds: 60,
          extra: { ...EXTRA, ...terms },
        };
        const { payload } = (await stock.createPaymentPayload(
          2,
          requirements as never,
        )) as unknown as {
          payload: {
            deposit?: {
              amount: string;
              authorization: { erc3009Authorization: { validBefore: string; salt: Hex } };
            };
          };
        };
        const made = payload.deposit?.authorization.erc3009Authorization;
        t.equal(made !== undefined, deposits);
        const order: ChannelOrder = {
          chainId,
          config,
          ceiling: charged + price,
          ...(made && {
            deposit: {
              amount: BigInt(payload.deposit?.amount ?? "0"),
              validBefore: BigInt(made.validBefore),
              salt: made.salt,
            },
          }),
        };
        const deposit = depositOf(order);
        const key = hexToBytes(KEY);
        const signed = {
          voucher: sign(voucherDigestOf(order), key),
          deposit: deposit ? sign(depositDigestOf(network, deposit), key) : null,
        };
        t.same(payloadOf(order, signed), payload);
      },
    ),
    { numRuns: runsOf(20) },
  );
});

t.test("the digests are viem's", async () => {
  fc.assert(
    fc.property(orders, uint128, ({ salt, withdrawDelay, price }, ceiling) => {
      const token = network.usdc.address.toLowerCase() as Address;
      const config = configOf(payer.address, {
        receiverAuthorizer: AUTHORIZER,
        withdrawDelay,
        receiver: RECEIVER,
        signer: payer.address.toLowerCase() as Address,
        token,
        salt,
      });
      const order: ChannelOrder = {
        chainId,
        config,
        ceiling,
        deposit: { amount: price, validBefore: 99n, salt },
      };
      const channelId = channelIdAt(chainId, config);
      const same = (ours: Uint8Array, theirs: Hex) => {
        if (`0x${Buffer.from(ours).toString("hex")}` !== theirs) throw new Error("another digest");
      };
      same(
        voucherDigestOf(order),
        hashTypedData({
          domain: channelsDomain({ chainId }),
          types: {
            Voucher: [
              { name: "channelId", type: "bytes32" },
              { name: "maxClaimableAmount", type: "uint128" },
            ],
          },
          primaryType: "Voucher",
          message: { channelId, maxClaimableAmount: ceiling },
        }),
      );
      const deposit = depositOf(order);
      if (!deposit) throw new Error("no deposit");
      same(
        depositDigestOf(network, deposit),
        hashTypedData({
          domain: { ...network.usdc, chainId, verifyingContract: network.usdc.address },
          types: {
            ReceiveWithAuthorization: [
              { name: "from", type: "address" },
              { name: "to", type: "address" },
              { name: "value", type: "uint256" },
              { name: "validAfter", type: "uint256" },
              { name: "validBefore", type: "uint256" },
              { name: "nonce", type: "bytes32" },
            ],
          },
          primaryType: "ReceiveWithAuthorization",
          message: {
            from: payer.address,
            to: ERC3009_COLLECTOR,
            value: price,
            validAfter: 0n,
            validBefore: 99n,
            nonce: deposit.nonce.slice(-66) as Hex,
          },
        }),
      );
    }),
    { numRuns: runsOf(100) },
  );
});

t.test("growth, and the voucher before", async (t) => {
  const config = configOf(payer.address, {
    receiverAuthorizer: AUTHORIZER,
    withdrawDelay: 900,
    receiver: RECEIVER,
    signer: payer.address.toLowerCase() as Address,
    token: network.usdc.address.toLowerCase() as Address,
    salt: `0x${"00".repeat(32)}`,
  });
  const order = { chainId, config, ceiling: 1_000n };
  const voucher = sign(voucherDigestOf(order), hexToBytes(KEY));
  t.equal(growthOf(order), 1_000n, "of the first voucher, all");
  for (const [before, growth] of [
    [0n, 1_000n],
    [999n, 1n],
    [1_000n, 0n],
    [1_001n, 0n],
  ] as const)
    t.equal(growthOf({ ...order, before: { ceiling: before, voucher } }), growth);
  t.equal(ownVoucher(order, { ceiling: 1_000n, voucher }), voucher);
  t.equal(ownVoucher(order, { ceiling: 1_001n, voucher }), undefined, "another ceiling");
  const foreign = sign(voucherDigestOf(order), hexToBytes(`0x${"12".repeat(32)}`));
  t.equal(ownVoucher(order, { ceiling: 1_000n, voucher: foreign }), undefined, "another key");
  const otherSalt: Hex = `0x${"01".repeat(32)}`;
  const salted = { ...order, config: { ...config, salt: otherSalt } };
  t.equal(ownVoucher(salted, { ceiling: 1_000n, voucher }), undefined, "another channel");
  t.equal(
    ownVoucher({ ...order, chainId: 1 }, { ceiling: 1_000n, voucher }),
    undefined,
    "another chain",
  );
  for (const bent of ["0x", "0x12", `${voucher}00`, voucher.slice(0, -4), "no"])
    t.equal(ownVoucher(order, { ceiling: 1_000n, voucher: bent }), undefined, bent);
});
