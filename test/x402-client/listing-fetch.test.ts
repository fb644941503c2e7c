// Goal: a fetch by listing pays only the pinned terms; a seller that changes them is refused, flagged and not paid.
import type { ServerResponse } from "node:http";
import t from "tap";
import { assertLedgerIsChain, market, PAYEE } from "./market.ts";
import { callApi } from "../helpers/call.ts";

t.test("fetch by listing", async (t) => {
  const made = await market(t);
  const { seller, app, owner } = made;

  async function list(name: string): Promise<string> {
    const answer = await callApi(app, owner, "POST", "/api/listings", {
      name,
      url: `${seller.origin}/${name}`,
    });
    t.equal(answer.statusCode, 201, answer.body);
    return answer.json<{ id: string }>().id;
  }
  const listing = async (id: string) =>
    (await app.inject({ url: `/api/listings/${id}`, headers: owner.headers })).json<
      Record<string, unknown>
    >();

  await t.test("the pinned terms are paid, and the use is counted", async (t) => {
    const id = await list("honest");
    t.match(await listing(id), { status: "active", payTo: PAYEE, price: "0.001" });
    const paid = await made.fetch({ listingId: id });
    t.match(paid, {
      status: 200,
      body: { paid: true, source: `${seller.origin}/honest`, amountPaid: "0.001" },
    });
    t.match(await made.lastPayment(), { listing_id: id });
    seller.script = { terms: () => seller.entry({ amount: "500" }) };
    t.match(
      await made.fetch({ listingId: id }),
      { status: 200, body: { amountPaid: "0.0005" } },
      "cheaper is no mismatch",
    );
    seller.script = {
      terms: () => [
        seller.entry({ amount: "1", payTo: "0x90F79bf6EB2c4f870365E785982E1f101E93b906" }),
        seller.entry(),
      ],
    };
    t.match(
      await made.fetch({ listingId: id }),
      { status: 200, body: { amountPaid: "0.001", payTo: PAYEE } },
      "among several terms the pinned ones are paid",
    );
    seller.script = {};
  });

  await t.test("changed terms: refused, stored, flagged, and not active any more", async (t) => {
    const switches: Record<string, Record<string, unknown>> = {
      price: { amount: "1001" },
      payee: { payTo: "0x90F79bf6EB2c4f870365E785982E1f101E93b906" },
      asset: { asset: "0x90F79bf6EB2c4f870365E785982E1f101E93b906" },
      network: { network: "eip155:1" },
    };
    for (const [name, over] of Object.entries(switches)) {
      seller.script = {};
      const id = await list(name);
      const proofs = seller.proofs.length;
      seller.script = { terms: () => seller.entry(over) };
      t.match(
        await made.fetch({ listingId: id, dryRun: true }),
        { status: name === "asset" || name === "network" ? 403 : 200 },
        `${name}: a dry run shows it`,
      );
      seller.script = {
        terms: () => [seller.entry(over), seller.entry({ ...over, amount: "7000000" })],
      };
      const both = (await made.fetch({ listingId: id, dryRun: true })).body;
      if (both["offers"]) {
        t.match(both["offers"], [{}, { refused: { code: "listing_mismatch" } }]);
        t.notMatch(
          both["explanation"],
          /is possible/,
          "the other offer does not match the listing either",
        );
      }
      seller.script = { terms: () => seller.entry(over) };
      t.match(
        await made.fetch({ listingId: id }),
        { status: 403, body: { code: "listing_mismatch", blocked: true, paymentId: /^pay_/ } },
        name,
      );
      t.match(await made.lastPayment(), {
        status: "blocked",
        denial_code: "listing_mismatch",
        listing_id: id,
      });
      t.equal(seller.proofs.length, proofs, "nothing was signed");
      t.match(await listing(id), { status: "failing" });
      t.match(await made.fetch({ listingId: id }), {
        status: 409,
        body: { code: "listing_not_active" },
      });
    }
    seller.script = {};
  });

  await t.test("the probe returns terms without paying", async (t) => {
    const proofs = seller.proofs.length;
    t.match(await app.x402Client.probe(seller.url, { method: "GET" }), {
      host: new URL(seller.origin).host,
      payTo: PAYEE.toLowerCase(),
      network: `eip155:${made.chain.chainId}`,
      priceAtomic: 1000n,
      x402Version: 2,
      requirement: seller.entry(),
    });
    for (const [onUnpaid, code] of [
      [
        ({ response }: { response: ServerResponse }) => void response.end("free"),
        "upstream_invalid_402",
      ],
      [
        ({ response }: { response: ServerResponse }) =>
          void response.writeHead(301, { location: "/" }).end(),
        "upstream_redirect",
      ],
      [
        ({ response }: { response: ServerResponse }) =>
          seller.refuse(response, seller.entry({ scheme: "x" })),
        "unsupported_payment_requirements",
      ],
    ] as const) {
      seller.script = { onUnpaid };
      await t.rejects(app.x402Client.probe(seller.url, { method: "GET" }), { code });
    }
    await t.rejects(app.x402Client.probe("http://127.0.0.1:9/", { method: "GET" }), {
      code: "url_blocked",
    });
    await t.rejects(app.x402Client.probe("nonsense", { method: "GET" }), { code: "url_blocked" });
    t.equal(seller.proofs.length, proofs);
    seller.script = {};
  });

  await assertLedgerIsChain(t, made);
});
