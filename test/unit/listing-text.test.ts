// Goal: a listing keeps the terms of its offer, however large the seller's answer is.
import t from "tap";
import { plainListing } from "../../server/plugins/listings/listing-text.ts";
import { isMaximum } from "../../server/schemes/index.ts";
import { ARC, PAYEE } from "./payment-samples.ts";

const terms = {
  scheme: "upto",
  network: ARC.id,
  amount: "1000",
  asset: ARC.usdc.address,
  payTo: PAYEE,
  maxTimeoutSeconds: 60,
};
const extra = { name: "USDC", version: "2", assetTransferMethod: "permit2" };
const channel = { receiverAuthorizer: PAYEE, withdrawDelay: 900, minDeposit: "5" };

t.test("a requirement over 8 KiB keeps what a payment is made from", async (t) => {
  const large = "x".repeat(9_000);
  const requirements: [object, object][] = [
    [
      { ...terms, extra, outputSchema: { large } },
      { ...terms, extra },
    ],
    [
      { ...terms, extra: { ...extra, ...channel, large } },
      { ...terms, extra: { ...extra, ...channel } },
    ],
    [
      { ...terms, extra: { ...extra, name: large } },
      { ...terms, extra: { ...extra, name: large.slice(0, 100) } },
    ],
    [{ ...terms, extra: [large] }, terms],
    [{ ...terms, description: `\u202e${large}`, payTo: `\u202e${PAYEE}` }, terms],
  ];
  for (const [requirement, kept] of requirements) {
    const stored = plainListing({ requirement }).requirement;
    t.same(stored, kept);
    t.ok(isMaximum(stored), "a price by use stays marked as the maximum");
  }
  const { asset: _asset, ...others } = terms;
  t.same(
    plainListing({ requirement: { ...terms, asset: { large }, extra: { name: { large } } } })
      .requirement,
    { ...others, extra: {} },
    "no structure of the seller's",
  );
});

t.test("a smaller one is kept whole", async (t) => {
  const requirement = { ...terms, extra: { ...extra, more: { deep: [1, "two"] } } };
  t.same(plainListing({ requirement }).requirement, requirement);
});
