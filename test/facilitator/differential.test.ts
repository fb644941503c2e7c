// Goal: on hundreds of payments our verdict and reason code are the reference implementation's, except where differences.ts or this file says why not.
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
    ours: "invalid_payload",
    why: "We read addresses and integers strictly: a decimal string is digits, an address has 40 of them and a right checksum. The reference hands what it got to BigInt and to the encoder.",
  },
  {
    payments: /^paymentRequirements\.extra\.(name|version) = /,
    reference: [SIGNATURE],
    ours: "invalid_exact_evm_missing_eip712_domain",
    why: "A name that is no string is no name.",
  },
  {
    payments: /^zero amount$/,
    reference: ["valid"],
    ours: "invalid_payload",
    why: "Relaying nothing costs the relayer gas for nothing.",
  },
  {
    payments: /^(another scheme|paymentRequirements\.scheme = .*)$/,
    reference: ["invalid_exact_evm_scheme", "throws"],
    ours: "unsupported_scheme",
    why: "A scheme nobody here speaks has a code of its own in the protocol; the reference's class is never asked about one.",
  },
  {
    payments: /^permit2 payload$/,
    reference: ["throws"],
    ours: "invalid_payload",
    why: "A Permit2 payload of this shape is none.",
  },
  {
    payments: /^ERC-6492 ending only$/,
    reference: ["throws"],
    ours: SIGNATURE,
    why: "An envelope that does not decode is not a signature.",
  },
];

t.test("same verdicts, same codes", async (t) => {
  // The reference has no floor.
  const { app, chain } = await testApp(t, { env: { MIN_PAYMENT: "0" } });
  const payments = await bentPayments(chain);
  const reference = referenceFacilitator(chain);
  await expectSameVerdicts(t, { app, reference, payments, differences: DIFFERENCES });
});
