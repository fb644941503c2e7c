// Goal: x402's payment channels on the local chain have the published interface, work with the published client, server
// and facilitator, and no call or sequence of calls moves money that its owner did not sign for, or loses any.
import { readFileSync } from "node:fs";
import * as fc from "fast-check";
import t from "tap";
import {
  BATCH_SETTLEMENT_ADDRESS,
  claimBatchTypes,
  ERC3009_DEPOSIT_COLLECTOR_ADDRESS,
  refundTypes,
  voucherTypes,
} from "@x402/evm";
import {
  BaseError,
  concat,
  decodeErrorResult,
  encodeAbiParameters,
  encodeFunctionData,
  hashTypedData,
  keccak256,
  numberToHex,
  parseAbiParameters,
  parseEventLogs,
  parseSignature,
  toHex,
  zeroAddress,
  type Abi,
  type Address,
  type Hex,
  type TransactionReceipt,
} from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { formatAbiItem } from "viem/utils";
import { rpc } from "../../server/local/anvil.ts";
import { MULTICALL3, STAND_INS } from "../../server/local/chain-contracts.ts";
import { MEASURED_WITHDRAWAL_GAS, WITHDRAWAL_GAS } from "../../server/core/channel-gas.ts";
import {
  CHANNELS,
  CHANNELS_ABI,
  channelIdOf,
  channelsDomain,
  COLLECTOR_ABI,
  ERC3009_COLLECTOR,
  erc3009Deposit,
  PERMIT2_COLLECTOR,
  PERMIT2_COLLECTOR_ABI,
  permit2Deposit,
  randomSalt,
  signClaims,
  signRefund,
  signVoucher,
  type ChannelConfig,
  type DepositArguments,
  type VoucherClaim,
} from "../helpers/batch-settlement.ts";
import { testChain } from "../helpers/chain.ts";
import { approvePermit2, ERC20_ABI, PERMIT2, PERMIT2_ABI } from "../helpers/permit2.ts";
import { runsOf } from "../helpers/tier.ts";
import { deployWallet } from "../facilitator/wallets.ts";
import {
  after,
  balanceOf,
  CHANNEL_COUNT,
  claimedBy,
  emptyWorld,
  RECEIVER_OF,
  steps,
  type Row,
  type Step,
  type WorldModel,
} from "./channel-model.ts";
import { expectFromDepositToRefund, stockSeller } from "../helpers/stock-channels.ts";

const artifactOf = (path: string) =>
  JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8")) as {
    abi: Abi;
    bytecode: Hex;
    deployedBytecode: Hex;
  };
const ours = (name: string) => artifactOf(`../../server/local/contracts/${name}.json`);
const TEST_TOKEN = artifactOf("../helpers/contracts/TestToken.json");
const ERRORS: Abi = [...CHANNELS_ABI, ...COLLECTOR_ABI, ...PERMIT2_COLLECTOR_ABI, ...PERMIT2_ABI];
/** The types of arguments are not checked: some tests send wrong ones. */
const ANY_CALL: Abi = CHANNELS_ABI;
const DELAY = 900;
/** The order of secp256k1: where `s` verifies, this minus `s` does too. */
const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;

const chain = await testChain(t);
const { publicClient } = chain;
/** Any account can send, also a contract's. */
await rpc(chain.rpcUrl, "anvil_autoImpersonateAccount", [true]);

const account = (): PrivateKeyAccount => privateKeyToAccount(generatePrivateKey());
const payer = account();
const voucherKey = account();
const authorizer = account();
const stranger = account();
await chain.mint(payer.address, 10n ** 12n);

const channel = (over: Partial<ChannelConfig> = {}): ChannelConfig => ({
  payer: payer.address,
  payerAuthorizer: voucherKey.address,
  receiver: account().address,
  receiverAuthorizer: authorizer.address,
  token: chain.usdc,
  withdrawDelay: DELAY,
  salt: randomSalt(),
  ...over,
});

type Call = { to: Address; data: Hex };
type Writes = Exclude<(typeof CHANNELS_ABI)[number], { type: "error" | "event" }>["name"];
function call(functionName: Writes, args: readonly unknown[]): Call {
  const data = encodeFunctionData({ abi: ANY_CALL, functionName, args });
  return { to: CHANNELS, data };
}

const funded = new Set<Address>();
let sending: Promise<unknown> = Promise.resolve();
/** One after the other: the node may give two calls at once of one account the same nonce. */
function send(from: Address, sent: Call): Promise<TransactionReceipt> {
  const receipt = sending.then(() => sendNow(from, sent));
  sending = receipt.catch(() => undefined);
  return receipt;
}

async function sendNow(from: Address, { to, data }: Call): Promise<TransactionReceipt> {
  if (!funded.has(from)) await chain.testClient.setBalance({ address: from, value: 10n ** 20n });
  funded.add(from);
  const transaction = { from, to, data, gas: numberToHex(5_000_000) };
  const hash = (await rpc(chain.rpcUrl, "eth_sendTransaction", [transaction])) as Hex;
  return publicClient.waitForTransactionReceipt({ hash });
}

/** The error's name (of a revert with a text: the text), or "ok" when it would succeed. */
async function wouldBe(from: Address, { to, data }: Call): Promise<string> {
  try {
    await publicClient.call({ account: from, to, data });
    return "ok";
  } catch (error) {
    return nameOf(error);
  }
}

function nameOf(error: unknown): string {
  const revert =
    error instanceof BaseError &&
    error.walk((cause) => typeof (cause as { data?: unknown }).data === "string");
  if (!revert) return String(error);
  return errorIn((revert as unknown as { data: Hex }).data);
}

function errorIn(data: Hex): string {
  const { errorName, args } = decodeErrorResult({ abi: ERRORS, data });
  return errorName === "Error" ? String(args?.[0]) : errorName;
}

/** Sends what would succeed. */
async function tried(from: Address, sent: Call): Promise<string> {
  const result = await wouldBe(from, sent);
  if (result !== "ok") return result;
  return (await send(from, sent)).status === "success" ? "ok" : "reverted";
}

async function done(from: Address, sent: Call): Promise<TransactionReceipt> {
  const receipt = await send(from, sent);
  if (receipt.status !== "success") throw new Error(await wouldBe(from, sent));
  return receipt;
}

const eventsOf = ({ logs }: TransactionReceipt) =>
  parseEventLogs({ abi: CHANNELS_ABI, logs }).map(({ eventName, args }) => ({ eventName, args }));

const read = <const T>(functionName: Writes, args: readonly unknown[] = []): Promise<T> =>
  publicClient.readContract({
    address: CHANNELS,
    abi: ANY_CALL,
    functionName,
    args,
  }) as Promise<T>;

async function stateOf(config: ChannelConfig) {
  const id = channelIdOf(chain, config);
  const [[balance, claimed], [pending, since], nonce] = await Promise.all([
    read<[bigint, bigint]>("channels", [id]),
    read<[bigint, number]>("pendingWithdrawals", [id]),
    read<bigint>("refundNonce", [id]),
  ]);
  return { balance, claimed, pending, isPending: since !== 0, nonce };
}

const depositOf = async (args: Promise<DepositArguments>): Promise<Call> =>
  call("deposit", await args);

async function fund(config: ChannelConfig, amount: bigint): Promise<void> {
  await done(stranger.address, await depositOf(erc3009Deposit(chain, payer, config, amount)));
}

async function open(amount: bigint, over: Partial<ChannelConfig> = {}): Promise<ChannelConfig> {
  const config = channel(over);
  await fund(config, amount);
  return config;
}

async function claimRow(
  config: ChannelConfig,
  ceiling: bigint,
  total = ceiling,
  signer: Pick<PrivateKeyAccount, "signTypedData"> = voucherKey,
): Promise<VoucherClaim> {
  const signature = await signVoucher(chain, signer, channelIdOf(chain, config), ceiling);
  return {
    voucher: { channel: config, maxClaimableAmount: ceiling },
    signature,
    totalClaimed: total,
  };
}

const signedClaims = async (rows: VoucherClaim[], signer = authorizer): Promise<Call> =>
  call("claimWithSignature", [rows, await signClaims(chain, signer, rows)]);

const signedRefund = async (
  config: ChannelConfig,
  amount: bigint,
  nonce: bigint,
  signer = authorizer,
): Promise<Call> => {
  const refund = { channelId: channelIdOf(chain, config), nonce, amount };
  return call("refundWithSignature", [
    config,
    amount,
    nonce,
    await signRefund(chain, signer, refund),
  ]);
};

const settled = (config: ChannelConfig): Call => call("settle", [config.receiver, config.token]);
const multicall = (...calls: Call[]): Call => call("multicall", [calls.map(({ data }) => data)]);

async function testToken(holder: Address): Promise<Address> {
  const hash = await chain
    .walletClient(chain.admin)
    .deployContract({ abi: TEST_TOKEN.abi, bytecode: TEST_TOKEN.bytecode, args: [] });
  const { contractAddress } = await publicClient.waitForTransactionReceipt({ hash });
  if (!contractAddress) throw new Error("not deployed");
  await done(stranger.address, onToken(contractAddress, "mint", [holder, 2n ** 130n]));
  return contractAddress;
}
const onToken = (to: Address, functionName: string, args: unknown[]): Call => ({
  to,
  data: encodeFunctionData({ abi: TEST_TOKEN.abi, functionName, args }),
});
const unsignedDeposit = (config: ChannelConfig, amount: bigint): Call => {
  const types = parseAbiParameters("uint256, uint256, uint256, bytes");
  const data = encodeAbiParameters(types, [0n, 0n, 0n, "0x"]);
  return call("deposit", [config, amount, ERC3009_COLLECTOR, data]);
};

t.test("our code at the published addresses, with their interface", async (t) => {
  const { LocalBatchSettlement, LocalErc3009DepositCollector } = STAND_INS;
  t.equal(LocalBatchSettlement, BATCH_SETTLEMENT_ADDRESS);
  t.equal(LocalErc3009DepositCollector, ERC3009_DEPOSIT_COLLECTOR_ADDRESS);
  const signatures = (abi: Abi): string[] =>
    abi.map((item) => {
      if (item.type !== "function" && item.type !== "event" && item.type !== "error")
        return item.type;
      const outputs = "outputs" in item ? item.outputs.map(({ type }) => type) : [];
      const indexed =
        item.type === "event" ? item.inputs.map(({ indexed }) => indexed === true) : [];
      return `${item.type} ${formatAbiItem(item)} ${outputs.join()} ${indexed.join()}`;
    });
  const published: [keyof typeof STAND_INS, Abi][] = [
    ["LocalBatchSettlement", CHANNELS_ABI],
    ["LocalErc3009DepositCollector", COLLECTOR_ABI],
    ["LocalPermit2DepositCollector", [...COLLECTOR_ABI, ...PERMIT2_COLLECTOR_ABI]],
  ];
  for (const [name, abi] of published) {
    const { abi: own, deployedBytecode } = ours(name);
    t.equal(await publicClient.getCode({ address: STAND_INS[name] }), deployedBytecode, name);
    const has = new Set(signatures(own));
    t.same(
      signatures(abi).filter((signature) => !has.has(signature)),
      [],
      `${name} lacks nothing that is published`,
    );
  }
});

t.test("ids and digests are those of the published types", async (t) => {
  const domain = channelsDomain(chain);
  const [, name, version, chainId, verifyingContract] =
    await read<[Hex, string, string, bigint, Address]>("eip712Domain");
  t.same({ name, version, chainId: Number(chainId), verifyingContract }, domain);
  t.equal(await read("MIN_WITHDRAW_DELAY"), 900);
  t.equal(await read("MAX_WITHDRAW_DELAY"), 2_592_000);

  const config = channel();
  const channelId = channelIdOf(chain, config);
  t.equal(await read("getChannelId", [config]), channelId);
  const ceiling = 12_345n;
  t.equal(
    await read("getVoucherDigest", [channelId, ceiling]),
    hashTypedData({
      domain,
      types: voucherTypes,
      primaryType: "Voucher",
      message: { channelId, maxClaimableAmount: ceiling },
    }),
  );
  const refund = { channelId, nonce: 7n, amount: 99n };
  t.equal(
    await read("getRefundDigest", [channelId, 7n, 99n]),
    hashTypedData({ domain, types: refundTypes, primaryType: "Refund", message: refund }),
  );
  const rows = [await claimRow(config, ceiling, 11n), await claimRow(channel(), 5n)];
  for (const batch of [[], rows.slice(0, 1), rows])
    t.equal(
      await read("getClaimBatchDigest", [batch]),
      hashTypedData({
        domain,
        types: claimBatchTypes,
        primaryType: "ClaimBatch",
        message: {
          claims: batch.map(({ voucher, totalClaimed }) => ({
            channelId: channelIdOf(chain, voucher.channel),
            maxClaimableAmount: voucher.maxClaimableAmount,
            totalClaimed,
          })),
        },
      }),
      `a batch of ${batch.length}`,
    );
  const types = [
    "ChannelConfig(address payer,address payerAuthorizer,address receiver,address receiverAuthorizer,address token,uint40 withdrawDelay,bytes32 salt)",
    "Voucher(bytes32 channelId,uint128 maxClaimableAmount)",
    "Refund(bytes32 channelId,uint256 nonce,uint128 amount)",
    "ClaimEntry(bytes32 channelId,uint128 maxClaimableAmount,uint128 totalClaimed)",
    "ClaimBatch(ClaimEntry[] claims)ClaimEntry(bytes32 channelId,uint128 maxClaimableAmount,uint128 totalClaimed)",
  ];
  const hashes = ["CHANNEL_CONFIG", "VOUCHER", "REFUND", "CLAIM_ENTRY", "CLAIM_BATCH"] as const;
  for (const [index, hash] of hashes.entries())
    t.equal(await read(`${hash}_TYPEHASH`), keccak256(toHex(types[index] as string)));
});

t.test("a deposit with ERC-3009", async (t) => {
  const config = channel();
  const channelId = channelIdOf(chain, config);
  const before = await chain.usdcOf(payer.address);
  const args = await erc3009Deposit(chain, payer, config, 1_000n);
  const first = await done(stranger.address, call("deposit", args));
  t.same(eventsOf(first), [
    { eventName: "ChannelCreated", args: { channelId, config } },
    {
      eventName: "Deposited",
      args: { channelId, sender: stranger.address, amount: 1_000n, newBalance: 1_000n },
    },
  ]);
  t.equal(await chain.usdcOf(payer.address), before - 1_000n);
  t.equal(await chain.usdcOf(ERC3009_COLLECTOR), 0n, "nothing stays with the collector");

  const used = "FiatTokenV2: authorization is used or canceled";
  t.equal(await tried(stranger.address, call("deposit", args)), used, "a second time");
  await t.test("the signature is for this channel and this amount", async (t) => {
    const bent = async (sent: Parameters<typeof erc3009Deposit>[4]) =>
      tried(stranger.address, await depositOf(erc3009Deposit(chain, payer, config, 1_000n, sent)));
    const invalid = "FiatTokenV2: invalid signature";
    t.equal(await bent({ sent: { amount: 1_001n } }), invalid);
    t.equal(await bent({ sent: { amount: 999n } }), invalid);
    t.equal(await bent({ sent: { salt: randomSalt() } }), invalid);
    t.equal(await bent({ sent: { config: { ...config, salt: randomSalt() } } }), invalid);
    t.equal(await bent({ sent: { config: channel({ receiver: stranger.address }) } }), invalid);
    t.equal(await bent({ validBefore: 1n }), "FiatTokenV2: authorization is expired");
    t.equal(await bent({ validAfter: 2n ** 39n }), "FiatTokenV2: authorization is not yet valid");
    const others = await depositOf(erc3009Deposit(chain, stranger, config, 1_000n));
    t.equal(await tried(stranger.address, others), invalid, "signed by another");
    const tooMuch = await depositOf(erc3009Deposit(chain, payer, config, 10n ** 13n));
    const poor = "ERC20: transfer amount exceeds balance";
    t.equal(await tried(stranger.address, tooMuch), poor);
    t.match(await stateOf(config), { balance: 1_000n });
  });

  const more = await depositOf(erc3009Deposit(chain, payer, config, 500n));
  t.same(
    eventsOf(await done(payer.address, more)),
    [
      {
        eventName: "Deposited",
        args: { channelId, sender: payer.address, amount: 500n, newBalance: 1_500n },
      },
    ],
    "a top-up creates nothing",
  );
  t.same(await stateOf(config), {
    balance: 1_500n,
    claimed: 0n,
    pending: 0n,
    isPending: false,
    nonce: 0n,
  });
});

t.test("a deposit with Permit2", async (t) => {
  const owner = account();
  await chain.mint(owner.address, 10_000n);
  await approvePermit2(chain, [owner]);
  const config = channel({ payer: owner.address });
  const args = await permit2Deposit(chain, owner, config, 1_000n);
  await done(stranger.address, call("deposit", args));
  t.equal(await chain.usdcOf(owner.address), 9_000n);
  t.match(await stateOf(config), { balance: 1_000n });
  t.equal(await tried(stranger.address, call("deposit", args)), "InvalidNonce", "a second time");

  const bent = async (sent: { amount?: bigint; config?: ChannelConfig }) =>
    tried(
      stranger.address,
      await depositOf(permit2Deposit(chain, owner, config, 1_000n, { sent })),
    );
  t.equal(await bent({ amount: 1_001n }), "InvalidSigner");
  t.equal(await bent({ config: { ...config, salt: randomSalt() } }), "InvalidSigner");
  t.equal(await bent({ config: { ...config, receiver: stranger.address } }), "InvalidSigner");

  await t.test("the token's permit is used, or an existing allowance", async (t) => {
    const fresh = account();
    await chain.mint(fresh.address, 1_000n);
    const own = channel({ payer: fresh.address });
    const permit = async (deadline: bigint, value: bigint): Promise<Hex> => {
      const signature = await fresh.signTypedData({
        domain: {
          name: "USDC",
          version: "2",
          chainId: chain.chainId,
          verifyingContract: chain.usdc,
        },
        types: {
          Permit: [
            { name: "owner", type: "address" },
            { name: "spender", type: "address" },
            { name: "value", type: "uint256" },
            { name: "nonce", type: "uint256" },
            { name: "deadline", type: "uint256" },
          ],
        },
        primaryType: "Permit",
        message: { owner: fresh.address, spender: PERMIT2, value, nonce: 0n, deadline },
      });
      const { r, s, yParity } = parseSignature(signature);
      const types = parseAbiParameters("uint256, uint256, uint8, bytes32, bytes32");
      return encodeAbiParameters(types, [value, deadline, 27 + yParity, r, s]);
    };
    const withPermit = async (permit2612: Hex, amount: bigint) =>
      depositOf(permit2Deposit(chain, fresh, own, amount, { permit2612 }));
    const far = 2n ** 40n;
    const failed = await withPermit(await permit(1n, 400n), 400n);
    t.equal(await tried(stranger.address, failed), "TRANSFER_FROM_FAILED", "and no allowance");
    const other = await withPermit(await permit(far, 401n), 400n);
    t.equal(await tried(stranger.address, other), "Permit2612AmountMismatch");
    await done(stranger.address, await withPermit(await permit(far, 400n), 400n));
    t.match(await stateOf(own), { balance: 400n });

    await chain.testClient.setBalance({ address: fresh.address, value: 10n ** 18n });
    const approve = { abi: ERC20_ABI, functionName: "approve", args: [PERMIT2, 600n] } as const;
    await done(fresh.address, { to: chain.usdc, data: encodeFunctionData(approve) });
    const { logs } = await done(stranger.address, await withPermit(await permit(1n, 600n), 600n));
    t.match(parseEventLogs({ abi: PERMIT2_COLLECTOR_ABI, logs }), [
      {
        eventName: "EIP2612PermitFailedWithReason",
        args: { owner: fresh.address, reason: "FiatTokenV2: permit is expired" },
      },
    ]);
    t.match(await stateOf(own), { balance: 1_000n });
  });
});

t.test("only the channels' contract can use the collectors", async (t) => {
  const config = channel();
  const channelId = channelIdOf(chain, config);
  for (const deposit of [erc3009Deposit, permit2Deposit]) {
    const [, amount, to, collectorData] = await deposit(chain, payer, config, 100n);
    const data = encodeFunctionData({
      abi: COLLECTOR_ABI,
      functionName: "collect",
      args: [payer.address, chain.usdc, amount, channelId, collectorData],
    });
    for (const from of [stranger.address, payer.address, MULTICALL3])
      t.equal(await wouldBe(from, { to, data }), "OnlyX402BatchSettlement");
    t.equal(
      await publicClient.readContract({
        address: to,
        abi: COLLECTOR_ABI,
        functionName: "x402BatchSettlement",
      }),
      CHANNELS,
    );
  }
  const constant = (
    functionName: "PERMIT2" | "DEPOSIT_WITNESS_TYPE_STRING" | "DEPOSIT_WITNESS_TYPEHASH",
  ) =>
    publicClient.readContract({
      address: PERMIT2_COLLECTOR,
      abi: PERMIT2_COLLECTOR_ABI,
      functionName,
    });
  const witness = "DepositWitness(bytes32 channelId)";
  t.equal(await constant("PERMIT2"), PERMIT2);
  t.equal(await constant("DEPOSIT_WITNESS_TYPEHASH"), keccak256(toHex(witness)));
  t.equal(
    await constant("DEPOSIT_WITNESS_TYPE_STRING"),
    `DepositWitness witness)${witness}TokenPermissions(address token,uint256 amount)`,
  );
});

t.test("which deposits are refused, and in which order", async (t) => {
  const token = await testToken(payer.address);
  const config = channel({ token });
  const silent = account().address;
  await chain.testClient.setCode({ address: silent, bytecode: "0x00" });
  const refused = (over: Partial<ChannelConfig>, amount: bigint, collector: Address = silent) =>
    tried(stranger.address, call("deposit", [{ ...config, ...over }, amount, collector, "0x"]));
  for (const field of ["payer", "receiver", "receiverAuthorizer", "token"] as const)
    t.equal(await refused({ [field]: zeroAddress, withdrawDelay: 1 }, 0n), "InvalidChannel", field);
  for (const withdrawDelay of [0, 899, 2_592_001])
    t.equal(await refused({ withdrawDelay }, 0n), "WithdrawDelayOutOfRange");
  t.equal(await refused({}, 0n, zeroAddress), "ZeroDeposit");
  t.equal(await refused({}, 1n, zeroAddress), "InvalidCollector");
  t.equal(await refused({}, 1n), "DepositCollectionFailed", "a collector that brings nothing");

  const deposit = (amount: bigint) => tried(stranger.address, unsignedDeposit(config, amount));
  // The collector has some more, so that it can forward the whole amount.
  await done(stranger.address, onToken(token, "mint", [ERC3009_COLLECTOR, 5n]));
  for (const surplus of [-1n, 1n]) {
    await done(stranger.address, onToken(token, "setSurplus", [surplus]));
    t.equal(await deposit(10n), "DepositCollectionFailed", `so much more arrives: ${surplus}`);
  }
  await done(stranger.address, onToken(token, "setSurplus", [0n]));
  const most = 2n ** 128n - 1n;
  t.equal(await deposit(most - 5n), "ok");
  t.equal(await deposit(6n), "DepositOverflow");
  t.equal(await deposit(5n), "ok");
  t.match(await stateOf(config), { balance: most });
  for (const withdrawDelay of [900, 2_592_000]) {
    const other = { ...config, withdrawDelay, salt: randomSalt() };
    t.equal(await tried(stranger.address, unsignedDeposit(other, 1n)), "ok");
  }
});

t.test("claims of many channels, and what one bad one does", async (t) => {
  const receivers = [account().address, account().address];
  const configs = await Promise.all(
    [0, 0, 0, 1].map((index) => open(1_000n, { receiver: receivers[index] as Address })),
  );
  const [one, two, three, other] = configs as [
    ChannelConfig,
    ChannelConfig,
    ChannelConfig,
    ChannelConfig,
  ];
  const good = [
    await claimRow(one, 600n, 550n),
    await claimRow(two, 300n),
    await claimRow(other, 10n),
  ];
  const bad: [VoucherClaim, string][] = [
    [await claimRow(three, 100n, 101n), "ClaimExceedsCeiling"],
    [await claimRow(three, 1_001n), "ClaimExceedsBalance"],
    [await claimRow(three, 2_000n, 1_001n), "ClaimExceedsBalance"],
    [await claimRow(three, 100n, 100n, stranger), "InvalidSignature"],
    [await claimRow(three, 100n, 100n, payer), "InvalidSignature"],
    [
      { ...(await claimRow(three, 100n)), signature: good[0]?.signature as Hex },
      "InvalidSignature",
    ],
    [await claimRow(channel(), 100n), "ClaimExceedsBalance"],
    [await claimRow({ ...three, withdrawDelay: 901 }, 100n), "ClaimExceedsBalance"],
  ];
  for (const [row, error] of bad)
    for (const rows of [
      [row, ...good],
      [...good, row],
    ])
      t.equal(await tried(stranger.address, await signedClaims(rows)), error);
  for (const config of configs) t.match(await stateOf(config), { claimed: 0n }, "all or nothing");

  const claimed = await done(stranger.address, await signedClaims(good));
  t.same(
    eventsOf(claimed).map(({ eventName, args }) => [eventName, args]),
    [
      [one, 550n],
      [two, 300n],
      [other, 10n],
    ].map(([config, amount]) => [
      "Claimed",
      {
        channelId: channelIdOf(chain, config as ChannelConfig),
        sender: stranger.address,
        claimAmount: amount,
        newTotalClaimed: amount,
      },
    ]),
  );
  t.same(await read("receivers", [receivers[0], chain.usdc]), [850n, 0n], "both channels of one");
  t.same(await read("receivers", [receivers[1], chain.usdc]), [10n, 0n]);
  t.match(await stateOf(one), { balance: 1_000n, claimed: 550n }, "a claim moves nothing");

  await t.test("an old claim changes nothing, whatever its signature", async (t) => {
    const older = [
      ...good,
      await claimRow(one, 100n),
      { ...(await claimRow(two, 299n)), signature: "0x" as Hex },
    ];
    const replayed = await done(stranger.address, await signedClaims(older));
    t.same(eventsOf(replayed), []);
    const mixed = await done(
      stranger.address,
      await signedClaims([...good, await claimRow(one, 700n, 700n)]),
    );
    t.match(eventsOf(mixed), [
      { eventName: "Claimed", args: { claimAmount: 150n, newTotalClaimed: 700n } },
    ]);
  });

  await t.test("the same channel twice in a batch counts the higher total once", async (t) => {
    const config = await open(1_000n);
    const rows = [
      await claimRow(config, 400n),
      await claimRow(config, 500n),
      await claimRow(config, 450n),
    ];
    await done(stranger.address, await signedClaims(rows));
    t.match(await stateOf(config), { claimed: 500n });
    t.same(await read("receivers", [config.receiver, chain.usdc]), [500n, 0n]);
  });
});

t.test("who may claim", async (t) => {
  const keys = { authorizer: account(), other: account() };
  const config = await open(1_000n, { receiverAuthorizer: keys.authorizer.address });
  const others = await open(1_000n, {
    receiver: config.receiver,
    receiverAuthorizer: keys.other.address,
  });
  const foreign = await open(1_000n, { receiverAuthorizer: keys.authorizer.address });
  const rows = [await claimRow(config, 10n)];
  const by = (from: Address, batch = rows) => tried(from, call("claim", [batch]));
  t.equal(await by(stranger.address, []), "EmptyBatch");
  for (const from of [stranger.address, payer.address, voucherKey.address])
    t.equal(await by(from), "NotAuthorizedToClaim");
  const withForeign = [...rows, await claimRow(foreign, 10n)];
  t.equal(await by(config.receiver, withForeign), "NotAuthorizedToClaim", "one row of another");
  t.equal(await by(config.receiver), "ok");
  t.equal(await by(keys.authorizer.address, [await claimRow(config, 20n)]), "ok");

  const batch = [await claimRow(config, 30n), await claimRow(others, 30n)];
  const signedBy = async (signer: PrivateKeyAccount, signed = batch, sent = signed) =>
    tried(
      stranger.address,
      call("claimWithSignature", [sent, await signClaims(chain, signer, signed)]),
    );
  t.equal(await signedBy(keys.authorizer, []), "EmptyBatch");
  t.equal(await signedBy(keys.authorizer), "NotReceiverAuthorizer", "two authorizers");
  t.equal(await signedBy(keys.other), "InvalidSignature");
  t.equal(await signedBy(stranger, batch.slice(0, 1)), "InvalidSignature");
  const row = batch[0] as VoucherClaim;
  const higher = { ...row, totalClaimed: 31n };
  t.equal(await signedBy(keys.authorizer, [row], [higher]), "InvalidSignature", "another total");
  t.equal(await signedBy(keys.authorizer, [row], [row, row]), "InvalidSignature", "a row more");
  t.equal(await signedBy(keys.authorizer, [row]), "ok");
  t.same(await read("receivers", [config.receiver, chain.usdc]), [30n, 0n]);
});

t.test("which vouchers' signatures are valid", async (t) => {
  const byKey = await open(100n);
  const byPayer = await open(100n, { payerAuthorizer: zeroAddress });
  const claimed = async (
    config: ChannelConfig,
    signer: PrivateKeyAccount,
    of: (signature: Hex) => Hex,
  ) => {
    const { claimed } = await stateOf(config);
    const row = await claimRow(config, claimed + 1n, claimed + 1n, signer);
    return tried(authorizer.address, call("claim", [[{ ...row, signature: of(row.signature) }]]));
  };
  const parts = (signature: Hex) => {
    const { r, s, yParity } = parseSignature(signature);
    return { r, s: BigInt(s), yParity };
  };
  const forms: [of: (signature: Hex) => Hex, byKey: string, byPayer: string][] = [
    [(signature) => signature, "ok", "ok"],
    [
      (signature) => {
        const { r, s, yParity } = parts(signature);
        return concat([r, numberToHex(ORDER - s, { size: 32 }), numberToHex(28 - yParity)]);
      },
      "ECDSAInvalidSignatureS",
      "InvalidSignature",
    ],
    [
      (signature) => {
        const { r, s, yParity } = parts(signature);
        return concat([r, numberToHex(s | (BigInt(yParity) << 255n), { size: 32 })]);
      },
      "ECDSAInvalidSignatureLength",
      "InvalidSignature",
    ],
    [
      (signature) => `${signature.slice(0, -2)}05` as Hex,
      "ECDSAInvalidSignature",
      "InvalidSignature",
    ],
    [() => "0x", "ECDSAInvalidSignatureLength", "InvalidSignature"],
  ];
  for (const [of, withKey, withPayer] of forms) {
    t.equal(await claimed(byKey, voucherKey, of), withKey);
    t.equal(await claimed(byPayer, payer, of), withPayer);
  }
  const asIs = (signature: Hex) => signature;
  t.equal(await claimed(byPayer, voucherKey, asIs), "InvalidSignature");
  t.equal(await claimed(byKey, payer, asIs), "InvalidSignature", "the payer gave this away");
});

t.test("smart wallets pay, sign vouchers and authorize (ERC-1271)", async (t) => {
  const owner = account();
  const wallet = await deployWallet(chain, owner.address, "Honest");
  await chain.mint(wallet, 10_000n);
  const seller = await deployWallet(chain, authorizer.address, "Honest");
  const config = channel({
    payer: wallet,
    payerAuthorizer: zeroAddress,
    receiverAuthorizer: seller,
  });
  await done(stranger.address, await depositOf(erc3009Deposit(chain, owner, config, 600n)));
  const approve = { abi: ERC20_ABI, functionName: "approve", args: [PERMIT2, 400n] } as const;
  await done(wallet, { to: chain.usdc, data: encodeFunctionData(approve) });
  await done(stranger.address, await depositOf(permit2Deposit(chain, owner, config, 400n)));
  t.match(await stateOf(config), { balance: 1_000n });
  t.equal(await chain.usdcOf(wallet), 9_000n);

  const rows = [await claimRow(config, 300n, 300n, owner)];
  t.equal(await tried(stranger.address, await signedClaims(rows, stranger)), "InvalidSignature");
  const foreign = [await claimRow(config, 300n, 300n, stranger)];
  t.equal(await tried(stranger.address, await signedClaims(foreign)), "InvalidSignature");
  t.equal(await tried(stranger.address, await signedClaims(rows)), "ok");
  const refund = (signer: PrivateKeyAccount) => signedRefund(config, 500n, 0n, signer);
  t.equal(await tried(stranger.address, await refund(owner)), "InvalidSignature");
  t.equal(await tried(stranger.address, await refund(authorizer)), "ok");
  t.equal(await chain.usdcOf(wallet), 9_500n);
  t.equal(await tried(wallet, call("initiateWithdraw", [config, 200n])), "ok");
  t.match(await stateOf(config), { balance: 500n, claimed: 300n, pending: 200n });
});

t.test("settle pays everything claimed, once", async (t) => {
  const receiver = account().address;
  const configs = [await open(1_000n, { receiver }), await open(1_000n, { receiver })];
  const rows = await Promise.all(configs.map((config) => claimRow(config, 250n)));
  await done(stranger.address, await signedClaims(rows));
  const settle = call("settle", [receiver, chain.usdc]);
  t.same(eventsOf(await done(stranger.address, settle)), [
    {
      eventName: "Settled",
      args: { receiver, token: chain.usdc, sender: stranger.address, amount: 500n },
    },
  ]);
  t.equal(await chain.usdcOf(receiver), 500n);
  t.same(eventsOf(await done(stranger.address, settle)), [], "a second time does nothing");
  t.equal(await chain.usdcOf(receiver), 500n);
  t.same(await read("receivers", [receiver, chain.usdc]), [500n, 500n]);
  t.match(await stateOf(configs[0] as ChannelConfig), { balance: 1_000n, claimed: 250n });

  await t.test("a receiver that the token refuses keeps its claims", async (t) => {
    const onUsdc = (functionName: "blacklist" | "unBlacklist"): Call => ({
      to: chain.usdc,
      data: encodeFunctionData({ abi: ours("LocalUsdc").abi, functionName, args: [receiver] }),
    });
    await done(
      stranger.address,
      await signedClaims([await claimRow(configs[0] as ChannelConfig, 300n)]),
    );
    await done(chain.admin.address, onUsdc("blacklist"));
    t.equal(await tried(stranger.address, settle), "Blacklistable: account is blacklisted");
    t.same(await read("receivers", [receiver, chain.usdc]), [550n, 500n]);
    await done(chain.admin.address, onUsdc("unBlacklist"));
    t.equal(await tried(stranger.address, settle), "ok");
    t.equal(await chain.usdcOf(receiver), 550n);
  });
});

t.test("a refund that the receiver's side agreed to", async (t) => {
  const config = await open(1_000n);
  const channelId = channelIdOf(chain, config);
  const before = await chain.usdcOf(payer.address);
  const [signed, foreign] = await Promise.all([
    signedRefund(config, 100n, 0n),
    signedRefund(config, 100n, 0n, stranger),
  ]);
  t.equal(
    await tried(stranger.address, await signedRefund(config, 100n, 1n)),
    "InvalidRefundNonce",
  );
  t.equal(await tried(stranger.address, foreign), "InvalidSignature");
  t.equal(await tried(stranger.address, await signedRefund(config, 0n, 0n)), "ZeroRefund");
  t.same(eventsOf(await done(stranger.address, signed)), [
    { eventName: "Refunded", args: { channelId, sender: stranger.address, amount: 100n } },
  ]);
  t.equal(await chain.usdcOf(payer.address), before + 100n, "paid to the payer, not to the sender");
  t.equal(await tried(stranger.address, signed), "InvalidRefundNonce", "a second time");

  await t.test("directly, which makes a signed one invalid", async (t) => {
    const later = await signedRefund(config, 100n, 1n);
    for (const from of [stranger.address, payer.address, voucherKey.address])
      t.equal(await tried(from, call("refund", [config, 1n])), "NotAuthorizedToRefund");
    t.equal(await tried(config.receiver, call("refund", [config, 0n])), "ZeroRefund");
    t.equal(await tried(config.receiver, call("refund", [config, 1n])), "ok");
    t.equal(await tried(stranger.address, later), "InvalidRefundNonce");
    t.equal(await tried(authorizer.address, call("refund", [config, 1n])), "ok");
    t.match(await stateOf(config), { balance: 898n, nonce: 3n });
  });

  await t.test(
    "at most what is free; nothing free advances the nonce and moves nothing",
    async (t) => {
      await done(stranger.address, await signedClaims([await claimRow(config, 800n)]));
      t.match(eventsOf(await done(authorizer.address, call("refund", [config, 10_000n]))), [
        { eventName: "Refunded", args: { amount: 98n } },
      ]);
      const none = await done(stranger.address, await signedRefund(config, 5n, 4n));
      t.same(eventsOf(none), []);
      t.match(await stateOf(config), { balance: 800n, claimed: 800n, nonce: 5n });
    },
  );

  await t.test(
    "of everything, without any claim, closes the channel; it can be funded again",
    async (t) => {
      const unused = await open(50n);
      const id = channelIdOf(chain, unused);
      t.match(eventsOf(await done(authorizer.address, call("refund", [unused, 50n]))), [
        { eventName: "Refunded", args: { amount: 50n } },
        { eventName: "ChannelClosed", args: { channelId: id, config: unused } },
      ]);
      const again = await done(
        payer.address,
        await depositOf(erc3009Deposit(chain, payer, unused, 7n)),
      );
      t.match(eventsOf(again), [{ eventName: "ChannelCreated" }, { eventName: "Deposited" }]);
      t.match(await stateOf(unused), { balance: 7n, nonce: 1n });
    },
  );

  await t.test("with the last claim in one transaction, as a facilitator sends it", async (t) => {
    const busy = await open(1_000n);
    const claim = await signedClaims([await claimRow(busy, 400n, 320n)]);
    const tooLate = multicall(claim, await signedRefund(busy, 680n, 1n));
    t.equal(await tried(stranger.address, tooLate), "InvalidRefundNonce");
    t.match(await stateOf(busy), { claimed: 0n }, "neither happened");
    const both = multicall(claim, await signedRefund(busy, 10_000n, 0n), settled(busy));
    t.match(
      eventsOf(await done(stranger.address, both)).map(({ eventName }) => eventName),
      ["Claimed", "Refunded", "Settled"],
    );
    t.match(await stateOf(busy), { balance: 320n, claimed: 320n, nonce: 1n });
    t.equal(await chain.usdcOf(busy.receiver), 320n);
  });
});

t.test("two channels that differ only in their salt share nothing but the receiver", async (t) => {
  const one = await open(1_000n);
  const two = { ...one, salt: randomSalt() };
  await fund(two, 500n);
  const voucher = await claimRow(one, 400n);
  const moved = { ...voucher, voucher: { ...voucher.voucher, channel: two } };
  t.equal(await tried(stranger.address, await signedClaims([moved])), "InvalidSignature");
  const refundOfOne = await signClaims(chain, authorizer, [voucher]);
  t.equal(
    await tried(stranger.address, call("refundWithSignature", [two, 400n, 0n, refundOfOne])),
    "InvalidSignature",
  );
  const { to, data } = await signedRefund(one, 10n, 0n);
  const forTwo = call("refundWithSignature", [
    two,
    10n,
    0n,
    await signRefund(chain, authorizer, {
      channelId: channelIdOf(chain, one),
      nonce: 0n,
      amount: 10n,
    }),
  ]);
  t.equal(await tried(stranger.address, forTwo), "InvalidSignature");
  await done(stranger.address, { to, data });
  await done(stranger.address, await signedClaims([voucher]));
  t.match(await stateOf(one), { balance: 990n, claimed: 400n, nonce: 1n });
  t.match(await stateOf(two), { balance: 500n, claimed: 0n, nonce: 0n });
  t.same(await read("receivers", [one.receiver, chain.usdc]), [400n, 0n]);
});

t.test("a token that calls back from its transfers changes nothing", async (t) => {
  const token = await testToken(payer.address);
  // The token is on every side itself, so that only the guard can stop it.
  const config = channel({ token, payerAuthorizer: token, receiver: token });
  await done(stranger.address, unsignedDeposit(config, 1_000n));
  const byKey = channel({ token, receiver: config.receiver });
  await done(stranger.address, unsignedDeposit(byKey, 1_000n));
  const rows = [await claimRow(byKey, 100n)];
  const inner: Call[] = [
    unsignedDeposit(config, 1n),
    call("claim", [rows]),
    await signedClaims(rows),
    settled(config),
    call("refund", [config, 1n]),
    await signedRefund(config, 1n, 0n),
    call("initiateWithdraw", [config, 1n]),
    call("finalizeWithdraw", [config]),
    multicall(settled(config)),
  ];
  const answers = async () => {
    const get = (functionName: string) =>
      publicClient.readContract({ address: token, abi: TEST_TOKEN.abi, functionName });
    const refusal = (await get("refusal")) as Hex;
    return [await get("answered"), refusal === "0x" ? "" : errorIn(refusal)];
  };
  let total = 0n;
  for (const { to, data } of inner) {
    total += 10n;
    const outer: [string, Address, Call[]][] = [
      ["deposit", stranger.address, [unsignedDeposit(config, 10n)]],
      ["refund", authorizer.address, [call("refund", [config, 5n])]],
      [
        "settle",
        stranger.address,
        [multicall(await signedClaims([await claimRow(byKey, total)]), settled(byKey))],
      ],
    ];
    for (const [name, from, calls] of outer) {
      await done(stranger.address, onToken(token, "callFromTransfers", [to, data]));
      for (const outerCall of calls) await done(from, outerCall);
      t.same(
        await answers(),
        [0n, "ReentrancyGuardReentrantCall"],
        `${name}, ${data.slice(0, 10)}`,
      );
    }
  }
  const turns = BigInt(inner.length);
  t.match(await stateOf(config), { balance: 1_000n + 5n * turns, claimed: 0n, isPending: false });
  t.match(await stateOf(byKey), { balance: 1_000n, claimed: 10n * turns });
});

t.test("the published client, server and facilitator", async (t) => {
  const variants = {
    "ERC-3009, a key for vouchers, the server's own authorizer": {
      method: "eip3009",
      delegates: false,
    },
    "Permit2, a smart wallet, the facilitator's authorizer": { method: "permit2", delegates: true },
  } as const;
  for (const [name, { method, delegates }] of Object.entries(variants)) {
    await t.test(name, async (t) => {
      const owner = account();
      const isWallet = method === "permit2";
      const from = isWallet ? await deployWallet(chain, owner.address, "Honest") : owner.address;
      await chain.mint(from, 100_000n);
      if (isWallet) {
        const approve = {
          abi: ERC20_ABI,
          functionName: "approve",
          args: [PERMIT2, 10n ** 9n],
        } as const;
        await done(from, { to: chain.usdc, data: encodeFunctionData(approve) });
      }
      const receiver = account().address;
      const seller = await stockSeller(t, chain, {
        method,
        receiver,
        authorizer,
        delegates,
        payer: { address: from, owner, ...(isWallet ? {} : { voucherKey }) },
      });

      await expectFromDepositToRefund(t, chain, { seller, from, receiver, stateOf });
      t.match(await stateOf(seller.config()), { balance: 2_800n, claimed: 2_800n, nonce: 1n });

      const reasons = await seller.refusals();
      t.same(reasons, {
        "another ceiling": "invalid_batch_settlement_evm_voucher_signature",
        "nothing to settle": "invalid_batch_settlement_evm_nothing_to_settle",
        "a claim above the balance": "invalid_batch_settlement_evm_claim_simulation_failed",
        "a deposit a second time": "invalid_batch_settlement_evm_deposit_simulation_failed",
      });
      const has = new Set(
        ours("LocalBatchSettlement").abi.map((item) => formatAbiItem(item as never)),
      );
      t.ok(seller.abi().length > 15);
      t.same(
        seller.abi().filter((item) => !has.has(formatAbiItem(item as never))),
        [],
        "the package's ABI has nothing that ours lacks",
      );
    });
  }
});

t.test("gas, with a token that checks signatures", async (t) => {
  const receiver = account().address;
  const config = channel({ receiver });
  const opened: ChannelConfig[] = [];
  for (let count = 0; count < 11; count += 1) opened.push(await open(1_000n, { receiver }));
  const [single, ...ten] = await Promise.all(opened.map((one) => claimRow(one, 100n)));
  const deposit = await depositOf(erc3009Deposit(chain, payer, config, 1_000n));
  const sent: [name: string, from: Address, call: Call, most: bigint][] = [
    ["first deposit (ERC-3009)", stranger.address, deposit, 125_000n],
    ["first claim", authorizer.address, call("claim", [[single]]), 65_000n],
    ["claim of ten more, signed", stranger.address, await signedClaims(ten), 240_000n],
    ["settle", stranger.address, settled(config), 68_000n],
    ["refund, signed", stranger.address, await signedRefund(config, 1_000n, 0n), 87_000n],
  ];
  for (const [name, from, call, most] of sent) {
    const { gasUsed } = await done(from, call);
    const bytes = [...Buffer.from(call.data.slice(2), "hex")];
    const data = bytes.reduce((sum, byte) => sum + (byte === 0 ? 4n : 16n), 21_000n);
    t.ok(gasUsed <= most, `${name}: ${gasUsed}, of it ${gasUsed - data} execution`);
  }
});

// The rest sets the chain's clock forward.

t.test("a withdrawal without the receiver's side", async (t) => {
  const config = await open(1_000n);
  const channelId = channelIdOf(chain, config);
  const initiate = (from: Address, amount: bigint) =>
    tried(from, call("initiateWithdraw", [config, amount]));
  const finalize = call("finalizeWithdraw", [config]);
  for (const from of [stranger.address, config.receiver, authorizer.address]) {
    t.equal(await initiate(from, 1n), "InvalidChannel");
    t.equal(await tried(from, finalize), "NotAuthorizedToFinalizeWithdraw");
  }
  t.equal(await initiate(payer.address, 0n), "NothingToWithdraw");
  t.equal(await tried(payer.address, finalize), "WithdrawalNotPending");
  await done(stranger.address, await signedClaims([await claimRow(config, 300n)]));
  t.equal(await initiate(payer.address, 701n), "WithdrawAmountExceedsAvailable");
  const begun = await done(voucherKey.address, call("initiateWithdraw", [config, 700n]));
  const { timestamp: since } = await publicClient.getBlock({ blockHash: begun.blockHash });
  const finalizeAfter = Number(since) + DELAY;
  t.same(eventsOf(begun), [
    { eventName: "WithdrawInitiated", args: { channelId, amount: 700n, finalizeAfter } },
  ]);
  t.equal(await initiate(payer.address, 1n), "WithdrawalAlreadyPending");
  t.equal(await tried(payer.address, finalize), "WithdrawDelayNotElapsed");

  t.equal(
    await tried(stranger.address, await signedClaims([await claimRow(config, 500n)])),
    "ok",
    "claims go on",
  );
  await chain.testClient.setNextBlockTimestamp({ timestamp: since + BigInt(DELAY) - 1n });
  t.equal((await send(payer.address, finalize)).status, "reverted", "a second too early");
  const before = await chain.usdcOf(payer.address);
  await chain.testClient.setNextBlockTimestamp({ timestamp: since + BigInt(DELAY) });
  t.same(eventsOf(await done(voucherKey.address, finalize)), [
    {
      eventName: "WithdrawFinalized",
      args: { channelId, sender: voucherKey.address, amount: 500n },
    },
  ]);
  t.equal(await chain.usdcOf(payer.address), before + 500n, "to the payer, and only what is free");
  t.equal(await tried(payer.address, finalize), "WithdrawalNotPending", "a second time");
  t.equal(
    await tried(stranger.address, await signedClaims([await claimRow(config, 501n)])),
    "ClaimExceedsBalance",
    "a voucher that was not claimed in time is lost",
  );
  t.equal(await tried(stranger.address, settled(config)), "ok");
  t.equal(await chain.usdcOf(config.receiver), 500n);

  await t.test("costs what is set aside for it, with its margin", async (t) => {
    // The most: all of it, to a wallet that has nothing left.
    const emptied = account();
    await chain.mint(emptied.address, 1_000n);
    const most = channel({ payer: emptied.address });
    await done(stranger.address, await depositOf(erc3009Deposit(chain, emptied, most, 1_000n)));
    const { gasUsed: begin, blockHash } = await done(
      voucherKey.address,
      call("initiateWithdraw", [most, 1_000n]),
    );
    const block = await publicClient.getBlock({ blockHash });
    await chain.testClient.setNextBlockTimestamp({ timestamp: block.timestamp + BigInt(DELAY) });
    const { gasUsed: finish } = await done(voucherKey.address, call("finalizeWithdraw", [most]));
    for (const [step, gasUsed] of Object.entries({ begin, finish })) {
      const measured = MEASURED_WITHDRAWAL_GAS[step as "begin" | "finish"];
      t.ok(gasUsed <= measured && gasUsed > measured - 1_000n, `${step}: ${gasUsed}`);
    }
    t.equal(WITHDRAWAL_GAS, 181_500n);
  });

  await t.test("a refund lowers it, or takes its place", async (t) => {
    const half = await open(1_000n);
    await done(payer.address, call("initiateWithdraw", [half, 600n]));
    await done(authorizer.address, call("refund", [half, 200n]));
    t.match(await stateOf(half), { balance: 800n, pending: 400n, isPending: true });
    await done(authorizer.address, call("refund", [half, 400n]));
    t.match(await stateOf(half), { balance: 400n, pending: 0n, isPending: false });
    t.equal(await tried(payer.address, call("finalizeWithdraw", [half])), "WithdrawalNotPending");
  });

  await t.test("of everything closes the channel; of nothing left only ends it", async (t) => {
    const [unused, used] = [await open(40n), await open(40n)];
    for (const one of [unused, used])
      await done(payer.address, call("initiateWithdraw", [one, 40n]));
    await done(stranger.address, await signedClaims([await claimRow(used, 40n)]));
    await chain.testClient.increaseTime({ seconds: DELAY });
    t.match(eventsOf(await done(payer.address, call("finalizeWithdraw", [unused]))), [
      { eventName: "WithdrawFinalized", args: { amount: 40n } },
      { eventName: "ChannelClosed" },
    ]);
    t.match(eventsOf(await done(payer.address, call("finalizeWithdraw", [used]))), [
      { eventName: "WithdrawFinalized", args: { amount: 0n } },
    ]);
    t.match(await stateOf(used), { balance: 40n, claimed: 40n, isPending: false });
  });
});

t.test("no sequence of calls loses or makes money", async (t) => {
  const receiverAuthorizer = authorizer.address;
  let performed = 0;
  const refused = new Set<string>();
  await fc.assert(
    fc.asyncProperty(steps, async (sequence) => {
      const receivers = [account().address, account().address] as const;
      const first = channel({ receiver: receivers[0], receiverAuthorizer });
      const configs = [
        first,
        { ...first, salt: randomSalt() },
        channel({ receiver: receivers[1], receiverAuthorizer, payerAuthorizer: zeroAddress }),
      ] as const;
      const start = await tokens(receivers);
      let world = emptyWorld();
      for (const step of sequence) {
        const predicted = after(world, step);
        await perform(step, configs, world, typeof predicted === "string" ? predicted : "ok");
        if (typeof predicted === "string") refused.add(predicted);
        else world = predicted;
        performed += 1;
        await compare(world, configs, receivers, start);
      }
    }),
    { numRuns: runsOf(6) },
  );
  t.ok(performed >= 25, `${performed} calls; refused with ${[...refused].sort().join(", ")}`);
});

async function tokens(receivers: readonly Address[]): Promise<bigint[]> {
  return Promise.all([payer.address, CHANNELS, ...receivers].map((holder) => chain.usdcOf(holder)));
}

async function perform(
  step: Step,
  configs: readonly ChannelConfig[],
  world: WorldModel,
  predicted: string,
): Promise<void> {
  if (step.call === "wait") {
    await chain.testClient.increaseTime({ seconds: DELAY + 100 });
    await chain.testClient.mine({ blocks: 1 });
    return;
  }
  const [from, sent] = await senderAndCall(step, configs, world);
  // A malformed signature has the library's error, where the payer named a key.
  const result = (await tried(from, sent)).replace(/^ECDSAInvalidSignature.*/, "InvalidSignature");
  if (result !== predicted) throw new Error(`${result} instead of ${predicted}`);
}

async function senderAndCall(
  step: Exclude<Step, { call: "wait" }>,
  configs: readonly ChannelConfig[],
  world: WorldModel,
): Promise<[Address, Call]> {
  const configOf = (index: number): ChannelConfig => configs[index] as ChannelConfig;
  const senders = {
    payer: payer.address,
    payerAuthorizer: voucherKey.address,
    receiver: configOf(0).receiver,
    receiverAuthorizer: authorizer.address,
    stranger: stranger.address,
  };
  const signers = { authorizer, stranger };
  const claimOf = (rows: readonly Row[]) =>
    Promise.all(
      rows.map(async ({ channel: index, ceiling, total, voucher }) => {
        const own = index === 2 ? payer : voucherKey;
        const row = await claimRow(
          configOf(index),
          ceiling,
          total,
          voucher === "of another key" ? stranger : own,
        );
        const moved = await claimRow(configOf((index + 1) % CHANNEL_COUNT), ceiling, total, own);
        if (voucher === "of another channel") return { ...row, signature: moved.signature };
        return voucher === "cut" ? { ...row, signature: row.signature.slice(0, -2) as Hex } : row;
      }),
    );
  switch (step.call) {
    case "deposit": {
      const args = erc3009Deposit(chain, payer, configOf(step.channel), step.amount);
      return [stranger.address, await depositOf(args)];
    }
    case "claim":
      return [senders[step.sender], call("claim", [await claimOf(step.rows)])];
    case "claimWithSignature":
      return [stranger.address, await signedClaims(await claimOf(step.rows), signers[step.signer])];
    case "settle":
      return [stranger.address, settled(configOf(step.receiver * 2))];
    case "refund":
      return [senders[step.sender], call("refund", [configOf(step.channel), step.amount])];
    case "refundWithSignature": {
      const nonce = nonceOf(world, step.channel) + step.ahead;
      // A nonce cannot be negative: one too high is as wrong.
      const config = configOf(step.channel);
      const refund = signedRefund(
        config,
        step.amount,
        nonce < 0n ? 1n : nonce,
        signers[step.signer],
      );
      return [stranger.address, await refund];
    }
    case "claim and refund": {
      const index = step.row.channel;
      const refund = signedRefund(configOf(index), step.amount, nonceOf(world, index));
      const claims = await signedClaims(await claimOf([step.row]));
      return [stranger.address, multicall(claims, await refund)];
    }
    case "initiateWithdraw":
      return [
        senders[step.sender],
        call("initiateWithdraw", [configOf(step.channel), step.amount]),
      ];
  }
  return [senders[step.sender], call("finalizeWithdraw", [configOf(step.channel)])];
}

const nonceOf = (world: WorldModel, index: number): bigint =>
  world.channels[index]?.refundNonce as bigint;

/** The chain is as the model says, and every token is where the model's sums say. */
async function compare(
  world: WorldModel,
  configs: readonly ChannelConfig[],
  receivers: readonly Address[],
  start: bigint[],
): Promise<void> {
  const sum = (of: (channel: WorldModel["channels"][number]) => bigint): bigint =>
    world.channels.reduce((total, one) => total + of(one), 0n);
  const back = sum(({ refunded, withdrawn }) => refunded + withdrawn);
  const settledInAll = world.settled.reduce((total, one) => total + one, 0n);
  const expected = {
    channels: world.channels.map((one) => ({
      balance: balanceOf(one),
      claimed: one.claimed,
      pending: one.pending?.amount ?? 0n,
      isPending: one.pending !== undefined,
      nonce: one.refundNonce,
    })),
    receivers: receivers.map((_, index) => [claimedBy(world, index), world.settled[index]]),
    tokens: [
      back - sum(({ deposited }) => deposited),
      sum(balanceOf) - settledInAll,
      ...world.settled,
    ],
  };
  const [channels, earned, held] = await Promise.all([
    Promise.all(configs.map(stateOf)),
    Promise.all(receivers.map((receiver) => read("receivers", [receiver, chain.usdc]))),
    tokens(receivers),
  ]);
  const actual = {
    channels,
    receivers: earned,
    tokens: held.map((amount, index) => amount - (start[index] as bigint)),
  };
  const text = (value: unknown): string =>
    JSON.stringify(value, (_, part: unknown) => (typeof part === "bigint" ? String(part) : part));
  if (text(actual) !== text(expected))
    throw new Error(`the chain has ${text(actual)}, not ${text(expected)}`);
  if (RECEIVER_OF.length !== configs.length) throw new Error("the model has other channels");
}
