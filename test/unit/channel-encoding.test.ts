// Goal: what is signed for a payment channel, and every call of its contract, equals what viem and the published package
// encode; only the contract's own answer and event counts.
import { randomBytes } from "node:crypto";
import {
  BATCH_SETTLEMENT_ADDRESS,
  claimBatchTypes,
  ERC3009_DEPOSIT_COLLECTOR_ADDRESS,
  refundTypes,
  toClientEvmSigner,
  voucherTypes,
} from "@x402/evm";
import {
  BatchSettlementEvmScheme,
  computeChannelId,
  createBatchSettlementEIP3009DepositPayload,
} from "@x402/evm/batch-settlement/client";
import t from "tap";
import {
  encodeAbiParameters,
  encodeEventTopics,
  encodeFunctionData,
  encodeFunctionResult,
  hashTypedData,
  hexToBytes,
  keccak256,
  pad,
  parseAbiParameters,
  parseSignature,
  recoverAddress,
  toFunctionSelector,
  toHex,
  zeroAddress,
  type Address,
  type Hex,
} from "viem";
import { privateKeyToAccount } from "viem/accounts";
import type { CallResult, RpcLog } from "../../server/core/abi.ts";
import type { ChannelClaim, ChannelConfig } from "../../server/core/authorization.ts";
import { sign } from "../../server/core/signatures.ts";
import {
  channelIdOf,
  CHANNELS,
  CLAIMED,
  claimCall,
  claimDigest,
  DEPOSITED,
  depositCall,
  depositNonce,
  eip3009Collector,
  EIP3009_COLLECTOR,
  errorName,
  eventsOf,
  MAX_WITHDRAW_DELAY,
  MIN_WITHDRAW_DELAY,
  pairOf,
  permit2Collector,
  PERMIT2_COLLECTOR,
  permitDigest,
  readState,
  receiveDigest,
  receiverCall,
  REFUNDED,
  refundCall,
  refundDigest,
  SETTLED,
  settleCall,
  stateCalls,
  voucherDigest,
} from "../../server/schemes/batch-settlement/contract.ts";
import {
  CHANNELS_ABI,
  channelsDomain,
  PERMIT2_TYPES,
  RECEIVE_TYPES,
} from "../helpers/batch-settlement.ts";
import { PERMIT2 } from "../helpers/permit2.ts";

const CHAIN = 5_042_002;
const MAX_UINT128 = 2n ** 128n - 1n;
const MAX_UINT256 = 2n ** 256n - 1n;
const ZERO_WORD: Hex = `0x${"00".repeat(32)}`;

const random = (bytes: number): Hex => toHex(randomBytes(bytes));
const randomConfig = (over: Partial<ChannelConfig> = {}): ChannelConfig => ({
  payer: random(20),
  payerAuthorizer: random(20),
  receiver: random(20),
  receiverAuthorizer: random(20),
  token: random(20),
  withdrawDelay: 900 + (Number(BigInt(random(4))) % 2_591_000),
  salt: random(32),
  ...over,
});
const CONFIGS: ChannelConfig[] = [
  randomConfig({ payerAuthorizer: zeroAddress, salt: ZERO_WORD, withdrawDelay: 0 }),
  randomConfig({ salt: `0x${"ff".repeat(32)}`, withdrawDelay: 2 ** 40 - 1 }),
  ...Array.from({ length: 12 }, () => randomConfig()),
];
const AMOUNTS = [0n, 1n, 255n, 256n, MAX_UINT128, BigInt(random(16)), BigInt(random(5))];
const CHAINS = [1, 8453, CHAIN, 2 ** 48];
const at = <T>(list: readonly T[], index: number): T => list[index % list.length] as T;
const typed = { domain: (chainId: number) => channelsDomain({ chainId }) };

const claimOf = (config: ChannelConfig, over: Partial<ChannelClaim> = {}): ChannelClaim => ({
  channel: config,
  ceiling: "1000",
  total: "700",
  signature: random(65),
  ...over,
});

t.test("the vector of the published package", async (t) => {
  const key: Hex = `0x${"11".repeat(32)}`;
  const payer = privateKeyToAccount(key).address.toLowerCase() as Address;
  const config: ChannelConfig = {
    payer,
    payerAuthorizer: payer,
    receiver: `0x${"22".repeat(20)}`,
    receiverAuthorizer: `0x${"33".repeat(20)}`,
    token: "0x3600000000000000000000000000000000000000",
    withdrawDelay: 900,
    salt: ZERO_WORD,
  };
  const id = channelIdOf(CHAIN, config);
  t.equal(id, "0x724c09a8dcae360cb05d347237822ecb64b9572c2fb9cc0ae3a2739b804b9aa0");
  const voucher = voucherDigest(CHAIN, id, 1_000n);
  t.equal(voucher, "0xe4ac8d4be0a6785f558061d4d617232f302eb55f404c28ce6552e6081a89b3ea");
  t.equal(
    sign(hexToBytes(voucher), hexToBytes(key)),
    "0x3d762690c8ecec5746a0c591f3f133b5e47425c315d68a25c334a8b6cb1028bb2bdcf1369a727170a82c0d3d62951208fe48663f96db0544ea2e776e4e7916531c",
  );
  t.equal(
    claimDigest(CHAIN, [claimOf(config)]),
    "0xeada8534d942740fcf943a6d2e4bfa3c6a40f457e3336e726634abf39db4e585",
  );
  t.equal(
    refundDigest(CHAIN, { channelId: id, nonce: 0n, amount: 300n }),
    "0x06de46a900a28bfafc131a46cd39bea1efb813d267b6569ee9c33744f961bba2",
  );
  t.equal(
    depositNonce(id, pad("0x01")),
    "0xa81fa5fb2e793afbf35e3207f471183a54886685d1df2a1822b47201d269e5a1",
  );
});

t.test("addresses, bounds and event topics", async (t) => {
  t.equal(CHANNELS, BATCH_SETTLEMENT_ADDRESS);
  t.equal(EIP3009_COLLECTOR, ERC3009_DEPOSIT_COLLECTOR_ADDRESS);
  t.equal(PERMIT2_COLLECTOR, "0x4020425FAf3B746C082C2f942b4E5159887B0005");
  t.equal(MIN_WITHDRAW_DELAY, 15n * 60n);
  t.equal(MAX_WITHDRAW_DELAY, 30n * 24n * 3_600n);
  const topic = (eventName: "Deposited" | "Claimed" | "Settled" | "Refunded") =>
    encodeEventTopics({ abi: CHANNELS_ABI, eventName })[0];
  t.equal(DEPOSITED, topic("Deposited"));
  t.equal(CLAIMED, topic("Claimed"));
  t.equal(SETTLED, topic("Settled"));
  t.equal(REFUNDED, topic("Refunded"));
});

t.test("channel ids", async (t) => {
  for (const [index, config] of CONFIGS.entries())
    for (const chainId of CHAINS) {
      t.equal(channelIdOf(chainId, config), computeChannelId(config, chainId), `${index}`);
      t.equal(channelIdOf(chainId, config), computeChannelId(config, chainId), "and from memory");
    }
  const config = randomConfig();
  const others: ChannelConfig[] = [
    ...(["payer", "payerAuthorizer", "receiver", "receiverAuthorizer", "token"] as const).map(
      (name) => ({ ...config, [name]: random(20) }),
    ),
    { ...config, withdrawDelay: config.withdrawDelay + 1 },
    { ...config, salt: random(32) },
  ];
  const ids = new Set([config, ...others].map((each) => channelIdOf(CHAIN, each)));
  t.equal(ids.size, others.length + 1, "each field makes another channel");
});

t.test("vouchers and refunds", async (t) => {
  for (const [index, maxClaimableAmount] of AMOUNTS.entries())
    for (const chainId of CHAINS) {
      const channelId = random(32);
      t.equal(
        voucherDigest(chainId, channelId, maxClaimableAmount),
        hashTypedData({
          domain: typed.domain(chainId),
          types: voucherTypes,
          primaryType: "Voucher",
          message: { channelId, maxClaimableAmount },
        }),
      );
      const nonce = at([0n, 1n, MAX_UINT256, BigInt(random(32))], index);
      const refund = { channelId, nonce, amount: maxClaimableAmount };
      t.equal(
        refundDigest(chainId, refund),
        hashTypedData({
          domain: typed.domain(chainId),
          types: refundTypes,
          primaryType: "Refund",
          message: refund,
        }),
      );
    }
});

t.test("batches of claims, of one row and of a hundred", async (t) => {
  for (const rows of [1, 2, 3, 100]) {
    const claims = Array.from({ length: rows }, (_, index) =>
      claimOf(at(CONFIGS, index), {
        ceiling: `${at(AMOUNTS, index)}`,
        total: `${at(AMOUNTS, index + 3)}`,
      }),
    );
    const viems = hashTypedData({
      domain: typed.domain(CHAIN),
      types: claimBatchTypes,
      primaryType: "ClaimBatch",
      message: {
        claims: claims.map(({ channel, ceiling, total }) => ({
          channelId: computeChannelId(channel, CHAIN),
          maxClaimableAmount: BigInt(ceiling),
          totalClaimed: BigInt(total),
        })),
      },
    });
    t.equal(claimDigest(CHAIN, claims), viems);
    const [first, second] = claims;
    if (first && second)
      t.not(claimDigest(CHAIN, [second, first, ...claims.slice(2)]), viems, "order counts");
  }
});

t.test("deposits over EIP-3009", async (t) => {
  const domains = [
    { name: "USDC", version: "2" },
    { name: "US", version: "DC 2" },
    { name: "USDC 2", version: "" },
    { name: "é\u{1F4B5}", version: "1" },
  ];
  for (const [index, value] of AMOUNTS.entries())
    for (const named of domains) {
      const domain = { ...named, chainId: at(CHAINS, index), verifyingContract: random(20) };
      const [channelId, salt] = [random(32), at([ZERO_WORD, random(32)], index)];
      const nonce = depositNonce(channelId, salt);
      t.equal(
        nonce,
        keccak256(
          encodeAbiParameters(parseAbiParameters("bytes32, uint256"), [channelId, BigInt(salt)]),
        ),
      );
      const message = {
        from: random(20),
        value,
        validAfter: at([0n, MAX_UINT256], index),
        validBefore: at([MAX_UINT256, 7n, 0n], index),
        nonce,
      };
      t.equal(
        receiveDigest({ domain, ...message }),
        hashTypedData({
          domain,
          types: RECEIVE_TYPES,
          primaryType: "ReceiveWithAuthorization",
          message: { ...message, to: EIP3009_COLLECTOR },
        }),
      );
    }
});

t.test("two tokens whose names and versions read alike have different digests", async (t) => {
  const terms = { from: random(20), value: 1n, validAfter: 0n, validBefore: 9n, nonce: random(32) };
  const verifyingContract = random(20);
  const digests = [
    ["a", "b c"],
    ["a b", "c"],
    ["a b c", ""],
    ["", "a b c"],
    ["a", "1"],
    ["a", "2"],
  ].map(([name = "", version = ""]) =>
    receiveDigest({ ...terms, domain: { name, version, chainId: CHAIN, verifyingContract } }),
  );
  t.equal(new Set(digests).size, digests.length);
});

t.test("deposits over Permit2", async (t) => {
  for (const [index, amount] of AMOUNTS.entries()) {
    const domain = { name: "Permit2", chainId: at(CHAINS, index), verifyingContract: PERMIT2 };
    const terms = {
      channelId: random(32),
      token: random(20),
      amount,
      nonce: at([0n, MAX_UINT256, BigInt(random(32))], index),
      deadline: at([MAX_UINT256, 1n], index),
    };
    t.equal(
      permitDigest(domain, terms),
      hashTypedData({
        domain,
        types: PERMIT2_TYPES,
        primaryType: "PermitWitnessTransferFrom",
        message: {
          permitted: { token: terms.token, amount },
          spender: PERMIT2_COLLECTOR,
          nonce: terms.nonce,
          deadline: terms.deadline,
          witness: { channelId: terms.channelId },
        },
      }),
    );
  }
});

t.test("what the published client signs recovers from our digests", async (t) => {
  const key = privateKeyToAccount(random(32));
  const voucherKey = privateKeyToAccount(random(32));
  const token: Address = "0x3600000000000000000000000000000000000000";
  const config = randomConfig({
    payer: key.address.toLowerCase() as Address,
    payerAuthorizer: voucherKey.address.toLowerCase() as Address,
    token,
    withdrawDelay: 900,
    salt: ZERO_WORD,
  });
  const requirements = {
    scheme: "batch-settlement",
    network: `eip155:${CHAIN}` as const,
    asset: token,
    amount: "1000",
    payTo: config.receiver,
    maxTimeoutSeconds: 60,
    extra: {
      name: "USDC",
      version: "2",
      receiverAuthorizer: config.receiverAuthorizer,
      withdrawDelay: 900,
    },
  };
  const signer = toClientEvmSigner(key);
  const { payload } = await createBatchSettlementEIP3009DepositPayload(
    signer,
    2,
    requirements,
    config,
    "10000",
    "1000",
    voucherKey,
  );
  const { voucher, deposit } = payload as unknown as {
    voucher: { channelId: Hex; signature: Hex };
    deposit: { authorization: { erc3009Authorization: Record<string, Hex> } };
  };
  const id = channelIdOf(CHAIN, config);
  t.equal(voucher.channelId, id);
  const digest = voucherDigest(CHAIN, id, 1_000n);
  t.equal(await recoverAddress({ hash: digest, signature: voucher.signature }), voucherKey.address);
  const { validAfter, validBefore, salt, signature } = deposit.authorization.erc3009Authorization;
  const received = receiveDigest({
    domain: { name: "USDC", version: "2", chainId: CHAIN, verifyingContract: token },
    from: config.payer,
    value: 10_000n,
    validAfter: BigInt(validAfter ?? -1),
    validBefore: BigInt(validBefore ?? -1),
    nonce: depositNonce(id, salt ?? "0x"),
  });
  t.equal(await recoverAddress({ hash: received, signature: signature ?? "0x" }), key.address);

  const client = new BatchSettlementEvmScheme(signer, { voucherSigner: voucherKey });
  const permitted = await client.createPaymentPayload(2, {
    ...requirements,
    extra: { ...requirements.extra, assetTransferMethod: "permit2" },
  });
  const permit = (permitted.payload as unknown as { deposit: { amount: string } & typeof deposit })
    .deposit;
  const authorization = (permit.authorization as unknown as Record<string, object>)[
    "permit2Authorization"
  ] as { nonce: string; deadline: string; signature: Hex };
  const permitted2 = permitDigest(
    { name: "Permit2", chainId: CHAIN, verifyingContract: PERMIT2 },
    {
      channelId: id,
      token,
      amount: BigInt(permit.amount),
      nonce: BigInt(authorization.nonce),
      deadline: BigInt(authorization.deadline),
    },
  );
  t.equal(
    await recoverAddress({ hash: permitted2, signature: authorization.signature }),
    key.address,
  );
});

t.test("the data of a collector", async (t) => {
  for (const length of [0, 1, 64, 65, 200]) {
    const signature = length === 0 ? "0x" : random(length);
    const salt = random(32);
    const eip3009 = { validAfter: 5n, validBefore: MAX_UINT256, salt, signature } as const;
    t.same(eip3009Collector(eip3009), {
      address: EIP3009_COLLECTOR,
      data: encodeAbiParameters(parseAbiParameters("uint256, uint256, uint256, bytes"), [
        5n,
        MAX_UINT256,
        BigInt(salt),
        signature,
      ]),
    });
    const nonce = BigInt(random(32));
    for (const v of ["1b", "1c"]) {
      const signed: Hex = `${random(64)}${v}`;
      const { r, s } = parseSignature(signed);
      const permit = { amount: `${MAX_UINT256}`, deadline: "99", signature: signed };
      const data = (given: typeof permit | undefined) =>
        permit2Collector({ nonce, deadline: 3n, signature, permit: given });
      const expected = (tail: Hex) => ({
        address: PERMIT2_COLLECTOR,
        data: encodeAbiParameters(parseAbiParameters("uint256, uint256, bytes, bytes"), [
          nonce,
          3n,
          signature,
          tail,
        ]),
      });
      t.same(data(undefined), expected("0x"));
      const tail = encodeAbiParameters(
        parseAbiParameters("uint256, uint256, uint8, bytes32, bytes32"),
        [MAX_UINT256, 99n, Number.parseInt(v, 16), r, s],
      );
      t.same(data(permit), expected(tail));
    }
  }
});

t.test("calls", async (t) => {
  const target = CHANNELS.toLowerCase();
  for (const [index, config] of CONFIGS.entries()) {
    const amount = at(AMOUNTS, index);
    const collector = { address: EIP3009_COLLECTOR, data: random(70) };
    t.same(depositCall(config, amount, collector), {
      target,
      data: encodeFunctionData({
        abi: CHANNELS_ABI,
        functionName: "deposit",
        args: [config, amount, collector.address, collector.data],
      }),
    });
    const claims = [claimOf(config, { ceiling: `${amount}` }), claimOf(at(CONFIGS, index + 1))];
    const [claimSignature, signature] = [random(65), random(index % 2 === 0 ? 65 : 300)];
    const claimed = encodeFunctionData({
      abi: CHANNELS_ABI,
      functionName: "claimWithSignature",
      args: [
        claims.map((claim) => ({
          voucher: { channel: claim.channel, maxClaimableAmount: BigInt(claim.ceiling) },
          signature: claim.signature,
          totalClaimed: BigInt(claim.total),
        })),
        claimSignature,
      ],
    });
    t.same(claimCall(claims, claimSignature), { target, data: claimed });
    const nonce = BigInt(random(32));
    const refunded = encodeFunctionData({
      abi: CHANNELS_ABI,
      functionName: "refundWithSignature",
      args: [config, amount, nonce, signature],
    });
    const refund = { config, amount, nonce, signature };
    t.same(refundCall({ ...refund, claims, claimSignature }), {
      target,
      data: encodeFunctionData({
        abi: CHANNELS_ABI,
        functionName: "multicall",
        args: [[claimed, refunded]],
      }),
    });
    const alone = { target, data: refunded };
    t.same(refundCall({ ...refund, claims: [], claimSignature: undefined }), alone);
    t.same(refundCall({ ...refund, claims: [], claimSignature }), alone);
    t.same(refundCall({ ...refund, claims, claimSignature: undefined }), alone);
    t.same(settleCall(config.receiver, config.token), {
      target,
      data: encodeFunctionData({
        abi: CHANNELS_ABI,
        functionName: "settle",
        args: [config.receiver, config.token],
      }),
    });
    t.same(receiverCall(config.receiver, config.token), {
      target,
      data: encodeFunctionData({
        abi: CHANNELS_ABI,
        functionName: "receivers",
        args: [config.receiver, config.token],
      }),
    });
    const id = channelIdOf(CHAIN, config);
    t.same(
      stateCalls(id),
      (["channels", "pendingWithdrawals", "refundNonce"] as const).map((functionName) => ({
        target,
        data: encodeFunctionData({ abi: CHANNELS_ABI, functionName, args: [id] }),
      })),
    );
  }
});

const answered = (data: Hex): CallResult => ({ success: true, data });

t.test("a channel's state", async (t) => {
  const results = (values: readonly [bigint, bigint, bigint, bigint, bigint]): CallResult[] => {
    const [balance, claimed, pending, since, nonce] = values;
    return [
      answered(
        encodeFunctionResult({
          abi: CHANNELS_ABI,
          functionName: "channels",
          result: [balance, claimed],
        }),
      ),
      answered(
        encodeFunctionResult({
          abi: CHANNELS_ABI,
          functionName: "pendingWithdrawals",
          result: [pending, Number(since)],
        }),
      ),
      answered(
        encodeFunctionResult({ abi: CHANNELS_ABI, functionName: "refundNonce", result: nonce }),
      ),
    ];
  };
  t.same(readState(results([0n, 0n, 0n, 0n, 0n])), {
    balance: 0n,
    totalClaimed: 0n,
    withdrawRequestedAt: 0n,
    refundNonce: 0n,
  });
  const good = results([MAX_UINT128, 7n, 5n, 2n ** 40n - 1n, MAX_UINT256]);
  t.same(readState(good), {
    balance: MAX_UINT128,
    totalClaimed: 7n,
    withdrawRequestedAt: 2n ** 40n - 1n,
    refundNonce: MAX_UINT256,
  });
  t.equal(readState([]), undefined);
  for (const index of [0, 1, 2]) {
    const one = good[index];
    if (!one) throw new Error(String(index));
    const bad: (CallResult | undefined)[] = [
      undefined,
      { ...one, success: false },
      answered("0x"),
      answered(one.data.slice(0, -2) as Hex),
      answered(`${one.data}00`),
    ];
    for (const result of bad) {
      const answers = [...good];
      if (result) answers[index] = result;
      else answers.length = index;
      t.equal(readState(answers), undefined, `answer ${index}: ${result?.data.length}`);
    }
  }
  t.same(pairOf(answered(`0x${"f".repeat(128)}`)), [MAX_UINT256, MAX_UINT256]);
  t.equal(pairOf(undefined), undefined);
});

t.test("events of the contract only, of one kind and one channel only", async (t) => {
  const id = random(32);
  const log = (over: Partial<RpcLog> = {}): RpcLog => ({
    address: CHANNELS,
    topics: [DEPOSITED, id, pad(random(20))],
    data: encodeAbiParameters(parseAbiParameters("uint128, uint128"), [5n, MAX_UINT128]),
    transactionHash: random(32),
    blockNumber: "0x1",
    blockHash: random(32),
    ...over,
  });
  const own = log();
  const found = { log: own, words: [5n, MAX_UINT128] };
  t.same(eventsOf([own], DEPOSITED, id), [found]);
  t.same(eventsOf([own], DEPOSITED, id.toUpperCase().replace("0X", "0x")), [found]);
  const lower = log({ address: CHANNELS.toLowerCase() as Hex });
  t.same(eventsOf([lower], DEPOSITED, id), [{ log: lower, words: [5n, MAX_UINT128] }]);
  const others = [
    log({ address: random(20) }),
    log({ topics: [CLAIMED, id] }),
    log({ topics: [DEPOSITED, random(32)] }),
    log({ topics: [DEPOSITED] }),
    log({ topics: [] }),
  ];
  t.same(eventsOf(others, DEPOSITED, id), []);
  t.same(eventsOf([...others, own, own], DEPOSITED, id), [found, found]);
  const empty = log({ data: "0x" });
  t.same(eventsOf([empty], DEPOSITED, id), [{ log: empty, words: [] }]);
});

t.test("the contract's errors are named", async (t) => {
  t.equal(errorName(undefined), undefined);
  t.equal(errorName("execution reverted: paused"), "execution reverted: paused");
  const named = CHANNELS_ABI.filter((item) => item.type === "error" && item.inputs.length === 0);
  // Those that no call of ours can meet.
  const unmet =
    /^(NotAuthorizedTo|Withdrawal|WithdrawDelayNot|WithdrawAmount|NothingToWithdraw|Reentrancy)/;
  for (const item of named) {
    if (item.type !== "error" || unmet.test(item.name)) continue;
    const text = `custom error ${toFunctionSelector(`${item.name}()`)}`;
    t.equal(errorName(text), item.name);
  }
});
