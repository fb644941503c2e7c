// Payment channels, and what payers and receivers post for them, like stock clients and servers. Everything can be bent.
import { concat, encodeFunctionData, keccak256, zeroAddress, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import {
  channelIdOf,
  CHANNELS,
  CHANNELS_ABI,
  ERC3009_COLLECTOR,
  erc3009Deposit,
  PERMIT2_COLLECTOR,
  PERMIT2_TYPES,
  randomSalt,
  RECEIVE_TYPES,
  signClaims,
  signRefund,
  signVoucher,
  type ChannelConfig,
} from "../helpers/batch-settlement.ts";
import type { TestChain } from "../helpers/chain.ts";
import { PERMIT2 } from "../helpers/permit2.ts";
import type { Body } from "./payments.ts";

export const account = (): PrivateKeyAccount => privateKeyToAccount(generatePrivateKey());
export const now = (): number => Math.floor(Date.now() / 1_000);

/** A payer's channel with one receiver, and the keys of both sides. */
export interface Channel {
  chain: TestChain;
  config: ChannelConfig;
  /** Signs deposits: the payer's key, or the owner of its wallet. */
  owner: PrivateKeyAccount;
  /** Signs vouchers. */
  voucherKey: PrivateKeyAccount;
  authorizer: PrivateKeyAccount;
}

interface ChannelOptions {
  owner?: PrivateKeyAccount;
  /** Absent: the payer signs its vouchers itself. */
  voucherKey?: PrivateKeyAccount | undefined;
  authorizer?: PrivateKeyAccount;
  config?: Partial<ChannelConfig>;
}

export function channelOf(chain: TestChain, options: ChannelOptions = {}): Channel {
  const { owner = account(), voucherKey, authorizer = account() } = options;
  return {
    chain,
    owner,
    voucherKey: voucherKey ?? owner,
    authorizer,
    config: {
      payer: owner.address,
      payerAuthorizer: voucherKey?.address ?? zeroAddress,
      receiver: account().address,
      receiverAuthorizer: authorizer.address,
      token: chain.usdc,
      withdrawDelay: 900,
      salt: randomSalt(),
      ...options.config,
    },
  };
}

type Extra = Record<string, unknown>;

const bodyOf = (
  { chain, config }: Pick<Channel, "chain" | "config">,
  payload: object,
  { extra = {}, extensions }: { extra?: Extra; extensions?: Extra } = {},
): Body => {
  const paymentRequirements = {
    scheme: "batch-settlement",
    network: `eip155:${chain.chainId}`,
    asset: config.token,
    amount: "1000",
    payTo: config.receiver,
    maxTimeoutSeconds: 60,
    extra: {
      receiverAuthorizer: config.receiverAuthorizer,
      withdrawDelay: config.withdrawDelay,
      name: "USDC",
      version: "2",
      ...extra,
    },
  };
  return {
    x402Version: 2,
    paymentPayload: {
      x402Version: 2,
      resource: { url: "http://localhost/paid" },
      accepted: paymentRequirements,
      payload: { ...payload },
      ...(extensions && { extensions }),
    },
    paymentRequirements,
  };
};

/** What a receiver sends has requirements without the terms of a price. */
const orderOf = (
  { chain, config }: { chain: TestChain; config: Pick<ChannelConfig, "receiver" | "token"> },
  payload: object,
): Body => {
  const paymentRequirements = {
    scheme: "batch-settlement",
    network: `eip155:${chain.chainId}`,
    asset: config.token,
    amount: "0",
    payTo: config.receiver,
    maxTimeoutSeconds: 0,
    extra: {},
  };
  return {
    x402Version: 2,
    paymentPayload: { x402Version: 2, accepted: paymentRequirements, payload: { ...payload } },
    paymentRequirements,
  };
};

export interface VoucherOptions {
  type?: "voucher" | "refund";
  signer?: PrivateKeyAccount;
  /** What is signed, where it differs from what is sent. */
  signed?: { chainId?: number; channelId?: Hex; ceiling?: bigint };
  extra?: Extra;
}

async function voucherOf(channel: Channel, ceiling: bigint, options: VoucherOptions = {}) {
  const { chain, config, voucherKey } = channel;
  const { signer = voucherKey, signed = {} } = options;
  const channelId = channelIdOf(chain, config);
  const signature = await signVoucher(
    { chainId: signed.chainId ?? chain.chainId },
    signer,
    signed.channelId ?? channelId,
    signed.ceiling ?? ceiling,
  );
  return { channelId, maxClaimableAmount: ceiling.toString(), signature };
}

export async function voucherBody(
  channel: Channel,
  ceiling: bigint,
  options: VoucherOptions = {},
): Promise<Body> {
  const { type = "voucher", extra } = options;
  const voucher = await voucherOf(channel, ceiling, options);
  return bodyOf(
    channel,
    { type, channelConfig: channel.config, voucher },
    { ...(extra && { extra }) },
  );
}

export interface DepositOptions extends VoucherOptions {
  amount?: bigint;
  ceiling?: bigint;
  /** Signs the deposit. */
  depositor?: PrivateKeyAccount;
  validAfter?: bigint;
  validBefore?: bigint;
  domain?: { name?: string; version?: string; chainId?: number };
  voucher?: VoucherOptions;
  extensions?: Extra;
  /** Of a deposit over Permit2, what is signed and sent. */
  permitted?: Partial<Permitted>;
}

export async function depositBody(channel: Channel, options: DepositOptions = {}): Promise<Body> {
  const { chain, config, owner } = channel;
  const { amount = 10_000n, ceiling = 1_000n, depositor = owner, domain = {} } = options;
  const validAfter = options.validAfter ?? 0n;
  const validBefore = options.validBefore ?? BigInt(now() + 600);
  const salt = randomSalt();
  const nonce = keccak256(concat([channelIdOf(chain, config), salt]));
  const signature = await depositor.signTypedData({
    domain: {
      name: domain.name ?? "USDC",
      version: domain.version ?? "2",
      chainId: domain.chainId ?? chain.chainId,
      verifyingContract: config.token,
    },
    types: RECEIVE_TYPES,
    primaryType: "ReceiveWithAuthorization",
    message: {
      from: config.payer,
      to: ERC3009_COLLECTOR,
      value: amount,
      validAfter,
      validBefore,
      nonce,
    },
  });
  const erc3009Authorization = {
    validAfter: validAfter.toString(),
    validBefore: validBefore.toString(),
    salt,
    signature,
  };
  return depositWith(channel, {
    amount,
    ceiling,
    options,
    authorization: { erc3009Authorization },
  });
}

async function depositWith(
  channel: Channel,
  given: { amount: bigint; ceiling: bigint; options: DepositOptions; authorization: object },
): Promise<Body> {
  const { amount, ceiling, options, authorization } = given;
  const { extra, extensions } = options;
  const voucher = await voucherOf(channel, ceiling, options.voucher);
  return bodyOf(
    channel,
    {
      type: "deposit",
      channelConfig: channel.config,
      voucher,
      deposit: { amount: amount.toString(), authorization },
    },
    { ...(extra && { extra }), ...(extensions && { extensions }) },
  );
}

export interface Permitted {
  from: Address;
  token: Address;
  amount: bigint;
  spender: Address;
  nonce: bigint;
  deadline: bigint;
  channelId: Hex;
  chainId: number;
}

export async function permit2Body(channel: Channel, options: DepositOptions = {}): Promise<Body> {
  const { chain, config, owner } = channel;
  const { amount = 10_000n, ceiling = 1_000n, depositor = owner } = options;
  const terms: Permitted = {
    from: config.payer,
    token: config.token,
    amount,
    spender: PERMIT2_COLLECTOR,
    nonce: BigInt(randomSalt()),
    deadline: BigInt(now() + 600),
    channelId: channelIdOf(chain, config),
    chainId: chain.chainId,
    ...options.permitted,
  };
  const { from, token, spender, nonce, deadline, channelId, chainId } = terms;
  const signature = await depositor.signTypedData({
    domain: { name: "Permit2", chainId, verifyingContract: PERMIT2 },
    types: PERMIT2_TYPES,
    primaryType: "PermitWitnessTransferFrom",
    message: {
      permitted: { token, amount: terms.amount },
      spender,
      nonce,
      deadline,
      witness: { channelId },
    },
  });
  const permit2Authorization = {
    from,
    permitted: { token, amount: terms.amount.toString() },
    spender,
    nonce: nonce.toString(),
    deadline: deadline.toString(),
    witness: { channelId },
    signature,
  };
  return depositWith(channel, {
    amount,
    ceiling,
    options: { ...options, extra: { assetTransferMethod: "permit2", ...options.extra } },
    authorization: { permit2Authorization },
  });
}

export interface Row {
  channel: Channel;
  ceiling: bigint;
  total: bigint;
  signer?: PrivateKeyAccount;
}

async function claimRows(rows: readonly Row[]) {
  return Promise.all(
    rows.map(async ({ channel, ceiling, total, signer }) => ({
      voucher: { channel: channel.config, maxClaimableAmount: ceiling },
      signature: (await voucherOf(channel, ceiling, { ...(signer && { signer }) })).signature,
      totalClaimed: total,
    })),
  );
}
const wired = (claims: Awaited<ReturnType<typeof claimRows>>) =>
  claims.map(({ voucher, signature, totalClaimed }) => ({
    voucher: { channel: voucher.channel, maxClaimableAmount: `${voucher.maxClaimableAmount}` },
    signature,
    totalClaimed: `${totalClaimed}`,
  }));

export async function claimBody(
  rows: readonly [Row, ...Row[]],
  { signer, isSigned = true }: { signer?: PrivateKeyAccount; isSigned?: boolean } = {},
): Promise<Body> {
  const [{ channel }] = rows;
  const claims = await claimRows(rows);
  return orderOf(channel, {
    type: "claim",
    claims: wired(claims),
    ...(isSigned && {
      claimAuthorizerSignature: await signClaims(
        channel.chain,
        signer ?? channel.authorizer,
        claims,
      ),
    }),
  });
}

export const settleBody = (channel: Channel): Body =>
  orderOf(channel, {
    type: "settle",
    receiver: channel.config.receiver,
    token: channel.config.token,
  });

export async function refundBody(
  channel: Channel,
  given: {
    amount: bigint;
    nonce?: bigint;
    signedAmount?: bigint;
    signer?: PrivateKeyAccount;
    rows?: readonly Row[];
    ceiling?: bigint;
    /** False: the facilitator is to sign. */
    isSigned?: boolean;
  },
): Promise<Body> {
  const { chain, authorizer, config } = channel;
  const { amount, nonce = 0n, signer = authorizer, rows = [], ceiling = 1_000n } = given;
  const { isSigned = true } = given;
  const channelId = channelIdOf(chain, config);
  const claims = await claimRows(rows);
  const signedAmount = given.signedAmount ?? amount;
  return orderOf(channel, {
    type: "refund",
    channelConfig: config,
    voucher: await voucherOf(channel, ceiling),
    amount: amount.toString(),
    refundNonce: nonce.toString(),
    claims: wired(claims),
    ...(isSigned && {
      refundAuthorizerSignature: await signRefund(chain, signer, {
        channelId,
        nonce,
        amount: signedAmount,
      }),
      ...(claims.length > 0 && {
        claimAuthorizerSignature: await signClaims(chain, authorizer, claims),
      }),
    }),
  });
}

/** Puts money into the channel, and claims some of it, without any facilitator. */
export async function open(channel: Channel, balance = 10_000n, claimed = 0n): Promise<void> {
  const { chain, config, owner } = channel;
  await chain.mint(config.payer, balance);
  await send(
    chain,
    encodeFunctionData({
      abi: CHANNELS_ABI,
      functionName: "deposit",
      args: await erc3009Deposit(chain, owner, config, balance),
    }),
  );
  if (claimed === 0n) return;
  const claims = await claimRows([{ channel, ceiling: claimed, total: claimed }]);
  const signature = await signClaims(chain, channel.authorizer, claims);
  await send(
    chain,
    encodeFunctionData({
      abi: CHANNELS_ABI,
      functionName: "claimWithSignature",
      args: [claims, signature],
    }),
  );
}

/** Sent by an account of its own: tests that share a chain would else take each other's nonces. */
export async function send(
  chain: TestChain,
  data: Hex,
  by: PrivateKeyAccount = account(),
): Promise<void> {
  await chain.testClient.setBalance({ address: by.address, value: 10n ** 18n });
  const hash = await chain.walletClient(by).sendTransaction({ to: CHANNELS, data });
  const { status } = await chain.publicClient.waitForTransactionReceipt({ hash });
  if (status !== "success") throw new Error("the transaction failed");
}

/** A receiver, and who signs its claims and refunds. */
export interface Seller {
  receiver: Address;
  authorizer: PrivateKeyAccount;
}

export interface OpenChannel extends Channel {
  id: Hex;
  payer: PrivateKeyAccount;
  /** The payer's. */
  key: Uint8Array;
}

interface Charge {
  channel: OpenChannel;
  /** Absent: what is charged. */
  ceiling?: bigint;
  total: bigint;
}
const rowsOf = (charges: readonly Charge[]): Row[] =>
  charges.map(({ channel, total, ceiling = total }) => ({ channel, ceiling, total }));

/** Longer than any test's chain lives, however far its clock is set forward. */
const FAR = 2n ** 40n;

/** Channels of several sellers on one chain. Payers sign their own vouchers. */
export function channelWorld(chain: TestChain) {
  async function newChannel(
    { receiver, authorizer }: Seller,
    amount = 10_000n,
  ): Promise<OpenChannel> {
    const key = generatePrivateKey();
    const payer = privateKeyToAccount(key);
    await chain.mint(payer.address, amount);
    const channel = channelOf(chain, {
      owner: payer,
      voucherKey: payer,
      authorizer,
      config: { receiver },
    });
    return {
      ...channel,
      payer,
      key: Buffer.from(key.slice(2), "hex"),
      id: channelIdOf(chain, channel.config),
    };
  }

  return {
    newChannel,
    /** Sends what nobody relays. */
    depositor: chain.walletClient(chain.accounts[0] as PrivateKeyAccount),
    seller: (): Seller => ({ receiver: account().address, authorizer: account() }),

    async stateOf({ id }: OpenChannel) {
      const [balance, claimed] = await chain.publicClient.readContract({
        address: CHANNELS,
        abi: CHANNELS_ABI,
        functionName: "channels",
        args: [id],
      });
      return { balance, claimed };
    },

    /** A channel with money in it, without our help. */
    async open(seller: Seller, amount = 10_000n): Promise<OpenChannel> {
      const channel = await newChannel(seller, 0n);
      await open(channel, amount);
      return channel;
    },

    /** A voucher that is signed already. */
    voucher: (channel: OpenChannel, ceiling: bigint, signature: Hex): Body =>
      bodyOf(channel, {
        type: "voucher",
        channelConfig: channel.config,
        voucher: { channelId: channel.id, maxClaimableAmount: `${ceiling}`, signature },
      }),

    /** A payer's deposit with its first voucher. */
    deposit: (
      channel: OpenChannel,
      {
        method = "eip3009",
        ...options
      }: { amount?: bigint; ceiling?: bigint; method?: "eip3009" | "permit2" } = {},
    ): Promise<Body> =>
      method === "permit2"
        ? permit2Body(channel, { ...options, permitted: { deadline: FAR } })
        : depositBody(channel, { ...options, validBefore: FAR }),

    claim(charges: readonly Charge[], isSigned = true): Promise<Body> {
      const [first, ...others] = rowsOf(charges);
      if (!first) throw new Error("no charge");
      return claimBody([first, ...others], { isSigned });
    },

    settle: ({ receiver }: Seller): Body =>
      orderOf(
        { chain, config: { receiver, token: chain.usdc } },
        { type: "settle", receiver, token: chain.usdc },
      ),

    refund: (
      channel: OpenChannel,
      {
        charges = [],
        ...options
      }: { amount: bigint; nonce?: bigint; charges?: Charge[]; isSigned?: boolean },
    ): Promise<Body> => refundBody(channel, { ...options, rows: rowsOf(charges) }),
  };
}
