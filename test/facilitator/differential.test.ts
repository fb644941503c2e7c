// Goal: on hundreds of payments our verdict and reason code are the reference implementation's, except where differences.ts says why not.
import t from "tap";
import { REASONS } from "../../server/schemes/scheme.ts";
import { testApp } from "../helpers/app.ts";
import { bentPayments } from "./bent-payments.ts";
import { DIFFERENCES, type Difference } from "./differences.ts";
import { post } from "./payments.ts";
import { referenceFacilitator } from "./reference.ts";

t.test("same verdicts, same codes", async (t) => {
  // The reference has no floor.
  const { app, chain } = await testApp(t, { env: { MIN_PAYMENT: "0" } });
  const reference = referenceFacilitator(chain);
  const payments = await bentPayments(chain);
  t.ok(payments.length > 400, `${payments.length} payments`);
  const met = new Set<Difference>();
  for (const { name, body } of payments) {
    const theirs = await reference.verify(body);
    const answer = await post(app, "verify", body);
    const their = theirs.isValid ? "valid" : theirs.reason;
    const our = answer["isValid"] === true ? "valid" : String(answer["invalidReason"]);
    if (our !== "valid") t.ok(our in REASONS, `${name}: ${our} is the protocol's`);
    if (their === our) continue;
    const known = DIFFERENCES.find(
      (difference) =>
        difference.payments.test(name) &&
        difference.reference.includes(their) &&
        difference.ours === our,
    );
    if (known) met.add(known);
    else t.fail(`${name}: the reference says ${their}, we say ${our}`);
  }
  for (const difference of DIFFERENCES)
    t.ok(met.has(difference), `still true: ${String(difference.payments)}`);
});
