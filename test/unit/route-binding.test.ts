// Goal: a payment is bound to the seller's route only while what is stored and sent for it stays short.
import t from "tap";
import { bindRoute } from "../../server/plugins/x402-client/terms.ts";
import type { OfferedTerms } from "../../server/plugins/x402-client/terms.ts";

const extra = { name: "USDC", version: "2" };
const terms = {
  scheme: "exact",
  extra,
  raw: { scheme: "exact", extra },
} as unknown as OfferedTerms;
const bound = (description: string) =>
  bindRoute(terms, {
    resource: { url: "https://shop.example/a", description },
    extensions: { mppx: { info: { routeBinding: "required" } } },
  });

t.test("the length is counted in bytes", async (t) => {
  t.match(bound("a".repeat(3_000)), { nonce: /^0x[0-9a-f]{64}$/ });
  t.equal(bound("\u20ac".repeat(3_000)), undefined, "three bytes each");
});
