// Goal: on hundreds of payments, verdicts and reason codes equal those of the reference implementation, except for
// the reasons in differences.ts and this file.
import t from "tap";
import { testApp } from "../helpers/app.ts";
import { bentPayments } from "./bent-payments.ts";
import { commonDifferences, expectSameVerdicts, type Difference } from "./differences.ts";
import { referenceFacilitator } from "./reference.ts";

const SIGNATURE = "invalid_exact_evm_signature";
const SIMULATION = "invalid_exact_evm_transaction_simulation_failed";
const VALUE = "invalid_exact_evm_payload_authorization_value_mismatch";

const DIFFERENCES: readonly Difference[] = [
  ...commonDifferences({
    signature: SIGNATURE,
    simulation: SIMULATION,
    amount: VALUE,
    recipient: "invalid_exact_evm_recipient_mismatch",
    asset: "invalid_payload",
    highS: SIMULATION,
    dearWallet: "valid",
  }),
  {
    payments: /^payment(Requirements|Payload)\..* = |wrong checksum$/,
    reference: ["throws", "valid", SIGNATURE, VALUE, "invalid_exact_evm_recipient_mismatch"],
    purser: "invalid_payload",
    why: "Purser parses strictly: decimal strings of digits, addresses of 40 hex digits with a valid checksum. The reference passes its input to BigInt and to the encoder.",
  },
  {
    payments: /^paymentRequirements\.extra\.(name|version) = /,
    reference: [SIGNATURE],
    purser: "invalid_exact_evm_missing_eip712_domain",
    why: "A name must be a string.",
  },
  {
    payments: /^zero amount$/,
    reference: ["valid"],
    purser: "invalid_payload",
    why: "A payment of zero would cost the relayer gas.",
  },
  {
    payments: /^(another scheme|paymentRequirements\.scheme = .*)$/,
    reference: ["invalid_exact_evm_scheme", "throws"],
    purser: "unsupported_scheme",
    why: "The protocol has a code for unsupported schemes; the reference's class handles only its own.",
  },
  {
    payments: /^permit2 payload$/,
    reference: ["throws"],
    purser: "invalid_payload",
    why: "A Permit2 payload of this shape is invalid.",
  },
  {
    payments: /^ERC-6492 ending only$/,
    reference: ["throws"],
    purser: SIGNATURE,
    why: "An envelope that does not decode is not a signature.",
  },
];

t.test("same verdicts, same codes", async (t) => {
  // The reference has no minimum payment.
  const { app, chain } = await testApp(t, { env: { MIN_PAYMENT: "0" } });
  const payments = await bentPayments(chain);
  const reference = referenceFacilitator(chain);
  await expectSameVerdicts(t, { app, reference, payments, differences: DIFFERENCES });
});
