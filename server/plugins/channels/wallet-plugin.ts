/** The payment channels of agents' wallets: what pays through them, and what closes them. */
import fp from "fastify-plugin";
import type { Hex } from "viem";
import type { NetworkFacts } from "../../core/networks.ts";
import { tracedAs } from "../../infra/tracing.ts";
import { Closing, type ClosingChannel } from "./closing.ts";
import { askForRefund } from "./refund.ts";
import type { ChannelStates } from "./states.ts";
import { WalletChannels } from "./wallet.ts";
import routes from "./wallet-routes.ts";
import * as store from "./wallet-store.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** The payment channels of agents' wallets. */
    walletChannels: WalletChannels;
    /** Uses them, or one of them, no more. Returns how many are closing because of it. */
    closeChannels(of: { agentId: string; channelId?: string }): Promise<number>;
    /** Does the next step of every channel that is closing and due. */
    closeDueChannels(): Promise<void>;
  }
}

interface Options {
  states: (chainId: number) => ChannelStates | undefined;
}

export default fp<Options>(
  async (app, { states }) => {
    const { chains, config, custody, log, pool, prisma, settlement } = app;
    app.decorate(
      "walletChannels",
      new WalletChannels({
        sign: tracedAs("custody.sign", (...args: Parameters<typeof custody.signVoucher>) =>
          custody.signVoucher(...args),
        ),
        signers: () => custody.channelSigners(),
        watch: async ({ agentId, paymentId: id, authorization }) => {
          const request = { id, kind: "x402", agentId, authorization, relay: false } as const;
          const { created } = await settlement.accept(pool, request);
          if (!created) throw new Error(`deposit ${authorization.nonce} exists already`);
        },
        follow: (id, txHash) =>
          settlement.wait(id, config.settleWaitMs, { look: true, ...(txHash && { txHash }) }),
        findSettlement: (id) => settlement.find(id),
        states,
        store: {
          signed: (voucher) => store.voucherSigned(pool, voucher),
          again: (key) => store.voucherAgain(pool, key),
          corrected: (correction) =>
            app.withAgentLock(correction.agentId, () => store.channelCorrected(pool, correction)),
          find: (key) => store.findVoucher(prisma, key),
        },
        log,
      }),
    );

    const networkOf = ({ chainId }: ClosingChannel): NetworkFacts | undefined =>
      chains.byChainId(chainId)?.network;

    /** For exactly what the receiver has charged. */
    async function voucherFor(channel: ClosingChannel): Promise<Hex> {
      const { agentId, chainId, config: of, ceiling, charged, voucher } = channel;
      if (voucher && ceiling === charged) return voucher;
      const before = voucher ? { ceiling, voucher } : undefined;
      const order = { chainId, config: of, ceiling: charged, before };
      return (await custody.signVoucher(agentId, order, "")).voucher;
    }

    const closing = new Closing({
      async due() {
        await store.closeUnused(pool, await app.walletChannels.signer());
        return store.closingChannels(prisma);
      },
      async states({ id, chainId }) {
        const chain = chains.byChainId(chainId);
        const reads = states(chainId);
        if (!chain || !reads) return undefined;
        const head = await app.chainReads.of(chainId).heads.refresh();
        // As the engine counts: a block's own confirmation is the first.
        const deepest = head.number - BigInt(chain.network.confirmations - 1);
        const finalBlock = deepest > 0n ? deepest : 0n;
        const [newest, final] = await Promise.all([
          reads.at(id, head.number),
          reads.at(id, finalBlock),
        ]);
        return newest && final && { newest, final, finalBlock, timeSeconds: head.timestampSeconds };
      },
      async askForRefund(channel) {
        const network = networkOf(channel);
        const { agentId, chainId, config: of, charged: ceiling, url } = channel;
        if (!network || url === null) return false;
        try {
          const order = { chainId, config: of, ceiling };
          const voucher = await voucherFor(channel);
          return await askForRefund((request) => app.outbound.request(request), url, {
            order,
            voucher,
            network,
          });
        } catch (err) {
          log.info({ err, agentId, channelId: channel.id }, "a seller was not asked for a refund");
          return false;
        }
      },
      accept: async ({ agentId }, authorization) => {
        const { nonce } = authorization;
        const id = `pay_${nonce.slice(-40)}`;
        const request = { id, kind: "withdrawal", agentId, authorization, relay: true } as const;
        await settlement.accept(pool, request);
      },
      store: {
        lookAgain: (channel, how) => store.lookAgain(prisma, channel, how),
        returned: (channel, amount) => store.noteReturned(prisma, channel, amount),
        returnsAt: (channel, at) => store.noteReturnsAt(prisma, channel, at),
        closed: (channel, ended) =>
          app.withAgentLock(channel.agentId, () => store.channelClosed(pool, channel, ended)),
      },
      log,
    });
    app.decorate("closeDueChannels", () => closing.run());
    app.decorate("closeChannels", async (of) => {
      const count = await app.withAgentLock(of.agentId, () => store.beginClosing(prisma, of));
      if (count > 0) await app.jobs.enqueue("close-channels", {}, { jobKey: "close-channels" });
      return count;
    });
    app.jobs.addTask("close-channels", () => closing.run(), { cron: "* * * * *", atStart: true });
    await app.register(routes);
  },
  { name: "wallet-channels" },
);
