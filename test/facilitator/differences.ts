// Where our verdict or code differs from the reference implementation's, and why. Everything else is the same.
export interface Difference {
  /** Names of payments in bent-payments.ts. */
  payments: RegExp;
  /** The reference's reason; "valid", or "throws" where its HTTP server could only answer with an error. */
  reference: readonly string[];
  ours: string;
  why: string;
}

const SIGNATURE = "invalid_exact_evm_signature";
const SIMULATION = "invalid_exact_evm_transaction_simulation_failed";
const VALUE = "invalid_exact_evm_payload_authorization_value_mismatch";

export const DIFFERENCES: readonly Difference[] = [
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
    payments: /^another network$/,
    reference: [SIGNATURE],
    ours: "invalid_network",
    why: "We know which networks we serve; the reference's class takes any and fails at the signature.",
  },
  {
    payments: /^accepted another amount$/,
    reference: ["valid"],
    ours: VALUE,
    why: "What the payer accepted must not contradict what the server requires.",
  },
  {
    payments: /^accepted another payTo$/,
    reference: ["valid"],
    ours: "invalid_exact_evm_recipient_mismatch",
    why: "What the payer accepted must not contradict what the server requires.",
  },
  {
    payments: /^accepted another asset$/,
    reference: ["valid"],
    ours: "invalid_payload",
    why: "What the payer accepted must not contradict what the server requires.",
  },
  {
    payments: /^permit2 payload$/,
    reference: ["throws"],
    ours: "invalid_payload",
    why: "A Permit2 payload of this shape is none.",
  },
  {
    payments: /^compact signature$/,
    reference: [SIGNATURE],
    ours: "valid",
    why: "EIP-2098 signatures are good signatures; we expand them for the token.",
  },
  {
    payments: /^v as 0 or 1$/,
    reference: [SIMULATION],
    ours: "valid",
    why: "The token wants 27 or 28; we write it so.",
  },
  {
    payments: /^high s$/,
    reference: [SIMULATION],
    ours: SIGNATURE,
    why: "We refuse a malleable signature before asking the chain.",
  },
  {
    payments: /^ERC-6492 ending only$/,
    reference: ["throws"],
    ours: SIGNATURE,
    why: "An envelope that does not decode is not a signature.",
  },
  {
    payments: /^wallet Expensive$/,
    reference: ["valid"],
    ours: SIGNATURE,
    why: "A wallet's signature check must fit the gas cap of one settlement.",
  },
];
