// Goal: on hundreds of Permit2 payments our verdict and code are the reference implementation's, except where it says here why not.
import t from "tap";
import { REASONS } from "../../server/schemes/scheme.ts";
import { testApp } from "../helpers/app.ts";
import type { Difference } from "./differences.ts";
import { bentPermit2Payments } from "./permit2-payments.ts";
import { post } from "./payments.ts";
import { referenceFacilitator } from "./reference.ts";

const BAD = "invalid_permit2_signature";
const DIFFERENCES: readonly (Difference & { scheme?: "exact" | "upto" })[] = [
  {
    payments: /^(payment(Requirements|Payload)\..* = |zero amount$)/,
    reference: [
      "throws",
      "valid",
      BAD,
      "permit2_amount_mismatch",
      "permit2_token_mismatch",
      "permit2_simulation_failed",
      "permit2_deadline_expired",
      "permit2_not_yet_valid",
      "invalid_permit2_spender",
      "invalid_permit2_recipient_mismatch",
    ],
    ours: "invalid_payload",
    why: "We read addresses and integers strictly, and relay nothing that moves nothing.",
  },
  {
    payments: /^paymentRequirements\.scheme = /,
    reference: ["unsupported_payload_type", "throws"],
    ours: "unsupported_scheme",
    why: "A scheme nobody here speaks has a code of its own in the protocol.",
  },
  {
    payments: /^sponsored, (amount|nonce|deadline|signature) = /,
    reference: ["permit2_allowance_required", "valid", "eip2612_deadline_expired"],
    ours: "invalid_eip2612_extension_format",
    why: "Integers are strings, and a signature that the proxy takes has 65 bytes.",
  },
  {
    payments: /^another network$/,
    reference: [BAD],
    ours: "invalid_network",
    why: "We know which networks we serve.",
  },
  {
    payments: /^accepted another amount$/,
    reference: ["valid"],
    ours: "permit2_amount_mismatch",
    why: "What the payer accepted must not contradict what the server requires.",
  },
  {
    payments: /^accepted another payTo$/,
    reference: ["valid"],
    ours: "invalid_permit2_recipient_mismatch",
    why: "What the payer accepted must not contradict what the server requires.",
  },
  {
    payments: /^accepted another asset$/,
    reference: ["valid"],
    ours: "permit2_token_mismatch",
    why: "What the payer accepted must not contradict what the server requires.",
  },
  {
    payments: /^compact signature$/,
    reference: [BAD],
    ours: "valid",
    why: "EIP-2098 signatures are good signatures; we expand them.",
  },
  {
    payments: /^v as 0 or 1$/,
    reference: ["permit2_simulation_failed"],
    ours: "valid",
    why: "Permit2 wants 27 or 28; we write it so.",
  },
  {
    payments: /^high s$/,
    reference: ["valid"],
    ours: BAD,
    why: "We refuse a malleable signature.",
  },
  {
    payments: /^wallet Expensive$/,
    reference: ["permit2_allowance_required"],
    ours: BAD,
    why: "A wallet's signature check must fit the gas cap of one settlement.",
  },
];

for (const scheme of ["exact", "upto"])
  t.test(`${scheme} over Permit2: same verdicts, same codes`, async (t) => {
    const { app, chain } = await testApp(t, { env: { MIN_PAYMENT: "0" } });
    const reference = referenceFacilitator(chain, chain.relayer);
    const payments = await bentPermit2Payments(
      chain,
      scheme === "upto" ? chain.relayer.address : undefined,
    );
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
          (difference.scheme ?? scheme) === scheme &&
          difference.payments.test(name) &&
          difference.reference.includes(their) &&
          difference.ours === our,
      );
      if (known) met.add(known);
      else t.fail(`${name}: the reference says ${their}, we say ${our}`);
    }
    for (const difference of DIFFERENCES.filter((each) => (each.scheme ?? scheme) === scheme))
      t.ok(met.has(difference), `still true: ${String(difference.payments)}`);
  });
