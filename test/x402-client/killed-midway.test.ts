// Goal: a process killed at any step of a fetch loses nothing: the same key, sent to another replica, ends in one payment or provably none.
import t from "tap";
import { assertStored, fetchAndDie, keyed, untilDead, type DoomedFetch } from "./doomed.ts";
import { assertLedgerIsChain, market, PAYEE, type Answered } from "./market.ts";

const ENV = { SETTLE_WAIT_MS: "5000", LOG_LEVEL: "silent" };
/** The steps of a fetch, in order. */
const POINTS = ["reserved", "signed", "submitted", "answered", "confirmed"] as const;
/** Steps for calls without a key, which are recognised by an identical call. */
const KEYLESS = ["submitted", "confirmed"] as const;

const made = await market(t, { env: ENV });
const { seller } = made;
const sold = new Set<string>();
seller.script = {
  // Settles an authorization once. At /confirmed it delivers for it again, elsewhere it does not.
  onProof: async ({ request, response, proof }) => {
    const { nonce } = proof.payload.authorization;
    if (sold.has(nonce) && !request.url?.endsWith("/confirmed"))
      return seller.refuse(response, seller.entry());
    if (!sold.has(nonce)) await seller.settle(proof);
    sold.add(nonce);
    response.writeHead(200).end("data");
  },
};
const gets = POINTS.map((point) => keyed(point, point, { url: `${seller.origin}/${point}` }));
const keyless = KEYLESS.map((point) => ({
  ...keyed(point, "", { url: `${seller.origin}/keyless/${point}` }),
  headers: {},
}));

const repeat = ({ body, headers }: DoomedFetch): Promise<Answered> => made.fetch(body, headers);
const repeatAt = (point: (typeof POINTS)[number]): Promise<Answered> =>
  repeat(gets[POINTS.indexOf(point)] as DoomedFetch);

await fetchAndDie(t, made, [...gets, ...keyless], ENV);

await t.test("while the process may still be alive, no other process takes over", async (t) => {
  const seen = seller.proofs.length;
  for (const one of gets)
    t.match(await repeat(one), { status: 409, body: { code: "idempotency_in_progress" } });
  t.equal(seller.proofs.length, seen, "no proof is sent again");
});

await untilDead(made);

await t.test("killed at each step, with a key", async (t) => {
  for (const point of ["reserved", "signed", "submitted", "confirmed"] as const)
    t.match(
      await repeatAt(point),
      { status: 200, body: { paid: true, text: "data" } },
      `killed when ${point}`,
    );
  t.match(
    await repeatAt("answered"),
    { status: 502, body: { code: "paid_upstream_failed", txHash: /^0x/, amountPaid: "0.001" } },
    "the seller was paid, and would not deliver again",
  );
});

await t.test("without a key, an identical call joins the dead one", async (t) => {
  for (const answer of await Promise.all(keyless.map(repeat)))
    t.match(answer, { status: 200, body: { paid: true, text: "data", replayed: true } });
});

const calls = POINTS.length + KEYLESS.length;
t.equal(sold.size, calls, "one authorization each reached the seller");

await t.test("each was paid once, and its answer is stored", async (t) => {
  t.equal(await made.balanceOf(PAYEE), BigInt(calls) * 1000n);
  t.equal(await made.reserved(), "0");
  await assertLedgerIsChain(t, made);
  const proofs = seller.proofs.length;
  for (const one of gets) await assertStored(t, made, one);
  t.equal(seller.proofs.length, proofs, "the seller received no proof for that");
});
