// Hundreds of false and garbage bodies for payment channels.
import {
  encodeFunctionData,
  numberToHex,
  parseSignature,
  serializeCompactSignature,
  signatureToCompactSignature,
  zeroAddress,
  type Address,
  type Hex,
} from "viem";
import type { PrivateKeyAccount } from "viem/accounts";
import {
  channelIdOf,
  CHANNELS_ABI,
  ERC3009_COLLECTOR,
  PERMIT2_COLLECTOR,
  randomSalt,
  signRefund,
  type ChannelConfig,
} from "../helpers/batch-settlement.ts";
import type { TestChain } from "../helpers/chain.ts";
import { approvePermit2, PERMIT2 } from "../helpers/permit2.ts";
import { stockFacilitator } from "../helpers/stock-channels.ts";
import { change, GARBAGE, type Bent } from "./bent-payments.ts";
import {
  account,
  channelOf,
  claimBody,
  depositBody,
  now,
  open,
  permit2Body,
  refundBody,
  send,
  settleBody,
  voucherBody,
  type Channel,
  type DepositOptions,
  type Permitted,
  type Row,
  type VoucherOptions,
} from "./channel-bodies.ts";
import type { Body } from "./payments.ts";
import { approvalBy, approveData, sponsoring, type ApprovalOptions } from "./permit2-payments.ts";
import { deployWallet, futureWallet, MODES } from "./wallets.ts";

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const MAX_UINT128 = 2n ** 128n - 1n;

const flip = (text: string, at: number): string =>
  text.slice(0, at) + (text[at] === "0" ? "1" : "0") + text.slice(at + 1);
const SIGNATURES: readonly [string, (hex: Hex) => string][] = [
  [
    "compact signature",
    (hex) => serializeCompactSignature(signatureToCompactSignature(parseSignature(hex))),
  ],
  ["v as 0 or 1", (hex) => `${hex.slice(0, 130)}0${hex.endsWith("1c") ? 1 : 0}`],
  ["v wrong", (hex) => `${hex.slice(0, 130)}${hex.endsWith("1c") ? "1b" : "1c"}`],
  ["v 29", (hex) => `${hex.slice(0, 130)}1d`],
  [
    "high s",
    (hex) => {
      const s = ORDER - BigInt(`0x${hex.slice(66, 130)}`);
      return `${hex.slice(0, 66)}${numberToHex(s, { size: 32 }).slice(2)}${hex.endsWith("1c") ? "1b" : "1c"}`;
    },
  ],
  ["upper case", (hex) => `0x${hex.slice(2).toUpperCase()}`],
  ["one digit of r", (hex) => flip(hex, 20)],
  ["r zero", (hex) => `0x${"0".repeat(64)}${hex.slice(66)}`],
  ["s zero", (hex) => `${hex.slice(0, 66)}${"0".repeat(64)}1b`],
  ["65 zero bytes", () => `0x${"00".repeat(65)}`],
  ["too long", (hex) => `${hex}00`],
  ["without 0x", (hex) => hex.slice(2)],
  ["odd digits", (hex) => hex.slice(0, -1)],
  ["ERC-6492 ending only", (hex) => `${hex}${"6492".repeat(16)}`],
  ["10 KB", () => `0x${"ab".repeat(10_000)}`],
];

const PAYLOAD = "paymentPayload.payload";
const CONFIG_FIELDS = [
  "payer",
  "payerAuthorizer",
  "receiver",
  "receiverAuthorizer",
  "token",
  "withdrawDelay",
  "salt",
];
const COMMON_PATHS = [
  "paymentRequirements.scheme",
  "paymentRequirements.network",
  "paymentRequirements.asset",
  "paymentRequirements.amount",
  "paymentRequirements.payTo",
  "paymentRequirements.extra",
  "paymentRequirements.extra.receiverAuthorizer",
  "paymentRequirements.extra.withdrawDelay",
  "paymentPayload.accepted.scheme",
  "paymentPayload.accepted.network",
  `${PAYLOAD}.type`,
  `${PAYLOAD}.channelConfig`,
  ...CONFIG_FIELDS.map((name) => `${PAYLOAD}.channelConfig.${name}`),
  `${PAYLOAD}.voucher`,
  `${PAYLOAD}.voucher.channelId`,
  `${PAYLOAD}.voucher.maxClaimableAmount`,
  `${PAYLOAD}.voucher.signature`,
];
const DEPOSIT = `${PAYLOAD}.deposit`;
const EIP3009 = `${DEPOSIT}.authorization.erc3009Authorization`;
const PERMITTED = `${DEPOSIT}.authorization.permit2Authorization`;
const DEPOSIT_PATHS = [
  DEPOSIT,
  `${DEPOSIT}.amount`,
  `${DEPOSIT}.authorization`,
  "paymentRequirements.extra.name",
  "paymentRequirements.extra.version",
  "paymentRequirements.extra.assetTransferMethod",
];
const EIP3009_PATHS = [
  EIP3009,
  ...["validAfter", "validBefore", "salt", "signature"].map((name) => `${EIP3009}.${name}`),
];
const PERMIT2_PATHS = [
  PERMITTED,
  ...[
    "from",
    "permitted",
    "permitted.token",
    "permitted.amount",
    "spender",
    "nonce",
    "deadline",
    "witness",
    "witness.channelId",
    "signature",
  ].map((name) => `${PERMITTED}.${name}`),
];
const MORE_GARBAGE = [zeroAddress, 900, "900", 2_592_001, -0.5, 2 ** 40, `${MAX_UINT128}`];

const garbage = (prefix: string, body: Body, paths: readonly string[]): Bent[] =>
  paths.flatMap((path) =>
    [...GARBAGE, ...MORE_GARBAGE].map((value) => ({
      name: `${prefix}: ${path} = ${JSON.stringify(value) ?? "absent"}`.slice(0, 140),
      body: change(body, path, value),
    })),
  );

type Add = (name: string, body: Body | Promise<Body>) => Promise<void>;

/** Bodies for verify. */
export async function bentChannelVerifies(chain: TestChain): Promise<Bent[]> {
  const bent: Bent[] = [];
  const add: Add = async (name, body) => void bent.push({ name, body: await body });
  await vouchers(chain, add, bent);
  await deposits(chain, add, bent, "eip3009");
  await deposits(chain, add, bent, "permit2");
  await sponsoredDeposits(chain, add);
  await approvedDeposits(chain, add);
  await wallets(chain, add);
  return bent;
}

async function vouchers(chain: TestChain, add: Add, bent: Bent[]): Promise<void> {
  const other = account();
  const channel = channelOf(chain, { voucherKey: account() });
  const ownKey = channelOf(chain);
  const unopened = channelOf(chain, { voucherKey: account() });
  const leaving = channelOf(chain, { voucherKey: account() });
  const emptied = channelOf(chain, { voucherKey: account() });
  await open(channel, 10_000n, 2_100n);
  await open(ownKey, 10_000n, 2_100n);
  await open(leaving);
  await chain.testClient.setBalance({ address: leaving.owner.address, value: 10n ** 18n });
  await send(
    chain,
    encodeFunctionData({
      abi: CHANNELS_ABI,
      functionName: "initiateWithdraw",
      args: [leaving.config, 10_000n],
    }),
    leaving.owner,
  );
  await open(emptied);
  const wholeRefund = { channelId: channelIdOf(chain, emptied.config), nonce: 0n, amount: 10_000n };
  const refundSignature = await signRefund(chain, emptied.authorizer, wholeRefund);
  await send(
    chain,
    encodeFunctionData({
      abi: CHANNELS_ABI,
      functionName: "refundWithSignature",
      args: [emptied.config, 10_000n, 0n, refundSignature],
    }),
  );
  for (const type of ["voucher", "refund"] as const) {
    const make = (on: Channel, ceiling = 3_000n, options: VoucherOptions = {}) =>
      voucherBody(on, ceiling, { type, ...options });
    const named = (name: string, body: Body | Promise<Body>) => add(`${type}, ${name}`, body);
    for (const [name, on] of [
      ["key", channel],
      ["payer", ownKey],
    ] as const) {
      for (const ceiling of [0n, 1n, 2_099n, 2_100n, 2_101n, 9_999n, 10_000n, 10_001n, MAX_UINT128])
        await named(`signed by ${name}, ceiling ${ceiling}`, make(on, ceiling));
      await named(`signed by ${name}, another signer`, make(on, 3_000n, { signer: other }));
      for (const [what, bend] of SIGNATURES) {
        const body = await make(on);
        const { voucher } = body.paymentPayload["payload"] as { voucher: { signature: Hex } };
        await named(
          `signed by ${name}, ${what}`,
          change(body, `${PAYLOAD}.voucher.signature`, bend(voucher.signature)),
        );
      }
    }
    await named(
      "signed by the payer, not its authorizer",
      make(channel, 3_000n, { signer: channel.owner }),
    );
    await named("signed for another chain", make(channel, 3_000n, { signed: { chainId: 1 } }));
    await named(
      "signed for another channel",
      make(channel, 3_000n, { signed: { channelId: randomSalt() } }),
    );
    await named("signed for less", make(channel, 3_000n, { signed: { ceiling: 2_999n } }));
    await named("no channel", make(unopened));
    await named("a withdrawal pending", make(leaving));
    await named("emptied", make(emptied));
    await named(
      "no delay required",
      make(channel, 3_000n, { extra: { withdrawDelay: undefined } }),
    );
    await named("another delay required", make(channel, 3_000n, { extra: { withdrawDelay: 901 } }));
    await named(
      "another authorizer required",
      make(channel, 3_000n, { extra: { receiverAuthorizer: other.address } }),
    );
    const good = await make(channel);
    const id = channelIdOf(chain, channel.config);
    await named(
      "id in upper case",
      change(good, `${PAYLOAD}.voucher.channelId`, `0x${id.slice(2).toUpperCase()}`),
    );
    await named(
      "payer in lower case",
      change(good, `${PAYLOAD}.channelConfig.payer`, channel.config.payer.toLowerCase()),
    );
    await named(
      "another receiver required",
      change(good, "paymentRequirements.payTo", other.address),
    );
    await named("another asset required", change(good, "paymentRequirements.asset", PERMIT2));
    await named(
      "accepted another network",
      change(good, "paymentPayload.accepted.network", "eip155:1"),
    );
    await named(
      "another network",
      change(
        change(good, "paymentPayload.accepted.network", "eip155:1"),
        "paymentRequirements.network",
        "eip155:1",
      ),
    );
    await named("accepted another scheme", change(good, "paymentPayload.accepted.scheme", "exact"));
    await named("accepted another amount", change(good, "paymentPayload.accepted.amount", "7"));
    await named("amount above the ceiling", change(good, "paymentRequirements.amount", "999999"));
    for (const amount of ["0", "1", "999999", "abc", 7])
      await named(`an amount of ${amount}`, change(good, `${PAYLOAD}.amount`, amount));
    bent.push(...garbage(type, good, COMMON_PATHS));
  }
  for (const type of ["claim", "settle", "close", ""])
    await add(
      `payload of type "${type}"`,
      change(await voucherBody(channel, 3_000n), `${PAYLOAD}.type`, type),
    );
  await add("claim to be verified", claimBody([{ channel, ceiling: 3_000n, total: 2_500n }]));
  await add("settle to be verified", settleBody(channel));
}

type Method = "eip3009" | "permit2";

async function deposits(chain: TestChain, add: Add, bent: Bent[], method: Method): Promise<void> {
  const isPermit2 = method === "permit2";
  const make = isPermit2 ? permit2Body : depositBody;
  const named = (name: string, body: Body | Promise<Body>) => add(`${method}, ${name}`, body);
  const [payer, poor, other, token] = [account(), account(), account(), account().address];
  await chain.mint(payer.address, 1_000_000n);
  if (isPermit2) await approvePermit2(chain, [payer, poor]);
  const voucherKey = account();
  const fresh = (config: Partial<ChannelConfig> = {}) =>
    channelOf(chain, { owner: payer, voucherKey, config });
  const opened = fresh();
  await open(opened, 10_000n, 2_100n);

  for (const amount of [1_000n, 10_000n, 1_000_000n, 1_000_001n, MAX_UINT128, MAX_UINT128 + 1n])
    await named(`of ${amount}`, make(fresh(), { amount }));
  await named("of 0", make(fresh(), { amount: 0n }));
  await named("of 0 with a ceiling of 0", make(fresh(), { amount: 0n, ceiling: 0n }));
  for (const ceiling of [0n, 1n, 10_000n, 10_001n, MAX_UINT128])
    await named(`with a ceiling of ${ceiling}`, make(fresh(), { ceiling }));
  for (const ceiling of [0n, 2_099n, 2_100n, 2_101n, 20_000n, 20_001n])
    await named(`top-up with a ceiling of ${ceiling}`, make(opened, { ceiling }));
  await named("top-up of 0", make(opened, { amount: 0n, ceiling: 3_000n }));
  await named("vouchers by the payer", make(channelOf(chain, { owner: payer })));
  await named("no balance", make(channelOf(chain, { owner: poor, voucherKey })));
  await named(
    "no balance, ceiling above",
    make(channelOf(chain, { owner: poor, voucherKey }), { ceiling: 10_001n }),
  );
  await named("no balance, no allowance", make(channelOf(chain, { owner: other, voucherKey })));
  await named("another depositor", make(fresh(), { depositor: other }));
  await named("another signer of the voucher", make(fresh(), { voucher: { signer: other } }));
  await named(
    "another depositor and signer",
    make(fresh(), { depositor: other, voucher: { signer: other } }),
  );
  await named(
    "another signer of the voucher, no balance",
    make(channelOf(chain, { owner: poor, voucherKey }), { voucher: { signer: other } }),
  );
  await named(
    "another signer of the voucher, no allowance",
    make(channelOf(chain, { owner: other, voucherKey }), { voucher: { signer: poor } }),
  );
  for (const withdrawDelay of [0, 899, 900, 901, 2_592_000, 2_592_001, 2 ** 40 - 1])
    await named(`delay of ${withdrawDelay}`, make(fresh({ withdrawDelay })));
  await named("another token", make(fresh({ token: PERMIT2 })));
  await named("no code at the token", make(fresh({ token })));
  await named("no receiver authorizer", make(fresh({ receiverAuthorizer: zeroAddress })));
  await named("pays itself", make(fresh({ receiver: payer.address })));
  await named("receiver zero", make(fresh({ receiver: zeroAddress })));
  await named("no name required", make(fresh(), { extra: { name: undefined } }));
  await named("no version required", make(fresh(), { extra: { version: undefined } }));
  await named("another name required", make(fresh(), { extra: { name: "USD Coin" } }));
  await named("names another method", make(fresh(), { extra: { assetTransferMethod: "other" } }));
  await named("names no method", make(fresh(), { extra: { assetTransferMethod: undefined } }));
  for (const named3 of ["eip3009", "permit2"])
    await named(
      `names ${named3}`,
      make(fresh(), { extra: { assetTransferMethod: named3, name: "USDC" } }),
    );
  await named("blocked payer", make(await blockedChannel(chain, isPermit2)));
  if (isPermit2) {
    const permitted: [string, Partial<Permitted>][] = [
      ["another from", { from: other.address }],
      ["another token permitted", { token: PERMIT2 }],
      ["less permitted", { amount: 9_999n }],
      ["more permitted", { amount: 10_001n }],
      ["another spender", { spender: other.address }],
      ["the other collector", { spender: ERC3009_COLLECTOR }],
      ["another channel", { channelId: randomSalt() }],
      ["another chain", { chainId: 1 }],
      ["expired", { deadline: 1_000n }],
      ["expires in 4 s", { deadline: BigInt(now() + 4) }],
      ["endless", { deadline: 2n ** 256n - 1n }],
      ["greatest nonce", { nonce: 2n ** 256n - 1n }],
      ["another from and spender", { from: other.address, spender: other.address }],
      ["another spender and token", { spender: other.address, token: PERMIT2 }],
      ["less permitted, expired", { amount: 9_999n, deadline: 5n }],
      ["another channel, expired", { channelId: randomSalt(), deadline: 5n }],
    ];
    for (const [name, part] of permitted) await named(name, make(fresh(), { permitted: part }));
    const upper = await make(fresh());
    const { voucher } = upper.paymentPayload["payload"] as { voucher: { channelId: Hex } };
    await named(
      "witness in upper case",
      change(
        upper,
        `${PERMITTED}.witness.channelId`,
        `0x${voucher.channelId.slice(2).toUpperCase()}`,
      ),
    );
  } else {
    const times: [string, DepositOptions][] = [
      ["expired long ago", { validBefore: 1_000n }],
      ["expired now", { validBefore: BigInt(now()) }],
      ["expires in 4 s", { validBefore: BigInt(now() + 4) }],
      ["endless", { validBefore: 2n ** 256n - 1n }],
      ["valid later", { validAfter: BigInt(now() + 1_000) }],
      ["never valid", { validAfter: 2_000_000_000n, validBefore: 1_000_000_000n }],
      ["expired, another depositor", { validBefore: 5n, depositor: other }],
      ["signed with another name", { domain: { name: "USD Coin" } }],
      ["signed with another version", { domain: { version: "1" } }],
      ["signed for another chain", { domain: { chainId: 1 } }],
    ];
    for (const [name, options] of times) await named(name, make(fresh(), options));
  }
  const signature = isPermit2 ? `${PERMITTED}.signature` : `${EIP3009}.signature`;
  for (const [what, bend] of SIGNATURES) {
    const body = await make(fresh());
    const { deposit } = body.paymentPayload["payload"] as {
      deposit: { authorization: Record<string, { signature: Hex }> };
    };
    const [authorization] = Object.values(deposit.authorization);
    await named(what, change(body, signature, bend(authorization?.signature ?? "0x")));
  }
  const good = await make(fresh());
  await named(
    "the other authorization instead",
    change(good, `${DEPOSIT}.authorization`, {
      [isPermit2 ? "erc3009Authorization" : "permit2Authorization"]: {},
    }),
  );
  await named(
    "with a null of the other",
    change(
      good,
      `${DEPOSIT}.authorization.${isPermit2 ? "erc3009Authorization" : "permit2Authorization"}`,
      null,
    ),
  );
  const paths = isPermit2 ? PERMIT2_PATHS : EIP3009_PATHS;
  bent.push(...garbage(method, good, [...COMMON_PATHS, ...DEPOSIT_PATHS, ...paths]));

  const used = await make(fresh());
  await settleOnChain(chain, used);
  await named("used", used);
}

/** Sends a deposit's body to the contract itself. */
async function settleOnChain(chain: TestChain, body: Body): Promise<void> {
  const facilitator = stockFacilitator({ ...chain, relayer: chain.admin });
  const answer = await facilitator.settle(
    body.paymentPayload as never,
    body.paymentRequirements as never,
  );
  if (!answer.success) throw new Error(answer.errorReason);
}

async function blockedChannel(chain: TestChain, isPermit2: boolean): Promise<Channel> {
  const channel = channelOf(chain, { voucherKey: account() });
  await chain.mint(channel.config.payer, 1_000_000n);
  if (isPermit2) await approvePermit2(chain, [channel.owner]);
  const hash = await chain.walletClient(chain.admin).writeContract({
    address: chain.usdc,
    abi: [
      {
        type: "function",
        name: "blacklist",
        stateMutability: "nonpayable",
        inputs: [{ name: "account", type: "address" }],
        outputs: [],
      },
    ],
    functionName: "blacklist",
    args: [channel.config.payer],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  return channel;
}

const SPONSORING = "paymentPayload.extensions.eip2612GasSponsoring";

async function sponsoredDeposits(chain: TestChain, add: Add): Promise<void> {
  const [owner, poor, allowed] = [account(), account(), account()];
  const voucherKey = account();
  await chain.mint([owner.address, allowed.address], 1_000_000n);
  await approvePermit2(chain, [allowed]);
  const make = async (
    payer: PrivateKeyAccount,
    given: Parameters<typeof sponsoring>[2] = {},
    options: DepositOptions = {},
  ): Promise<Body> =>
    permit2Body(channelOf(chain, { owner: payer, voucherKey }), {
      extensions: await sponsoring(chain, payer, { amount: 10_000n, ...given }),
      ...options,
    });
  const named = (name: string, body: Body | Promise<Body>) => add(`sponsored, ${name}`, body);
  await named("good", make(owner));
  await named("good, a payer with an allowance", make(allowed));
  await named("less than the deposit", make(owner, { amount: 9_999n }));
  await named("more than the deposit", make(owner, { amount: 10_001n }));
  await named("another spender", make(owner, { spender: poor.address }));
  await named("expired", make(owner, { deadline: 1_000n }));
  await named("expires in 4 s", make(owner, { deadline: BigInt(now() + 4) }));
  await named("a nonce to come", make(owner, { nonce: 7n }));
  await named("a nonce to come, a payer with an allowance", make(allowed, { nonce: 7n }));
  await named("no balance", make(poor));
  await named("ceiling above", make(owner, {}, { ceiling: 10_001n }));
  await named("another signer of the voucher", make(owner, {}, { voucher: { signer: poor } }));
  await named("another depositor", make(owner, {}, { depositor: poor }));
  const good = await make(owner);
  for (const name of ["from", "asset", "spender", "amount", "nonce", "deadline", "signature"])
    for (const value of ["", "abc", "0x", "-1", `0x${"ab".repeat(20)}`, null, 7, "7"])
      await named(
        `${name} = ${JSON.stringify(value)}`,
        change(good, `${SPONSORING}.info.${name}`, value),
      );
  await named("version = x", change(good, `${SPONSORING}.info.version`, "x"));
  await named("no info", change(good, SPONSORING, { schema: {} }));
}

async function approvedDeposits(chain: TestChain, add: Add): Promise<void> {
  const [owner, poor, coinless, allowed, other] = [
    account(),
    account(),
    account(),
    account(),
    account(),
  ];
  const voucherKey = account();
  await chain.mint([owner.address, coinless.address, allowed.address], 1_000_000n);
  await approvePermit2(chain, [allowed]);
  for (const { address } of [owner, poor, allowed])
    await chain.testClient.setBalance({ address, value: 10n ** 19n });
  const named = async (
    name: string,
    given: ApprovalOptions = {},
    { payer = owner, ...options }: DepositOptions & { payer?: PrivateKeyAccount } = {},
  ) =>
    add(
      `approved, ${name}`,
      permit2Body(channelOf(chain, { owner: payer, voucherKey }), {
        extensions: await approvalBy(chain, payer, given),
        ...options,
      }),
    );
  await named("good");
  await named("good, legacy", { type: "legacy" });
  await named("exactly the deposit", { data: approveData(PERMIT2, 10_000n) });
  await named("less than the deposit", { data: approveData(PERMIT2, 9_999n) });
  await named("a payer with an allowance", {}, { payer: allowed });
  await named("no balance", {}, { payer: poor });
  await named("no balance, ceiling above", {}, { payer: poor, ceiling: 10_001n });
  await named("ceiling above", {}, { ceiling: 10_001n });
  await named("another signer of the voucher", {}, { voucher: { signer: other } });
  await named("another depositor", {}, { depositor: other });
  await named("no coins", {}, { payer: coinless });
  await named("calls Permit2", { to: PERMIT2 });
  await named("allows another", { data: approveData(other.address) });
  await named("signed by another", { signer: other });
  await named("another chain", { chainId: 8_453 });
  await named("a nonce to come", { nonce: 7 });
  await named("too little gas", { gas: 30_000n });
  const { erc20ApprovalGasSponsoring: good } = await approvalBy(chain, owner);
  const part = { from: owner.address, asset: chain.usdc, spender: PERMIT2 };
  const announced = { info: { description: "a facilitator", version: "1" }, schema: {} };
  const infos: [string, object][] = [
    ["part of one", { info: part }],
    ["garbage", { info: { ...part, amount: "7", signedTransaction: "0x02", version: "1" } }],
    ["what the server announced", announced],
    ["from another", { info: { ...good.info, from: other.address } }],
    ["another asset", { info: { ...good.info, asset: PERMIT2 } }],
    ["another spender", { info: { ...good.info, spender: PERMIT2_COLLECTOR } }],
  ];
  for (const [name, extension] of infos)
    for (const payer of [owner, allowed])
      await add(
        `approved, ${name}${payer === allowed ? ", a payer with an allowance" : ""}`,
        permit2Body(channelOf(chain, { owner: payer, voucherKey }), {
          extensions: {
            erc20ApprovalGasSponsoring: extension,
            ...(extension === announced && { eip2612GasSponsoring: announced }),
          },
        }),
      );
}

async function wallets(chain: TestChain, add: Add): Promise<void> {
  const owner = account();
  const make = (payer: Address, voucherKey?: PrivateKeyAccount) =>
    channelOf(chain, { owner, voucherKey, config: { payer } });
  for (const mode of MODES) {
    const wallet = await deployWallet(chain, owner.address, mode);
    await chain.mint(wallet, 1_000_000n);
    await add(`wallet ${mode}, deposit`, depositBody(make(wallet)));
    await add(`wallet ${mode}, deposit, vouchers by a key`, depositBody(make(wallet, account())));
    await add(
      `wallet ${mode}, deposit, another depositor`,
      depositBody(make(wallet), { depositor: account() }),
    );
    await add(
      `wallet ${mode}, deposit, another signer of the voucher`,
      depositBody(make(wallet), { voucher: { signer: account() } }),
    );
    await add(`wallet ${mode}, no allowance`, permit2Body(make(wallet)));
    await add(`wallet ${mode}, voucher, no channel`, voucherBody(make(wallet), 1_000n));
    if (mode !== "Honest" && mode !== "Anything") continue;
    const opened = make(wallet);
    await open(opened);
    await add(`wallet ${mode}, voucher`, voucherBody(opened, 1_000n));
    const wrapped = await voucherBody(opened, 1_000n);
    const { voucher } = wrapped.paymentPayload["payload"] as { voucher: { signature: Hex } };
    const { wrap } = await futureWallet(chain, owner.address);
    await add(
      `wallet ${mode}, voucher in an envelope`,
      change(wrapped, `${PAYLOAD}.voucher.signature`, wrap(voucher.signature)),
    );
    await add(`wallet ${mode}, refund`, voucherBody(opened, 1_000n, { type: "refund" }));
    await add(
      `wallet ${mode}, voucher, another signer`,
      voucherBody(opened, 1_000n, { signer: account() }),
    );
  }
  const poor = await deployWallet(chain, owner.address, "Honest");
  await add("wallet without balance", depositBody(make(poor)));
  const future = await futureWallet(chain, owner.address);
  await chain.mint(future.address, 1_000_000n);
  const wrapped = async (voucherKey: PrivateKeyAccount | undefined, depositor = owner) => {
    const body = await depositBody(make(future.address, voucherKey), { depositor });
    const { deposit } = body.paymentPayload["payload"] as {
      deposit: { authorization: { erc3009Authorization: { signature: Hex } } };
    };
    const { signature } = deposit.authorization.erc3009Authorization;
    return change(body, `${EIP3009}.signature`, future.wrap(signature));
  };
  await add("undeployed wallet", wrapped(account()));
  await add("undeployed wallet, vouchers by its owner", wrapped(undefined));
  await add("undeployed wallet, another depositor", wrapped(account(), account()));
  await add("undeployed wallet, no deployment", depositBody(make(future.address, account())));
}

/** Bodies for settle: the same for one channel of each facilitator, since a good one changes the channel. */
export interface BentSettle {
  name: string;
  make: (channel: Channel) => Promise<Body>;
  /** What is in the channel before. Absent: a deposit makes the channel. */
  before?: { balance: bigint; claimed: bigint };
}

const valueAt = (body: unknown, path: string): unknown =>
  path.split(".").reduce((value, name) => (value as Record<string, unknown>)[name], body);

const OPEN = { balance: 10_000n, claimed: 2_100n };
const ORDER_GARBAGE = [undefined, null, "", "0x", "abc", 7, -1, "-1", "01", {}, [], "9".repeat(90)];
const ADDRESS_GARBAGE = [...ORDER_GARBAGE, zeroAddress, `0x${"zz".repeat(20)}`];

export function bentChannelSettles(): BentSettle[] {
  const list: BentSettle[] = [];
  const add = (
    name: string,
    make: BentSettle["make"],
    before: BentSettle["before"] | "none" = OPEN,
  ): void => void list.push({ name, make, ...(before !== "none" && before && { before }) });
  const bend = (
    name: string,
    make: BentSettle["make"],
    paths: readonly string[],
    before: BentSettle["before"] | "none" = OPEN,
  ): void => {
    for (const path of paths)
      for (const value of /(payer|token|receiver|Authorizer)$/.test(path)
        ? ADDRESS_GARBAGE
        : ORDER_GARBAGE)
        add(
          `${name}: ${path} = ${JSON.stringify(value) ?? "absent"}`.slice(0, 140),
          async (channel) => change(await make(channel), path, value),
          before,
        );
  };
  const row = (channel: Channel, ceiling = 3_000n, total = 2_500n): Row => ({
    channel,
    ceiling,
    total,
  });

  add("deposit", (channel) => depositBody(channel), "none");
  add("deposit, top-up", (channel) => depositBody(channel, { ceiling: 3_000n }));
  add("deposit of all", (channel) => depositBody(channel, { amount: 20_000n }), "none");
  add("deposit above the balance", (channel) => depositBody(channel, { amount: 20_001n }), "none");
  add("deposit, ceiling above", (channel) => depositBody(channel, { ceiling: 10_001n }), "none");
  add("deposit, ceiling of 0", (channel) => depositBody(channel, { ceiling: 0n }), "none");
  add(
    "deposit, another depositor",
    (channel) => depositBody(channel, { depositor: account() }),
    "none",
  );
  add(
    "deposit, another signer of the voucher",
    (channel) => depositBody(channel, { voucher: { signer: account() } }),
    "none",
  );
  add("deposit, expired", (channel) => depositBody(channel, { validBefore: 9n }), "none");
  add("deposit over Permit2, no allowance", (channel) => permit2Body(channel), "none");
  add(
    "deposit over Permit2",
    async (channel) => {
      await approvePermit2(channel.chain, [channel.owner]);
      return permit2Body(channel);
    },
    "none",
  );
  add(
    "deposit over Permit2, sponsored",
    async (channel) =>
      permit2Body(channel, {
        extensions: await sponsoring(channel.chain, channel.owner, { amount: 10_000n }),
      }),
    "none",
  );
  add(
    "deposit over Permit2, approved",
    async (channel) => {
      const { chain, owner } = channel;
      await chain.testClient.setBalance({ address: owner.address, value: 10n ** 19n });
      return permit2Body(channel, { extensions: await approvalBy(chain, owner) });
    },
    "none",
  );
  bend(
    "deposit",
    (channel) => depositBody(channel),
    [
      `${PAYLOAD}.type`,
      `${PAYLOAD}.channelConfig`,
      `${PAYLOAD}.voucher.signature`,
      `${DEPOSIT}.amount`,
      `${EIP3009}.salt`,
      `${EIP3009}.signature`,
    ],
    "none",
  );

  add("voucher", (channel) => voucherBody(channel, 3_000n));
  add("refund request", (channel) => voucherBody(channel, 3_000n, { type: "refund" }));

  add("claim", (channel) => claimBody([row(channel)]));
  add("claim up to the ceiling", (channel) => claimBody([row(channel, 10_000n, 10_000n)]));
  add("claim above the ceiling", (channel) => claimBody([row(channel, 3_000n, 3_001n)]));
  add("claim above the balance", (channel) => claimBody([row(channel, 10_001n, 10_001n)]));
  add("claim of the greatest amounts", (channel) =>
    claimBody([row(channel, MAX_UINT128, MAX_UINT128)]),
  );
  add("claim signed by another authorizer", (channel) =>
    claimBody([row(channel)], { signer: account() }),
  );
  add("claim with a false voucher", (channel) =>
    claimBody([{ ...row(channel), signer: account() }]),
  );
  add("claim not signed", async (channel) =>
    change(await claimBody([row(channel)]), `${PAYLOAD}.claimAuthorizerSignature`, undefined),
  );
  add("claim of no channel", (channel) => claimBody([row(channel)]), {
    balance: 0n,
    claimed: 0n,
  });
  add("claim of nothing", async (channel) =>
    change(await claimBody([row(channel)]), `${PAYLOAD}.claims`, []),
  );
  add("claim twice in a batch", (channel) =>
    claimBody([row(channel), row(channel, 4_000n, 3_500n)]),
  );
  add("claim with a row of an unopened channel", (channel) =>
    claimBody([
      row(channel),
      row(channelOf(channel.chain, { authorizer: channel.authorizer }), 5n, 5n),
    ]),
  );
  add("claim with a row of another authorizer", (channel) =>
    claimBody([row(channel), row(channelOf(channel.chain), 5n, 5n)]),
  );
  add("claim of 101 rows", (channel) =>
    claimBody([row(channel), ...Array.from({ length: 100 }, () => row(channel))]),
  );
  add("claim of another token", (channel) =>
    claimBody([row({ ...channel, config: { ...channel.config, token: PERMIT2 } })]),
  );
  bend("claim", (channel) => claimBody([row(channel)]), [
    "paymentRequirements.payTo",
    "paymentRequirements.asset",
    "paymentRequirements.amount",
    `${PAYLOAD}.claims`,
    `${PAYLOAD}.claims.0`,
    `${PAYLOAD}.claims.0.voucher`,
    `${PAYLOAD}.claims.0.voucher.channel`,
    ...CONFIG_FIELDS.map((name) => `${PAYLOAD}.claims.0.voucher.channel.${name}`),
    `${PAYLOAD}.claims.0.voucher.maxClaimableAmount`,
    `${PAYLOAD}.claims.0.signature`,
    `${PAYLOAD}.claims.0.totalClaimed`,
    `${PAYLOAD}.claimAuthorizerSignature`,
  ]);

  add("settle", async (channel) => settleBody(channel));
  add("settle of nothing", async (channel) => settleBody(channel), {
    balance: 10_000n,
    claimed: 0n,
  });
  bend("settle", async (channel) => settleBody(channel), [
    `${PAYLOAD}.receiver`,
    `${PAYLOAD}.token`,
    "paymentRequirements.payTo",
    "paymentRequirements.asset",
  ]);

  add("refund of all that is left", (channel) => refundBody(channel, { amount: 7_900n }));
  add("refund of a part", (channel) => refundBody(channel, { amount: 1n }));
  add("refund of more than is left", (channel) => refundBody(channel, { amount: 7_901n }));
  add("refund with a claim", (channel) =>
    refundBody(channel, { amount: 5_000n, rows: [row(channel, 3_000n, 3_000n)] }),
  );
  add("refund after a claim of all", (channel) =>
    refundBody(channel, { amount: 5_000n, rows: [row(channel, 10_000n, 10_000n)] }),
  );
  add("refund with a claim above the balance", (channel) =>
    refundBody(channel, { amount: 5_000n, rows: [row(channel, 10_001n, 10_001n)] }),
  );
  add("refund with a false voucher", (channel) =>
    refundBody(channel, { amount: 5_000n, rows: [{ ...row(channel), signer: account() }] }),
  );
  add("refund with a claim of another channel", async (channel) => {
    const more = channelOf(channel.chain, { authorizer: channel.authorizer });
    await open(more);
    return refundBody(channel, { amount: 5_000n, rows: [row(more, 5n, 5n)] });
  });
  add("refund of an old nonce", (channel) => refundBody(channel, { amount: 5n, nonce: 1n }));
  add("refund signed for another amount", (channel) =>
    refundBody(channel, { amount: 5n, signedAmount: 6n }),
  );
  add("refund signed by another", (channel) =>
    refundBody(channel, { amount: 5n, signer: account() }),
  );
  add("refund of 0", (channel) => refundBody(channel, { amount: 0n }));
  add("refund of no channel", (channel) => refundBody(channel, { amount: 5n }), {
    balance: 0n,
    claimed: 0n,
  });
  add("refund not signed", async (channel) =>
    change(
      await refundBody(channel, { amount: 5n }),
      `${PAYLOAD}.refundAuthorizerSignature`,
      undefined,
    ),
  );
  add("refund, its claim not signed", async (channel) =>
    change(
      await refundBody(channel, { amount: 5n, rows: [row(channel)] }),
      `${PAYLOAD}.claimAuthorizerSignature`,
      undefined,
    ),
  );
  bend("refund", (channel) => refundBody(channel, { amount: 5_000n, rows: [row(channel)] }), [
    `${PAYLOAD}.channelConfig`,
    ...CONFIG_FIELDS.map((name) => `${PAYLOAD}.channelConfig.${name}`),
    `${PAYLOAD}.voucher`,
    `${PAYLOAD}.voucher.channelId`,
    `${PAYLOAD}.voucher.maxClaimableAmount`,
    `${PAYLOAD}.amount`,
    `${PAYLOAD}.refundNonce`,
    `${PAYLOAD}.claims`,
    `${PAYLOAD}.refundAuthorizerSignature`,
    `${PAYLOAD}.claimAuthorizerSignature`,
  ]);
  const orders: [string, (channel: Channel) => Promise<Body>][] = [
    ["claim", (channel) => claimBody([row(channel)])],
    ["settle", async (channel) => settleBody(channel)],
    ["refund", (channel) => refundBody(channel, { amount: 5_000n, rows: [row(channel)] })],
  ];
  for (const [name, make] of orders) {
    for (const path of [
      "paymentRequirements.scheme",
      "paymentRequirements.network",
      "paymentPayload.accepted.scheme",
      "paymentPayload.accepted.network",
    ])
      for (const value of [undefined, "eip155:1", "exact", 7])
        add(`${name}: ${path} = ${JSON.stringify(value) ?? "absent"}`, async (channel) =>
          change(await make(channel), path, value),
        );
    const signatures =
      name === "settle"
        ? []
        : ["claims.0.signature", "claimAuthorizerSignature", "refundAuthorizerSignature"];
    for (const at of name === "claim" ? signatures.slice(0, 2) : signatures)
      for (const [what, bent] of SIGNATURES)
        add(`${name}, ${at}, ${what}`, async (channel) => {
          const body = await make(channel);
          const path = `${PAYLOAD}.${at}`;
          return change(body, path, bent(valueAt(body, path) as Hex));
        });
  }
  return list;
}
