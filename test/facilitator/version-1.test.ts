// Goal: version 1 of the protocol works only on networks with a version 1 name, with the reference's verdicts.
import { x402Client } from "@x402/core/client";
import { ExactEvmSchemeV1 } from "@x402/evm/exact/v1/client";
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { findNetwork } from "../../server/core/networks.ts";
import { testApp } from "../helpers/app.ts";
import { change } from "./bent-payments.ts";
import { post, type Body } from "./payments.ts";
import { referenceFacilitator } from "./reference.ts";

const NAME = "base-sepolia";

t.test("version 1 on Base Sepolia", async (t) => {
  const facts = findNetwork(NAME);
  if (!facts) throw new Error("not in the table");
  const { app, chain } = await testApp(t, {
    chainOptions: { chainId: facts.chainId, usdc: facts.usdc.address, blockTimeSeconds: 0.5 },
  });
  const account = privateKeyToAccount(generatePrivateKey());
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  await chain.mint(account.address, 10_000_000n);
  const requirements = {
    scheme: "exact",
    network: NAME,
    maxAmountRequired: "2500",
    resource: "http://localhost/paid",
    description: "",
    mimeType: "application/json",
    payTo,
    maxTimeoutSeconds: 120,
    asset: chain.usdc,
    extra: { name: "USDC", version: "2" },
  };
  const client = new x402Client().registerV1(NAME, new ExactEvmSchemeV1(account));
  const make = async (): Promise<Body> => {
    const paymentPayload = await client.createPaymentPayload({
      x402Version: 1,
      accepts: [requirements],
    } as never);
    return {
      x402Version: 1,
      paymentPayload: { ...paymentPayload },
      paymentRequirements: requirements,
    };
  };

  await t.test("is offered together with version 2", async (t) => {
    const supported = (await app.inject("/api/x402/supported")).json();
    t.same(supported.kinds, [
      { x402Version: 2, scheme: "exact", network: facts.id },
      {
        x402Version: 2,
        scheme: "upto",
        network: facts.id,
        extra: { facilitatorAddress: chain.relayer.address },
      },
      { x402Version: 2, scheme: "batch-settlement", network: facts.id },
      { x402Version: 1, scheme: "exact", network: NAME },
    ]);
  });

  await t.test("verifies and settles", async (t) => {
    const body = await make();
    const verified = await post(app, "verify", body);
    t.same([verified["invalidReason"], verified["invalidMessage"]], [undefined, undefined]);
    t.match(verified, {
      isValid: true,
      payer: account.address,
      amount: "2500",
    });
    const settled = await post(app, "settle", body);
    t.match(settled, { success: true, network: NAME, transaction: /^0x[0-9a-f]{64}$/ });
  });

  await t.test("has the reference's verdicts", async (t) => {
    const reference = referenceFacilitator(chain);
    const other = privateKeyToAccount(generatePrivateKey()).address;
    const bends: [string, unknown][] = [
      ["paymentRequirements.maxAmountRequired", "2501"],
      ["paymentRequirements.payTo", other],
      ["paymentPayload.scheme", "upto"],
      ["paymentRequirements.network", "base"],
      ["paymentRequirements.extra", {}],
      ["paymentRequirements.extra", { name: "Other", version: "2" }],
      ["paymentPayload.payload.authorization.validBefore", "17"],
      ["paymentPayload.payload.authorization.from", other],
      ["paymentPayload.payload.signature", `0x${"11".repeat(65)}`],
      ["paymentRequirements.description", "anything"],
    ];
    for (const [path, value] of bends) {
      const body = change(await make(), path, value);
      const expected = await reference.verify(body);
      const actual = await post(app, "verify", body);
      t.equal(actual["isValid"], expected.isValid, path);
      t.equal(actual["invalidReason"] ?? "", expected.reason, path);
    }
    const unknown = change(await make(), "paymentRequirements.scheme", "upto");
    t.match(await post(app, "verify", unknown), { invalidReason: "unsupported_scheme" });
  });

  await t.test("accepts no network by its CAIP-2 id", async (t) => {
    const byId = { ...requirements, network: facts.id };
    const body = await make();
    const renamed = {
      ...body,
      paymentPayload: { ...body.paymentPayload, network: facts.id },
      paymentRequirements: byId,
    };
    t.match(await post(app, "verify", renamed), {
      isValid: false,
      invalidReason: "invalid_network",
    });
  });
});
