/**
 * The refusals by an agent's rules, each declared once: the error code with its advice for the agent, the sentence for
 * the owner who reads it afterwards, and what the web app offers the owner. server/errors.ts has all other codes.
 */
interface Declaration {
  status: number;
  title: string;
  /** The meaning and what to do, for the agent and the error catalogue. */
  help: string;
  /** Whether the same request may succeed later without a change. */
  retryable?: true;
  /** For the owner; without it, `help`. */
  owner?: string | ((refused: Refused) => string);
  /** What the owner can change. */
  fix?: "payee" | "new payee" | "limit" | "channels" | "rules" | "denied payees" | "budget";
}

/** The numbers of a refusal, as the owner reads them. */
export interface Refused {
  /** What the payment counts against limits over time. */
  amount: string;
  /** What the rule compared, such as the price or the deposit. */
  requested: string;
  limit: string;
  spent: string;
  remaining: string;
  /** Of `payee_denied`: the owner's entry. */
  denied?: string | undefined;
  /** Of `channel_not_allowed`: the settings that it needs. */
  needs: { channelHeld?: string; payeeChannelHeld?: string };
}

const WAIT =
  "Wait until `availableAt`, pay less, or ask the owner to raise the limit. Do not split the payment.";
const LESS = "Pay less, or ask the owner to raise the limit.";
const above =
  (limit: string) =>
  (refused: Refused): string =>
    `The payment of ${refused.amount} exceeded the ${refused.remaining} left of ${limit} of ${refused.limit}.`;
const depositAbove =
  (where: string) =>
  ({ requested, spent, limit }: Refused): string =>
    `The payment needed a deposit of ${requested}, with ${spent} of ${limit} held ${where}.`;

export const DENIALS = {
  insufficient_funds: {
    status: 402,
    title: "Not enough funds",
    help: "Fund the wallet at `fundingAddress`, then retry.",
    retryable: true,
  },
  daily_limit_exceeded: {
    status: 403,
    title: "Daily limit exceeded",
    help: WAIT,
    retryable: true,
    owner: above("the daily limit"),
    fix: "limit",
  },
  weekly_limit_exceeded: {
    status: 403,
    title: "Weekly limit exceeded",
    help: WAIT,
    retryable: true,
    owner: above("the weekly limit"),
    fix: "limit",
  },
  monthly_limit_exceeded: {
    status: 403,
    title: "Monthly limit exceeded",
    help: WAIT,
    retryable: true,
    owner: above("the monthly limit"),
    fix: "limit",
  },
  budget_exceeded: {
    status: 403,
    title: "Budget exceeded",
    help: WAIT,
    retryable: true,
    owner: above("the shared budget"),
    fix: "budget",
  },
  task_not_found: {
    status: 403,
    title: "Task not known",
    help: "Open the task with `POST /api/agents/tasks`, or correct its id.",
    owner: "The agent named a task that it had not opened.",
  },
  task_ended: {
    status: 403,
    title: "Task has ended",
    help: "Open another task if the work goes on.",
    owner: "The agent's task had ended or was closed.",
  },
  task_ceiling_exceeded: {
    status: 403,
    title: "Ceiling of the task exceeded",
    help: "You set this ceiling yourself, so the owner cannot lift it: pay less, or open another task.",
    owner: above("the ceiling that the agent set for its task,"),
  },
  payment_rate_exceeded: {
    status: 403,
    title: "Too many payments",
    help: "Wait until `availableAt`.",
    retryable: true,
    owner: ({ limit }) => `The agent had already made its ${limit} payments in that hour.`,
    fix: "rules",
  },
  payee_limit_exceeded: {
    status: 403,
    title: "Daily limit of this payee exceeded",
    help: WAIT,
    retryable: true,
    owner: above("this payee's daily limit"),
    fix: "limit",
  },
  per_payment_limit_exceeded: {
    status: 403,
    title: "Per-payment limit exceeded",
    help: LESS,
    owner: ({ requested, limit }) =>
      `The payment of ${requested} exceeded the limit of ${limit} per payment.`,
    fix: "limit",
  },
  payee_per_payment_limit_exceeded: {
    status: 403,
    title: "Per-payment limit of this payee exceeded",
    help: LESS,
    owner: ({ requested, limit }) =>
      `The payment of ${requested} exceeded the limit of ${limit} per payment to this payee.`,
    fix: "limit",
  },
  payee_expired: {
    status: 403,
    title: "Payee has expired",
    help: "Ask the owner to extend this payee.",
    owner: "The permission to pay this payee had expired.",
    fix: "rules",
  },
  channel_not_allowed: {
    status: 403,
    title: "Payment channel not allowed",
    help: "Ask the owner to sign `channelHeld` above 0, also for this payee if it has its own, and a `channelDelay` as long as the channel's.",
    owner: ({ needs }) =>
      needs.channelHeld !== undefined
        ? "You have not allowed this agent to pay through payment channels."
        : needs.payeeChannelHeld === undefined
          ? "The payment channel can keep unspent money for longer than you allow."
          : "You allow no payment channel to this payee.",
    fix: "channels",
  },
  channel_limit_exceeded: {
    status: 403,
    title: "Limit of payment channels exceeded",
    help: "Ask the owner to raise `channelHeld`.",
    owner: depositAbove("in payment channels"),
    fix: "channels",
  },
  payee_channel_limit_exceeded: {
    status: 403,
    title: "Limit of payment channels to this payee exceeded",
    help: "Ask the owner to raise `channelHeld` of this payee.",
    owner: depositAbove("in payment channels to this payee"),
    fix: "channels",
  },
  amount_below_floor: {
    status: 403,
    title: "Amount below the floor",
    help: "The payment is smaller than its gas costs. Pay a larger amount in one payment.",
  },
  recipient_not_allowed: {
    status: 403,
    title: "Recipient not on the allowlist",
    help: "Ask the owner to allow this address.",
    owner: "The payee is not on the allowlist.",
    fix: "payee",
  },
  site_payee_changed: {
    status: 403,
    title: "The site names another payee",
    help: "Do not pay it in another way. Ask the owner to check the site and to sign the new address.",
    owner: "The site requested payment to a different address from the one you allowed.",
    fix: "new payee",
  },
  payee_bound_to_site: {
    status: 403,
    title: "Payee allowed at its site only",
    help: "Fetch its site with x402-fetch, or ask the owner to allow this payee elsewhere.",
    owner: "You allowed this payee only at its own site.",
    fix: "rules",
  },
  agent_paused: {
    status: 403,
    title: "Agent is paused",
    help: "Stop paying and report it: only the owner can resume the agent.",
    retryable: true,
    owner: "The agent was paused.",
    fix: "rules",
  },
  paused_by_rule: {
    status: 403,
    title: "A rule paused the agent",
    help: "Stop paying and report it: the owner must check what happened and resume the agent with the wallet.",
    owner: "A rule of yours paused the agent.",
    fix: "rules",
  },
  outside_pay_times: {
    status: 403,
    title: "Outside the hours or days of payments",
    help: "Wait until `availableAt`.",
    retryable: true,
    owner: "It was outside the hours or days on which the agent pays.",
    fix: "rules",
  },
  agent_expired: {
    status: 403,
    title: "Agent has expired",
    help: "Ask the owner to extend the agent.",
    owner: "The agent had expired.",
    fix: "rules",
  },
  price_exceeds_max: {
    status: 403,
    title: "Price above maxAmount",
    help: "Raise `maxAmount` if the price is acceptable.",
    owner: "The price was above the maximum that the agent set for this call.",
  },
  listing_mismatch: {
    status: 403,
    title: "Listing changed its terms",
    help: "The current price or payee differs from the listing. Do not pay; choose another service.",
    owner: "The seller's terms differed from its listing. Nothing was paid.",
  },
  challenge_already_used: {
    status: 403,
    title: "Payment challenge used before",
    help: "A payment of this wallet has already answered this challenge. Nothing was signed. Request a new challenge; if the seller repeats it, choose another seller.",
    owner:
      "The seller reused a payment challenge that an earlier payment had answered. Nothing was paid.",
  },
  channel_distrusted: {
    status: 403,
    title: "Seller broke a payment channel's rules",
    help: "This seller reported charges that do not fit what was signed, so its channel is being closed and no other is opened. Pay it in another way, or choose another seller.",
    owner:
      "The seller broke the rules of an earlier payment channel, which is being closed. Nothing was paid.",
  },
  url_blocked: {
    status: 403,
    title: "URL not allowed",
    help: "Use a public http(s) URL, or ask the operator of this service to list its origin in `FETCH_PRIVATE_ORIGINS`.",
  },
  payee_denied: {
    status: 403,
    title: "The owner never pays this",
    help: "Do not pay it in another way. Only the owner can allow it again, with the wallet.",
    owner: ({ denied = "this payee" }) => `You never pay ${denied}.`,
    fix: "denied payees",
  },
  payee_screened: {
    status: 403,
    title: "Payee not paid by this service",
    help: "This service does not pay this address. Do not pay it in another way. The owner cannot lift this.",
    owner: "This service does not pay this address.",
  },
  account_screened: {
    status: 403,
    title: "Account may only read and withdraw",
    help: "This service lets this account read and withdraw, and nothing else. Ask the operator.",
    owner: "This service lets this account read and withdraw, and nothing else.",
  },
  origin_not_allowed: {
    status: 403,
    title: "Origin not allowed",
    help: "The web page's origin may not call this route, or the owner's rules do not allow the site.",
    owner: "The agent may not fetch from this site.",
    fix: "rules",
  },
  gas_budget_exhausted: {
    status: 429,
    title: "Gas budget used up",
    help: "The gas budget for this payment is used up for now. It refills evenly: wait until `availableAt`. Nothing was signed.",
    retryable: true,
  },
} as const satisfies Readonly<Record<string, Declaration>>;

export type Denial = keyof typeof DENIALS;

/** Undefined for a code of a newer release. */
export const denialOf = (code: string | undefined): Declaration | undefined =>
  (DENIALS as Readonly<Record<string, Declaration>>)[code ?? ""];
