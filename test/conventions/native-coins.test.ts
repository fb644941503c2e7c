// Goal: a chain's gas coin is named correctly everywhere, as wallets know it.
import t from "tap";
import * as chains from "viem/chains";
import { createChainClient } from "../../server/infra/chain/index.ts";
import { presentStats } from "../../server/plugins/facilitator/stats.ts";
import { readGasBudget } from "../../server/core/gas.ts";
import { NETWORKS } from "../../server/core/networks.ts";
import { payPage } from "../../packages/paywall/src/pay-page.ts";
import { chainParameters } from "../../web/src/lib/wallet/chain.ts";
import { testApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";

const { address } = testAccount(1);
const COINS: Record<number, string> = {
  1: "ETH",
  10: "ETH",
  137: "POL",
  5042: "USDC",
  8453: "ETH",
  42161: "ETH",
  43114: "AVAX",
  84532: "ETH",
  5042002: "USDC",
  11155111: "ETH",
};
const viemChain = (id: number) => Object.values(chains).find((chain) => chain.id === id);

const GAS = { gasBudget: readGasBudget(""), nativePriceAtomic: 1_000_000n };

for (const network of NETWORKS) {
  const { chainId } = network;
  const coin = COINS[chainId] ?? "";

  t.test(`${network.name} pays gas in ${coin}`, async (t) => {
    t.equal(viemChain(chainId)?.nativeCurrency.symbol, coin, "viem's definition agrees");
    t.equal(network.nativeSymbol, coin);
    const { viemChain: clientChain } = createChainClient({
      ...network,
      rpcUrls: ["http://127.0.0.1:1"],
      wsUrls: [],
      ...GAS,
    });
    t.match(clientChain.nativeCurrency, { symbol: coin, decimals: 18 });
    t.equal(gasSymbolOf(network), coin);
    t.match(payPageOf(network), ` data-symbol="${coin}"`);
    const info = { ...network, walletRpcUrl: "", blockHeight: null, demoPath: null };
    t.match(chainParameters(info).nativeCurrency, { symbol: coin, decimals: 18 });
  });
}

t.test("the service reports it to the web app", async (t) => {
  const { app } = await testApp(t);
  const { networks } = (await app.inject("/api/info")).json();
  t.match(networks, [{ chainId: 5042002, nativeSymbol: "USDC" }]);
});

function gasSymbolOf(network: (typeof NETWORKS)[number]): string | undefined {
  const nothing = { settled: 0, failed: 0, volume: 0n, medianMs: null, p95Ms: null };
  const stats = presentStats({
    verified: 0,
    day: nothing,
    allTime: nothing,
    hours: [],
    batchSizes: [],
    recent: [],
    relayers: [{ network, address, balanceWei: 0n, gasPriceWei: 1n }],
  });
  return stats.relayers[0]?.gasSymbol;
}

function payPageOf(network: (typeof NETWORKS)[number]): string {
  return payPage({
    required: {
      x402Version: 2,
      resource: { url: "https://seller.example/" },
      accepts: [
        {
          scheme: "exact",
          network: network.id,
          asset: network.usdc.address,
          amount: "1",
          payTo: address,
          maxTimeoutSeconds: 60,
          extra: {},
        },
      ],
    },
    networks: NETWORKS,
    assetsPath: "/assets",
    walletRpcUrl: () => "http://127.0.0.1:1",
  });
}
