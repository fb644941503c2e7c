// The differences of verdict or code between Purser and the reference implementation, with their reasons.
// Everything else is the same.
import type { FastifyInstance } from "fastify";
import type { Test } from "tap";
import { REASONS } from "../../server/schemes/scheme.ts";
import type { Bent } from "./bent-payments.ts";
import { post } from "./payments.ts";
import type { referenceFacilitator } from "./reference.ts";

export interface Difference {
  /** Matches names of payments in bent-payments.ts. */
  payments: RegExp;
  /** The reference's reasons; "valid", or "throws" where its HTTP server could only return an error. */
  reference: readonly string[];
  purser: string;
  why: string;
}

/** The differences that all schemes have in common, with the scheme's own codes. */
export const commonDifferences = (codes: {
  signature: string;
  simulation: string;
  amount: string;
  recipient: string;
  asset: string;
  /** The reference's reason for a signature with a high s, and for a wallet with an expensive signature check. */
  highS: string;
  dearWallet: string;
}): Difference[] => [
  {
    payments: /^another network$/,
    reference: [codes.signature],
    purser: "invalid_network",
    why: "Purser checks the network first; the reference accepts any and fails at the signature.",
  },
  ...(["amount", "recipient", "asset"] as const).map((field) => ({
    payments: new RegExp(`^accepted another ${field === "recipient" ? "payTo" : field}$`),
    reference: ["valid"],
    purser: codes[field],
    why: "The terms that the payer accepted must equal those that the server requires.",
  })),
  {
    payments: /^compact signature$/,
    reference: [codes.signature],
    purser: "valid",
    why: "EIP-2098 signatures are valid; Purser expands them.",
  },
  {
    payments: /^v as 0 or 1$/,
    reference: [codes.simulation],
    purser: "valid",
    why: "Contracts need 27 or 28; Purser converts it.",
  },
  {
    payments: /^high s$/,
    reference: [codes.highS],
    purser: codes.signature,
    why: "Purser refuses a malleable signature before it calls the chain.",
  },
  {
    payments: /^wallet Expensive$/,
    reference: [codes.dearWallet],
    purser: codes.signature,
    why: "A wallet's signature check must fit the gas cap of one settlement.",
  },
];

/** All verdicts must be equal except for the listed differences, and every listed difference must occur. */
export async function expectSameVerdicts(
  t: Test,
  args: {
    app: FastifyInstance;
    reference: ReturnType<typeof referenceFacilitator>;
    payments: readonly Bent[];
    differences: readonly Difference[];
  },
): Promise<void> {
  t.ok(args.payments.length > 400, `${args.payments.length} payments`);
  const met = new Set<Difference>();
  for (const { name, body } of args.payments) {
    const verdict = await args.reference.verify(body);
    const answer = await post(args.app, "verify", body);
    const referenceResult = verdict.isValid ? "valid" : verdict.reason;
    const purserResult = answer["isValid"] === true ? "valid" : String(answer["invalidReason"]);
    if (purserResult !== "valid")
      t.ok(purserResult in REASONS, `${name}: ${purserResult} is a reason of the protocol`);
    if (referenceResult === purserResult) continue;
    const known = args.differences.find(
      (difference) =>
        difference.payments.test(name) &&
        difference.reference.includes(referenceResult) &&
        difference.purser === purserResult,
    );
    if (known) met.add(known);
    else
      t.fail(`${name}: the reference returns ${referenceResult}, Purser returns ${purserResult}`);
  }
  for (const difference of args.differences)
    t.ok(met.has(difference), `still different: ${String(difference.payments)}`);
}
