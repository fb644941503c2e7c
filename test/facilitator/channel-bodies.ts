// Channels of their own, and what payers and receivers post for them, signed by plain keys.
import { decodeAbiParameters, parseAbiParameters, toHex, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import {
  CHANNELS,
  CHANNELS_ABI,
  channelIdOf,
  erc3009Deposit,
  permit2Deposit,
  PERMIT2_COLLECTOR,
  randomSalt,
  signClaims,
  signRefund,
  signVoucher,
  type ChannelConfig,
  type VoucherClaim,
} from "../helpers/batch-settlement.ts";
import type { TestChain } from "../helpers/chain.ts";
import type { Body } from "./payments.ts";

export const newAccount = (): PrivateKeyAccount => keyed(generatePrivateKey()).account;
const keyed = (key: Hex) => ({
  account: privateKeyToAccount(key),
  key: Buffer.from(key.slice(2), "hex"),
});

export interface Seller {
  receiver: Address;
  authorizer: PrivateKeyAccount;
}

/** A voucher, and how much of it is to be claimed. */
interface Charge {
  channel: OpenChannel;
  ceiling?: bigint;
  total: bigint;
  /** Instead of the payer's signature. */
  signature?: Hex;
}

export interface OpenChannel {
  config: ChannelConfig;
  id: Hex;
  payer: PrivateKeyAccount;
  /** The payer's. */
  key: Uint8Array;
}

export function channelWorld(chain: TestChain) {
  const network = `eip155:${chain.chainId}`;
  const depositor = chain.walletClient(chain.accounts[0] as PrivateKeyAccount);

  const bodyOf = (payload: object, terms: object): Body => {
    const requirements = { scheme: "batch-settlement", network, asset: chain.usdc, ...terms };
    return {
      x402Version: 2,
      paymentPayload: { x402Version: 2, accepted: requirements, payload },
      paymentRequirements: requirements,
    };
  };
  /** As a receiver's own software names them. */
  const thin = (payTo: Address) => ({ amount: "0", payTo, maxTimeoutSeconds: 0, extra: {} });

  const rowOf = async ({ channel, total, ceiling = total, signature }: Charge) => ({
    voucher: { channel: channel.config, maxClaimableAmount: ceiling },
    signature: signature ?? (await signVoucher(chain, channel.payer, channel.id, ceiling)),
    totalClaimed: total,
  });
  const wire = ({ voucher, signature, totalClaimed }: VoucherClaim) => ({
    voucher: { channel: voucher.channel, maxClaimableAmount: `${voucher.maxClaimableAmount}` },
    signature,
    totalClaimed: `${totalClaimed}`,
  });

  async function stateOf({ id }: OpenChannel) {
    const [balance, claimed] = await chain.publicClient.readContract({
      address: CHANNELS,
      abi: CHANNELS_ABI,
      functionName: "channels",
      args: [id],
    });
    return { balance, claimed };
  }

  async function newChannel({ receiver, authorizer }: Seller, amount = 10_000n) {
    const { account: payer, key } = keyed(generatePrivateKey());
    await chain.mint(payer.address, amount);
    const config: ChannelConfig = {
      payer: payer.address,
      payerAuthorizer: payer.address,
      receiver,
      receiverAuthorizer: authorizer.address,
      token: chain.usdc,
      withdrawDelay: 900,
      salt: randomSalt(),
    };
    return { payer, key, config, id: channelIdOf(chain, config) };
  }

  const termsOf = (
    { receiver, authorizer }: Seller,
    { withdrawDelay }: ChannelConfig,
    { amount = 1_000n, method = "eip3009" } = {},
  ) => ({
    amount: `${amount}`,
    payTo: receiver,
    maxTimeoutSeconds: 60,
    extra: {
      name: "USDC",
      version: "2",
      receiverAuthorizer: authorizer.address,
      withdrawDelay,
      assetTransferMethod: method,
    },
  });

  return {
    depositor,
    newChannel,
    voucher: (seller: Seller, { config, id }: OpenChannel, ceiling: bigint, signature: Hex) =>
      bodyOf(
        {
          type: "voucher",
          channelConfig: config,
          voucher: { channelId: id, maxClaimableAmount: `${ceiling}`, signature },
        },
        termsOf(seller, config),
      ),
    bodyOf,
    stateOf,
    seller: (): Seller => ({ receiver: newAccount().address, authorizer: newAccount() }),

    /** A channel with money in it, without our help. */
    async open(seller: Seller, amount = 10_000n): Promise<OpenChannel> {
      const channel = await newChannel(seller, amount);
      const hash = await depositor.writeContract({
        address: CHANNELS,
        abi: CHANNELS_ABI,
        functionName: "deposit",
        args: await erc3009Deposit(chain, channel.payer, channel.config, amount),
      });
      await chain.publicClient.waitForTransactionReceipt({ hash });
      return channel;
    },

    /** A payer's deposit with its first voucher. */
    async deposit(
      { receiver, authorizer }: Seller,
      { payer, config, id }: OpenChannel,
      {
        amount = 10_000n,
        ceiling = 1_000n,
        method = "eip3009",
      }: { amount?: bigint; ceiling?: bigint; method?: "eip3009" | "permit2" } = {},
    ) {
      const sign = method === "eip3009" ? erc3009Deposit : permit2Deposit;
      const [, , , data] = await sign(chain, payer, config, amount);
      const authorization = method === "eip3009" ? eip3009Fields(data) : permit2Fields(data);
      return bodyOf(
        {
          type: "deposit",
          channelConfig: config,
          voucher: {
            channelId: id,
            maxClaimableAmount: `${ceiling}`,
            signature: await signVoucher(chain, payer, id, ceiling),
          },
          deposit: { amount: `${amount}`, authorization },
        },
        termsOf({ receiver, authorizer }, config, { amount: ceiling, method }),
      );

      function permit2Fields(data: Hex) {
        const [nonce, deadline, signature] = decodeAbiParameters(
          parseAbiParameters("uint256, uint256, bytes, bytes"),
          data,
        );
        return {
          permit2Authorization: {
            from: payer.address,
            permitted: { token: chain.usdc, amount: `${amount}` },
            spender: PERMIT2_COLLECTOR,
            nonce: `${nonce}`,
            deadline: `${deadline}`,
            witness: { channelId: id },
            signature,
          },
        };
      }
    },

    async claim({ receiver, authorizer }: Seller, charges: Charge[], isSigned = true) {
      const rows = await Promise.all(charges.map(rowOf));
      return bodyOf(
        {
          type: "claim",
          claims: rows.map(wire),
          ...(isSigned && { claimAuthorizerSignature: await signClaims(chain, authorizer, rows) }),
        },
        thin(receiver),
      );
    },

    settle: ({ receiver }: Seller) =>
      bodyOf({ type: "settle", receiver, token: chain.usdc }, thin(receiver)),

    async refund(
      { receiver, authorizer }: Seller,
      channel: OpenChannel,
      {
        amount,
        nonce = 0n,
        charges = [],
        isSigned = true,
      }: {
        amount: bigint;
        nonce?: bigint;
        charges?: Charge[];
        isSigned?: boolean;
      },
    ) {
      const rows = await Promise.all(charges.map(rowOf));
      const signed = isSigned && {
        refundAuthorizerSignature: await signRefund(chain, authorizer, {
          channelId: channel.id,
          nonce,
          amount,
        }),
        ...(rows.length > 0 && {
          claimAuthorizerSignature: await signClaims(chain, authorizer, rows),
        }),
      };
      return bodyOf(
        {
          type: "refund",
          channelConfig: channel.config,
          voucher: { channelId: channel.id, maxClaimableAmount: "0", signature: "0x" },
          amount: `${amount}`,
          refundNonce: `${nonce}`,
          claims: rows.map(wire),
          ...signed,
        },
        thin(receiver),
      );
    },
  };
}

function eip3009Fields(data: Hex) {
  const [validAfter, validBefore, salt, signature] = decodeAbiParameters(
    parseAbiParameters("uint256, uint256, uint256, bytes"),
    data,
  );
  return {
    erc3009Authorization: {
      validAfter: `${validAfter}`,
      validBefore: `${validBefore}`,
      salt: toHex(salt, { size: 32 }),
      signature,
    },
  };
}
