// Goal: a client written from the published contract can read the discovery document: two lists of plain strings,
// with details in `assets`.
import t from "tap";
import { testApp } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";

const BASE_SEPOLIA_USDC = "0x036CbD53842c5426634e7929541eC2318f3dCF7e";
const ADDRESS = /^0x[0-9a-fA-F]{40}$/;
const CAIP2 = /^eip155:[1-9][0-9]*$/;

/** Written by hand instead of derived from the server's schema, so that a change of the schema fails here. */
type Document = Record<string, unknown>;

t.test("discovery", async (t) => {
  const second = await testChain(t, { chainId: 84532, usdc: BASE_SEPOLIA_USDC });
  const { app, chain, config } = await testApp(t, {
    env: { NETWORKS: "eip155:5042002,eip155:84532", RPC_URL_84532: second.rpcUrl },
  });

  await t.test("every field has the documented type", async (t) => {
    const response = await app.inject("/api/x402");
    t.equal(response.statusCode, 200);
    t.match(response.headers["content-type"], /^application\/json/);
    const document = response.json<Document>();
    t.same(Object.keys(document).sort(), [
      "assets",
      "facilitator",
      "supportedAssets",
      "supportedNetworks",
      "version",
    ]);
    t.equal(document["facilitator"], `${config.publicUrl}/api/x402`);
    t.equal(document["version"], "1.0");

    const networks = document["supportedNetworks"];
    if (!Array.isArray(networks)) throw new Error("supportedNetworks is no array");
    for (const network of networks) {
      t.equal(typeof network, "string");
      t.match(network, CAIP2);
    }
    t.same(networks, ["eip155:5042002", "eip155:84532"], "the configured ones, in their order");

    const contracts = document["supportedAssets"];
    if (!Array.isArray(contracts)) throw new Error("supportedAssets is no array");
    for (const contract of contracts) {
      t.equal(typeof contract, "string");
      t.match(contract, ADDRESS);
    }
    t.same(contracts, [chain.usdc, BASE_SEPOLIA_USDC]);

    const assets = document["assets"];
    if (!Array.isArray(assets)) throw new Error("assets is no array");
    for (const asset of assets as Document[]) {
      for (const member of ["network", "asset", "symbol", "name", "version"])
        t.equal(typeof asset[member], "string", member);
      t.equal(typeof asset["decimals"], "number");
      t.ok(networks.includes(asset["network"]), "its network is supported");
      t.ok(contracts.includes(asset["asset"]), "its contract is supported");
    }
    t.same(assets, [
      {
        network: "eip155:5042002",
        asset: chain.usdc,
        symbol: "USDC",
        decimals: 6,
        name: "USDC",
        version: "2",
      },
      {
        network: "eip155:84532",
        asset: BASE_SEPOLIA_USDC,
        symbol: "USDC",
        decimals: 6,
        name: "USDC",
        version: "2",
      },
    ]);
  });

  await t.test("the list that stock middleware reads has the same networks", async (t) => {
    const supported = (await app.inject("/api/x402/supported")).json();
    const extra = { facilitatorAddress: chain.relayer.address };
    t.same(supported.kinds, [
      { x402Version: 2, scheme: "exact", network: "eip155:5042002" },
      { x402Version: 2, scheme: "upto", network: "eip155:5042002", extra },
      { x402Version: 2, scheme: "batch-settlement", network: "eip155:5042002" },
      { x402Version: 2, scheme: "exact", network: "eip155:84532" },
      { x402Version: 2, scheme: "upto", network: "eip155:84532", extra },
      { x402Version: 2, scheme: "batch-settlement", network: "eip155:84532" },
      { x402Version: 1, scheme: "exact", network: "base-sepolia" },
    ]);
    t.ok(supported.extensions.every((extension: unknown) => typeof extension === "string"));
    t.same(supported.signers, { "eip155:*": [chain.relayer.address] });
  });
});
