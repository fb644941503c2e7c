/**
 * Payment channels: x402's scheme `batch-settlement`. A payer deposits once and then signs vouchers, which cost no gas;
 * the receiver claims them later, many at once.
 */
import { setTimeout as sleep } from "node:timers/promises";
import fp from "fastify-plugin";
import { checksummedAddress } from "../../core/keccak.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { addressOf, sign } from "../../core/signatures.ts";
import { readCodeSizes } from "../../infra/chain/contracts.ts";
import {
  CHANNELS,
  readDeposit,
  isForChannels,
  readOrder,
  readVoucher,
  SCHEME,
} from "../../schemes/batch-settlement/index.ts";
import { networkNameOf, refuse } from "../../schemes/scheme.ts";
import type { SettleAnswer } from "../../schemas/facilitator.ts";
import { refusal, type OwnScheme, type SettleOptions } from "../facilitator/settle.ts";
import { snapshot, VoucherChecker } from "./check.ts";
import { ChannelOrders, type ReceiverAuthorizer } from "./orders.ts";
import { ChannelStates } from "./states.ts";
import { isMerchants, newestDeposits, ordersOf } from "./store.ts";
import walletPlugin from "./wallet-plugin.ts";

/** The contract may be deployed while this process runs. */
const LOOK_EVERY_MS = 60_000;
const FIRST_LOOK_MS = 2_000;

export default fp(
  async (app) => {
    const { config, chains, facilitator, settlement, pool, prisma, log } = app;
    const { networks } = config;
    const pause = (ms: number) => sleep(ms);
    const states = new Map(
      networks.map(({ chainId, blockTimeMs }) => {
        const { rpc, heads } = app.chainReads.of(chainId);
        return [chainId, new ChannelStates({ rpc, heads, blockTimeMs, pause })];
      }),
    );
    const statesOf = ({ chainId }: NetworkFacts): ChannelStates => {
      const found = states.get(chainId);
      if (!found) throw new Error(`chain ${chainId} is not configured`);
      return found;
    };
    const authorizer = authorizerOf(config.receiverAuthorizerKey);
    const checker = new VoucherChecker({
      networks,
      states: statesOf,
      reads: (network) => facilitator.readsOf(network),
      checkPayment: (payment) => facilitator.checkPayment(payment),
      screening: app.screening,
      depositBlock: async (network, { id, config: { payer } }) =>
        (await newestDeposits(prisma, network.chainId, [{ id, payer }])).get(id),
    });
    const orders = new ChannelOrders({
      settlement,
      accept: async ({ id, authorization, merchant, fee }) => {
        const { settlement: row } = await settlement.accept(pool, {
          id,
          kind: "facilitated",
          agentId: null,
          authorization,
          relay: true,
          ...(merchant !== undefined && { merchant }),
          ...(fee && { fee }),
        });
        return row;
      },
      find: (key) => settlement.findByAuthorization(key),
      ordersOf: (network, receiver) => ordersOf(prisma, network.chainId, receiver),
      states: statesOf,
      deposits: (network, channels) => newestDeposits(prisma, network.chainId, channels),
      authorizer,
      feeFor: (receiver, amount) => facilitator.fees?.feeFor(receiver, amount),
      isMerchants: (merchant, receiver, network) =>
        isMerchants(prisma, { merchant, receiver, chainId: network.chainId }),
      countFor: (limit, payer) => app.countFor(limit, payer),
      leastAtomic: config.minPaymentAtomic,
      waitMs: config.settleWaitMs,
      pause,
    });

    async function settle(body: unknown, options: SettleOptions): Promise<SettleAnswer> {
      const networkName = networkNameOf(body);
      if (!isDeposit(body)) {
        const order = readOrder(body, networks);
        return "reason" in order ? refusal(networkName, order) : orders.run(order, options);
      }
      const voucher = readVoucher(body, networks);
      if ("reason" in voucher) return refusal(networkName, voucher);
      const payment = readDeposit(voucher);
      if ("reason" in payment) return refusal(networkName, payment);
      // A deposit that was made before may come with another voucher.
      if (!(await checker.isSigned(voucher)))
        return refusal(
          networkName,
          refuse("invalid_batch_settlement_evm_voucher_signature", voucher.channel.payer),
        );
      const check = () => checker.checkDeposit(payment);
      // A deposit pays for nothing by itself: the receiver counts what it charges.
      const presented = { body, payment, options, check, isFreeToReturn: true };
      const answer = await facilitator.settlePayment(presented);
      if (!answer.success || answer.paymentId === undefined) return answer;
      const row = await settlement.find(answer.paymentId);
      const { id } = voucher.channel;
      const state = row?.blockNumber
        ? await statesOf(voucher.network).at(id, row.blockNumber)
        : undefined;
      return state ? { ...answer, extra: { channelState: snapshot(id, state) } } : answer;
    }

    const deployed = new Set<number>();
    const look = async (): Promise<void> => {
      const missing = chains.all.filter(({ network }) => !deployed.has(network.chainId));
      const looks = missing.map(async ({ rpc, network }) => {
        const sizes = await readCodeSizes(rpc, [CHANNELS]);
        if ((sizes.get(CHANNELS.toLowerCase()) ?? 0n) > 0n) deployed.add(network.chainId);
      });
      await Promise.all(looks);
    };
    const lookAgain = () =>
      look().catch((err: unknown) => log.warn({ err }, "the channel contract was not looked for"));
    // Sellers read at their start what is supported. A chain that does not answer does not hold up ours.
    await Promise.race([lookAgain(), sleep(FIRST_LOOK_MS, undefined, { ref: false })]);
    const timer = setInterval(() => void lookAgain(), LOOK_EVERY_MS).unref();
    app.addHook("onClose", () => clearInterval(timer));

    const scheme: OwnScheme = {
      name: SCHEME,
      handles: isForChannels,
      check: (body) => checker.check(body),
      settle,
      announced: ({ chainId }) =>
        deployed.has(chainId)
          ? { ...(authorizer && { receiverAuthorizer: checksummedAddress(authorizer.address) }) }
          : undefined,
    };
    facilitator.addScheme(scheme);

    await app.register(walletPlugin, { states: (chainId: number) => states.get(chainId) });
  },
  { name: "channels", dependencies: ["facilitator"] },
);

const isDeposit = (body: unknown): boolean => {
  const { paymentPayload } = body as { paymentPayload?: { payload?: { type?: unknown } } };
  return paymentPayload?.payload?.type === "deposit";
};

function authorizerOf(key: Uint8Array | undefined): ReceiverAuthorizer | undefined {
  return key && { address: addressOf(key), sign: (digest) => sign(digest, key) };
}
