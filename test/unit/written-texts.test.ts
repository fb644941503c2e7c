// Goal: no text that an agent or an owner writes can look like another text to the owner who reads it.
import t from "tap";
import { readLabel } from "../../server/plugins/agents/rules.ts";
import { readSpend } from "../../server/plugins/payments/spend.ts";
import { ARC, PAYEE, PAYER } from "./payment-samples.ts";

const HIDDEN = [
  "\u202e",
  "\u2066",
  "\u200b",
  "\u200e",
  "\u061c",
  "\u00ad",
  "\u2060",
  "\ufeff",
  "\u{e0041}",
];

t.test("a memo is stored without invisible characters", async (t) => {
  const memoOf = (memo: string | undefined) =>
    readSpend(
      { recipient: PAYEE, amount: "1", ...(memo !== undefined && { memo }) },
      { walletAddress: PAYER, network: ARC },
    ).memo;
  for (const hidden of HIDDEN) t.equal(memoOf(`for ${hidden}data\u2028\nnow`), "for data now");
  t.equal(memoOf("Zürich 日本 ✓"), "Zürich 日本 ✓");
  t.equal(memoOf("\u200b"), undefined);
  t.equal(memoOf(undefined), undefined);
});

t.test("a name or label with invisible characters is refused", async (t) => {
  for (const hidden of [...HIDDEN, "\u0007", "\u2028"])
    t.throws(() => readLabel(`Res${hidden}earch`, "body.label"), { code: "validation_failed" });
  for (const label of ["Zürich 日本", "family 👨‍👩‍👧", "می‌خواهم"])
    t.equal(readLabel(` ${label} `, "body.label"), label);
});
