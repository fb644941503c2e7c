// Where our verdict or code differs from the reference implementation's, and why. Everything else is the same.
import type { FastifyInstance } from "fastify";
import type { Test } from "tap";
import { REASONS } from "../../server/schemes/scheme.ts";
import type { Bent } from "./bent-payments.ts";
import { post } from "./payments.ts";
import type { referenceFacilitator } from "./reference.ts";

export interface Difference {
  /** Names of payments in bent-payments.ts. */
  payments: RegExp;
  /** The reference's reason; "valid", or "throws" where its HTTP server could only answer with an error. */
  reference: readonly string[];
  ours: string;
  why: string;
}

/** What differs alike for every scheme, in the scheme's own codes. */
export const commonDifferences = (codes: {
  signature: string;
  simulation: string;
  amount: string;
  recipient: string;
  asset: string;
  /** What the reference says to a signature with a high s, and to a wallet whose check is dear. */
  highS: string;
  dearWallet: string;
}): Difference[] => [
  {
    payments: /^another network$/,
    reference: [codes.signature],
    ours: "invalid_network",
    why: "We know which networks we serve; the reference's class takes any and fails at the signature.",
  },
  ...(["amount", "recipient", "asset"] as const).map((field) => ({
    payments: new RegExp(`^accepted another ${field === "recipient" ? "payTo" : field}$`),
    reference: ["valid"],
    ours: codes[field],
    why: "What the payer accepted must not contradict what the server requires.",
  })),
  {
    payments: /^compact signature$/,
    reference: [codes.signature],
    ours: "valid",
    why: "EIP-2098 signatures are good signatures; we expand them.",
  },
  {
    payments: /^v as 0 or 1$/,
    reference: [codes.simulation],
    ours: "valid",
    why: "Contracts want 27 or 28; we write it so.",
  },
  {
    payments: /^high s$/,
    reference: [codes.highS],
    ours: codes.signature,
    why: "We refuse a malleable signature before asking the chain.",
  },
  {
    payments: /^wallet Expensive$/,
    reference: [codes.dearWallet],
    ours: codes.signature,
    why: "A wallet's signature check must fit the gas cap of one settlement.",
  },
];

/** Every payment the same, but for what is said here; and all that is said here is still so. */
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
    const theirs = await args.reference.verify(body);
    const answer = await post(args.app, "verify", body);
    const their = theirs.isValid ? "valid" : theirs.reason;
    const our = answer["isValid"] === true ? "valid" : String(answer["invalidReason"]);
    if (our !== "valid") t.ok(our in REASONS, `${name}: ${our} is the protocol's`);
    if (their === our) continue;
    const known = args.differences.find(
      (difference) =>
        difference.payments.test(name) &&
        difference.reference.includes(their) &&
        difference.ours === our,
    );
    if (known) met.add(known);
    else t.fail(`${name}: the reference says ${their}, we say ${our}`);
  }
  for (const difference of args.differences)
    t.ok(met.has(difference), `still true: ${String(difference.payments)}`);
}
